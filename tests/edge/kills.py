"""Agents, relay, keeper, broker and Spark as processes that are killed at random moments."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.edge.broker import Broker
from anabranch.edge.ending import end
from anabranch.edge.hub import Hub
from anabranch.edge.placements import PlacementLog
from anabranch.testing.lab.results import CloudViews, Identity
from tests.edge.fleet import kept, ring, twin
from tests.edge.spark_views import SparkViews

__all__ = ["SPARK", "VICTIMS", "Killed", "killed"]

HERE = Path(__file__).parent
DEVICES, PROCESSES = 6, 3
_PATIENCE = 600  # seconds until devices that do not end count as hung
VICTIMS = {
    "devices": ["devices"],
    "cloud": ["cloud"],
    "broker": ["broker"],
    "all": ["devices", "cloud", "broker"],
    "driver": ["driver"],
    "executors": ["executors"],
}
"""What is killed, by the name of a run."""
SPARK = {"driver": "local[1]", "executors": "local-cluster[2,1,1024]"}
"""Runs in which `ab.follow` computes what is in the cloud, and their masters; in others it is a
coroutine, which needs less of the machine."""


@dataclass
class Killed:
    """What a run came to; results are those of the cloud and of all devices."""

    kills: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    rows: int = 0
    due: Counter[Identity] = field(default_factory=Counter)
    found: Counter[Identity] = field(default_factory=Counter)  # in the cloud
    boxes: list[tuple[Counter[Identity], Counter[Identity]]] = field(default_factory=list)
    """What each device has received, and what it should have."""

    @property
    def is_exact(self) -> bool:
        """Whether everybody has what is due, each once."""
        return self.found == self.due and all(has == due for has, due in self.boxes)

    def report(self) -> dict[str, Any]:
        """In numbers."""
        both = [(self.found, self.due), *self.boxes]
        return {
            "kills": dict(self.kills),
            "moves": self.moves,
            "rows": self.rows,
            "expected": sum(due.total() for _, due in both),
            "received": sum(has.total() for has, _ in both),
            "lost": sum((due - has).total() for has, due in both),
            "double or not due": sum((has - due).total() for has, due in both),
        }


class Parts:
    """All processes of a small system, each of which can be killed and started again."""

    def __init__(self, folder: Path, program: str, master: str | None = None) -> None:
        self.folder = folder
        self.master = master
        self.spark: SparkViews | None = None
        self.hub = Hub.create(folder / "hub", ["localhost", "127.0.0.1"])
        self.names = [f"d{k}" for k in range(DEVICES)]
        self.hub.enrol(*self.names)
        self.broker = Broker(self.hub, "127.0.0.1:0", program=program)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, part: str) -> None:
        """Start a part that does not run."""
        if part == "broker":
            self.broker.start()
            return
        if part == "driver":
            self.query().start()
            return
        hub, address = str(self.hub.folder), self.broker.address
        if part == "cloud":
            words = ["kill_cloud.py", hub, address, str(DEVICES), *(["asked"] * bool(self.master))]
        else:
            mine = self.names[int(part[-1]) :: PROCESSES]
            words = ["kill_devices.py", hub, address, str(self.folder / "boxes"), *mine]
        with (self.folder / f"{part}.log").open("ab") as log:
            script = [sys.executable, str(HERE / words[0]), *words[1:]]
            where = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
            self.running[part] = subprocess.Popen(script, stdout=log, stderr=log, env=where)

    def kill(self, part: str) -> None:
        """Kill a part, as a power cut would its process."""
        if part == "broker":
            self.broker.kill()
        elif part == "driver":
            self.query().kill()
        else:
            self.running[part].kill()
            self.running[part].wait()

    def query(self) -> SparkViews:
        """The query on Spark; the broker must have been started once."""
        if self.spark is None:
            assert self.master is not None
            place, address = self.folder / "spark", self.broker.address
            self.spark = SparkViews(place, self.hub, address, DEVICES, self.master)
        return self.spark

    def check(self, evaluating: asyncio.Task[None] | None) -> None:
        """Fail if a part has ended by itself, or the coroutine that computes views."""
        for part, process in self.running.items():
            assert process.poll() is None, f"{part} has ended\n{self.log(part)}"
        assert self.spark is None or self.spark.running, self.spark.tail()
        if evaluating is not None and evaluating.done():
            evaluating.result()

    def log(self, part: str) -> str:
        """The end of what it wrote."""
        return (self.folder / f"{part}.log").read_text()[-3000:]

    def compare(self, found: Counter[Identity], into: Killed) -> bool:
        """What devices and cloud have beside the twin, once all devices have ended."""
        pairs = ring(DEVICES)
        boxes = [kept(self.folder / "boxes" / name) for name in self.names]
        into.rows = sum(len(rows) for rows, _ in boxes)
        into.due = twin({k: rows for k, (rows, _) in enumerate(boxes)}, pairs)
        into.found = Counter(found)
        into.boxes = [
            (has, Counter({one: n for one, n in into.due.items() if k in pairs[one[0]]}))
            for k, (_, has) in enumerate(boxes)
        ]
        log = PlacementLog(self.hub.control)
        into.moves = sum(len(entry.moves) for entry in log.entries())
        return into.is_exact


def killed(folder: Path, program: str, victim: str, kills: int, rng: random.Random) -> Killed:
    """Kill parts of a system so many times while views move, then let it come to rest."""
    parts = Parts(folder, program, SPARK.get(victim))
    try:
        return asyncio.run(_story(parts, VICTIMS[victim], kills, rng))
    finally:
        for part in (*parts.running, *(["driver"] * (parts.spark is not None)), "broker"):
            parts.kill(part)


async def _story(parts: Parts, victims: list[str], kills: int, rng: random.Random) -> Killed:
    devices, made = [f"devices{k}" for k in range(PROCESSES)], Killed()
    for part in ("broker", "cloud", *devices):
        parts.start(part)
    views, evaluating = _views(parts)
    while views.found.total() < 20:
        await asyncio.sleep(0.2)
        parts.check(evaluating)
    for _ in range(kills):
        parts.check(evaluating)
        part = rng.choice(victims)
        made.kills[part] += 1
        part = rng.choice(devices) if part == "devices" else part
        await (_kill(parts, part, rng) if parts.spark is None else _kill_spark(parts, part, rng))
    if parts.spark is not None:
        await asyncio.to_thread(parts.spark.commits, 1)
    (parts.hub.folder / "stop").touch()
    for _ in range(20):  # whoever was connected too late for a result gets it next time
        for part in devices:
            code = await asyncio.to_thread(parts.running[part].wait, _PATIENCE)
            assert code == 0, parts.log(part)
        if await asyncio.to_thread(parts.compare, views.found, made):
            break
        for part in devices:
            parts.start(part)
    await asyncio.sleep(1)
    if parts.spark is not None:
        await asyncio.to_thread(parts.spark.rests)
    parts.compare(views.found, made)
    parts.running = {part: one for part, one in parts.running.items() if part not in devices}
    parts.check(evaluating)
    if evaluating is not None:
        await end([evaluating])
    return made


def _views(parts: Parts) -> tuple[CloudViews | SparkViews, asyncio.Task[None] | None]:
    """What computes the views of the cloud, started; a coroutine is a task as well."""
    if parts.master is not None:
        parts.start("driver")
        return parts.query(), None
    views = CloudViews(parts.broker)
    return views, asyncio.create_task(views.run())


async def _kill(parts: Parts, part: str, rng: random.Random) -> None:
    # A device waits a second or more before it connects again.
    await asyncio.sleep(rng.uniform(0.2, 2.5))
    await asyncio.to_thread(parts.kill, part)
    await asyncio.sleep(rng.choice([0.0, 0.5]))
    await asyncio.to_thread(parts.start, part)


async def _kill_spark(parts: Parts, part: str, rng: random.Random) -> None:
    """Mostly once micro-batches have been committed again, and at times while Spark starts."""
    query = parts.query()
    if part == "executors" or rng.random() < 0.8:
        await asyncio.to_thread(query.commits, 1)
    await asyncio.sleep(rng.uniform(0.0, 2.5))
    parts.check(None)
    if part == "executors":
        await asyncio.to_thread(query.kill_executor, rng)
        return
    await asyncio.to_thread(parts.kill, part)
    await asyncio.to_thread(parts.start, part)
