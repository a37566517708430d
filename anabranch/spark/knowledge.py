"""`Knowledge`: summaries of services that a running query keeps up to date on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.assembly.knowledge.store import SummaryStore, summarise
from anabranch.assembly.knowledge.summary import Summary
from anabranch.calls import Duration, microseconds
from anabranch.errors import InvalidCall
from anabranch.spark.frames import by_name
from anabranch.spark.sla import Promises, judge, revision_problems

__all__ = ["Knowledge"]


class Knowledge:
    """What is known of each service: count, mean, spread, quantiles, completeness, compliance.

    Parameters
    ----------
    path
        A directory of the driver's file system; of one stream (one checkpoint), whose batches are
        told apart by number, and any number of tables.
    promises
        As in ``ab.sla``; without them every verdict is unknown.
    service, metric, period
        As in ``ab.sla``.

    Examples
    --------
    >>> import tempfile
    >>> rows = spark.sql('''SELECT 'a' AS head, id AS key, 0 AS seq, 0 AS revision,
    ...     timestamp_seconds(1700000000) AS opened, timestamp_seconds(1700000000 + id) AS closed,
    ...     double(id) AS duration, 1.0D AS completeness FROM range(1, 101)''')
    >>> known = Knowledge(tempfile.mkdtemp(), {"a": "90 seconds"})
    >>> known.absorb(rows)
    >>> summary = known.of("a")
    >>> summary.count, summary.mean, round(summary.quantile(0.5)), summary.compliance
    (100.0, 50.5, 50, 0.9)

    In a stream, ``instances.writeStream.foreachBatch(known.absorb)`` keeps it up to date.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        promises: Promises | None = None,
        *,
        service: str = "head",
        metric: str = "duration",
        period: Duration = "1 hour",
    ) -> None:
        try:
            self.period = microseconds(period)
        except ValueError as error:
            raise InvalidCall("Knowledge", [f"period: {error}"]) from None
        if self.period <= 0:
            raise InvalidCall("Knowledge", [f"period must be longer than nothing, got {period!r}"])
        self.store = SummaryStore(path)
        self.promises = promises
        self.service = service
        self.metric = metric

    def absorb(self, instances: DataFrame, batch: int | None = None) -> None:
        """Take in instances: a table, or micro-batch number `batch` of a stream.

        The same number again replaces what it brought before; a table adds to what is there, so
        absorb it once. In a stream the first row of an instance counts, since later revisions may
        come in other batches; in a table the last does, as in ``ab.sla``.
        """
        once = batch is not None
        problems = [] if once else revision_problems(instances)
        if problems:
            raise InvalidCall("Knowledge.absorb", problems)
        judged = judge(instances, self.promises, self.service, self.metric, once=once)
        micros = F.unix_micros("closed")
        rows = judged.filter(F.col("_verdict") != "revised").select(
            F.col("_service").alias("service"),
            (micros - F.pmod(micros, F.lit(self.period))).alias("period"),
            by_name(self.metric).cast("double").alias("figure"),
            F.col("completeness").cast("double").alias("completeness"),
            F.col("_verdict").alias("verdict"),
        )
        kind = rows.schema["service"].dataType.simpleString()
        parts = rows.mapInArrow(_partial, f"service {kind}, period long, summary string").collect()
        self.store.write(batch, [(s, p, Summary.from_json(text)) for s, p, text in parts])

    def of(self, service: Any, *, tau: Duration | None = None) -> Summary:
        """All periods of a service as one summary; with `tau`, older ones fade."""
        seconds = None
        if tau is not None:
            try:
                seconds = microseconds(tau) / 1e6
            except ValueError as error:
                raise InvalidCall("Knowledge.of", [f"tau: {error}"]) from None
            if seconds <= 0:
                raise InvalidCall("Knowledge.of", [f"tau must be longer than nothing, got {tau!r}"])
        return self.store.of(service, tau=seconds)

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
                "completeness": s.completeness,
                "compliance": s.compliance,
                "unknown": s.unknown,
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
