"""The keeper of a plan log: hears of a query's progress and writes what the controller decides.

It lives in the driver and is the only writer of the log. An entry takes effect three micro-batches
after the newest one that the query has reported at the moment of writing, that is at least two
after the newest one begun; by then every router sees it. A session has one listener for all its
keepers: Spark tells every listener of every micro-batch of every query, one after the other, and
keepers that lag decide late.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from anabranch.plans.controller import Adaptive, Controller, Report
from anabranch.plans.log import PlanLog, Request
from anabranch.plans.plan import Plan
from anabranch.spark.metrics import loads_of

__all__ = ["LEAD", "PlanKeeper", "begun_log", "engage"]

LEAD = 3


class PlanKeeper:
    """Keeps the plan log of one verb of a query, recognised by the name of its metrics."""

    def __init__(
        self,
        spark: SparkSession,
        log: PlanLog,
        metrics_name: str,
        window: tuple[int, int],
        late: int,
        settings: Adaptive | None,
        most_workers: int,
        bind: Callable[[Plan], Plan] = lambda plan: plan,
        operator: str = "",
        former: str = "",
    ) -> None:
        self._spark = spark
        self._log = log
        self.name = metrics_name
        self._most_workers = most_workers
        self._bind = bind
        self._operator, self._former = operator, former
        self._controller = Controller(log.entries(), window, late, settings)
        self._watermark = 0

    def hear(self, progress: Any) -> None:
        """Hand the batch's loads to the controller and write what it wants."""
        self._log.claim(str(progress.id), self._operator, self._former)
        self._controller.catch_up(self._log.entries())
        loads = loads_of(progress, self.name)
        self._watermark = max([self._watermark, *(load.watermark for load in loads)])
        seconds = dict(progress.durationMs).get("triggerExecution", 0) / 1000
        report = Report(progress.batchId, seconds, self._watermark, tuple(loads))
        asked = self._requests()
        wishes = [(plan, request.cause) for request, plan in asked]
        before = self._controller.now.epoch
        change = self._controller.handle(report, wishes)
        if change is None:
            return
        entry = self._log.write(change.entry(self._newest_reported(progress) + LEAD))
        self._controller.written(entry)
        if entry.epoch != before:  # otherwise requests wait until there is room for a plan
            self._settle([request for request, _ in asked])
        if self._newest_reported(progress) + 1 >= entry.first:
            warnings.warn(
                f"plan log entry {entry.number} was written late: micro-batch {entry.first} may "
                "have begun; pairs stay exact unless a task of it is repeated",
                stacklevel=2,
            )

    def _requests(self) -> list[tuple[Request, Plan]]:
        """Plans asked for by hand that could hold; the others are refused with a word."""
        found = []
        for request in self._log.requests():
            try:
                plan = self._bind(request.plan)
                if plan.workers > self._most_workers:
                    raise ValueError(
                        f"{plan} was asked for, but the session has {self._most_workers} shuffle "
                        "partitions, one for each worker"
                    )
                found.append((request, plan))
            except ValueError as error:
                warnings.warn(f"{error}: request dropped", stacklevel=2)
                self._log.settle(request)
        return found

    def _settle(self, requests: Sequence[Request]) -> None:
        """Take requests off the log; the newest has been enacted."""
        for request in requests[:-1]:
            warnings.warn(
                f"{request.plan} ({request.cause}) was asked for and not yet enacted when "
                f"{requests[-1].plan} was: request dropped",
                stacklevel=2,
            )
        for request in requests:
            self._log.settle(request)

    def _newest_reported(self, progress: Any) -> int:
        """The newest batch that the query has reported by now; this report itself may be old."""
        query = self._spark.streams.get(str(progress.id))
        latest = query.lastProgress if query is not None else None
        return max(int(progress.batchId), int(latest.batchId) if latest is not None else 0)


class _Listener(StreamingQueryListener):
    """Tells keepers of the micro-batches that have their metrics."""

    def __init__(self) -> None:
        self.keepers: dict[str, PlanKeeper] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to do: a query shows whose it is by its first metrics."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to do: logs are whole after every entry, and the query may be started again."""

    def onQueryProgress(self, event: Any) -> None:
        """Tell every keeper concerned; if one fails the others hear of it all the same."""
        failed: Exception | None = None
        for name in event.progress.observedMetrics or {}:
            if name in self.keepers:
                try:
                    self.keepers[name].hear(event.progress)
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed  # Spark logs it


_LISTENERS: WeakKeyDictionary[Any, _Listener] = WeakKeyDictionary()


def engage(spark: SparkSession, keeper: PlanKeeper) -> None:
    """Let a keeper hear of the queries of a session."""
    if spark not in _LISTENERS:
        listener = _Listener()
        spark.streams.addListener(listener)
        _LISTENERS[spark] = listener
    _LISTENERS[spark].keepers[keeper.name] = keeper


def begun_log(
    control: str, plan: Plan, asked: bool, bind: Callable[[Plan], Plan] = lambda plan: plan
) -> PlanLog:
    """The plan log of a directory, begun if it is new; a word if another plan was `asked` for."""
    log = PlanLog(control)
    entries = log.entries()
    if not entries:
        log.begin(plan, first=0)
    elif asked and bind(entries[0].plan).fingerprint != plan.fingerprint:
        warnings.warn(
            f"the plan log in {control} was begun with {entries[0].plan}, so plan={plan} has no "
            f"effect and {entries[-1].plan} holds: ask for another with "
            "ab.PlanLog(control).append(...), or name a new directory for a new checkpoint",
            stacklevel=5,
        )
    return log
