"""Verdicts on instances: whether each kept the promise of its service."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DoubleType,
    NullType,
    NumericType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.assembly.call import FIGURES
from anabranch.calls import is_number
from anabranch.spark.frames import (
    ASSEMBLY_KEY,
    ASSEMBLY_SIZE,
    Condition,
    by_name,
    condition,
    is_frame,
    kind_of,
)
from anabranch.spark.promises import (
    NAMED,
    PROMISE_COLUMNS,
    Promises,
    promise_problems,
    promised_value,
)

__all__ = [
    "instance_problems",
    "judge",
    "preference_problems",
    "problems_with",
    "revision_problems",
]

_LOG = logging.getLogger("anabranch")
_EVIDENCE = ("reason", "count", "usual_count")


def judge(
    instances: DataFrame,
    promises: Promises | None,
    service: str,
    metric: str,
    complete: Condition | None = None,
    once: bool | None = None,
    columns: Sequence[str] = PROMISE_COLUMNS,
) -> DataFrame:
    """The instances with ``_service``, ``_promised`` and ``_verdict``.

    The verdict is ``met, violated, unknown``, or ``revised`` for a row that brings nothing new to
    count: a revision in a stream. `once`: the first row of an instance counts, not the last; by
    default so in streams. Without promises every verdict is unknown.
    """
    once = instances.isStreaming if once is None else once
    if not once:
        instances = _last_revisions(instances)
    whole = condition(instances, _evidence(instances) if complete is None else complete)
    joined = instances.withColumn("_service", by_name(service)).withColumn("_whole", whole)
    # To Spark NaN is more than any number; here it is no figure, as null.
    figure, promised = F.nanvl(by_name(metric).cast("double"), F.lit(None)), F.col("_promised")
    verdict = (
        F.when(figure.isNull(), "unknown")
        .when(figure > promised, "violated")
        .when(F.col("_whole"), "met")
        .otherwise("unknown")
    )
    if promises is None:
        verdict = F.lit("unknown")
    elif isinstance(promises, Mapping) or is_frame(promises):
        table = _table(instances, promises, service, columns)
        joined = joined.join(F.broadcast(table), "_service")
    else:
        joined = joined.filter(F.col("_service").isNotNull())
        joined = joined.withColumn("_promised", F.lit(promised_value(promises)))
    if once:
        verdict = F.when(F.col("revision") > 0, "revised").otherwise(verdict)
    return joined.withColumn("_verdict", verdict)


def _evidence(instances: DataFrame) -> Column:
    """Whether an instance is known to be complete, by what `assemble` says of it.

    It is where it reached a size that was declared, or where its end marker closed it. How many
    events are usual proves nothing, and what a policy expects is no proof either. Nor is the end
    of a second window: the first events may be in the one before.
    """
    numbered = "seq" in instances.columns
    told = instances.schema["seq"].metadata if numbered else {}
    proved = F.col("reason") == "end"
    if numbered:
        proved &= F.col("seq") == 0
    if told.get(ASSEMBLY_SIZE) != 0:
        proved |= (F.col("reason") == "full") & (F.col("count") == F.col("usual_count"))
    return proved


def revision_problems(instances: DataFrame) -> list[str]:
    """Why a table's revisions cannot be told from other instances; nothing if there are none."""
    lacking = _identity(instances)[1]
    if not lacking or "revision" not in instances.columns:
        return []
    _LOG.info("a job looks for revisions, since a part of the instances' key is not there")
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


def problems_with(
    instances: Any,
    promises: Any,
    service: Any,
    metric: Any,
    complete: Any,
    columns: Any = PROMISE_COLUMNS,
) -> list[str]:
    """Why these instances cannot be judged by these promises."""
    problems = instance_problems(instances, service, metric, complete)
    problems += promise_problems(promises, columns, metric)
    if isinstance(promises, Mapping) and not problems:
        problems = _key_problems(instances, service, promises, "promises")
    return problems


def instance_problems(
    instances: Any,
    service: Any,
    metric: Any,
    complete: Any = None,
    once: bool | None = None,
    judged: bool = True,
) -> list[str]:
    """Why these instances cannot be judged by any promises; see `judge`."""
    if not is_frame(instances):
        return [f"instances must be a DataFrame of ab.assemble, got {kind_of(instances)}"]
    problems = [
        f"{name} must be the name of a column, got {value!r}"
        for name, value in (("service", service), ("metric", metric))
        if not isinstance(value, str)
    ]
    if problems:
        return problems
    once = instances.isStreaming if once is None else once
    numbers = [metric, *(["revision"] if once else [])]
    named = {metric: "metric", service: "service"}
    problems = [
        problem
        for name in dict.fromkeys([service, "closed", *numbers])
        for problem in _column_problems(instances, name, name in numbers, named.get(name))
    ]
    if judged:
        problems += _complete_problems(instances, complete)
    if not once:
        problems += revision_problems(instances)
    return problems


def _complete_problems(instances: DataFrame, complete: Any) -> list[str]:
    if complete is None:
        lacking = [name for name in _EVIDENCE if name not in instances.columns]
        if not lacking:
            return []
        return [
            f"nothing says which instances are complete: instances has no {', '.join(lacking)}; "
            "say it with complete=: by an end marker, complete='exists(items, x -> x.last)', a "
            "declared size, complete='count >= 3', or complete=True if every instance is"
        ]
    try:
        condition(instances, complete)
    except ValueError as error:
        return [str(error)]
    return []


def _column_problems(
    instances: DataFrame, name: str, is_number: bool, argument: str | None
) -> list[str]:
    have = instances.columns
    if name not in have:
        what = f"there is no column {name!r} in instances; it has {', '.join(have)}"
        return [f"{what}: name yours with {argument}=" if argument else what]
    if have.count(name) > 1:
        return [f"instances has several columns {name!r}: rename one"]
    found = instances.schema[name].dataType
    kind = f"column {name!r} of instances is {found.simpleString()}"
    if is_number and not isinstance(found, (NumericType, NullType)):
        return [f"{kind}; it must be a number"]
    if name == "closed" and not isinstance(found, (TimestampType, TimestampNTZType)):
        return [f"{kind}; it must be a timestamp"]
    return []


def _key_problems(
    instances: DataFrame, service: str, given: Mapping[Any, Any], what: str
) -> list[str]:
    """Services that cannot be values of their column."""
    kind = instances.schema[service].dataType.simpleString()

    def fits(names: Iterable[Any]) -> bool:
        try:
            _services(instances, service, [(name, 0.0) for name in names])
        except (PySparkException, TypeError, ValueError, ArithmeticError):
            return False
        return all(name is not None for name in names)

    if fits(list(given)):
        return []
    wrong = [name for name in given if not fits([name])]
    return [f"{what} names {name!r}, but column {service!r} is {kind}" for name in wrong[:NAMED]]


def preference_problems(
    instances: Any, promises: Any, service: Any, prefer: Any, columns: Sequence[str]
) -> list[str]:
    """What is wrong with a user's preferences.

    A service that nobody knows is most likely misspelt. Those of promises are known; where one
    promise is for all, those of a table, which takes a job. Of a stream nobody can say.
    """
    if prefer is None:
        return []
    if not isinstance(prefer, Mapping):
        return [f"prefer must be {{service: preference}}, got {prefer!r}"]
    problems = [
        f"preference for {name!r} must be a number from 0 to 1, got {value!r}"
        for name, value in prefer.items()
        if not (is_number(value) and 0 <= value <= 1)
    ]
    problems = problems or _key_problems(instances, service, prefer, "prefer")
    if problems or not prefer:
        return problems
    if isinstance(promises, Mapping) or is_frame(promises):
        known, what = _table(instances, promises, service, columns), "has no promise"
    elif not instances.isStreaming:
        known, what = instances.select(by_name(service).alias("_service")), "no instance has"
    else:
        return []
    _LOG.info("a job looks for the services that prefer= names")
    named = _services(instances, service, [(name, 0.0) for name in prefer])
    strange = named.join(known, named["service"] == known["_service"], "left_anti")
    wrong = sorted((row["service"] for row in strange.limit(NAMED).collect()), key=repr)
    return [f"prefer names {name!r}, which {what}; leave it out or correct it" for name in wrong]


def _table(instances: DataFrame, promises: Any, service: str, columns: Sequence[str]) -> DataFrame:
    """Promises as ``_service, _promised``."""
    if isinstance(promises, Mapping):
        rows = [(name, promised_value(value)) for name, value in promises.items()]
        return _services(instances, service, rows).toDF("_service", "_promised")
    found: DataFrame = promises.select(
        by_name(columns[0]).alias("_service"), by_name(columns[1]).cast("double").alias("_promised")
    )
    return found


def _services(instances: DataFrame, service: str, rows: Iterable[tuple[Any, float]]) -> DataFrame:
    """Figures of services, the services being of the type that they have in `instances`."""
    kind = instances.schema[service].dataType
    fields = [StructField("service", kind), StructField("figure", DoubleType())]
    return instances.sparkSession.createDataFrame(list(rows), StructType(fields))
