"""Promises of services, in the forms that `ab.sla` takes, and what may be wrong with them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from anabranch.calls import EXACT, Duration, is_names, is_number, microseconds
from anabranch.spark.frames import by_name, is_frame, kind_of

__all__ = ["NAMED", "PROMISE_COLUMNS", "Promises", "promise_problems", "promised_value"]

Promises = Mapping[Any, Any] | DataFrame | Duration | float
PROMISE_COLUMNS = ("service", "promised")
NAMED = 5  # services that a message names
_LOG = logging.getLogger("anabranch")


def promise_problems(
    promises: Any, columns: Any = PROMISE_COLUMNS, metric: Any = None
) -> list[str]:
    """What is wrong with promises, whoever made them; no duration is below 0."""
    lasts = isinstance(metric, str) and metric == "duration"
    if not (is_names(columns) and len(columns) == 2):
        return [f"promise_columns must be the names of two columns, got {columns!r}"]
    if isinstance(promises, Mapping):
        problems = []
        for name, value in promises.items():
            try:
                if promised_value(value) < 0 and lasts:
                    problems.append(_negative(name, value))
            except ValueError as error:
                problems.append(f"promise of {name!r}: {error}")
        if not promises:
            problems.append("promises is empty: name at least one service and what it promised")
        return problems
    if isinstance(promises, (str, timedelta, int, float, Decimal)):
        try:
            negative = promised_value(promises) < 0 and lasts
        except ValueError as error:
            return [f"promises: {error}"]
        return [_negative("all services", promises)] if negative else []
    if not is_frame(promises):
        got = kind_of(promises)
        what = "promises must be {service: promised}, a DataFrame of service, promised"
        return [f"{what}, or one promise for all services such as '2 seconds'; got {got}"]
    return _table_problems(promises, columns[0], columns[1], lasts)


def _table_problems(promises: DataFrame, service: str, promised: str, lasts: bool) -> list[str]:
    have = ", ".join(promises.columns)
    problems = [
        f"promises has no column {name!r}; it has {have}: name yours, for example "
        "promise_columns=('ward', 'limit')"
        for name in (service, promised)
        if name not in promises.columns
    ]
    if promises.isStreaming:
        problems.append("promises must be a static DataFrame, read with spark.read")
    if problems:
        return problems
    kind = promises.schema[promised].dataType
    if not isinstance(kind, NumericType):
        what = f"column {promised!r} of promises is {kind.simpleString()}"
        return [f"{what}; it must be a number, in the unit of the metric"]
    return _row_problems(promises, service, promised, lasts)


def _row_problems(promises: DataFrame, service: str, promised: str, lasts: bool) -> list[str]:
    """A service that promised twice counts twice; what is at most nothing is always kept."""
    _LOG.info("a job checks the table of promises")
    value = by_name(promised).cast("double")
    faulty = F.coalesce(F.isnan(value) | (F.abs(value) == float("inf")), F.lit(True))
    found = (
        promises.groupBy(by_name(service).alias("service"))
        .agg(F.count(F.lit(1)).alias("times"), F.max(faulty).alias("faulty"), F.min(value))
        .toDF("service", "times", "faulty", "least")
        .filter(
            F.col("service").isNull()
            | (F.col("times") > 1)
            | F.col("faulty")
            | (F.lit(lasts) & (F.col("least") < 0))
        )
        .limit(NAMED)
        .collect()
    )
    problems = []
    for name, times, is_faulty, least in sorted(found, key=repr):
        if name is None:
            problems.append("promises has a row without a service")
        elif times > 1:
            problems.append(f"promises has {times} rows of {name!r}: keep one of each service")
        elif is_faulty:
            problems.append(f"promise of {name!r} is no finite number")
        else:
            problems.append(_negative(name, least))
    return problems


def _negative(name: Any, value: Any) -> str:
    return f"promise of {name!r} must not be negative: a duration never is; got {value!r}"


def promised_value(value: Any) -> float:
    """What was promised, in the unit of the metric; durations in seconds."""
    if is_number(value, EXACT):
        return float(value)
    if isinstance(value, (int, float, Decimal)):
        raise ValueError(f"{value!r} is no finite number; it must be one, or a duration")
    if (us := microseconds(value)) < 0:
        raise ValueError(f"{value!r} is negative")
    return us / 1e6
