"""A driver that things are done to: started, watched and killed, and what it may die of."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.reliability import ROOT
from scripts.reliability.driver import ENDED
from scripts.reliability.gauges import session
from scripts.reliability.lives import LIVES, Life, committed
from scripts.reliability.scenes import Clock, Goal, Scene
from scripts.services.kafka import Broker

__all__ = ["PATIENCE", "Blow", "Driven", "cause_of"]

PATIENCE = 600
_LATE = 2  # micro-batches of a query: the one that was hit, and one whose worker is found lost


@dataclass(frozen=True)
class Blow:
    """Something that was done. A query may end of it later, while others have long gone on."""

    kind: str
    driver: int  # the process that it was done to
    at: Sequence[int]  # the newest micro-batch of each query
    when: float

    def is_over(self, driver: int, at: Sequence[int], now: float) -> bool:
        """Whether no query can end of it any more: the broker's clients alone outlive a driver."""
        elsewhere = driver != self.driver and self.kind != "broker"
        past = all(new >= old + _LATE for new, old in zip(at, self.at, strict=True))
        return elsewhere or past or now > self.when + PATIENCE


@dataclass
class Driven:
    """One driver after the other, in a folder that may be a small disk.

    What is not to be on that disk, such as logs and what Spark needs for a while, is `aside`.
    """

    folder: Path
    aside: Path
    scene: Scene
    goal: Goal
    random: random.Random
    changes: float
    broker: Broker | None = None
    steps: int = 1000
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    blows: dict[str, Blow] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        servers = None if self.broker is None else self.broker.servers
        self.lives = [Life(verb, self.folder / verb, servers) for verb in LIVES]
        self.clock = Clock(self.aside)

    @property
    def log(self) -> Path:
        """What the newest driver has said; those before have files of their own."""
        return self.aside / f"driver-{self.starts:03d}.log"

    def _ensure(self) -> None:
        """A driver that runs, and nothing of the one before it."""
        if self._running():
            return
        self._kill()
        scratch = self.aside / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)  # which a killed driver leaves
        self.at = self._at()
        self.starts += 1
        command = [sys.executable, "-m", "scripts.reliability.driver", str(self.folder),
                   str(self.steps), "--every", str(self.changes), "--master", self.scene.master,
                   "--zone", self.clock.zone, "--scratch", str(scratch)]  # fmt: skip
        if self.broker is not None:
            command += ["--kafka", self.broker.servers]
        clock = self.clock.environment() if self.scene.clock else {}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Executors run in folders of their own, and read the streams by our functions.
                env={**os.environ, "PYTHONPATH": str(ROOT), **clock},
                start_new_session=True,
            )

    def _kill(self) -> None:
        """SIGKILL to all that the driver has started: of one that has ended the JVM may live on."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        while left := session(self.process.pid):  # workers have a group of their own
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < until, f"these cannot be killed: {left}"
            time.sleep(0.05)
        self.process.wait()

    def _running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _log(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _at(self) -> list[int]:
        """The newest micro-batch of each query."""
        return [committed(life.checkpoint) for life in self.lives]

    def _progress(self) -> int:
        return sum(self._at())

    def _wait_a_while(self, often: float) -> None:
        """Until some queries have gone on, and often all, and then any moment of a micro-batch."""
        if self.random.random() < often:
            self._wait(lambda: all(now > at for now, at in zip(self._at(), self.at, strict=True)))
        goal = self._progress() + self.random.randint(1, 6)
        self._wait(lambda: self._progress() >= goal)
        time.sleep(self.random.random() * 1.5)

    def _wait(self, far_enough: Callable[[], bool]) -> None:
        """Until they are so far, as long as anything happens."""
        last, until = self._progress(), time.monotonic() + PATIENCE
        while not far_enough():
            if self._progress() > last:
                last, until = self._progress(), time.monotonic() + PATIENCE
            assert time.monotonic() < until, f"nothing happens\n{self._log()[-6000:]}"
            if not self._running():
                self._blame()
                self._ensure()
            time.sleep(0.1)

    def _settle(self, kind: str) -> None:
        """Let some query go on, or one end with a cause; another may end of it later."""
        goal, until = self._progress() + 3, time.monotonic() + PATIENCE
        while self._running() and self._progress() < goal:
            assert time.monotonic() < until, f"after {kind} nothing happens\n{self._log()[-6000:]}"
            time.sleep(0.1)
        if not self._running():
            self._blame()

    def _strike(self, kind: str) -> None:
        """Remember what is done now, for a query that ends of it."""
        assert self.process is not None
        self.blows.pop(kind, None)  # the newest comes last
        self.blows[kind] = Blow(kind, self.process.pid, self._at(), time.monotonic())

    def _blame(self) -> str | None:
        """The cause by which a driver has ended, of those to be expected; none if it ended well.

        The error must say it; what else a driver prints says nothing of why it has ended.
        """
        assert self.process is not None
        if self.process.returncode == 0:
            self.steps += 20  # there is more to do
            return None
        place = self.process.pid, self._at(), time.monotonic()
        self.blows = {kind: blow for kind, blow in self.blows.items() if not blow.is_over(*place)}
        for kind in (*reversed(self.blows), "driver"):
            cause = cause_of(self._log(), self.scene.causes(kind))
            if cause is not None:
                self.ended[f"{kind}: {cause}"] += 1
                return cause
        after = ", ".join(self.blows) or "nothing"
        raise AssertionError(
            f"after {after} a query ended without a named cause:\n{self._log()[-6000:]}"
        )

    def _finish(self) -> None:
        """Let what is left run, undisturbed."""
        self._kill()
        self.steps = max(self._at()) + 3
        for _ in range(5):
            self._ensure()
            assert self.process is not None
            process, last, until = self.process, self._progress(), time.monotonic() + PATIENCE
            while process.poll() is None:
                if self._progress() > last:
                    last, until = self._progress(), time.monotonic() + PATIENCE
                assert time.monotonic() < until, f"the end is not reached\n{self._log()[-6000:]}"
                time.sleep(0.2)
            if process.returncode == 0:
                return
            self._blame()
        raise AssertionError("five starts failed\n" + self._log()[-6000:])


def cause_of(log: str, causes: Sequence[str]) -> str | None:
    """The first of these causes that the driver's last error names."""
    _, ended, said = log.rpartition(ENDED)
    return next((cause for cause in causes if ended and cause in said), None)
