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
each other, and share kills and plan changes. What hit nothing does not count: a worker has worked
at the last look, one without memory dies of it, and a new time is on a micro-batch. A run that was
cut short of its goal fails, and one in which some verb's plan never changed.

The report is written in any case. Of a run that fails all is kept, and the report goes there or to
``--report``; what the documentation shows is replaced by a run that passed alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.reliability import RESULTS
from scripts.reliability.driven import PATIENCE, Driven
from scripts.reliability.evidence import circumstances, said, workplace, write
from scripts.reliability.gauges import ended, processes, worked
from scripts.reliability.lives import PLANS, Life, changed, checked, clocks, unchanged
from scripts.reliability.needs import missing
from scripts.reliability.scenes import CAUSES, SCENES, Goal, Scene, goals, small_disk
from scripts.reliability.streams import fill
from scripts.services.kafka import mortal_broker
from tests.spark.sessions import new_session

__all__ = ["Chaos", "faults", "in_scene", "main"]

_FILLED = 4000  # micro-batches, in a topic
_ALL = 0.8  # how often all queries have begun before something is done
_MISSES = 20  # in a row, after which something cannot be done at all
_STARVES = 30  # seconds: Spark ends a worker that has idled for sixty
_NEAR = 20  # seconds between the time of a micro-batch and its file, on a busy machine
_LITTLE = 8 << 20


@dataclass
class Chaos(Driven):
    """One run: a driver, and what is done to it."""

    done: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    errors: list[str] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Run to the end, or to what went wrong; the report."""
        plan = self.scene.plan(self.random)
        answers: dict[str, Any] = {}
        self.began = time.monotonic()
        try:
            while not self._enough():
                self._next(plan)
            self._finish()
            self._kill()
            spark = new_session(self.aside / "check", "local[2]", 2)
            answers, self.errors = checked(self.lives, spark)
            spark.stop()
        except (Exception, KeyboardInterrupt) as error:
            traceback.print_exc()
            self.errors.append(said(error))
        finally:
            self._kill()
        return self._report(answers)

    def _next(self, plan: Sequence[str]) -> None:
        kind = plan[self.done.total() % len(plan)]
        self._ensure()
        self._wait_a_while(_ALL)
        if self.done.total() < self.goal.kills:
            hit = getattr(self, f"_{kind}")()
            self.done[kind] += hit  # what hit nothing is no kill
            self.missed = 0 if hit else self.missed + 1
            assert self.missed < _MISSES, f"{kind} has hit nothing, {_MISSES} times"
        print(f"{self.done.total()} {kind}: batches {self._at()}", flush=True)

    def _enough(self) -> bool:
        return time.monotonic() - self.began > self.goal.seconds or self._reached()

    def _reached(self) -> bool:
        changes = changed(self.lives)
        enough = self.goal.reached(self.done.total(), sum(changes.values()))
        return enough and not unchanged(changes)

    def _hit(self, kind: str, what: str, blow: Callable[[int], None]) -> int | None:
        """Do this to a process of the driver's, once there is one; which one it hit.

        A worker must have worked since the last look: most wait for a task, and nobody misses them.
        """
        assert self.process is not None
        until, before = time.monotonic() + PATIENCE, dict[int, int]()
        while self._running():
            found = processes(self.process.pid)
            now = {pid: worked(pid) for pid, is_a in found.items() if is_a == what}
            chosen = [
                pid
                for pid, ticks in now.items()
                if what != "worker" or ticks > before.get(pid, ticks)
            ]
            if chosen:
                pid = self.random.choice(chosen)
                with suppress(ProcessLookupError):
                    blow(pid)
                    self._strike(kind)
                    return pid
            before = now
            assert time.monotonic() < until, (
                f"no {what} of the driver works: {found}\n{self._log()[-6000:]}"
            )
            time.sleep(0.1)
        return None

    def _driver(self) -> bool:
        running = self._running()
        self._kill()
        return running

    def _worker(self) -> bool:
        return self._lose("worker")

    def _executor(self) -> bool:
        return self._lose("executor")

    def _lose(self, what: str) -> bool:
        hit = self._hit(what, what, lambda pid: os.kill(pid, signal.SIGKILL))
        self._settle(what)
        return hit is not None

    def _memory(self) -> bool:
        """Let one worker have no more memory than it has: what it asks for next is refused.

        One that asks for nothing is spared, and does not count.
        """
        pid = self._hit("memory", "worker", lambda pid: _limit(pid, _LITTLE))
        until = time.monotonic() + _STARVES
        while pid is not None and self._running() and not ended(pid) and time.monotonic() < until:
            time.sleep(0.1)
        hit = pid is not None and (ended(pid) or not self._running())
        if pid is not None and not hit:
            with suppress(ProcessLookupError):
                _limit(pid, resource.RLIM_INFINITY)
        if hit:
            self._strike("memory")
        self._settle("memory")
        return hit

    def _disk(self) -> bool:
        """Fill the disk, until every query has ended; then make room."""
        filler = self.folder / "filler"
        try:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            until = time.monotonic() + PATIENCE
            while self._running():
                assert time.monotonic() < until, "a full disk was not noticed"
                time.sleep(0.2)
        finally:
            filler.unlink(missing_ok=True)
        self._strike("disk")
        return self._blame() in CAUSES["disk"]

    def _entry(self) -> bool:
        """Tear the newest entry, see it refused, and bring it back."""
        self._kill()
        entries = sorted(self._with_plans().control.glob("0*.json"))
        if not entries:
            return False
        whole = entries[-1].read_bytes()
        entries[-1].write_bytes(whole[: len(whole) // 2])
        try:
            self._ensure()
            self._strike("entry")
            assert self.process is not None
            self.process.wait(PATIENCE)
        finally:
            entries[-1].write_bytes(whole)
        assert self.process.returncode != 0, "half an entry was taken for a whole one"
        return self._blame() in CAUSES["entry"]

    def _request(self) -> bool:
        """Half a request: the query takes it off and goes on."""
        torn = self._with_plans().control / "requests" / f"torn-{self.done.total()}.json"
        torn.parent.mkdir(parents=True, exist_ok=True)
        torn.write_text('{"plan": {"plan": "gr')
        until = time.monotonic() + PATIENCE
        while self._running() and torn.exists():
            assert time.monotonic() < until, "half a request was not refused"
            time.sleep(0.1)
        self._settle("request")
        return not torn.exists()

    def _with_plans(self) -> Life:
        """A life whose plans change."""
        return self.random.choice([life for life in self.lives if PLANS[life.verb]])

    def _broker(self) -> bool:
        """Away for a moment, or for longer than a query waits."""
        assert self.broker is not None
        hit = self._running()
        self.broker.kill()
        time.sleep(self.random.choice([0, 2, 10, 45]))
        self.broker.start()
        self._strike("broker")
        self._settle("broker")
        return hit

    def _clock(self) -> bool:
        """Another time, which counts once it is on a micro-batch."""
        began, until = time.time(), time.monotonic() + PATIENCE
        self.clock.jump(self.random)
        while self._running() and time.monotonic() < until:
            seen = [ahead for life in self.lives for ahead in clocks(life.checkpoint, began)]
            if any(abs(ahead - self.clock.ahead) < _NEAR for ahead in seen):
                self._settle("clock")
                return True
            time.sleep(0.2)
        self._settle("clock")
        return False

    def _zone(self) -> bool:
        running = self._driver()
        self.clock.travel(self.random)
        return running

    def _report(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "errors": self.errors,
            "done": {kind: self.done[kind] for kind in self.scene.what},
            "kills": self.done.total(),
            "enough": self._reached(),
            "plan_changes": changed(self.lives),
            "answers": answers,
            "queries_that_ended": dict(self.ended),
            "seconds": round(time.monotonic() - self.began),
        }


def _limit(pid: int, most: int) -> None:
    """How much memory a process may have; the right to have more again stays."""
    _, ceiling = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (most, ceiling))


def faults(report: Mapping[str, Any], goal: Goal) -> list[str]:
    """Why a scene has failed."""
    found = [*report["errors"]]
    if not report.get("enough"):
        found.append(f"cut short of {goal.kills} kills and {goal.plan_changes} plan changes")
    idle = unchanged(report.get("plan_changes", {}))
    return [*found, *(f"{verb}: its plan never changed" for verb in idle)]


def in_scene(place: Path, scene: Scene, goal: Goal, seed: int, changes: float) -> dict[str, Any]:
    """One scene from its beginning to its report; what it leaves is in a folder."""
    small, begun = "disk" in scene.what, circumstances()
    folder, kept = place / ("disk" if small else "lives"), place / "lives"
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        try:
            if small:
                stack.enter_context(small_disk(folder))
            broker = stack.enter_context(mortal_broker()) if scene.broker else None
            if broker is not None:
                fill(broker.servers, _FILLED)
            by = random.Random(seed)
            report = Chaos(folder, place, scene, goal, by, changes, broker).run()
        except Exception as error:
            traceback.print_exc()
            report = {"errors": [said(error)]}
        wanted = {"kills": goal.kills, "plan_changes": goal.plan_changes}
        about = {"begun": begun, "seed": seed, "goal": wanted}
        report = {**about, **report, "faults": faults(report, goal)}
        if small and report["faults"]:  # the disk goes
            with suppress(OSError):
                shutil.copytree(folder, kept, symlinks=True)
    return report


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=list(SCENES), action="append", help="by default all")
    parser.add_argument("--without", choices=list(CAUSES), action="append", default=[],
                        help="what cannot be done here: disk needs the right to mount")  # fmt: skip
    parser.add_argument("--kills", type=int, default=100, help="things that are done to it")
    parser.add_argument("--plans", type=int, default=1000, help="plan changes, at least")
    parser.add_argument("--minutes", type=float, default=math.inf, help="and no longer than this")
    parser.add_argument("--changes", type=float, default=1.0, help="seconds between plan changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="by default the one that is shown, or, of a "
                        "run that fails, in its folder")  # fmt: skip
    options = parser.parse_args()
    if options.kills < 1:
        parser.error("--kills: where nothing is done nothing is shown")
    return options


def _add(reports: Mapping[str, Any], path: Path) -> None:
    """To what is known of other scenes."""
    known = json.loads(path.read_text()) if path.exists() else {}
    write({**known, **reports}, path)


def main() -> None:
    """Run, and add to the report; fails if anything is lost, double or without a cause."""
    options = _options()
    scenes = {name: SCENES[name].without(options.without) for name in options.scene or list(SCENES)}
    if lacking := missing(scenes):
        sys.exit("\n".join(["chaos cannot begin:", *lacking]))
    total = Goal(options.kills, options.plans, 60 * options.minutes)
    reports: dict[str, Any] = {}
    with workplace("chaos") as place:
        for name, goal in goals(list(scenes), total).items():
            own = place.folder / name
            report = in_scene(own, scenes[name], goal, options.seed, options.changes)
            reports[name] = report
            print(name, json.dumps(report, indent=1), flush=True)
            _add({name: report}, options.report or place.folder / "chaos.json")
            if report["faults"]:
                place.failed = True
            else:
                shutil.rmtree(own, ignore_errors=True)
            if any(error.startswith("KeyboardInterrupt") for error in report["errors"]):
                break
        if not place.failed and options.report is None:
            _add(reports, RESULTS / "chaos.json")
    found = [f"{name}: {fault}" for name, report in reports.items() for fault in report["faults"]]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
