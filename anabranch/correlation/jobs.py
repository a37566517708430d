"""Which workers compare the rows of a call."""

from __future__ import annotations

from anabranch.correlation.alone import AloneJob, knows_all
from anabranch.correlation.call import Correlation
from anabranch.correlation.forwarding import ForwardingJob
from anabranch.correlation.kernel import CorrelateJob
from anabranch.correlation.ranked import RankedJob
from anabranch.plans.plan import Plan

__all__ = ["has_homes", "job_of"]


def job_of(correlation: Correlation, plan: Plan | None = None) -> CorrelateJob:
    """The job of the step that compares; `ordering` goes before it or `homes` follow it.

    `plan` is given where it cannot change.
    """
    if correlation.by_rows:
        return RankedJob(correlation)
    if has_homes(correlation, plan):
        return ForwardingJob(correlation)
    return AloneJob(correlation) if correlation.unmatched else CorrelateJob(correlation)


def has_homes(correlation: Correlation, plan: Plan | None = None) -> bool:
    """Whether rows without a partner are found by a second step."""
    return bool(correlation.unmatched) and (plan is None or not knows_all(correlation, plan))
