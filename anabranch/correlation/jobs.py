"""Which workers compare the rows of a call."""

from __future__ import annotations

from anabranch.correlation.alone import AloneJob, knows_all
from anabranch.correlation.call import Correlation
from anabranch.correlation.forwarding import ForwardingJob
from anabranch.correlation.kernel import CorrelateJob
from anabranch.correlation.ranked import RankedJob
from anabranch.plans.plan import Plan

__all__ = ["job_of"]


def job_of(correlation: Correlation, plan: Plan | None = None, homes: int = 4) -> CorrelateJob:
    """The job of the step that compares; `ordering` goes before it or `homes` follow it.

    `plan` is given where it cannot change; `homes` says how many there are, if they are needed.
    """
    if correlation.by_rows:
        return RankedJob(correlation)
    if not correlation.unmatched:
        return CorrelateJob(correlation)
    if plan is None or not knows_all(correlation, plan):
        return ForwardingJob(correlation, homes=homes)
    return AloneJob(correlation, correlation.bound(plan).fingerprint)
