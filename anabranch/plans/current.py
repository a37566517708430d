"""Which plans hold in a micro-batch, for whoever routes its rows."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.flow.kernel import Task
from anabranch.plans.log import User, reader
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans

__all__ = ["CurrentPlans"]


@dataclass(frozen=True)
class CurrentPlans:
    """The plan of a call, or those of its log.

    Parameters
    ----------
    plan
        The plan of the call.
    control
        The directory of the log; None if there is none.
    operator
        What tells the operator from others, and stays at a restart.
    call
        What tells the call from others in the query.

    Examples
    --------
    >>> from anabranch.plans.hashed import broadcast
    >>> CurrentPlans(broadcast(4))(Task(0)).plans[0] == broadcast(4)
    True
    """

    plan: Plan
    control: str | None = None
    operator: str = ""
    call: str = ""

    def __call__(self, task: Task) -> LivePlans:
        """The plans of a task's micro-batch; a repeated task reads the same ones."""
        if self.control is None:
            return LivePlans({0: self.plan})
        user = User(task.query or None, self.operator, task.run or None, self.call)
        return reader(self.control).live_at(task.batch, self.plan, user)
