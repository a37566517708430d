"""Two maps that meet once, and how they change while a query runs.

As `ab.plans` it holds what goes with plans: ``PlanLog``, the log of a running query's plans.
"""

from typing import TYPE_CHECKING, Any

# Every plan that a log may hold is known as soon as anything of this folder is.
from anabranch.plans import hashed, ranges, segments, triangle

if TYPE_CHECKING:
    from anabranch.plans.log import PlanLog

__all__ = ["PlanLog", "hashed", "ranges", "segments", "triangle"]


def __getattr__(name: str) -> Any:
    if name != "PlanLog":
        raise AttributeError(f"module 'anabranch.plans' has no attribute {name!r}; it has PlanLog")
    from anabranch.plans.log import PlanLog  # with all that keeps a log

    return PlanLog
