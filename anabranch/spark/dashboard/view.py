"""What the page is told, as JSON: all that there is, or what has changed since the last message."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import linear_regression
from types import SimpleNamespace
from typing import Any

from anabranch.placement.links import counted, links_of
from anabranch.spark.dashboard.feed import Query
from anabranch.spark.dashboard.health import Vitals, judge
from anabranch.spark.dashboard.history import PLAIN, History
from anabranch.spark.dashboard.points import Point
from anabranch.spark.dashboard.predictions import Prediction, full, predict_assembly, predict_pairs
from anabranch.spark.totals import since_start

__all__ = ["TAIL", "View", "encode", "growth", "histories_of", "vitals_of"]

TAIL = 8
"""Points in a message; a page that has missed more asks for all."""
_HOUR, _TREND = 3600.0, 600.0  # seconds that a trend is taken from, at most and at least
_UNKNOWN = {
    "correlate": "Pairs of rows that are similar and close in time",
    "dedupe": "Rows without their near-duplicates",
    "nearest": "The nearest objects of each saved search",
    "assemble": "One row for all events of a group",
    "groups": "Groups of rows that pairs connect",
    "": "",
    PLAIN: "A stream without a verb of Anabranch, of which rows are shown",
}


@dataclass
class View:
    """What one board shows of the queries it looks at.

    `prediction` is an estimate of `ab.estimate_state`; `placement` a plan of `ab.place`, or the
    control directory of a hub; `links` are the plan's, once they are known. `tables` are rows given
    by hand, such as those of `ab.sla`, and so are `topics`, which have pictures, and the `note`
    above them. `rows` says why contents of rows are not shown; of those that are, only `columns`
    are, if there are any. Another board of the session may have asked for more. `away` is whether
    it is read beyond loopback.
    """

    prediction: Any = None
    placement: Any = None
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    topics: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""
    rows: str = ""
    columns: Sequence[str] | None = None
    links: dict[str, Any] | None = None
    away: bool = False

    def state(self, queries: Sequence[Query], newest: int | None = None) -> dict[str, Any]:
        """All of it; with `newest` only so many points of each series, and no rows."""
        now = time.time()
        return {
            "now": now,
            "subjects": [
                self._subject(query, history, now, newest)
                for query in queries
                for history in histories_of(query)
            ],
            "placement": self._traffic(),
            "tables": self.tables,
            "rows_off": self.rows,
            "note": self.note,
        }

    def _traffic(self) -> dict[str, Any] | None:
        """By link: of a plan, which does not change; or what a hub has counted beside its own."""
        if isinstance(self.placement, (str, os.PathLike)):
            with suppress(OSError, ValueError):  # only the hub's machine may reach it
                return counted(self.placement)
        elif self.placement is not None and self.links is None:
            self.links = links_of(self.placement)
        return self.links

    def rows_of(self, queries: Sequence[Query]) -> dict[str, Any]:
        """The rows to be shown, by query and label."""
        if self.rows:
            return {}
        return {
            query.id: {
                label: samples.form(self.columns) for label, samples in query.samples.items()
            }
            for query in queries
        }

    def searches_of(self, queries: Sequence[Query]) -> dict[str, Any]:
        """The searches that are shown whole, by query and id."""
        if self.rows:
            return {}
        return {
            query.id: {name: search.form(self.columns) for name, search in query.searches.items()}
            for query in queries
            if query.searches
        }

    def _subject(
        self, query: Query, history: History, now: float, newest: int | None
    ) -> dict[str, Any]:
        call, plan, drawn = history.plan()
        points = history.series.points
        vitals = vitals_of(query, history, now)
        said: list[Prediction] = []
        unsaid = ""
        if history.verb == "correlate":
            since = drawn.get("since", 0)  # before, rows were sent under other plans
            present = [point for point in points if (point["batch"] or 0) >= since]
            said, unsaid = predict_pairs(present, call, plan)
        elif history.verb == "assemble":
            said, unsaid = predict_assembly(self.prediction, history.latest)
        return {
            "id": f"{query.id}/{history.part}",
            "query": query.id,
            "name": query.label,
            "verb": history.verb,
            "part": history.part,
            "words": _UNKNOWN[history.verb] if call is None else call.words,
            "since": query.since,
            "runs": query.runs,
            "active": query.active,
            "interval": query.interval,
            "health": [finding._asdict() for finding in judge(vitals, self.away)],
            "total": totals_of(query, history),
            "silent": history.silent,
            "workers": history.workers,
            "reasons": dict(history.reasons),
            "plan": drawn,
            "rejects": history.rejected.form(self.columns, self.rows),
            "growth": growth(full(points, call)),
            "predictions": [_compared(prediction) for prediction in said],
            "unpredicted": unsaid,
            "count": history.series.count,
            "thinned": history.series.thinned,
            "shown": query.shown,
            "series": history.series.columns(newest),
        }


def histories_of(query: Query) -> list[History]:
    """Its operators; of a query that has not reported anything yet, one without a verb."""
    return [History("")] if query.unknown else list(query.histories.values())


def vitals_of(query: Query, history: History, now: float) -> Vitals:
    """What the rules know of a verb of a query, the same for the page and for alerts."""
    call, plan, _ = history.plan()
    return Vitals(
        history.series.points,
        query.active,
        query.error,
        now,
        query.interval,
        query.running(now),
        plan,
        call is not None and call.one_stream,
        query.label,
    )


def totals_of(query: Query, history: History) -> Mapping[str, int]:
    """Counts since the run was started, where the session has counted; else since we look."""
    alone = [one.verb for one in query.histories.values()].count(history.verb) == 1
    counted = since_start(SimpleNamespace(runId=query.run), ()).get(history.verb)
    return dict(counted if counted and alone else history.totals)


def growth(points: Sequence[Point]) -> dict[str, float] | None:
    """Rows and bytes by which state grows per hour, by the trend of the last hour.

    `points` are those with full windows; nothing is said of less than ten minutes of them.

    Examples
    --------
    >>> line = [{"at": 60.0 * n, "state_rows": 10.0 * n, "state_bytes": 5.0} for n in range(20)]
    >>> growth(line), growth(line[:5])
    ({'rows': 600.0, 'bytes': 0.0}, None)
    """
    known = [p for p in points if p.get("at") is not None]
    known = [p for p in known if (p["at"] or 0.0) >= (known[-1]["at"] or 0.0) - _HOUR]
    if len(known) < 3 or (known[-1]["at"] or 0.0) - (known[0]["at"] or 0.0) < _TREND:
        return None
    hours = [((p["at"] or 0.0) - (known[0]["at"] or 0.0)) / _HOUR for p in known]
    rows, size = (
        round(linear_regression(hours, [p[name] or 0.0 for p in known]).slope, 6)
        for name in ("state_rows", "state_bytes")
    )
    return {"rows": rows, "bytes": size}


def encode(form: Any) -> bytes:
    """JSON that browsers read: they know no NaN."""
    return json.dumps(_finite(form), separators=(",", ":"), default=str).encode()


def _finite(form: Any) -> Any:
    if isinstance(form, float):
        return form if math.isfinite(form) else None
    if isinstance(form, Mapping):
        return {str(name): _finite(value) for name, value in form.items()}
    return [_finite(value) for value in form] if isinstance(form, (list, tuple)) else form


def _compared(prediction: Prediction) -> dict[str, Any]:
    return {**prediction._asdict(), "error": prediction.error}
