"""``python -m scripts.reliability.chaos``: everything that can break, breaks; the answer is exact.

The queries of `lives` run in one driver process, while plans change every few seconds. At random
moments something is done to it:

- ``driver``    SIGKILL to the driver, its JVM and all its processes
- ``worker``    SIGKILL to a Python worker
- ``memory``    a Python worker that gets no more memory
- ``disk``      no room left on the disk of the checkpoints
- ``entry``     the newest entry of a plan log torn in two: refused until it is whole again
- ``request``   half a request in a plan log: refused, and the query goes on
- ``executor``  SIGKILL to an executor of a cluster (scene ``cluster``)
- ``broker``    the Kafka broker of both streams is killed, and comes back (scene ``broker``)
- ``clock``     the clocks of all its processes jump, by a second up to a day (scene ``clock``)
- ``zone``      the driver is killed, and goes on in another time zone (there too)

A query that ends must name the cause in its error. It is then started again, as an operator would,
and at the end the twins say what is lost and what is double. Without ``--scene`` all scenes follow
each other, and share kills and plan changes. What hit nothing does not count, and a run that was
cut short of its goal fails, after its report is written.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.reliability import RESULTS
from scripts.reliability.driver import ENDED
from scripts.reliability.gauges import processes
from scripts.reliability.lives import LIVES, PLANS, Life, committed
from scripts.reliability.scenes import CAUSES, SCENES, Clock, Goal, Scene, goals
from scripts.reliability.streams import fill
from scripts.services.kafka import Broker, mortal_broker
from tests.spark.sessions import new_session

__all__ = ["Chaos", "cause_of", "in_scene", "main"]

PATIENCE = 600
_ROOM = "512m"  # of the disk under the checkpoints
_FILLED = 4000  # micro-batches, in a topic
_ALL = 0.8  # how often all queries have begun before something is done


@dataclass
class Chaos:
    """One run: a driver, and what is done to it."""

    folder: Path
    log: Path  # not on the disk that is full at times
    scene: Scene
    goal: Goal
    random: random.Random
    changes: float
    broker: Broker | None = None
    steps: int = 1000
    process: subprocess.Popen[bytes] | None = None
    done: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        servers = None if self.broker is None else self.broker.servers
        self.lives = [Life(verb, self.folder / verb, servers) for verb in LIVES]
        self.clock = Clock(self.log.parent)

    def run(self) -> dict[str, Any]:
        """Run to the end; the report."""
        plan = self.scene.plan(self.random)
        self.began = time.monotonic()
        try:
            while not self._enough():
                kind = plan[self.done.total() % len(plan)]
                self._ensure()
                self._wait_a_while()
                if self.done.total() < self.goal.kills:
                    self.done[kind] += getattr(self, f"_{kind}")()  # what hit nothing is no kill
                print(f"{self.done.total()} {kind}: batches {self._at()}", flush=True)
            self._finish()
        finally:
            self._kill()
        return self._report(time.monotonic() - self.began)

    def _enough(self) -> bool:
        if time.monotonic() - self.began > self.goal.seconds:
            return True
        enacted = sum(life.plans_enacted() for life in self.lives)
        return self.goal.reached(self.done.total(), enacted)

    def _ensure(self) -> None:
        """A driver that runs."""
        if self.process is not None and self.process.poll() is None:
            return
        self.at = self._at()
        command = [sys.executable, "-m", "scripts.reliability.driver", str(self.folder),
                   str(self.steps), "--every", str(self.changes), "--master", self.scene.master,
                   "--zone", self.clock.zone]  # fmt: skip
        if self.broker is not None:
            command += ["--kafka", self.broker.servers]
        clock = self.clock.environment() if self.scene.clock else {}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **clock},
                start_new_session=True,
            )

    def _wait_a_while(self) -> None:
        """Until some queries have gone on, and mostly all, and then any moment of a micro-batch."""
        if self.random.random() < _ALL:
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
            assert time.monotonic() < until, f"nothing happens\n{self._log()}"
            if not self._running():
                self._blame("driver")
                self._ensure()
            time.sleep(0.1)

    def _at(self) -> list[int]:
        """The newest micro-batch of each query."""
        return [committed(life.checkpoint) for life in self.lives]

    def _progress(self) -> int:
        return sum(self._at())

    def _running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _log(self) -> str:
        return self.log.read_text(errors="replace")

    def _blame(self, kind: str) -> None:
        """A driver that has ended: well, or for a cause that was to be expected.

        The error must say it; what else a driver prints says nothing of why it has ended.
        """
        assert self.process is not None
        if self.process.returncode == 0:
            self.steps += 20  # there is more to do
            return
        cause = cause_of(self._log(), self.scene.causes(kind))
        assert cause is not None, (
            f"after {kind} a query ended without a named cause:\n{self._log()[-6000:]}"
        )
        self.ended[f"{kind}: {cause}"] += 1

    def _kill(self) -> None:
        if self._running():
            assert self.process is not None
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _hit(self, what: str, blow: Callable[[int], None]) -> bool:
        """Do this to a process of the driver's of this kind, once there is one; whether it hit."""
        assert self.process is not None
        until = time.monotonic() + PATIENCE
        while self._running():
            found = processes(self.process.pid)
            chosen = [pid for pid, kind in found.items() if kind == what]
            if chosen:
                with suppress(ProcessLookupError):
                    blow(self.random.choice(chosen))
                    return True
            assert time.monotonic() < until, f"the driver has no {what}: {found}\n{self._log()}"
            time.sleep(0.1)
        return False

    def _settle(self, kind: str) -> None:
        """Let the query go on, or end with a cause."""
        goal, until = self._progress() + 3, time.monotonic() + PATIENCE
        while self._running() and self._progress() < goal:
            assert time.monotonic() < until, f"after {kind} nothing happens\n{self._log()}"
            time.sleep(0.1)
        if not self._running():
            self._blame(kind)

    def _driver(self) -> bool:
        running = self._running()
        self._kill()
        return running

    def _worker(self) -> bool:
        return self._lose("worker")

    def _executor(self) -> bool:
        return self._lose("executor")

    def _lose(self, what: str) -> bool:
        hit = self._hit(what, lambda pid: os.kill(pid, signal.SIGKILL))
        self._settle(what)
        return hit

    def _memory(self) -> bool:
        """Let one worker have 8 MB more than nothing: what it asks for next is refused."""
        little = (8 << 20, 8 << 20)
        hit = self._hit("worker", lambda pid: _limit(pid, little))
        self._settle("memory")
        return hit

    def _disk(self) -> bool:
        """Fill the disk, until every query has ended; then make room."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        until = time.monotonic() + PATIENCE
        while self._running():
            assert time.monotonic() < until, f"a full disk was not noticed\n{self._log()}"
            time.sleep(0.2)
        filler.unlink()
        self._blame("disk")
        return True

    def _entry(self) -> bool:
        """Tear the newest entry, see it refused, and bring it back."""
        self._kill()
        entries = sorted(self._with_plans().control.glob("0*.json"))
        if not entries:
            return False
        whole = entries[-1].read_bytes()
        entries[-1].write_bytes(whole[: len(whole) // 2])
        self._ensure()
        assert self.process is not None
        self.process.wait(PATIENCE)
        assert self.process.returncode != 0, "half an entry was taken for a whole one"
        self._blame("entry")
        entries[-1].write_bytes(whole)
        return True

    def _request(self) -> bool:
        """Half a request: the query takes it off and goes on."""
        torn = self._with_plans().control / "requests" / f"torn-{self.done.total()}.json"
        torn.parent.mkdir(parents=True, exist_ok=True)
        torn.write_text('{"plan": {"plan": "gr')
        until = time.monotonic() + PATIENCE
        while self._running() and torn.exists():
            assert time.monotonic() < until, f"half a request was not refused\n{self._log()}"
            time.sleep(0.1)
        self._settle("request")
        return not torn.exists()

    def _with_plans(self) -> Life:
        """A life whose plans change."""
        return self.random.choice([life for life in self.lives if PLANS[life.verb]])

    def _broker(self) -> bool:
        """Away for a moment, or for longer than a query waits."""
        assert self.broker is not None
        self.broker.kill()
        time.sleep(self.random.choice([0, 2, 10, 45]))
        self.broker.start()
        self._settle("broker")
        return True

    def _clock(self) -> bool:
        self.clock.jump(self.random)
        self._settle("clock")
        return True

    def _zone(self) -> bool:
        self._kill()
        self.clock.travel(self.random)
        return True

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
                assert time.monotonic() < until, f"the end is not reached\n{self._log()}"
                time.sleep(0.2)
            if process.returncode == 0:
                return
            self._blame("driver")
        raise AssertionError("five starts failed\n" + self._log())

    def _report(self, seconds: float) -> dict[str, Any]:
        spark = new_session(self.folder / "check", "local[2]", 2)
        answers = {life.verb: life.check(spark) for life in self.lives}
        spark.stop()
        enacted = sum(life.plans_enacted() for life in self.lives)
        return {
            "done": dict(self.done),
            "kills": self.done.total(),
            "enough": self.goal.reached(self.done.total(), enacted),
            "plan_changes": {life.verb: life.plans_enacted() for life in self.lives},
            "answers": answers,
            "queries_that_ended": dict(self.ended),
            "seconds": round(seconds),
        }


def cause_of(log: str, causes: Sequence[str]) -> str | None:
    """The first of these causes that the driver's last error names."""
    _, ended, said = log.rpartition(ENDED)
    return next((cause for cause in causes if ended and cause in said), None)


def _limit(pid: int, memory: tuple[int, int]) -> None:
    resource.prlimit(pid, resource.RLIMIT_AS, memory)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of little room in place of a folder; needs the right to mount one."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def in_scene(scene: Scene, goal: Goal, seed: int, changes: float) -> dict[str, Any]:
    """One scene from its beginning to its report."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-chaos-")))
        aside = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-aside-")))
        if "disk" in scene.what:
            stack.enter_context(small_disk(folder))
        broker = stack.enter_context(mortal_broker()) if scene.broker else None
        if broker is not None:
            fill(broker.servers, _FILLED)
        by = random.Random(seed)
        run = Chaos(folder, aside / "log", scene, goal, by, changes, broker).run()
    return {"seed": seed, **run}


def main() -> None:
    """Run, and add to the report; fails if anything is lost, double or without a cause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=list(SCENES), action="append", help="by default all")
    parser.add_argument("--without", choices=list(CAUSES), action="append", default=[],
                        help="what cannot be done here: disk needs the right to mount")  # fmt: skip
    parser.add_argument("--kills", type=int, default=100, help="things that are done to it")
    parser.add_argument("--plans", type=int, default=1000, help="plan changes, at least")
    parser.add_argument("--minutes", type=float, default=math.inf, help="and no longer than this")
    parser.add_argument("--changes", type=float, default=1.0, help="seconds between plan changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=RESULTS / "chaos.json")
    options = parser.parse_args()
    total = Goal(options.kills, options.plans, 60 * options.minutes)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    short = []
    for name, goal in goals(options.scene or list(SCENES), total).items():
        scene = SCENES[name].without(options.without)
        report = in_scene(scene, goal, options.seed, options.changes)
        known = json.loads(options.report.read_text()) if options.report.exists() else {}
        options.report.write_text(json.dumps({**known, name: report}, indent=1) + "\n")
        print(name, json.dumps(report, indent=1), flush=True)
        if not report["enough"]:
            short.append(f"{name}: cut short of {goal.kills} kills, {goal.plan_changes} plans")
    if short:
        sys.exit("\n".join(short))


if __name__ == "__main__":
    main()
