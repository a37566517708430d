"""The plan of a query as the page draws it: who meets whom where, and which plans there were."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.flow.announced import Announced
from anabranch.plans.drawing import lives
from anabranch.plans.log import Entry, PlanLog, live_at
from anabranch.plans.story import story

__all__ = ["PlanView"]

_SENTENCES = 50  # of the story, newest


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
        return plan, {"text": str(plan), **plan.cells()._asdict(), **told}

    def workers(self, batch: int) -> frozenset[int] | None:
        """The workers that rows of a micro-batch are sent to; None if no plan is known."""
        plans = [] if self.call.plan is None else [self.call.plan]
        if self._log is not None:
            with suppress(AnabranchError, OSError):  # the drawing says what is wrong with it
                live = live_at(self._log.entries(), batch)
                plans = plans if live is None else list(live.plans.values())
        return frozenset(n for plan in plans for n in range(plan.workers)) if plans else None

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
