"""Agents, relay, keeper and broker are killed at random moments while views move: all is exact."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.broker import Broker
from anabranch.edge.hub import Hub
from tests.edge.fleet import CloudViews, kept, ring, twin
from tests.sinks.stories import needed

HERE = Path(__file__).parent
KILLS = int(os.environ.get("ANABRANCH_KILLS", "12"))
DEVICES, PROCESSES = 6, 3

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Parts:
    """All processes of a small system, each of which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        from scripts.services.nats import server

        self.folder = folder
        self.hub = Hub.create(folder / "hub", ["localhost", "127.0.0.1"])
        self.names = [f"d{k}" for k in range(DEVICES)]
        self.hub.enrol(*self.names)
        self.broker = Broker(self.hub, "127.0.0.1:0", program=needed(server))
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, part: str) -> None:
        if part == "broker":
            self.broker.start()
            return
        hub, address = str(self.hub.folder), self.broker.address
        if part == "cloud":
            words = ["kill_cloud.py", hub, address, str(DEVICES)]
        else:
            mine = self.names[int(part[-1]) :: PROCESSES]
            words = ["kill_devices.py", hub, address, str(self.folder / "boxes"), *mine]
        with (self.folder / f"{part}.log").open("ab") as log:
            script = [sys.executable, str(HERE / words[0]), *words[1:]]
            where = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
            self.running[part] = subprocess.Popen(script, stdout=log, stderr=log, env=where)

    def kill(self, part: str) -> None:
        if part == "broker":
            self.broker.kill()
        else:
            self.running[part].kill()
            self.running[part].wait()

    def log(self, part: str) -> str:
        return (self.folder / f"{part}.log").read_text()[-3000:]


async def story(parts: Parts, victims: list[str], kills: int, rng: random.Random) -> None:
    devices = [f"devices{k}" for k in range(PROCESSES)]
    for part in ("broker", "cloud", *devices):
        parts.start(part)
    views = CloudViews(parts.broker)
    evaluating = asyncio.create_task(views.run())
    while sum(views.found.values()) < 20:
        await asyncio.sleep(0.2)
        assert parts.running["cloud"].poll() is None, parts.log("cloud")
    for _ in range(kills):
        part = rng.choice(victims)
        # A device waits a second or more before it connects again.
        await asyncio.sleep(rng.uniform(0.2, 2.5))
        part = rng.choice(devices) if part == "devices" else part
        await asyncio.to_thread(parts.kill, part)
        await asyncio.sleep(rng.choice([0.0, 0.5]))
        await asyncio.to_thread(parts.start, part)
    (parts.hub.folder / "stop").touch()
    pairs = ring(DEVICES)
    for _ in range(20):  # whoever was connected too late for a result gets it next time
        for part in devices:
            code = await asyncio.to_thread(parts.running[part].wait)
            assert code == 0, parts.log(part)
        boxes = [kept(parts.folder / "boxes" / name) for name in parts.names]
        truth = twin({k: box[0] for k, box in enumerate(boxes)}, pairs)
        dues = [
            Counter({i: c for i, c in truth.items() if k in pairs[i[0]]}) for k in range(DEVICES)
        ]
        if views.found == truth and all(b[1] == d for b, d in zip(boxes, dues, strict=True)):
            break
        for part in devices:
            parts.start(part)
    await asyncio.sleep(1)
    assert parts.running["cloud"].poll() is None, parts.log("cloud")
    evaluating.cancel()
    assert sum(truth.values()) > 100
    assert views.found == truth
    for (_, results), due in zip(boxes, dues, strict=True):
        assert results == due


@pytest.mark.parametrize("seed", range(int(os.environ.get("ANABRANCH_KILL_RUNS", "1"))))
@pytest.mark.parametrize("victim", ["devices", "cloud", "broker", "all"])
def test_killed_at_random_moments(tmp_path: Path, victim: str, seed: int) -> None:
    parts = Parts(tmp_path)
    victims = ["devices", "cloud", "broker"] if victim == "all" else [victim]
    try:
        asyncio.run(story(parts, victims, KILLS, random.Random(f"{victim} {seed}")))
    finally:
        for part in (*parts.running, "broker"):
            parts.kill(part)
