"""The verb `fit_windows`: samples of Spark are grouped there, one small row per instance."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.assembly.fitting import windows
from anabranch.assembly.fitting.reading import (
    COMPLETE,
    CUT,
    Columns,
    Instances,
    Rows,
    resolve,
)
from anabranch.assembly.fitting.times import micros
from anabranch.assembly.fitting.windows import WindowFit, check, fit_instances
from anabranch.calls import Duration
from anabranch.errors import InvalidCall, renamed
from anabranch.flow.intake import FAR
from anabranch.flow.progress import step, working
from anabranch.spark.frames import Condition, by_name, column_types, condition, is_frame
from anabranch.spark.opening import opened

__all__ = ["fit_windows"]

_LOG = logging.getLogger("anabranch")

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_REAL = ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz", *_WHOLE, *_REAL)


@renamed(alpha="cover", beta="cut")
@working("fit_windows")
def fit_windows(
    sample: Any,
    cover: float = 0.9,
    cut: float = 0.05,
    *,
    tolerance: float | None = None,
    key: Any = None,
    time: Any = None,
    complete: Condition | None = None,
    settle: float | Duration | None = None,
) -> WindowFit:
    """Choose window size and timeout for `ab.assemble` from a sample of events.

    The size is the least count that covers a share `cover` of the instances; the timeout is the
    span that a share ``1 - cut`` of them does not exceed, read from a fitted hyper-Erlang
    distribution (from the sample itself where the fit is poor).

    Parameters
    ----------
    sample
        A batch DataFrame of Spark, a pandas DataFrame or an Arrow table. One row per event;
        or rows that `ab.assemble` returned (columns ``count, first_ts, last_ts``), whose rows of
        one key are put together again.
    cover, cut
        Share of instances that the size should hold, and that the timeout may cut.
    tolerance
        Instead of the two: the share of instances that may be incomplete for either reason. The
        cheapest pair is taken, by open windows.
    key
        Columns that tell instances apart. By default ``kind``, ``instance_ts`` and ``client``, as
        far as there are such.
    time
        Column of the event time: a timestamp, integer microseconds, or seconds as float. By default
        ``event_ts``, ``ts`` or ``time``.
    complete
        What makes an instance complete: a column, SQL text (``"status <> 'open'"``), a Column, or
        a function of the sample. Of pandas and Arrow: a column, text of comparisons and arithmetic
        (as in SQL or in Python), truth values, or a function that returns those. Null is false. It
        must hold of one event of the instance, its end marker, or of all its rows where these are
        of `ab.assemble`. Span and count of the others only bound the true ones from below
        (Kaplan-Meier, and EM for cut-off values).
    settle
        Instances that begin within so many seconds of the sample's end (a number, or "5 seconds")
        may lack their last events and are left out. By default the longest span seen.

    Examples
    --------
    Three events an instance, two seconds apart:

    >>> calls = spark.sql('''SELECT id div 3 AS kind, 10D * (id div 3) + 2D * (id % 3) AS ts
    ...     FROM range(3000)''')
    >>> fit = fit_windows(calls)
    >>> fit.size, round(fit.timeout, 1)
    (3, 4.0)
    """
    if not is_frame(sample):
        return windows.fit_windows(
            sample,
            cover,
            cut,
            tolerance=tolerance,
            key=key,
            time=time,
            complete=complete,
            settle=settle,
        )
    seconds = check(cover, cut, tolerance, settle)
    if sample.isStreaming:
        raise InvalidCall(
            "fit_windows",
            [
                "sample must be a batch DataFrame, got a streaming one; read a stretch of what the "
                "stream wrote, spark.read..., and fit that"
            ],
        )
    (sample,), (key, time) = opened((sample,), (key, time))
    have = sample.columns
    if complete is not None:
        try:
            sample = sample.withColumn(COMPLETE, condition(sample, complete))
        except ValueError as error:
            raise InvalidCall("fit_windows", [str(error)]) from None
    columns = resolve(have, key, time, None)
    columns = replace(columns, complete=None if complete is None else COMPLETE)
    _LOG.info("fit_windows runs a job over its sample")
    step("runs a job over its sample")
    found = _instances(sample, columns, seconds)
    return fit_instances(found, cover=cover, cut=cut, tolerance=tolerance)


def _instances(sample: DataFrame, columns: Columns, settle: float | None) -> Instances:
    """Group a sample as `anabranch.assembly.fitting.reading` does, on Spark."""
    rows = _rows(sample, columns)
    keys = [name for name in rows.columns if name.startswith("k")]
    if keys:
        parts = [name for name in rows.columns if name.startswith("w") and name != "whole"]
        if parts:
            rows = _grouped(rows, [*keys, *parts], F.max, F.min)
        rows = _grouped(rows, keys, F.sum, F.min if columns.assembled else F.max).drop(*keys)
    table = rows.toArrow()
    good = table.filter(pc.is_valid(table["first"]))
    first, last = (
        micros(good[at], name) for at, name in zip(("first", "last"), _times(columns), strict=True)
    )
    rejected = int(pc.sum(table["rejected"]).as_py() or 0)
    count = pc.cast(good["count"], pa.int64())
    return Rows([], first, last, count, good["whole"], rejected=rejected).instances(settle)


def _rows(sample: DataFrame, columns: Columns) -> DataFrame:
    """Key, window, first and last time, count and count_ratio, null where a row is rejected."""
    types = column_types(sample)
    times = _times(columns)
    problems = _problems(types, columns)
    if problems:
        raise InvalidCall("fit_windows", problems)

    def value(name: str) -> Column:
        known = by_name(name)
        if types[name] not in _REAL:
            if name not in times:
                return known
            least, most = F.lit(-FAR), F.lit(FAR)
            if types[name] not in _WHOLE:
                least, most = (F.timestamp_micros(end).cast(types[name]) for end in (least, most))
            return F.when(known.between(least, most), known)
        # What is no number is no value; of times neither is one that no query may hold.
        near = F.abs(known.cast("double") * 1e6) <= float(FAR) if name in times else F.lit(True)
        return F.when(~F.isnan(known) & near, known)

    first, last = value(times[0]), value(times[-1])
    count = F.lit(1).cast("long") if not columns.assembled else by_name("count").cast("long")
    whole = F.lit(True)
    if columns.assembled and columns.reason:
        whole = ~F.coalesce(by_name("reason").isin(*CUT), F.lit(False))
    if columns.complete:
        whole = F.coalesce(value(columns.complete).cast("boolean"), F.lit(False))
    good = first.isNotNull() & last.isNotNull()
    for name in columns.key:
        good &= value(name).isNotNull()
    return sample.select(
        *(by_name(name).alias(f"k{n}") for n, name in enumerate(columns.key)),
        *(by_name(name).alias(f"w{n}") for n, name in enumerate(columns.window)),
        F.when(good, first).alias("first"),
        F.when(good, last).alias("last"),
        F.when(good, count).alias("count"),
        F.when(good, whole).alias("whole"),
        F.coalesce(F.when(~good, count), F.lit(0)).alias("rejected"),
    )


def _times(columns: Columns) -> tuple[str, str]:
    """The columns of the first and of the last time."""
    return ("first_ts", "last_ts") if columns.assembled else (str(columns.time),) * 2


def _problems(types: Mapping[str, str], columns: Columns) -> list[str]:
    """Columns of types that cannot be read."""
    problems = [
        f"key column {name!r} is {types[name]}, which is no key"
        for name in columns.key
        if "map<" in types[name] or types[name] == "variant"
    ]
    problems += [
        f"column {name!r} is {types[name]}; the event time must be a timestamp, integer "
        "microseconds or seconds as float"
        for name in dict.fromkeys(_times(columns))
        if types[name] not in _TIMES
    ]
    if columns.assembled and types["count"] not in _WHOLE:
        problems.append(f"column 'count' is {types['count']}; it must be an integer")
    return problems


def _grouped(rows: DataFrame, key: list[str], counts: Any, whole: Any) -> DataFrame:
    return rows.groupBy(*key).agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        counts("count").alias("count"),
        whole("whole").alias("whole"),
        F.sum("rejected").alias("rejected"),
    )
