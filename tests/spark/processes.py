"""Driver processes as children of a test: started, watched, killed with all that they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from tests.spark.feeds import PATIENCE, happens

ROOT = Path(__file__).resolve().parents[2]


class Driver:
    """One run of `driver.py`, in a process group of its own."""

    def __init__(
        self, folder: Path, *options: str, script: str = "driver.py", python: str = sys.executable
    ) -> None:
        self.folder = folder
        self.log = folder / f"driver-{time.monotonic_ns()}.log"
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYTHONPATH": str(ROOT),
        }
        # A session that is already open in this process must not show through.
        for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "PYSPARK_GATEWAY_PORT"):
            environment.pop(name, None)
        if python != sys.executable:
            environment.pop("SPARK_HOME")  # that of its own Spark
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, str(ROOT / "tests/spark" / script), str(folder), *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something to happen while the driver runs."""
        happens(lambda: holds() or not self.running)
        assert self.running, f"the driver ended before {what}\n{self.tail()}"

    def kill_when_held(self) -> None:
        """Kill it in mid-batch, where ``--hold`` makes it wait for that."""
        reached = self.folder / "reached"
        self.wait_until(reached.exists, "the result to hold at")
        self.kill()
        reached.unlink()
        begun, ended = newest(self.folder, "offsets"), newest(self.folder, "commits")
        assert ended < begun, "no batch was interrupted"

    def kill(self) -> None:
        """SIGKILL to the Python driver and its JVM, and to executors if there are any."""
        if self.running:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self) -> dict[str, Any]:
        """Wait for the end; the figures that the driver printed."""
        assert self.process.wait(PATIENCE) == 0, self.tail()
        lines = self.log.read_text(errors="replace").splitlines()
        return json.loads(next(line for line in reversed(lines) if line.startswith("{")))

    def members(self, containing: str) -> list[int]:
        """Processes of this driver's group whose command line contains a text."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                if containing in command and os.getpgid(int(entry.name)) == self.process.pid:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended meanwhile
        return found

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@contextmanager
def driver(
    folder: Path, *options: str, script: str = "driver.py", python: str = sys.executable
) -> Iterator[Driver]:
    """A driver that is gone at the end of the block, whatever happens in it."""
    started = Driver(folder, *options, script=script, python=python)
    try:
        yield started
    finally:
        started.kill()


def lose_an_executor(run: Driver) -> None:
    """SIGKILL to one of two executors in mid-batch, once the third batch is in."""
    executor = "CoarseGrainedExecutorBackend"
    run.wait_until(lambda: newest(run.folder, "commits") >= 2, "batch 2")
    run.wait_until(lambda: len(run.members(executor)) == 2, "two executors")
    begun = newest(run.folder, "offsets")
    run.wait_until(lambda: newest(run.folder, "offsets") > begun, "the next batch")
    os.kill(run.members(executor)[0], signal.SIGKILL)


def newest(folder: Path, log: str) -> int:
    """The newest micro-batch in the checkpoint's ``offsets`` (begun) or ``commits`` (ended)."""
    place = folder / "out.checkpoint" / log
    numbers = [int(path.name) for path in place.glob("[0-9]*")] if place.exists() else []
    return max(numbers, default=-1)
