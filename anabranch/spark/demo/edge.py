"""The demo of devices: views move to where they cost least, and every result is found once."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from anabranch.edge.broker import running
from anabranch.edge.fetching import server
from anabranch.edge.hub import Hub
from anabranch.edge.ownership import CLOUD
from anabranch.edge.serving import Cloud
from anabranch.edge.story import story
from anabranch.edge.wanderers import name_of
from anabranch.placement.feeds import feed
from anabranch.placement.views import view
from anabranch.predicates import euclidean
from anabranch.spark.demo.stage import DemoFailed, session, waiting
from anabranch.spark.follow import follow
from anabranch.spark.watch import Interrupt

__all__ = ["run_edge_demo"]

_EVERY = 5.0  # seconds between lines
_LAST = 20.0  # seconds of which the traffic is compared
_CORES = 2  # for Spark
_PATIENCE = 120.0  # seconds that the query may need for the rest
_IDENTITY = ["view", "left_key", "left_n", "right_key", "right_n"]


def run_edge_demo(
    devices: int, seconds: float, decide: Callable[[Cloud], None], console: Console
) -> int:
    """Run it; the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-edge-"))
    try:
        with waiting(console, f"enrolling {devices} devices"):
            hub = Hub.create(folder / "hub", ["localhost", "127.0.0.1"])
            hub.enrol(*map(name_of, range(devices)))
        program = server(lambda line: console.print(line, markup=False, soft_wrap=True))
        with running(hub, program=program) as broker, Interrupt() as interrupt:
            cloud = Cloud(hub, broker.address, decide=decide, ack_after=5.0)
            log = folder / "spark.log"
            with _serving(cloud), session(_CORES, folder, log, console, interrupt) as spark:
                return _Demo(cloud, spark, devices, console, interrupt).run(seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    """One run: the query, what is said while it runs, and the check of its results."""

    def __init__(
        self,
        cloud: Cloud,
        spark: SparkSession,
        devices: int,
        console: Console,
        interrupt: Interrupt,
    ) -> None:
        self._cloud, self._spark, self._devices = cloud, spark, devices
        self._console, self._interrupt = console, interrupt
        me = feed("gps", by="user", columns="xy array<double>")
        them = feed("gps", by="friend", columns="xy array<double>")
        near = view(
            "nearby",
            {me: None, them: None},
            where=euclidean("xy") <= 20,
            window="5 seconds",
            symmetric=True,
        )
        self._views = near.over(_friends(devices))
        self._told = 0
        self._traffic: list[tuple[float, float, int]] = []  # when, bytes/s, views on devices
        self._changed = 0.0

    def run(self, seconds: float) -> int:
        """Start devices and query; change the rates half-way; compare."""
        cloud, hub = self._cloud, self._cloud.hub.folder
        found = follow(
            self._spark,
            self._views,
            broker=cloud.broker,
            control=str(cloud.hub.control),
            credentials=str(cloud.hub.cloud),
        )
        command = [sys.executable, "-m", "anabranch.edge.wanderers", str(hub), cloud.broker]
        checkpoint = str(hub / "checkpoint")
        query = (
            found.writeStream.format("memory")
            .queryName("nearby")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        with subprocess.Popen([*command, str(self._devices)]) as wanderers:
            try:
                self._begin(query)
                self._watch(seconds / 2)
                (hub / "changed").touch()
                self._changed = time.time()
                self._say("busy devices become quiet, quiet ones busy")
                self._watch(seconds / 2)
                self._sum_up()
                (hub / "stop").touch()
                self._say("devices send what they still have ...")
                wanderers.wait(_PATIENCE)
            finally:
                wanderers.kill()
        try:
            return self._compare()
        finally:
            query.stop()

    def _begin(self, query: Any) -> None:
        """Wait until the query has asked for its views and the keeper has begun them."""
        deadline = time.monotonic() + _PATIENCE
        with waiting(self._console, "starting the query"):
            while not (self._cloud.ready.is_set() and self._cloud.relay.state.book.views):
                self._interrupt.asked.wait(0.2)
                self._interrupt.check()
                if not query.isActive or time.monotonic() > deadline:
                    why = query.exception() or f"no views within {_PATIENCE:.0f} seconds"
                    raise DemoFailed(f"the query did not start: {str(why)[:500]}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _watch(self, seconds: float) -> None:
        """Traffic every few seconds, and every entry of the log."""
        until, before, at = time.monotonic() + seconds, self._sent(), time.monotonic()
        while time.monotonic() < until:
            self._interrupt.asked.wait(_EVERY)
            self._interrupt.check()
            now, there = time.monotonic(), self._sent()
            entries = self._cloud.keeper.log.entries()
            for line in story(entries)[self._told :]:
                self._say(f"  {line}")
            self._told = len(story(entries))
            book = self._cloud.relay.state.book
            edge = sum(book.place(k) != CLOUD for k in range(len(book.views)))
            up, down = ((b - a) / (now - at) for a, b in zip(before, there, strict=True))
            self._traffic.append((time.time(), up + down, edge))
            self._say(
                f"{up + down:6.0f} bytes/s, {up:.0f} up and {down:.0f} down; "
                f"{edge} of {len(book.views)} views on devices{against(self._traffic)}"
            )
            before, at = there, now

    def _sum_up(self) -> None:
        """How soon views moved after the change, and traffic against all views in the cloud.

        All begin in the cloud, so what that costs was measured; as many devices are busy as then.
        """
        entries = self._cloud.keeper.log.entries()
        moved = [
            (datetime.fromisoformat(entry.written).timestamp() - self._changed, len(entry.moves))
            for entry in entries
            if entry.moves
        ]
        after = [(delay, count) for delay, count in moved if delay > 0]
        if after:
            self._say(
                f"{sum(count for _, count in after)} views moved by themselves, the first "
                f"{after[0][0]:.0f} s after the change, the last {after[-1][0]:.0f} s"
            )
        whole = _whole(self._traffic)
        last = [rate for when, rate, _ in self._traffic if when > time.time() - _LAST]
        if whole and last:
            rate = sum(last) / len(last)
            less = f"{1 - rate / whole:.0%}".replace("%", " %")
            self._say(
                f"all views in the cloud took {whole:.0f} bytes/s; the last {_LAST:.0f} s took "
                f"{rate:.0f}, {less} less"
            )

    def _sent(self) -> tuple[int, int]:
        sums = Counter[str]()
        for (direction, _), size in list(self._cloud.relay.bytes.items()):
            sums[direction] += size
        return sums["up"], sums["down"]

    def _compare(self) -> int:
        """The results of the stream and the batch answer over all rows that devices kept."""
        rows = _kept(self._cloud.hub.folder / "outboxes")
        table = self._spark.createDataFrame(rows, "key string, n long, t long, xy array<double>")
        gps = table.selectExpr("key", "n", "timestamp_micros(t) AS time", "xy")
        due = _identities(follow(self._spark, self._views, feeds={"gps": gps}))
        deadline = time.monotonic() + _PATIENCE
        while True:
            found = _identities(self._spark.table("nearby"))
            if found == due or time.monotonic() > deadline:
                break
            time.sleep(1)
        missing, extra = (due - found).total(), (found - due).total()
        self._say(
            f"{len(rows):,} rows, {due.total():,} results due, {found.total():,} found: "
            + ("the same, each once" if found == due else f"{missing} missing, {extra} extra")
        )
        return 0 if found == due else 1


Traffic = list[tuple[float, float, int]]  # when, bytes a second, views on devices


def _whole(traffic: Traffic) -> float | None:
    """Bytes a second with all views in the cloud, as it was measured last."""
    return next((rate for _, rate, edge in reversed(traffic) if not edge), None)


def against(traffic: Traffic) -> str:
    """The newest traffic against all views in the cloud, once that was measured.

    Examples
    --------
    >>> against([(0.0, 8000.0, 0)]), against([(0.0, 8000.0, 0), (5.0, 2000.0, 94)])
    ('', '; 75 % less than all in the cloud')
    >>> against([(0.0, 8000.0, 0), (5.0, 10000.0, 94)]), against([(0.0, 900.0, 3)])
    ('; 25 % more than all in the cloud', '')
    """
    whole, (_, rate, edge) = _whole(traffic), traffic[-1]
    if not whole or not edge:
        return ""
    change = rate / whole - 1
    return f"; {abs(change):.0%} {'less' if change < 0 else 'more'} than all in the cloud".replace(
        "%", " %"
    )


def _friends(devices: int) -> pd.DataFrame:
    """A busy and a quiet device each: where their view runs makes a difference."""
    rng = np.random.default_rng(7)
    busy, quiet = np.arange(0, devices, 2), np.arange(1, devices, 2)
    pairs = {(int(rng.choice(busy)), int(q)) for q in quiet for _ in range(2)}
    names = [(name_of(a), name_of(b)) for a, b in sorted(pairs)]
    return pd.DataFrame(names, columns=["user", "friend"])


def _kept(folder: Path) -> list[tuple[str, int, int, list[float]]]:
    """The rows of all outboxes."""
    found = []
    for path in sorted(folder.glob("*/outbox.db")):
        base = sqlite3.connect(path)
        for n, t, content in base.execute("SELECT n, t, content FROM rows"):
            found.append((path.parent.name, n, t, msgpack.unpackb(content)["xy"]))
        base.close()
    return found


def _identities(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.select(*_IDENTITY).collect()))


@contextmanager
def _serving(cloud: Cloud) -> Iterator[None]:
    """Relay and keeper in a thread of their own, with a loop of their own."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(cloud.run())

    def serve() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
