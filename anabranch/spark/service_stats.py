"""`ServiceStats`: summaries of services that a running query keeps up to date."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from anabranch.assembly.service_stats.store import SummaryStore, summarise
from anabranch.assembly.service_stats.summary import Summary
from anabranch.calls import Duration, is_whole
from anabranch.errors import InvalidCall, renamed
from anabranch.spark.frames import Condition, by_name, is_frame
from anabranch.spark.opening import opened
from anabranch.spark.promises import PROMISE_COLUMNS, Promises, promise_problems
from anabranch.spark.sla import duration_of, named_promises
from anabranch.spark.verdicts import instance_problems, judge

__all__ = ["ServiceStats"]

_LOG = logging.getLogger("anabranch")
_NESTED = (ArrayType, MapType, StructType)


class ServiceStats:
    """What is known of each service: count, mean, spread, quantiles, count_ratio, compliance.

    Parameters
    ----------
    path
        A folder, or any address of one that pyarrow opens (``s3://...``); of one stream (one
        checkpoint), whose batches are told apart by number, and any number of tables.
    promises
        As in ``ab.sla``; without them every verdict is unknown.
    service, metric, period, complete, promise_columns
        As in ``ab.sla``.

    Examples
    --------
    >>> import tempfile
    >>> rows = spark.sql('''SELECT 'a' AS kind, id AS key, 0 AS seq, 0 AS revision,
    ...     timestamp_seconds(1700000000) AS opened, timestamp_seconds(1700000000 + id) AS closed,
    ...     double(id) AS duration, 3 AS count FROM range(1, 101)''')
    >>> known = ServiceStats(tempfile.mkdtemp(), {"a": "90 seconds"}, complete="count >= 3")
    >>> known.update(rows)
    >>> summary = known.get("a")
    >>> summary.count, summary.mean, round(summary.quantile(0.5)), summary.compliance
    (100.0, 50.5, 50, 0.9)

    In a stream, ``instances.writeStream.foreachBatch(known.update)`` keeps it up to date.
    """

    @renamed()
    def __init__(
        self,
        path: str | os.PathLike[str],
        promises: Promises | None = None,
        *,
        service: Any = "kind",
        metric: Any = "duration",
        period: Duration = "1 hour",
        complete: Condition | None = None,
        promise_columns: Sequence[Any] = PROMISE_COLUMNS,
    ) -> None:
        promises, promise_columns = named_promises(promises, promise_columns)
        problems = [
            f"{name} must be the name of a column, or a Column, got {value!r}"
            for name, value in (("service", service), ("metric", metric))
            if not isinstance(value, (str, Column))
        ]
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            problems.append(f"path must be a folder or the address of one, got {path!r}")
        self.period = duration_of("period", period, problems)
        if promises is not None:
            problems += promise_problems(promises, promise_columns, metric)
        if problems:
            raise InvalidCall("ServiceStats", problems)
        self.store = SummaryStore(str(path))
        self.promises = promises
        self.service = service
        self.metric = metric
        self.complete = complete
        self.promise_columns = promise_columns

    @renamed()
    def update(self, instances: DataFrame, batch: int | None = None) -> None:
        """Take in instances: a table, or micro-batch number `batch` of a stream. Runs a job.

        The same number again replaces what it brought before; a table adds to what is there, so
        give it once. In a stream the first row of an instance counts, since later revisions may
        come in other batches; in a table the last does, as in ``ab.sla``. Rows without a service
        or without a time of closing are left out.
        """
        once = batch is not None
        service, metric = self.service, self.metric
        query = _query_of(instances) if once and is_frame(instances) else None
        if is_frame(instances):
            (instances,), (service, metric) = opened((instances,), (service, metric))
        problems = self._problems(instances, service, metric, batch)
        if problems:
            raise InvalidCall("ServiceStats.update", problems)
        _LOG.info("ServiceStats.update runs a job, which summarises the instances")
        kind = instances.schema[service].dataType
        named = by_name(service).isNotNull() & F.col("closed").isNotNull()
        if kind.simpleString() in ("float", "double"):
            named &= ~F.isnan(by_name(service))
        share = "count_ratio" if "count_ratio" in instances.columns else None
        judged = judge(
            instances.filter(named),
            self.promises,
            service,
            metric,
            self.complete if self.promises is not None else True,
            once,
            self.promise_columns,
        )
        micros, whose = F.unix_micros("closed"), F.col("_service")
        if isinstance(kind, StringType):
            whose = F.make_valid_utf8(whose)  # names are kept as text
        rows = judged.filter(F.col("_verdict") != "revised").select(
            whose.alias("service"),
            (micros - F.pmod(micros, F.lit(self.period))).alias("period"),
            by_name(metric).cast("double").alias("figure"),
            (F.col(share) if share else F.lit(None)).cast("double").alias("count_ratio"),
            F.col("_verdict").alias("verdict"),
        )
        fields = [("service", kind), ("period", LongType()), ("summary", StringType())]
        shape = StructType([StructField(*field) for field in fields])
        parts = rows.mapInArrow(_partial, shape).toArrow().to_pylist()
        self.store.write(
            batch,
            [(p["service"], p["period"], Summary.from_json(p["summary"])) for p in parts],
            query,
        )

    def _problems(self, instances: Any, service: Any, metric: Any, batch: Any) -> list[str]:
        if not (batch is None or is_whole(batch, 0)):
            return [f"batch must be the number of a micro-batch, got {batch!r}"]
        if getattr(instances, "isStreaming", False):
            return ["instances is a stream: use instances.writeStream.foreachBatch(known.update)"]
        judged = self.promises is not None
        problems = instance_problems(
            instances, service, metric, self.complete, batch is not None, judged
        )
        if not problems and isinstance(instances.schema[service].dataType, _NESTED):
            kind = instances.schema[service].dataType.simpleString()
            problems.append(f"service column {service!r} is {kind}, which names no service")
        return problems

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            now = {"absorb": "update", "of": "get"}.get(name)
            had = f"is now called {now}" if now else "is not there: update, get and table are"
            raise AttributeError(f"ServiceStats.{name} {had}")

    @renamed(tau="half_life")
    def get(self, service: Any, *, half_life: Duration | None = None) -> Summary:
        """All periods of a service as one summary; with `half_life`, older ones fade."""
        problems: list[str] = []
        seconds = None if half_life is None else duration_of("half_life", half_life, problems) / 1e6
        if problems:
            raise InvalidCall("ServiceStats.get", problems)
        return self.store.of(service, half_life=seconds)

    @renamed()
    def table(self) -> list[dict[str, Any]]:
        """One row per service and period."""
        return [
            {
                "service": service,
                "period": period,
                "count": s.count,
                "mean": s.mean,
                "deviation": s.variance**0.5,
                "median": s.quantile(0.5),
                "p95": s.quantile(0.95),
                "p99": s.quantile(0.99),
                "count_ratio": s.count_ratio,
                "met": s.met,
                "violated": s.violated,
                "unknown": s.unknown,
                "low": s.low,
                "high": s.high,
                "compliance": s.compliance,
                "lower": s.lower,
                "upper": s.upper,
            }
            for (service, period), s in sorted(self.store.read().items(), key=repr)
        ]


def _partial(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Summaries of each Arrow batch; the driver merges them."""
    for batch in batches:
        found = list(summarise(batch))
        if found:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([service for service, _, _ in found], batch.schema.field(0).type),
                    pa.array([period for _, period, _ in found], pa.int64()),
                    pa.array([summary.to_json() for _, _, summary in found]),
                ],
                ["service", "period", "summary"],
            )


def _query_of(instances: DataFrame) -> str | None:
    """The query whose micro-batch this is, one for each checkpoint; Connect does not say."""
    try:
        context = instances.sparkSession.sparkContext
    except AttributeError:
        return None
    found: str | None = context.getLocalProperty("sql.streaming.queryId")
    return found
