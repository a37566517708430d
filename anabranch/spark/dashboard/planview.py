"""The plan of a query as the page draws it: who meets whom where, and which plans there were."""

from __future__ import annotations

from typing import Any

from anabranch.calls import describe
from anabranch.errors import AnabranchError
from anabranch.plans.drawing import lives
from anabranch.plans.hashed import Broadcast, Grid
from anabranch.plans.log import Entry, PlanLog, live_at
from anabranch.plans.ranges import Ranges
from anabranch.plans.segments import Segments
from anabranch.plans.story import story
from anabranch.plans.triangle import Triangle
from anabranch.spark.announced import Announced

__all__ = ["PlanView", "cells_of"]

_SEGMENTS = 24  # that are drawn
_SENTENCES = 50  # of the story, newest


def cells_of(plan: Any) -> dict[str, Any]:
    """The lines and columns of a plan with the worker in each cell, and what they stand for.

    Examples
    --------
    >>> from anabranch.plans.hashed import broadcast, grid
    >>> cells_of(grid(2, 2))["cells"], cells_of(broadcast(3))["cells"]
    ([[0, 1], [2, 3]], [[0], [1], [2]])
    """
    workers = list(range(plan.workers))
    if isinstance(plan, Grid):
        rows = [workers[a * plan.cols : (a + 1) * plan.cols] for a in range(plan.rows)]
        return {"cells": rows, "down": "left rows", "across": "right rows"}
    if isinstance(plan, Broadcast):
        if plan.side == "right":
            cells = [[worker] for worker in workers]
            return {"cells": cells, "down": "left rows", "across": "all right rows"}
        return {"cells": [workers], "down": "all left rows", "across": "right rows"}
    if isinstance(plan, Triangle):
        return {"cells": plan._homes.tolist(), "down": "groups of rows", "across": "groups of rows"}
    if isinstance(plan, Segments):
        slots = plan._table[:_SEGMENTS].tolist()
        return {"cells": [slots], "across": f"segments of {describe(plan.length)}, in turn"}
    if isinstance(plan, Ranges):
        bounds = [0, *plan.cuts, plan.ranges]
        width = [bounds[n + 1] - bounds[n] for n in workers]
        across = f"ranges of {plan.slot or 'the value'}; widths are their shares"
        return {"cells": [workers], "widths": width, "across": across}
    return {"cells": [workers], "across": "rows by hash"}


class PlanView:
    """Reads the plan log of a call again and again; looking changes nothing in it."""

    def __init__(self, call: Announced) -> None:
        self.call = call
        self._log = None if call.control is None else PlanLog(call.control)

    def at(self, batch: int) -> tuple[Any, dict[str, Any]]:
        """The newest plan that rows of a micro-batch are stamped with, and all that is to be drawn.

        A log that cannot be read is reported in its own words.
        """
        plan, told = self.call.plan, dict[str, Any]()
        if self._log is not None:
            try:
                entries = self._log.entries()
                told = self._told(self._log, entries, batch)
                live = live_at(entries, batch)
                plan = plan if live is None else live.plans[live.epoch]
            except (AnabranchError, OSError) as error:
                told = {"trouble": str(error)}
        if plan is None:
            return None, told
        return plan, {"text": str(plan), **cells_of(plan), **told}

    def _told(self, log: PlanLog, entries: list[Entry], batch: int) -> dict[str, Any]:
        coming = [entry for entry in entries if entry.first > batch]
        asked = [f"asked for: {it.plan} ({it.cause})" for it in log.requests()]
        holding = [entry for entry in entries if entry.first <= batch]
        return {
            "lives": [life._asdict() for life in lives(entries)],
            "story": story(entries, log.refused())[-_SENTENCES:],
            "live": len(holding[-1].live) if holding else 1,
            "since": holding[-1].first if holding else 0,
            "epoch": holding[-1].epoch if holding else 0,
            "next": [f"from micro-batch {it.first} on: {it.plan}" for it in coming] + asked,
        }
