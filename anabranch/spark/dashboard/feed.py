"""What a session's queries tell, kept for all pages that look at them.

Spark tells its listeners one after the other, so here a report is only laid aside. Whoever looks
next takes in what has come, on a thread of its own.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from anabranch.flow.metrics import verbs_of
from anabranch.spark.dashboard.history import PLAIN, History
from anabranch.spark.dashboard.points import epoch
from anabranch.spark.dashboard.sample import Samples, samples_in
from anabranch.spark.dashboard.search import Search, searches_in
from anabranch.spark.totals import plain_line

__all__ = ["Feed", "Query"]

_QUERIES = 32  # that are remembered
_INBOX = 2000  # reports that nobody has taken in yet
_INTERVAL = re.compile(r"ProcessingTimeTrigger\((\d+)\)")
_LINE = 300


class Query:
    """A streaming query: its verbs, the rows it shows, and how it is."""

    def __init__(self, ident: str) -> None:
        self.id = ident
        self.run = ""
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

    def hold(self, handle: Any) -> None:
        """Keep what can be asked how the query is."""
        self.handle = handle
        self.name = str(getattr(handle, "name", None) or "")
        self.interval = _interval(handle)

    def add(self, progress: Any) -> list[str]:
        """Take in a report; the verbs of which there was something new."""
        run = str(progress.runId)
        if run != self.run:
            self.run, self.runs, self.active, self.error = run, self.runs + 1, True, None
            self.since = epoch(getattr(progress, "timestamp", None))
        self.name = str(getattr(progress, "name", None) or self.name)
        if getattr(progress, "numInputRows", 0) and not verbs_of(progress):
            self.foreign = True
        fresh, shown = [], list(samples_in(progress))
        verbs = verbs_of(progress)
        if shown and not verbs and self.histories.keys() <= {PLAIN}:
            verbs = [PLAIN]  # a stream of the user's own
        for verb in verbs:
            history = self.histories.get(verb) or History(verb)
            if history.add(progress):  # a first report may be of workers that had nothing to do
                self.histories[verb] = history
                fresh.append(verb)
        if fresh:  # a report that comes twice shows nothing twice
            for label, rows in shown:
                self.samples.setdefault(label, Samples()).add(int(progress.batchId), rows)
                self.shown += bool(rows)
            for search, rows in searches_in(progress):
                self.searches.setdefault(search, Search()).add(int(progress.batchId), rows)
                self.shown += bool(rows)
        return [verb for verb in fresh if verb != PLAIN]

    def end(self, trace: str | None) -> None:
        """The query has ended."""
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
        self._watchers: list[Callable[[Query, str, Any], None]] = []
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

    def tell(self, watcher: Callable[[Query, str, Any], None]) -> None:
        """Tell a function of every micro-batch: the query, the verb and the report."""
        self._watchers.append(watcher)

    def forget(self, watcher: Callable[[Query, str, Any], None]) -> None:
        """Tell it no longer."""
        self._watchers.remove(watcher)

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
                query = self.query(str(what.id), find)
                if kind == "end":
                    query.end(what.exception)
                    continue
                for verb in query.add(what):
                    for watcher in list(self._watchers):
                        watcher(query, verb, what)

    def add(self, handle: Any) -> None:
        """Begin with what Spark remembers of a query, which may have ended."""
        with self.lock:
            query = self.query(str(handle.id), lambda _: handle)
            for progress in handle.recentProgress:
                query.add(progress)
            if not handle.isActive:
                error = handle.exception()
                query.end(None if error is None else str(error))
        self.wake()

    def query(self, ident: str, find: Callable[[str], Any]) -> Query:
        """What is known of the query of an id."""
        if ident not in self.queries:
            self.queries[ident] = Query(ident)
            while len(self.queries) > _QUERIES:
                self.queries.popitem(last=False)
        query = self.queries[ident]
        if query.handle is None and (handle := find(ident)) is not None:
            query.hold(handle)
        return query

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
