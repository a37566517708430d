"""``python -m scripts.reliability.soak``: the queries of `lives` at once, for hours.

Rates change all the time, each side falls silent at times, rows come late and bad, plans change
every few micro-batches, and in the first half the queries are stopped and started again. Memory of
every process, seconds of a micro-batch and bytes of the checkpoints are read all the while. The
second half, or what follows the last restart, shows whether anything grows while they run; what a
restart takes is reported apart. The twins say at the end whether the answer is exact.

It fails if anything grows, and also if the run was too short to tell: ``--short`` lets that pass,
and what has grown by less than `LEAST`. The report and its picture are written in any case. Of a
run that fails they go beside ``--report``, or else into its folder, which is kept; what the
documentation shows is replaced by a run that passed alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scripts.reliability import RESULTS
from scripts.reliability.evidence import circumstances, load, said, workplace, write
from scripts.reliability.gauges import bytes_under, live_heap, outside_heap, processes, resident
from scripts.reliability.lives import (
    LIVES,
    PATIENT,
    Life,
    changed,
    checked,
    committed,
    unchanged,
)
from scripts.reliability.picture import draw_both
from scripts.reliability.slopes import shift, slope
from tests.spark.sessions import new_session

__all__ = ["LEAST", "Soak", "faults", "judged", "main"]

LEAST = {"_mb": 5.0, "_kb": 100.0, "seconds": 0.5, "workers": 1.0}
"""By how much a figure has grown, by the end of its name, that fails a short run.

A share per hour says little of minutes: the same megabyte is much of a minute, and little of a day.
"""

PATIENCE = 600
_CALM = 12
_RESTARTS = 0.45  # of a run: the second half is judged, and a restart takes its time
_MB = 1 << 20
_STEPS = ("driver_mb", "jvm_mb", "heap_mb", "mean_worker_mb")
_NOISY = ("_checkpoint_kb", "batch_seconds", "workers")
# What is outside the heap is in jvm_mb, and control directories keep every plan.
_UNJUDGED = ("seconds", "load", "outside_heap_mb", "_control_kb")
_SHOWN = ("answers", "plan_changes", "restarts", "mb_of_a_restart", "starts_that_failed", "errors")
_SETTINGS = {
    # A heap of one size that is there from the start: what then grows is not garbage. Three of four
    # full collections would leave 5 % of the old generation as it is, which then counts as used.
    "spark.driver.memory": "640m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xms640m -XX:+AlwaysPreTouch "
    "-XX:MarkSweepAlwaysCompactCount=1 -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m "
    "-Djdk.lang.Process.launchMechanism=VFORK",
    # Checkpoints reach their size within minutes.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stateStore.maintenanceInterval": "20s",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # So does what Spark remembers for its pages.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "400",
    "spark.sql.streaming.ui.retainedQueries": "4",
    "spark.sql.streaming.ui.retainedProgressUpdates": "4",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",
}


@dataclass
class Soak:
    """One long run."""

    folder: Path
    seconds: float
    trigger: str
    every: float
    newest: dict[str, float] = field(default_factory=dict)  # the others are in a file
    durations: dict[str, float] = field(default_factory=dict)
    steps: list[dict[str, float]] = field(default_factory=list)  # what restarts have added
    failures: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # of which one ends the run
    restarted: float = 0.0  # when the last restart was over
    began: float = field(default_factory=time.monotonic)
    begun: dict[str, Any] = field(default_factory=circumstances)

    def __post_init__(self) -> None:
        self.lives = [Life(verb, self.folder / verb) for verb in LIVES]

    def run(self) -> dict[str, Any]:
        """Run to the end, or to what went wrong; the report."""
        os.environ.update(PATIENT)
        answers: dict[str, Any] = {}
        try:
            self.spark = new_session(self.folder, "local[2]", 2, settings=_SETTINGS)
            self.spark.sparkContext.setLogLevel("OFF")
            self._live()
            print("checking the answers ...", flush=True)
            answers, self.errors = checked(self.lives, self.spark)
        except (Exception, KeyboardInterrupt) as error:
            traceback.print_exc()
            self.errors.append(said(error))
        report = self._report(answers)
        with suppress(Exception):
            self.spark.stop()
        return report

    def _live(self) -> None:
        """All queries, until the time is over."""
        queries = [self._begun(life) for life in self.lives]
        self.began = time.monotonic()
        stopped = changed = self._now()
        calm = 0  # readings since the last restart: a slow machine may need all the time for it
        while self._now() < self.seconds or calm < _CALM:
            time.sleep(5)
            calm += 1
            queries = [self._going(*both) for both in zip(self.lives, queries, strict=True)]
            self._read(queries)
            if self._now() - changed > self.every:
                changed = self._now()
                for life in self.lives:
                    life.change_plan()
            if stopped + self.seconds / 16 < self._now() < _RESTARTS * self.seconds:
                queries = self._restart(queries)
                stopped, calm = self.restarted, 0
        for query in queries:
            query.stop()

    def _restart(self, queries: Sequence[Any]) -> list[Any]:
        """Each query stopped and begun again, and what that has added."""
        before, again = self.newest, []
        for life, query in zip(self.lives, queries, strict=True):
            query.stop()
            again.append(self._begun(life))
        self._read(again)
        self.steps.append({n: self.newest[n] - before[n] for n in _STEPS})
        self.restarted = self._now()
        return again

    def _now(self) -> float:
        return time.monotonic() - self.began

    def _begun(self, life: Life) -> Any:
        """The query of a life once it works: one at a time, for starts take much."""
        before = committed(life.checkpoint)
        query = life.start(self.spark, self.trigger)
        until = time.monotonic() + PATIENCE
        while committed(life.checkpoint) == before:
            assert time.monotonic() < until, f"{life.verb} commits nothing: {query.status}"
            time.sleep(0.5)
            query = self._going(life, query)
        return query

    def _going(self, life: Life, query: Any) -> Any:
        """The query, begun again if it must be."""
        query, why = life.going(self.spark, self.trigger, query)
        self.failures += [why] if why else []
        return query

    def _read(self, queries: Sequence[Any]) -> None:
        """One reading of all gauges."""
        for query in queries:
            last = query.lastProgress
            if last is not None:
                self.durations[query.name] = last.durationMs["triggerExecution"] / 1000
        found = processes(os.getpid())
        workers = sorted(resident(pid) / _MB for pid, kind in found.items() if kind == "worker")
        reading = {
            "seconds": self._now(),
            "load": load(),
            "driver_mb": resident(os.getpid()) / _MB,
            "jvm_mb": sum(resident(pid) for pid, kind in found.items() if kind == "jvm") / _MB,
            "heap_mb": live_heap(self.spark) / _MB,
            "outside_heap_mb": outside_heap(self.spark) / _MB,
            "workers": float(len(workers)),
            "largest_worker_mb": workers[-1] if workers else 0.0,
            "mean_worker_mb": sum(workers) / max(len(workers), 1),
        }
        for life in self.lives:
            reading[f"{life.verb}_checkpoint_kb"] = bytes_under(life.checkpoint) / 1024
            reading[f"{life.verb}_control_kb"] = bytes_under(life.control) / 1024
            reading[f"{life.verb}_batch_seconds"] = self.durations.get(life.verb, 0.0)
        reading["batch_seconds"] = sum(self.durations.values()) / max(len(self.durations), 1)
        self.newest = reading
        with self._kept.open("a") as file:
            file.write(json.dumps(reading) + "\n")

    @property
    def _kept(self) -> Path:
        """Where the readings are: in memory they would be what grows."""
        return self.folder / "readings.jsonl"

    def _report(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        lines = self._kept.read_text().splitlines() if self._kept.exists() else []
        readings = [json.loads(line) for line in lines]
        verdicts: dict[str, Any] = {"slopes": {}, "shifts": {}}
        try:
            verdicts = judged(readings, self.restarted)
        except ValueError as error:
            self.errors.append(said(error))
        newest = max((answer["batches"] for answer in answers.values()), default=0)
        return {
            "begun": self.begun,
            "hours": round(self._now() / 3600, 3),
            "errors": self.errors,
            "answers": answers,
            "plan_changes": changed(self.lives),
            "restarts": len(self.steps) * len(self.lives),
            "restarted": round(self.restarted, 2),
            "mb_of_a_restart": self._of_a_restart(),
            "starts_that_failed": self.failures,
            "event_days": round(newest / 144, 2),
            "control_kb": {v: round(self.newest.get(f"{v}_control_kb", 0), 1) for v in LIVES},
            **verdicts,
            "readings": [{k: round(v, 2) for k, v in r.items()} for r in readings],
        }

    def _of_a_restart(self) -> dict[str, float]:
        """What one restart of one query has added on average; nothing if there was none."""
        count = len(LIVES) * len(self.steps)
        return {n: round(sum(s[n] for s in self.steps) / count, 2) for n in _STEPS if count}


def judged(
    readings: Sequence[Mapping[str, float]], since: float = 0.0
) -> dict[str, dict[str, Any]]:
    """What became of every figure: memory by its slope, times and checkpoints by their shift.

    The heap by the slope of what stays, and the number of workers like times. The second half
    counts, and nothing before `since`, when the last restart was over.
    """
    if not readings:
        raise ValueError("there is no reading to judge")
    times = [reading["seconds"] for reading in readings]
    verdicts: dict[str, dict[str, Any]] = {"slopes": {}, "shifts": {}}
    for name in readings[0]:
        values = [reading[name] for reading in readings]
        if name.endswith(_NOISY):
            verdicts["shifts"][name] = shift(times, values, since).to_dict()
        elif not name.endswith(_UNJUDGED):
            of = np.min if name == "heap_mb" else np.median
            verdicts["slopes"][name] = slope(times, values, since, of).to_dict()
    return verdicts


def faults(report: Mapping[str, Any], short: bool = False) -> list[str]:
    """Why a run has failed: a figure grows, or, unless it may be short, was not decided.

    Or it ended by an error, nothing was measured of the workers, no query was restarted, or a plan
    never changed.
    """
    found = [*report.get("errors", []), *_growing(report, short)]
    seen = report["shifts"].get("workers")
    if seen is not None and not seen["late"]:
        found.append("workers: none was found, so none was measured")
    if not report.get("restarts", 1):
        found.append("restarts: none, for starts took all the time")
    idle = unchanged(report.get("plan_changes", {}))
    return [*found, *(f"{verb}: its plan never changed" for verb in idle)]


def _growing(report: Mapping[str, Any], short: bool) -> list[str]:
    """The figures that speak against a run.

    The seconds of one query among six rise by chance, as a machine has other work. They are excused
    where the mean of all queries does not grow, which fails by itself if it was not decided.
    """
    figures = {**report["slopes"], **report["shifts"]}
    mean = figures.get("batch_seconds", {}).get("verdict", "grows")
    excused = mean != "grows"
    found = []
    for name, figure in figures.items():
        verdict = figure["verdict"]
        if verdict == "flat" or (excused and name.endswith("_batch_seconds")):
            continue
        least = next(least for end, least in LEAST.items() if name.endswith(end))
        if not short or (verdict == "grows" and figure["rise"] >= least):
            found.append(f"{name}: {verdict}")
    return found


def _show(report: Mapping[str, Any]) -> None:
    for name, found in report["slopes"].items():
        rise, low, high = (100 * found[part] for part in ("per_hour", "low", "high"))
        print(f"{name:28} {found['mean']:10.1f} {rise:+8.2f} % per hour [{low:+.2f}, {high:+.2f}]",
              found["verdict"])  # fmt: skip
    for name, found in report["shifts"].items():
        print(f"{name:28} {found['early']:10.1f} to {found['late']:.1f}", found["verdict"])
    print(json.dumps({name: report[name] for name in _SHOWN}))


def main() -> None:
    """Run, write the report, and fail if anything grows or an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--trigger", default="8 seconds", help="between micro-batches")
    parser.add_argument("--every", type=float, default=40.0, help="seconds between plan changes")
    parser.add_argument("--report", type=Path, help="by default the one that is shown, or, of a "
                        "run that fails, in its folder")  # fmt: skip
    parser.add_argument("--short", action="store_true",
                        help="let figures pass that were not decided, or grew little")  # fmt: skip
    options = parser.parse_args()
    with workplace("soak") as place:
        report = Soak(place.folder, options.hours * 3600, options.trigger, options.every).run()
        found = faults(report, options.short)
        place.failed = bool(found)
        kept = place.report(options.report, RESULTS / "soak.json")
        write(report, kept)
        if report["readings"]:
            draw_both(report, kept)
        _show(report)
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
