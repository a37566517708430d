"""Lets keepers of plan logs hear of the queries of a session.

A session listens once for all its keepers, since keepers that lag decide late; of every call with
``control=`` it remembers only what its query would need.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from anabranch.flow.folders import path_problems
from anabranch.flow.metrics import loads_of, seconds_of
from anabranch.plans.controller import Report
from anabranch.plans.keeper import Keeping, PlanKeeper
from anabranch.spark.listening import hearer_of

__all__ = ["Keepers", "attach", "shared_path_problems"]

_WAITING = 32  # calls whose query is not running that a session remembers


class Keepers:
    """Tells keepers, by the names of their metrics, of the micro-batches of their queries."""

    def __init__(self) -> None:
        self._session: Callable[[], SparkSession | None] = lambda: None
        self._keepers: dict[str, PlanKeeper] = {}
        self._running: dict[str, str] = {}  # the query of each of them that has one
        self._queries: dict[str, Any] = {}  # by their ids, to be asked when they have ended too

    def attach(self, spark: SparkSession, name: str, keeper: PlanKeeper) -> None:
        """Remember a keeper; of those that wait for a query, the oldest is forgotten for it."""
        self._session = weakref.ref(spark)
        self._keepers[name] = keeper
        waiting = [other for other in self._keepers if other not in self._running]
        for other in waiting[:-_WAITING]:
            del self._keepers[other]

    def ended(self, event: Any) -> None:
        """Let its keepers forget it; the same DataFrame may be started again."""
        self._queries.pop(str(event.id), None)
        for name in [name for name, query in self._running.items() if query == str(event.id)]:
            del self._running[name]
            if name in self._keepers:
                self._keepers[name].rest()

    def progressed(self, progress: Any) -> None:
        """Tell every keeper concerned; if one fails the others hear of it all the same."""
        failed = None
        for name in progress.observedMetrics or {}:
            if name in self._keepers:
                self._running[name] = str(progress.id)
                try:
                    self._notify(self._keepers[name], name, progress)
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed  # Spark logs it

    def _notify(self, keeper: PlanKeeper, name: str, progress: Any) -> None:
        loads = tuple(loads_of(progress, name))
        seconds = seconds_of(progress)
        watermark = max((load.watermark for load in loads), default=0)
        report = Report(int(progress.batchId), seconds, watermark, loads)
        query = self._query(str(progress.id))

        def newest() -> int:
            latest = None if query is None else query.lastProgress
            return int((latest or progress).batchId)

        keeper.hear(str(progress.id), report, newest)

    def _query(self, ident: str) -> Any:
        """A query, also if it has ended and reports of it are still on the way.

        The session no longer knows it then, and an entry must not take effect at a micro-batch that
        has long been routed.
        """
        spark = self._session()
        if ident not in self._queries and spark is not None:
            query = spark.streams.get(ident)
            if query is not None:
                self._queries[ident] = query
        return self._queries.get(ident)


def attach(spark: SparkSession, name: str, keeping: Keeping) -> None:
    """Have a log kept once a query runs whose metrics have this name; writes nothing."""
    hearer_of(spark, Keepers).attach(spark, name, PlanKeeper(keeping))


def shared_path_problems(spark: SparkSession, name: str, path: Any) -> list[str]:
    """What is wrong with the argument `name` as the path of a directory that workers share.

    A relative path means another place in every process; on one machine `absolute` mends that.
    """
    problems = path_problems(name, path)
    if problems:
        return problems
    text, master = str(path), str(spark.conf.get("spark.master", "local"))
    if "://" in text or text.startswith("/") or master.startswith("local"):
        return []
    return [
        f"{name}={text!r} is relative, and workers run on other machines ({master}): name a "
        f"directory that all of them share, such as '/mnt/shared/{name}' or 's3://bucket/{name}'"
    ]
