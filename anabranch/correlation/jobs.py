"""Which workers compare the rows of a call."""

from __future__ import annotations

from anabranch.correlation.call import Correlation
from anabranch.correlation.forwarding import ForwardingJob
from anabranch.correlation.kernel import CorrelateJob
from anabranch.correlation.ranked import RankedJob

__all__ = ["job_of"]


def job_of(correlation: Correlation) -> CorrelateJob:
    """The job of the step that compares; `ordering` goes before it or `homes` follow it."""
    if correlation.by_rows:
        return RankedJob(correlation)
    return ForwardingJob(correlation) if correlation.unmatched else CorrelateJob(correlation)
