"""The plan of a `correlate` that names none."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.correlation.call import Correlation
from anabranch.plans.costs import choose, typical_span
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import LEFT, RIGHT, Plan
from anabranch.spark.frames import by_name

__all__ = ["default_plan"]

_STEPS = 20
_ACCURACY = 1000  # of a quantile's rank: one in so many rows


def default_plan(correlation: Correlation, left: DataFrame, right: DataFrame, workers: int) -> Plan:
    """By key if there is one; else a grid or, for tables, what copies least and is even.

    Tables are read once, for their row counts and for how their rows lie in time.
    """
    if correlation.has_key:
        return keyed(workers)
    if left.isStreaming:
        return choose(workers)
    counts, spans = [], []
    for frame, side in zip((left, right), correlation.sides, strict=True):
        t = F.unix_micros(by_name(side.time))
        shares = [step / _STEPS for step in range(_STEPS + 1)]
        found = frame.agg(F.count(F.lit(1)), F.percentile_approx(t, shares, _ACCURACY)).first()
        assert found is not None
        counts.append(float(found[0]))
        if found[1] is not None:
            spans.append(typical_span(found[1]))
    # The side whose rows lie closer decides: a segment must not hold many rows of either.
    return choose(workers, (counts[LEFT], counts[RIGHT]), min(spans, default=0), correlation.window)
