"""What is remembered of a verb of a query: a bounded series of points, and what holds now."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.flow.announced import Announced, announced
from anabranch.flow.load import Load
from anabranch.flow.metrics import (
    counts_of,
    found_in,
    held_by,
    named,
    reports_of,
    seconds_of,
    waits,
    worker_figures,
)
from anabranch.plans.plan import Plan
from anabranch.spark.dashboard.backlog import backlog_of
from anabranch.spark.dashboard.planview import PlanView
from anabranch.spark.dashboard.points import Point, merged, point_of
from anabranch.spark.dashboard.rejected import Rejected

__all__ = ["BUCKETS", "KEPT", "PLAIN", "History", "Series"]

KEPT = 1000
"""Points of a series; the older half is merged in pairs when there are more."""
BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 180, 600)
"""Bounds of the histogram of micro-batches, in seconds."""
PLAIN = "stream"
"""Stands for the verb of a query that has none, of which only what Spark says is known."""


class Series:
    """Points in order, never more than `kept`: of a long run the older ones are coarser.

    `count` is how many were added, and `thinned` how often older ones were merged: a page that
    knows both knows whether it has missed any.

    Examples
    --------
    >>> series = Series(kept=4)
    >>> for batch in range(6):
    ...     series.add({"batch": batch, "rows": 1})
    >>> [(point["batch"], point["rows"]) for point in series.points]
    [(2, 3), (3, 1), (4, 1), (5, 1)]
    """

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self.points: list[Point] = []
        self.count = 0
        self.thinned = 0

    def add(self, point: Point) -> None:
        """Add the newest point."""
        if len(self.points) >= self.kept:
            half = self.kept // 4 * 2
            old = self.points[:half]
            pairs = zip(old[::2], old[1::2], strict=True)
            self.points[:half] = [merged(one, other) for one, other in pairs]
            self.thinned += 1
        self.points.append(point)
        self.count += 1

    def columns(self, newest: int | None = None) -> dict[str, list[float | None]]:
        """The points as columns, all or the newest."""
        chosen = self.points if newest is None else self.points[-newest:]
        names = chosen[-1] if chosen else {}
        return {name: [point.get(name) for point in chosen] for name in names}


class History:
    """An operator of a query, as its progress reports told it; `part` is what it is called."""

    def __init__(self, verb: str, part: str = "") -> None:
        self.verb = verb
        self.part = part or verb
        self.series = Series()
        self.names: tuple[str, ...] = ()
        self.workers: list[dict[str, Any]] = []
        self.totals: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.sides: Counter[str] = Counter()
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0
        self._state: dict[tuple[str, int], Any] = {}
        self._last: tuple[str, int] | None = None
        self._plans: PlanView | None = None
        self.rejected = Rejected()
        self.silent: tuple[str, ...] = ()  # sources that do not say what they have left

    def add(self, progress: Any, names: Sequence[str] | None = None) -> bool:
        """Take in a report; whether there was anything new of these metrics of the verb in it."""
        plain = self.verb == PLAIN
        loads = [] if plain else reports_of(progress, self.verb)
        if names is None:
            names = named(progress.observedMetrics or (), self.verb)
        loads = [load for load in loads if load.operator in names]
        rows = int(getattr(progress, "numInputRows", 0) or 0)
        name = (str(progress.runId), int(progress.batchId))
        if not (rows if plain else loads) or (
            self._last is not None and name <= self._last and name[0] == self._last[0]
        ):
            return False
        if self._last is not None and name[0] != self._last[0]:
            self._state.clear()  # workers of another run
        self._last = name
        self.silent = backlog_of(progress).silent
        self._state.update(((load.operator, load.worker), load) for load in loads)
        self.names = tuple(names)
        view = self._view()
        live = None if view is None else view.workers(name[1])
        self.workers = by_worker(loads, self._state.values(), self.verb, live)
        busy = [one["busy_seconds"] for one in self.workers if one["live"]]
        held = {} if plain else held_by(self._state.values(), self.verb)
        counts = {"rows_in": rows} if plain else counts_of(loads, self.verb)
        found = None if plain else found_in(counts, self.verb)
        self.series.add(point_of(progress, loads, held, counts, found, busy))
        self.totals.update(counts)
        for load in loads:
            self.reasons.update(getattr(load, "reasons", {}))
            for side in ("left", "right") if isinstance(load, Load) else ():
                self.sides[side] += getattr(load, f"rows_{side}")
        self.seconds += seconds_of(progress)
        self.buckets[bisect_left(BUCKETS, seconds_of(progress))] += 1
        return True

    def look_at_rejects(self, query: str) -> None:
        """Read the newest rejected rows, if there are new ones and they are kept."""
        count = self.totals["rejected_rows"]
        if self.verb != "assemble":  # whose late events are used, and come out as revisions
            count += self.totals["late_rows"]
        self.rejected.look(query, self.names, count)

    def plan(self) -> tuple[Announced | None, Plan | None, dict[str, Any]]:
        """What the call said, the plan in force, and what to draw of it."""
        view = self._view()
        if view is None:
            return None, None, {}
        return (view.call, *view.at(int(self.latest.get("batch") or 0)))

    def _view(self) -> PlanView | None:
        """The plans of the call that these reports are of, if this driver made it."""
        call = announced(self.names)
        if call is None:
            return None
        if self._plans is None or self._plans.call is not call:
            self._plans = PlanView(call)
        return self._plans

    @property
    def latest(self) -> Point:
        """The newest point; empty if there is none."""
        return self.series.points[-1] if self.series.points else {}


def by_worker(
    loads: Iterable[Any], held: Iterable[Any], verb: str, live: frozenset[int] | None = None
) -> list[dict[str, Any]]:
    """What each worker did in a micro-batch and holds now; one that did nothing is there too.

    `live` are the workers of the live plans, by default all that have reported: how even the work
    is goes by them. Another one is there as long as it holds something. A worker may report twice
    in a batch, for its rows and for its timer, and so may two operators.
    """
    found: dict[int, dict[str, Any]] = {
        worker: {"worker": worker, "busy_seconds": 0.0, "state_rows": 0, "state_bytes": 0}
        for worker in live or ()
    }
    for load in held:
        if not waits(load):
            mine = worker_figures(load, verb)
            line = found.setdefault(load.worker, {"worker": load.worker, "busy_seconds": 0.0})
            for name in ("state_rows", "state_bytes", "open_windows", "open_groups"):
                if name in mine:
                    line[name] = line.get(name, 0) + mine[name]
    for load in loads:
        if not waits(load):
            mine, line = worker_figures(load, verb), found[load.worker]
            for name in ("busy_seconds", "rows_in", "comparisons", "copies"):
                if name in mine:
                    line[name] = line.get(name, 0) + mine[name]
    for number, line in found.items():
        line["live"] = live is None or number in live
    return [found[n] for n in sorted(found) if found[n]["live"] or found[n].get("state_rows")]
