"""`sla` and `rank_services`: which services keep their promises, and which to prefer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.assembly.service_stats.wilson import Z95
from anabranch.calls import Check, Duration, is_number, is_whole
from anabranch.errors import InvalidCall, renamed
from anabranch.spark.frames import Condition, is_frame
from anabranch.spark.opening import opened
from anabranch.spark.promises import PROMISE_COLUMNS, Promises
from anabranch.spark.verdicts import judge, preference_problems, problems_with

__all__ = ["duration_of", "named_promises", "rank_services", "sla"]

_LOG = logging.getLogger("anabranch")


@renamed()
def sla(
    instances: DataFrame,
    promises: Promises,
    *,
    service: Any = "kind",
    metric: Any = "duration",
    period: Duration = "1 hour",
    complete: Condition | None = None,
    promise_columns: Sequence[Any] = PROMISE_COLUMNS,
) -> DataFrame:
    """How many instances of each service kept its promise, period by period, at least and at most.

    An incomplete instance understates its duration: if it is over the promise all the same, the
    promise is *violated*; otherwise the outcome is *unknown*. The true share of kept promises lies
    between `low` and `high` if what counts as complete is complete. Of a stream the first row of an
    instance counts, and a later one may bring another outcome: `revised` counts those.

    Parameters
    ----------
    instances
        The result of ``ab.assemble``, streaming or batch. Of a batch, the last revision of each
        instance counts, for which the key's columns, `seq` and `opened` must be there, unless
        nothing is revised, which a job then finds out; of a stream, the first row does, and
        `revised` counts later ones.
    promises
        One promise for all services, a duration, or a number in the unit of the metric;
        ``{service: promised}``; or a static DataFrame with one row of each service (checking it
        runs a job). Services without a promise are left out.
    service
        The column of `instances` that names the service.
    metric
        The column that was promised to be at most so much; durations are in seconds.
    period
        The length of a period, by the time the instance closed.
    complete
        What makes an instance complete: SQL text such as ``"count >= 3"`` or
        ``"exists(items, x -> x.last)"``; a Column; a function of the DataFrame that returns one; or
        True for all. By default those that reached a declared size (``ab.close.count``) or whose
        end marker closed them (``ab.close.until``). What a policy expects is no proof: say
        ``"reason = 'complete'"`` to take the word of ``ab.close.learned``, and its `risk` with it.
    promise_columns
        The columns of service and promise where `promises` is a DataFrame: names, also inside a
        struct, or Columns.

    Returns
    -------
    DataFrame
        ``service, period, promised, instances, met, violated, unknown, revised, count_ratio``
        (mean), ``low`` (met of all), ``high`` (met and unknown of all), ``compliance`` (their
        common value, null where something is unknown), and ``lower, upper``: the lower end of the
        95 % Wilson interval of `low`, and the upper end of that of `high`. Streaming: one row per
        service and period, when the watermark passes it.

    Examples
    --------
    >>> import anabranch as ab
    >>> rows = spark.sql('''SELECT 'a' AS kind, id AS key, 0 AS seq, 0 AS revision,
    ...     timestamp_seconds(1700000000) AS opened, timestamp_seconds(1700000000 + id) AS closed,
    ...     0.4D * id AS duration, id AS count FROM range(1, 6)''')
    >>> found = ab.sla(rows, "1 second", complete="count >= 2")
    >>> found.select("instances", "met", "violated", "unknown", "low", "high").first()
    Row(instances=5, met=1, violated=3, unknown=1, low=0.2, high=0.4)
    """
    if is_frame(instances):
        (instances,), (service, metric) = opened((instances,), (service, metric))
    promises, promise_columns = named_promises(promises, promise_columns)
    problems = problems_with(instances, promises, service, metric, complete, promise_columns)
    length = duration_of("period", period, problems)
    if problems:
        raise InvalidCall("sla", problems)
    judged = judge(instances, promises, service, metric, complete, columns=promise_columns)
    window = F.window("closed", f"{length} microseconds")
    grouped = judged.groupBy(F.col("_service").alias("service"), window.alias("_period"))
    found = grouped.agg(*_counts("count_ratio" in instances.columns))
    return found.select(
        "service",
        F.col("_period.start").alias("period"),
        "promised",
        "instances",
        "met",
        "violated",
        "unknown",
        "revised",
        "count_ratio",
        *_shares(),
    )


@renamed(decay="half_life= says at which age an instance counts half, 0.69 of what decay= was")
def rank_services(
    instances: DataFrame,
    promises: Promises,
    *,
    service: Any = "kind",
    metric: Any = "duration",
    complete: Condition | None = None,
    promise_columns: Sequence[Any] = PROMISE_COLUMNS,
    prefer: Mapping[Any, float] | None = None,
    weight: float = 0.3,
    half_life: Duration | None = None,
    top: int | None = None,
) -> DataFrame:
    """Services in the order in which to prefer them.

    The order is by what a service has proved: by `lower`, the Wilson lower bound of the *low* end,
    for which an unknown outcome is no kept promise; ties by count. For a known user the score is
    ``(1 - weight) * lower + weight * preference``.

    Parameters
    ----------
    instances, promises, service, metric, complete, promise_columns
        As in `sla`. A streaming result can only be written in ``complete`` mode.
    prefer
        A user's preference for services, 0 to 1; services not named have 0. One without a promise
        is an error, or, where one promise is for all, one that no instance of a table has; the
        check runs a job.
    weight
        How much preference counts against compliance, 0 to 1.
    half_life
        Instances count ``0.5 ** (age / half_life)``, by how much earlier than the newest of all
        they closed, which a job finds. For tables; what a stream has to say fades in
        ``ServiceStats.get(service, half_life=)``, by the same rule.
    top
        Only so many.

    Returns
    -------
    DataFrame
        ``service, score, low, high, compliance, lower, upper, met, violated, unknown,
        preference``, best first.

    Examples
    --------
    >>> import anabranch as ab
    >>> rows = spark.sql('''SELECT if(id < 10, 'new', 'old') AS kind, id AS key, 0 AS seq,
    ...     0 AS revision, timestamp_seconds(1700000000) AS opened,
    ...     timestamp_seconds(1700000000) AS closed, if(id % 10 = 0, 9D, 1D) AS duration,
    ...     1 AS count FROM range(100)''')
    >>> [r.service for r in ab.rank_services(rows, "2 seconds", complete="count >= 1").collect()]
    ['old', 'new']
    """
    if is_frame(instances):
        (instances,), (service, metric) = opened((instances,), (service, metric))
    promises, promise_columns = named_promises(promises, promise_columns)
    problems = problems_with(instances, promises, service, metric, complete, promise_columns)
    problems = problems or preference_problems(
        instances, promises, service, prefer, promise_columns
    )
    if not (is_number(weight) and 0 <= weight <= 1):
        problems.append(f"weight must be a number between 0 and 1, got {weight!r}")
    if not (top is None or is_whole(top)):
        problems.append(f"top must be a whole number of at least 1, got {top!r}")
    seconds = None
    if half_life is not None:
        seconds = duration_of("half_life", half_life, problems) / 1e6
        if getattr(instances, "isStreaming", False):
            # Weights that were added up cannot be brought down as the newest moves on.
            problems.append(
                "half_life= is for tables: for a stream keep ab.assembly.ServiceStats by "
                "foreachBatch, whose get(service, half_life=...) lets old periods fade"
            )
    if problems:
        raise InvalidCall("rank_services", problems)
    judged = judge(instances, promises, service, metric, complete, columns=promise_columns)
    counted = F.lit(1.0)
    if seconds is not None:
        age = (F.lit(_newest(instances)) - F.unix_micros("closed")) / 1e6
        counted = F.pow(F.lit(0.5), age / seconds)
    sums = [
        F.sum(F.when(F.col("_verdict") == name, counted).otherwise(0.0)).alias(name)
        for name in ("met", "violated", "unknown")
    ]
    found = judged.filter(F.col("_verdict") != "revised").groupBy(
        F.col("_service").alias("service")
    )
    rated = found.agg(*sums)
    liked = F.lit(0.0)
    if prefer:
        kind = instances.schema[service].dataType
        pairs = [(F.lit(name).cast(kind), F.lit(float(x))) for name, x in prefer.items()]
        named = F.create_map(*(part for pair in pairs for part in pair))
        liked = F.coalesce(F.element_at(named, F.col("service")), F.lit(0.0))
    part = float(weight) if prefer else 0.0
    rated = rated.select("*", *_shares(), liked.alias("preference"))
    rated = rated.select(
        "service",
        ((1 - part) * F.col("lower") + part * F.col("preference")).alias("score"),
        *("low", "high", "compliance", "lower", "upper"),
        *("met", "violated", "unknown", "preference"),
    )
    ranked = rated.orderBy(F.desc("score"), F.desc(_judged()), "service")
    return ranked if top is None else ranked.limit(int(top))


def named_promises(promises: Any, columns: Any) -> tuple[Any, Any]:
    """Promises whose columns have names of their own, and those names; the rest is left alone."""
    if not (is_frame(promises) and isinstance(columns, (list, tuple))):
        return promises, columns
    (found,), names = opened((promises,), columns)
    return found, tuple(names)


def duration_of(name: str, duration: Duration | None, problems: list[str]) -> int:
    """Microseconds of a duration that must be longer than 0 seconds; what is wrong is noted."""
    check = Check()
    us = check.duration(name, duration, 1)
    problems += check.problems
    return us


def _judged() -> Column:
    return F.col("met") + F.col("violated") + F.col("unknown")


def _shares() -> list[Column]:
    """What `Summary` says of verdicts, as columns."""
    met, total = F.col("met"), _judged()
    some = F.nullif(total, F.lit(0)).cast("double")
    low, high = met / some, (met + F.col("unknown")) / some
    return [
        low.alias("low"),
        high.alias("high"),
        F.when(F.col("unknown") == 0, low).alias("compliance"),
        _wilson(met, total).alias("lower"),
        (1 - _wilson(F.col("violated"), total)).alias("upper"),
    ]


def _counts(has_share: bool) -> list[Column]:
    def count(name: str) -> Column:
        return F.count_if(F.col("_verdict") == name).alias(name)

    first = F.col("_verdict") != "revised"
    share = F.col("count_ratio") if has_share else F.lit(None)
    return [
        F.max("_promised").alias("promised"),
        F.count_if(first).alias("instances"),
        count("met"),
        count("violated"),
        count("unknown"),
        count("revised"),
        F.avg(F.when(first, share).cast("double")).alias("count_ratio"),
    ]


def _wilson(met: Column, total: Column) -> Column:
    """See `anabranch.assembly.service_stats.wilson`."""
    z = Z95
    # Rounding may leave met a hair above total where weights are not whole.
    spread = z * F.sqrt(F.greatest(met * (1 - met / total), F.lit(0.0)) + z * z / 4)
    lower = F.greatest((met + z * z / 2 - spread) / (total + z * z), F.lit(0.0))
    # Exactly 0 where nothing was met, or rounding would decide ties.
    return F.when((total > 0) & (met > 0), lower).otherwise(0.0)


def _newest(instances: DataFrame) -> int:
    """When the newest instance of a table closed, in microseconds."""
    _LOG.info("rank_services runs a job, which finds the newest instance")
    found = instances.agg(F.max(F.unix_micros("closed"))).first()
    return 0 if found is None or found[0] is None else int(found[0])
