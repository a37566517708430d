"""The plan of a `correlate` that names none."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.correlation.call import Correlation
from anabranch.plans.costs import choose, sent_once, typical_duration
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import Plan
from anabranch.spark.frames import by_name

__all__ = ["default_plan"]

_LOG = logging.getLogger("anabranch")
_STEPS = 20
_ACCURACY = 1000  # of a quantile's rank: one in so many rows


def default_plan(correlation: Correlation, frames: Sequence[DataFrame], workers: int) -> Plan:
    """By key if there is one; else a grid or, for tables, what copies least and is even.

    One stream has a triangle in place of a grid. Rows that are emitted if they find no partner go
    to one worker each where that is not expensive: such a worker decides without a second step.

    Tables are read once, for their row counts and for how their rows lie in time.
    """
    if correlation.has_key:
        return keyed(workers)
    one = correlation.one_stream
    waiting = None if one or len(correlation.unmatched) != 1 else correlation.unmatched[0]
    if frames[0].isStreaming:
        plan = choose(workers, one_stream=one)
        return plan if waiting is None else sent_once(plan, waiting)
    verb = "dedupe" if correlation.how == "dedupe" else "correlate"
    _LOG.info("%s runs a job over its tables, to choose a plan; plan= would save it", verb)
    counts, durations = [], []
    for frame, side in zip(frames, correlation.sides, strict=False):
        t = F.unix_micros(by_name(side.time))
        shares = [step / _STEPS for step in range(_STEPS + 1)]
        found = frame.agg(F.count(F.lit(1)), F.percentile_approx(t, shares, _ACCURACY)).first()
        assert found is not None
        counts.append(float(found[0]))
        if found[1] is not None:
            durations.append(typical_duration(found[1]))
    # The side whose rows lie closer decides: a segment must not hold many rows of either.
    rows = (counts[0], counts[-1])
    if correlation.by_rows:  # no segment of time holds all that a row may meet
        return choose(workers, rows, one_stream=one)
    plan = choose(workers, rows, min(durations, default=0), correlation.window, one)
    return plan if waiting is None else sent_once(plan, waiting, rows, correlation.window)
