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
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from anabranch.edge.broker import running
from anabranch.edge.hub import Hub
from anabranch.edge.ownership import CLOUD
from anabranch.edge.serving import Cloud
from anabranch.edge.story import story
from anabranch.edge.wanderers import name_of
from anabranch.placement.feeds import feed
from anabranch.predicates import euclidean
from anabranch.spark.follow import follow
from anabranch.spark.settings import configure
from anabranch.spark.views import view

__all__ = ["run_edge_demo"]

_EVERY = 5.0  # seconds between lines
_PATIENCE = 120.0  # seconds that the query may need for the rest
_IDENTITY = ["view", "left_key", "left_n", "right_key", "right_n"]


def run_edge_demo(
    devices: int, seconds: float, decide: Callable[[Cloud], None], say: Callable[[str], Any]
) -> int:
    """Run it; the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-edge-"))
    try:
        say(f"enrolling {devices} devices ...")
        hub = Hub.create(folder / "hub", ["localhost", "127.0.0.1"])
        hub.enrol(*map(name_of, range(devices)))
        with running(hub) as broker:
            cloud = Cloud(hub, broker.address, decide=decide, ack_after=5.0)
            with _serving(cloud), _session(folder) as spark:
                return _Demo(cloud, spark, devices, say).run(seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    """One run: the query, what is said while it runs, and the check of its results."""

    def __init__(
        self, cloud: Cloud, spark: SparkSession, devices: int, say: Callable[[str], Any]
    ) -> None:
        self._cloud, self._spark, self._devices, self._say = cloud, spark, devices, say
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
                self._watch(seconds / 2)
                (hub / "changed").touch()
                self._say("busy devices become quiet, quiet ones busy")
                self._watch(seconds / 2)
                (hub / "stop").touch()
                self._say("devices send what they still have ...")
                wanderers.wait(_PATIENCE)
            finally:
                wanderers.kill()
        try:
            return self._compare()
        finally:
            query.stop()

    def _watch(self, seconds: float) -> None:
        """Traffic every few seconds, and every entry of the log."""
        until, before, at = time.monotonic() + seconds, self._sent(), time.monotonic()
        while time.monotonic() < until:
            time.sleep(_EVERY)
            now, there = time.monotonic(), self._sent()
            entries = self._cloud.keeper.log.entries()
            for line in story(entries)[self._told :]:
                self._say(f"  {line}")
            self._told = len(story(entries))
            book = self._cloud.relay.state.book
            edge = sum(book.place(k) != CLOUD for k in range(len(book.views)))
            up, down = ((b - a) / (now - at) for a, b in zip(before, there, strict=True))
            whole = self._everything()  # known once devices have reported their rates
            beside = f" (all in the cloud: {whole:.0f})" if whole else ""
            self._say(
                f"{up + down:6.0f} bytes/s, {up:.0f} up and {down:.0f} down{beside}; "
                f"{edge} of {len(book.views)} views on devices"
            )
            before, at = there, now

    def _everything(self) -> float:
        """Bytes per second if every device sent all its rows, at what a row takes now."""
        relay = self._cloud.relay
        rows = sum(relay.rows.values())
        size = sum(n for (way, _), n in list(relay.bytes.items()) if way == "up") / max(rows, 1)
        return float(size * sum(list(self._cloud.rates.values())))

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


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("anabranch edge demo")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    configure(spark, workers=4)
    try:
        yield spark
    finally:
        spark.stop()
