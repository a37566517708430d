"""Cuts of spans that follow the load: the feedback loop of EMD-DDSJ as a policy.

Workers report what the pairs of each span cost them, in pairs looked at and in exact solutions.
The load of a span does not depend on who owns it, so the cuts that would even it out can be
computed at once, and what they would gain is known before they are made.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.plans.policies import Policy, Sight, Suggestion
from anabranch.plans.spans import Spans, balance, imbalance

__all__ = ["SpansPolicy"]


class SpansPolicy(Policy):
    """Moves cuts and names hot spans once the load is uneven and that would mend it."""

    rule = "spans"
    UNEVEN = 0.2

    def suggest(self, sight: Sight) -> Suggestion | None:
        plan, load = sight.plan, np.array(sight.spans)
        if not isinstance(plan, Spans) or len(load) != plan.spans or plan.count < 2:
            self._persists(None)
            return None
        cuts, hot = balance(load, plan.count)
        better = replace(plan, cuts=cuts, hot=hot)
        now, then = imbalance(plan.shares(load)), imbalance(better.shares(load))
        if not self._persists("uneven" if now > self.UNEVEN and then < now / 2 else None):
            return None
        return Suggestion(
            better,
            self.rule,
            "cuts follow the load",
            {"imbalance": now, "instead": then, "hot spans": float(len(hot))},
        )
