"""What a session's queries tell, kept for all pages that look at them.

Spark tells its listeners one after the other, so here a report is only laid aside. Whoever looks
next takes in what has come, on a thread of its own.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anabranch.flow.announced import in_order
from anabranch.flow.metrics import operators_of, verbs_of
from anabranch.spark.dashboard.history import PLAIN, History
from anabranch.spark.dashboard.points import epoch
from anabranch.spark.dashboard.sample import Samples, samples_in
from anabranch.spark.dashboard.search import Search, searches_in
from anabranch.spark.totals import plain_line

__all__ = ["Feed", "Query", "Watcher"]

_QUERIES = 32  # that are remembered
_INBOX = 2000  # reports that nobody has taken in yet
_INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
_LINE = 300


class Watcher(Protocol):
    """What wants to be told of queries as they are taken in."""

    def progressed(self, query: Query, parts: Sequence[str], progress: Any) -> None:
        """A micro-batch has ended; `parts` are the histories that have something new."""

    def failed(self, query: Query) -> None:
        """An error has ended a query."""


class Query:
    """A streaming query: its verbs, the rows it shows, and how it is.

    `histories` are by verb; a second operator of a verb is a part of its own, such as
    ``correlate 2``.
    """

    def __init__(self, ident: str) -> None:
        self.id = ident
        self.run = ""
        self.past: set[str] = set()  # runs before this one
        self.runs = 0
        self.name = ""
        self.since: float | None = None
        self.active = True
        self.error: str | None = None
        self.interval: float | None = None
        self.handle: Any = None
        self.histories: dict[str, History] = {}
        self.samples: dict[str, Samples] = {}
        self.searches: dict[str, Search] = {}
        self.shown = 0  # how often rows to be shown have come
        self.foreign = False  # whether it has processed rows without any verb of ours

    @property
    def label(self) -> str:
        """Its name, or the beginning of its id."""
        return self.name or self.id[:8]

    @property
    def unknown(self) -> bool:
        """Whether it has not reported anything yet, so that nobody knows its verb."""
        return not self.histories and not self.foreign

    def hold(self, handle: Any) -> None:
        """Keep what can be asked how the query is, if it is of this run and there is one."""
        if handle is None or str(getattr(handle, "runId", self.run)) != self.run:
            return
        self.handle = handle
        self.name = str(getattr(handle, "name", None) or "")
        self.interval = _interval(handle)

    def begin(self, run: str, timestamp: str | None = None, name: str | None = None) -> None:
        """A run has been heard of; a new one owes nothing to those before.

        Spark tells at once that a query has started and later that it has ended, so that the last
        words of a run may come when the next one has begun.
        """
        if run == self.run or run in self.past:
            return
        self.past.add(self.run)
        self.run, self.runs, self.active, self.error = run, self.runs + 1, True, None
        self.handle = None  # the one of the former run has ended for good
        self.since = epoch(timestamp) or time.time()
        self.name = name or self.name

    def add(self, progress: Any) -> list[str]:
        """Take in a report; the parts of which there was something new."""
        self.begin(str(progress.runId), getattr(progress, "timestamp", None))
        self.name = str(getattr(progress, "name", None) or self.name)
        if getattr(progress, "numInputRows", 0) and not verbs_of(progress):
            self.foreign = True
        fresh, shown = [], list(samples_in(progress))
        for part, verb, names in self._parts(progress, bool(shown)):
            history = self.histories.get(part) or History(verb, part)
            # A first report may be of workers that had nothing to do.
            if history.add(progress, names):
                self.histories[part] = history
                fresh.append(part)
        if fresh:  # a report that comes twice shows nothing twice
            for label, rows in shown:
                self.samples.setdefault(label, Samples()).add(int(progress.batchId), rows)
                self.shown += bool(rows)
            for search, rows in searches_in(progress):
                self.searches.setdefault(search, Search()).add(int(progress.batchId), rows)
                self.shown += bool(rows)
        return [part for part in fresh if part != PLAIN]

    def _parts(self, progress: Any, shows: bool) -> list[tuple[str, str, Sequence[str] | None]]:
        """Every operator of a verb of ours: what it is called here, its verb, its metrics."""
        verbs, found = verbs_of(progress), list[tuple[str, str, Sequence[str] | None]]()
        if shows and not verbs and self.histories.keys() <= {PLAIN}:
            return [(PLAIN, PLAIN, None)]  # a stream of the user's own
        for verb in verbs:
            # In the order of the calls, which is the same when the program runs again.
            each = in_order(operators_of(progress.observedMetrics, verb))
            for number, names in enumerate(each, 1):
                found.append((verb if number == 1 else f"{verb} {number}", verb, names))
        return found

    def end(self, trace: str | None, run: str | None = None) -> None:
        """The query has ended, or one of its runs, of which this may be the first word."""
        if run is not None:
            self.begin(run)
        if run not in (None, self.run):
            return
        self.active = False
        lines = [line.strip() for line in (trace or "").splitlines() if line.strip()]
        text = plain_line(trace) or (lines or [""])[0]
        self.error = text[:_LINE] or None

    def running(self, now: float) -> float | None:
        """How long the present micro-batch has been running, if one is and Spark says so."""
        if self.handle is None or not self.active:
            return None
        latest = max((h.latest.get("at") or 0.0 for h in self.histories.values()), default=0.0)
        try:
            busy = bool(self.handle.status.get("isTriggerActive"))
        except Exception:  # it has just ended, and its session with it
            busy = False
        if not latest or not busy:
            return None
        took = max(h.latest.get("seconds") or 0.0 for h in self.histories.values())
        return max(0.0, now - latest - took)


class Feed:
    """Hears of the queries of a session, once somebody looks."""

    def __init__(self) -> None:
        self.queries: OrderedDict[str, Query] = OrderedDict()
        self.changed = threading.Condition()
        self.version = 0
        self.lock = threading.Lock()
        self._inbox: deque[tuple[str, Any]] = deque(maxlen=_INBOX)
        self._watchers: list[Watcher] = []
        self._looked_at = 0

    def look(self) -> None:
        """Somebody looks from now on."""
        self._looked_at += 1

    def look_away(self) -> None:
        """Somebody has ceased to look; after the last one all is forgotten."""
        self._looked_at -= 1
        if not self._looked_at:
            with self.lock:
                self._inbox.clear()
                self.queries.clear()

    def tell(self, watcher: Watcher) -> None:
        """Tell somebody of every micro-batch."""
        self._watchers.append(watcher)

    def forget(self, watcher: Watcher) -> None:
        """Tell it no longer."""
        self._watchers.remove(watcher)

    def started(self, event: Any) -> None:
        """A query has been started."""
        self._lay_aside("start", event)

    def progressed(self, progress: Any) -> None:
        """A micro-batch has ended."""
        self._lay_aside("progress", progress)

    def ended(self, event: Any) -> None:
        """A query has ended."""
        self._lay_aside("end", event)

    def _lay_aside(self, kind: str, what: Any) -> None:
        if self._looked_at:
            self._inbox.append((kind, what))
            self.wake()

    def wake(self) -> None:
        """Let those who wait look again."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def take_in(self, find: Callable[[str], Any] = lambda _: None) -> None:
        """Take in what has come; `find` knows the query of an id, if it still runs."""
        with self.lock:
            while self._inbox:
                kind, what = self._inbox.popleft()
                query, told = self.query(str(what.id)), list(self._watchers)
                if kind == "end":
                    query.end(what.exception, str(getattr(what, "runId", query.run)))
                    for watcher in told if query.error else ():
                        watcher.failed(query)
                elif kind == "start":
                    query.begin(str(what.runId), getattr(what, "timestamp", None), what.name)
                elif parts := query.add(what):
                    for watcher in told:
                        watcher.progressed(query, parts, what)
                if query.active and query.handle is None:
                    query.hold(find(query.id))

    def add(self, handle: Any) -> None:
        """Begin with what Spark remembers of a query, which may have ended."""
        with self.lock:
            query, run = self.query(str(handle.id)), str(handle.runId)
            reports = list(handle.recentProgress)
            over = run != query.run and query.run and query.active and not handle.isActive
            if not over and run not in query.past:
                query.begin(run, getattr(reports[0], "timestamp", None) if reports else None)
                query.hold(handle)
                for progress in reports:
                    query.add(progress)
                if not handle.isActive:
                    error = handle.exception()
                    query.end(None if error is None else str(error))
        self.wake()

    def query(self, ident: str) -> Query:
        """What is known of the query of an id."""
        if ident not in self.queries:
            self.queries[ident] = Query(ident)
            while len(self.queries) > _QUERIES:
                self.queries.popitem(last=False)
        return self.queries[ident]

    def wait(self, seen: int, seconds: float) -> int:
        """Wait until something has come since `seen`, or so long; what to wait from next."""
        until = time.monotonic() + seconds
        with self.changed:
            while self.version == seen and (left := until - time.monotonic()) > 0:
                self.changed.wait(left)
            return self.version


def _interval(handle: Any) -> float | None:
    """Seconds between triggers; only the query inside Spark knows, and not through Connect."""
    inner = getattr(handle, "_jsq", None)
    try:
        text = str(inner.streamingQuery().trigger().toString())  # type: ignore[union-attr]
    except Exception:  # it is another class in Connect, and in Sparks to come
        return None
    found = _INTERVAL.search(text)
    return int(found[1]) / 1000 or None if found else None
