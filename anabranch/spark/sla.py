"""The verbs `sla` and `recommend`: which services keep their promises, and which to prefer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from anabranch.assembly.call import FIGURES
from anabranch.assembly.knowledge.wilson import Z95
from anabranch.calls import Duration, microseconds
from anabranch.errors import InvalidCall
from anabranch.spark.frames import ASSEMBLY_KEY, by_name, is_frame

__all__ = ["judge", "recommend", "revision_problems", "sla"]

Promises = Mapping[Any, Any] | DataFrame


def sla(
    instances: DataFrame,
    promises: Promises,
    *,
    service: str = "head",
    metric: str = "duration",
    period: Duration = "1 hour",
    complete: Column | None = None,
) -> DataFrame:
    """Compliance of each service with its promise, period by period.

    An incomplete instance understates its duration: if it is over the promise all the same, the
    promise is *violated*; otherwise the outcome is *unknown*, which is no pass.

    Parameters
    ----------
    instances
        The result of ``ab.assemble``, streaming or batch. Of a batch, the last revision of each
        instance counts, for which the key's columns, `seq` and `opened` must be there, unless
        nothing is revised; of a stream, the first row does, and `revised` counts later ones.
    promises
        ``{service: promised}`` with durations, or numbers in the unit of the metric; or a static
        DataFrame of ``service, promised``. Services without a promise are left out.
    service
        The column of `instances` that names the service.
    metric
        The column that was promised to be at most so much; durations are in seconds.
    period
        The length of a period, by the time the instance closed.
    complete
        What makes an instance complete; by default ``completeness >= 1``. Where the policy knows
        no degree (``ab.session``, ``ab.wait``), completeness is null and nothing is complete:
        say ``F.lit(True)`` if every closed window is to count as whole.

    Returns
    -------
    DataFrame
        ``service, period, promised, instances, met, violated, unknown, revised, completeness``
        (mean), ``compliance`` (met of met and violated) and ``lower``, the lower end of its 95 %
        Wilson interval. Streaming: one row per service and period, when the watermark passes it.

    Examples
    --------
    >>> import anabranch as ab
    >>> rows = spark.sql('''SELECT 'a' AS head, id AS key, 0 AS seq, 0 AS revision,
    ...     timestamp_seconds(1700000000) AS opened, timestamp_seconds(1700000000 + id) AS closed,
    ...     0.4D * id AS duration, if(id < 3, 1.0D, 0.5D) AS completeness FROM range(6)''')
    >>> ab.sla(rows, {"a": "1 second"}).select("instances", "met", "violated", "unknown").first()
    Row(instances=6, met=3, violated=3, unknown=0)
    """
    problems = _problems(instances, promises, service, metric)
    try:
        length = microseconds(period)
        if length <= 0:
            problems.append(f"period must be longer than nothing, got {period!r}")
    except ValueError as error:
        problems.append(f"period: {error}")
    if problems:
        raise InvalidCall("sla", problems)
    judged = judge(instances, promises, service, metric, complete)
    window = F.window("closed", f"{length} microseconds")
    grouped = judged.groupBy(F.col("_service").alias("service"), window.alias("_period"))
    found = grouped.agg(*_counts())
    return found.select(
        "service",
        F.col("_period.start").alias("period"),
        "promised",
        "instances",
        "met",
        "violated",
        "unknown",
        "revised",
        "completeness",
        (F.col("met") / F.nullif(F.col("met") + F.col("violated"), F.lit(0))).alias("compliance"),
        _wilson(F.col("met"), F.col("met") + F.col("violated")).alias("lower"),
    )


def recommend(
    instances: DataFrame,
    promises: Promises,
    *,
    service: str = "head",
    metric: str = "duration",
    complete: Column | None = None,
    prefer: Mapping[Any, float] | None = None,
    weight: float = 0.3,
    decay: Duration | None = None,
    top: int | None = None,
) -> DataFrame:
    """Services in the order in which to recommend them.

    The order is by the Wilson lower bound of compliance, ties by count. For a known user the score
    is ``(1 - weight) * lower + weight * preference``.

    Parameters
    ----------
    instances, promises, service, metric, complete
        As in `sla`. A streaming result can only be written in ``complete`` mode.
    prefer
        A user's preference for services, 0 to 1; services not named have 0.
    weight
        How much preference counts against compliance, 0 to 1.
    decay
        Instances count ``exp(-age / decay)``, by how much earlier than the newest of all they
        closed. For tables; what a stream has to say fades in ``Knowledge.of(service, tau=)``.
    top
        Only so many.

    Returns
    -------
    DataFrame
        ``service, score, lower, compliance, met, violated, unknown, preference``, best first.

    Examples
    --------
    >>> import anabranch as ab
    >>> rows = spark.sql('''SELECT if(id < 10, 'new', 'old') AS head, id AS key, 0 AS seq,
    ...     0 AS revision, timestamp_seconds(1700000000) AS opened,
    ...     timestamp_seconds(1700000000) AS closed, if(id % 10 = 0, 9D, 1D) AS duration,
    ...     1D AS completeness FROM range(100)''')
    >>> [r.service for r in ab.recommend(rows, {"new": "2 seconds", "old": "2 seconds"}).collect()]
    ['old', 'new']
    """
    problems = _problems(instances, promises, service, metric)
    if not isinstance(weight, (int, float)) or not 0 <= weight <= 1:
        problems.append(f"weight must be between 0 and 1, got {weight!r}")
    tau = None
    if decay is not None:
        try:
            tau = microseconds(decay) / 1e6
        except ValueError as error:
            problems.append(f"decay: {error}")
        if tau is not None and tau <= 0:
            problems.append(f"decay must be longer than nothing, got {decay!r}")
        if getattr(instances, "isStreaming", False):
            # Weights that were added up cannot be brought down as the newest moves on.
            problems.append(
                "decay= is for tables: for a stream keep ab.Knowledge by foreachBatch, whose "
                "of(service, tau=...) lets old periods fade"
            )
    if problems:
        raise InvalidCall("recommend", problems)
    judged = judge(instances, promises, service, metric, complete)
    counted = F.lit(1.0)
    if tau is not None:
        counted = F.exp((F.unix_micros("closed") - F.lit(_newest(instances))) / 1e6 / tau)
    sums = [
        F.sum(F.when(F.col("_verdict") == name, counted).otherwise(0.0)).alias(name)
        for name in ("met", "violated", "unknown")
    ]
    found = judged.filter(F.col("_verdict") != "revised").groupBy(
        F.col("_service").alias("service")
    )
    rated = found.agg(*sums)
    known = F.col("met") + F.col("violated")
    liked = F.lit(0.0)
    for name, share in (prefer or {}).items():
        liked = F.when(F.col("service") == F.lit(name), F.lit(float(share))).otherwise(liked)
    part = float(weight) if prefer else 0.0
    rated = rated.withColumn("lower", _wilson(F.col("met"), known)).withColumn("preference", liked)
    rated = rated.select(
        "service",
        ((1 - part) * F.col("lower") + part * F.col("preference")).alias("score"),
        "lower",
        (F.col("met") / F.nullif(known, F.lit(0.0))).alias("compliance"),
        "met",
        "violated",
        "unknown",
        "preference",
    )
    ranked = rated.orderBy(F.desc("score"), F.desc(F.col("met") + F.col("violated")), "service")
    return ranked if top is None else ranked.limit(top)


def judge(
    instances: DataFrame,
    promises: Promises | None,
    service: str,
    metric: str,
    complete: Column | None = None,
    once: bool | None = None,
) -> DataFrame:
    """The instances with ``_service``, ``_promised`` and ``_verdict``.

    The verdict is ``met, violated, unknown``, or ``revised`` for a row that brings nothing new to
    count: a revision in a stream. `once`: the first row of an instance counts, not the last; by
    default so in streams. Without promises every verdict is unknown.
    """
    once = instances.isStreaming if once is None else once
    if not once:
        instances = _last_revisions(instances)
    whole = (
        complete if complete is not None else F.coalesce(F.col("completeness") >= 1, F.lit(False))
    )
    figure, promised = by_name(metric).cast("double"), F.col("_promised")
    verdict = (
        F.when(figure.isNull(), "unknown")
        .when(figure > promised, "violated")
        .when(whole, "met")
        .otherwise("unknown")
    )
    joined = instances.withColumn("_service", by_name(service))
    if promises is None:
        verdict = F.lit("unknown")
    else:
        joined = joined.join(F.broadcast(_table(instances, promises)), "_service")
    if once:
        verdict = F.when(F.col("revision") > 0, "revised").otherwise(verdict)
    return joined.withColumn("_verdict", verdict)


def revision_problems(instances: DataFrame) -> list[str]:
    """Why a table's revisions cannot be told from other instances; nothing if there are none."""
    lacking = _identity(instances)[1]
    if not lacking or "revision" not in instances.columns:
        return []
    if not instances.filter(F.col("revision") > 0).limit(1).count():
        return []
    return [
        "instances has revisions, and of what says which rows are of one instance it lacks "
        f"{', '.join(lacking)}; it has {', '.join(instances.columns)}. Keep the key's columns, "
        "before seq and under their names, and seq and opened; or keep only first rows, "
        ".filter('revision = 0')"
    ]


def _identity(instances: DataFrame) -> tuple[list[str], list[str]]:
    """The columns that name an instance, and those of them that are gone."""
    have = instances.columns
    before = have[: have.index("seq")] if "seq" in have else []
    key = [name for name in before if name not in FIGURES and name != "items"]
    told = instances.schema["seq"].metadata.get(ASSEMBLY_KEY) if "seq" in have else None
    lacking = [name for name in (told or ()) if name not in have]
    if not told and not key:
        lacking.append("a key before seq")
    names = [*(told or key), "seq", "opened"]
    return names, lacking + [name for name in ("seq", "opened") if name not in have]


def _last_revisions(instances: DataFrame) -> DataFrame:
    """The last row of every instance.

    Rows of one instance have the same key, `seq` and `opened`, and each another revision. Where a
    revision is there twice, several instances look alike, and the first row of each counts: they
    are never taken for one.
    """
    names, lacking = _identity(instances)
    if "revision" not in instances.columns or lacking:
        return instances
    alike = Window.partitionBy(*map(by_name, names))
    number = F.coalesce(F.col("revision"), F.lit(0))
    apart = F.count(F.lit(1)).over(alike) == F.size(F.collect_set(number).over(alike))
    last = F.when(apart, F.max(number).over(alike)).otherwise(F.min(number).over(alike))
    return instances.withColumn("_last", number == last).filter("_last").drop("_last")


def _counts() -> list[Column]:
    def count(name: str) -> Column:
        return F.count_if(F.col("_verdict") == name).alias(name)

    first = F.col("_verdict") != "revised"
    return [
        F.max("_promised").alias("promised"),
        F.count_if(first).alias("instances"),
        count("met"),
        count("violated"),
        count("unknown"),
        count("revised"),
        F.avg(F.when(first, F.col("completeness"))).alias("completeness"),
    ]


def _wilson(met: Column, total: Column) -> Column:
    """See `anabranch.assembly.knowledge.wilson`."""
    z = Z95
    # Rounding may leave met a hair above total where weights are not whole.
    spread = z * F.sqrt(F.greatest(met * (1 - met / total), F.lit(0.0)) + z * z / 4)
    lower = F.greatest((met + z * z / 2 - spread) / (total + z * z), F.lit(0.0))
    # Exactly 0 where nothing was met, or rounding would decide ties.
    return F.when((total > 0) & (met > 0), lower).otherwise(0.0)


def _table(instances: DataFrame, promises: Promises) -> DataFrame:
    if isinstance(promises, Mapping):
        rows = [(name, _promised(value)) for name, value in promises.items()]
        frame = instances.sparkSession.createDataFrame(rows, ["_service", "_promised"])
    else:
        frame = promises.select(
            F.col("service").alias("_service"), F.col("promised").cast("double").alias("_promised")
        )
    return frame


def _promised(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return microseconds(value) / 1e6


def _newest(instances: DataFrame) -> int:
    """When the newest instance of a table closed, in microseconds."""
    found = instances.agg(F.max(F.unix_micros("closed"))).first()
    return 0 if found is None or found[0] is None else int(found[0])


def _problems(instances: Any, promises: Any, service: str, metric: str) -> list[str]:
    if not is_frame(instances):
        return [f"instances must be a DataFrame of ab.assemble, got {type(instances).__name__}"]
    have = instances.columns
    needed = dict.fromkeys((service, metric, "closed", "completeness"))
    if instances.isStreaming:
        needed["revision"] = None
    problems = [
        f"there is no column {name!r} in instances; it has {', '.join(have)}"
        for name in needed
        if name not in have
    ]
    if not instances.isStreaming:
        problems += revision_problems(instances)
    if isinstance(promises, Mapping):
        for name, value in promises.items():
            try:
                _promised(value)
            except ValueError as error:
                problems.append(f"promise of {name!r}: {error}")
        if not promises:
            problems.append("promises is empty: name at least one service and what it promised")
    elif not is_frame(promises):
        problems.append(
            "promises must be {service: promised} or a DataFrame of service, promised; got "
            + type(promises).__name__
        )
    else:
        lacking = [name for name in ("service", "promised") if name not in promises.columns]
        problems += [f"promises has no column {name!r}" for name in lacking]
        if promises.isStreaming:
            problems.append("promises must be a static DataFrame, read with spark.read")
    return problems
