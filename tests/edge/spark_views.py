"""What `ab.follow` finds on Spark, as a process whose driver and executors can be killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from anabranch.edge.hub import Hub
from anabranch.testing.lab.results import Identity
from tests.edge.kill_spark import views
from tests.spark.processes import Driver, newest

__all__ = ["SparkViews"]

_SCRIPT = Path(__file__).with_name("kill_spark.py")
_QUIET = 5.0
_EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkViews:
    """A query that can be killed, and what it has written.

    Parameters
    ----------
    folder
        Where its checkpoint and its results are.
    hub, address
        The hub, and the address of its broker.
    devices
        How many there are.
    master
        Of Spark; ``local-cluster[2,1,1024]`` has executors.
    """

    def __init__(self, folder: Path, hub: Hub, address: str, devices: int, master: str) -> None:
        self.folder = folder
        folder.mkdir()
        self._call = (str(hub.folder), address, str(devices), master)
        self._numbers = {view: k for k, view in enumerate(views(devices).rows["view"].unique())}
        self._driver: Driver | None = None

    def start(self) -> None:
        """Start the driver, which continues from its checkpoint."""
        self._driver = Driver(self.folder, *self._call, script=str(_SCRIPT))

    @property
    def running(self) -> bool:
        """Whether the driver does."""
        return self._driver is not None and self._driver.running

    def tail(self) -> str:
        """The end of what the driver wrote."""
        return "" if self._driver is None else self._driver.tail()

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and all executors."""
        if self._driver is not None:
            self._driver.kill()

    def kill_executor(self, rng: random.Random) -> None:
        """SIGKILL to one of two executors; Spark starts another in its place."""
        assert self._driver is not None
        there: list[int] = []

        def two() -> bool:
            there[:] = self._executors()
            return len(there) == 2

        self._driver.wait_until(two, "two executors")
        os.kill(rng.choice(there), signal.SIGKILL)

    def commits(self, more: int) -> None:
        """Wait until so many more micro-batches are committed."""
        assert self._driver is not None
        begun = newest(self.folder, "commits")
        self._driver.wait_until(lambda: newest(self.folder, "commits") >= begun + more, "a commit")

    def rests(self) -> None:
        """Wait until all that has come is committed, and nothing more has for five seconds."""
        assert self._driver is not None
        since, seen = time.monotonic(), -1

        def quiet() -> bool:
            nonlocal since, seen
            begun = newest(self.folder, "offsets")
            if begun != seen or newest(self.folder, "commits") < begun:
                since, seen = time.monotonic(), begun
            return time.monotonic() - since > _QUIET

        self._driver.wait_until(quiet, "the end of what came")

    @property
    def found(self) -> Counter[Identity]:
        """Every result that is written, by view and rows."""
        found: Counter[Identity] = Counter()
        for path in sorted((self.folder / "out").glob("*.parquet")):
            table = pq.read_table(path)
            view, left, right = (table[name].to_pylist() for name in table.column_names)
            found.update(zip(map(self._numbers.__getitem__, view), left, right, strict=True))
        return found

    def _executors(self) -> list[int]:
        assert self._driver is not None
        return self._driver.members(_EXECUTOR)
