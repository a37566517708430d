"""The keeper of a plan log: what is written to it on which report of the query.

It lives in the driver and is the only writer of the log. Nothing is written before the query's
first report. An entry takes effect `LEAD` micro-batches after the newest one that the query has
reported at the moment of writing, that is at least two after the newest one begun; by then every
router sees it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anabranch.plans.controller import Adaptive, Controller, Report
from anabranch.plans.log import PlanLog, Request, User, refuse_unloggable
from anabranch.plans.plan import Plan

__all__ = ["LEAD", "Keeping", "PlanKeeper", "warn_of_other_plan"]

LEAD = 3


def _as_it_is(plan: Plan) -> Plan:
    return plan


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What a keeper keeps.

    Parameters
    ----------
    control
        The directory of the log.
    plan
        The plan of the call, with which a new log begins.
    window, delay
        How long rows are stored and how late they may be, in microseconds.
    most_workers
        How many workers a plan may have.
    operator
        What tells the verb from others in the query, and stays the same when it is restarted.
    settings
        What may be adapted; None if nothing is.
    bind
        Tells a plan what it must know of the call; raises `ValueError` if it does not fit.
    one_stream
        Whether a stream is correlated with itself.
    """

    control: str
    plan: Plan
    window: tuple[int, int]
    delay: int
    most_workers: int
    operator: str = ""
    settings: Adaptive | None = None
    bind: Callable[[Plan], Plan] = _as_it_is
    one_stream: bool = False

    def __post_init__(self) -> None:
        refuse_unloggable(self.plan)


class PlanKeeper:
    """Keeps the plan log of one verb of a query."""

    def __init__(self, keeping: Keeping) -> None:
        self.keeping = keeping
        self._open: tuple[PlanLog, Controller] | None = None
        self._watermark = 0
        self._unseen = 0  # the newest plan of which it was said that workers do not see it

    def rest(self) -> None:
        """The query has ended; what is known of it is in the log, and may be forgotten here."""
        self._open, self._watermark = None, 0

    def hear(self, query: str, report: Report, newest: Callable[[], int]) -> None:
        """Hand a micro-batch to the controller and write what it decides.

        `newest` asks which micro-batch the query has reported last; this report may be an old one.
        """
        log, controller = self._opened(query)
        controller.catch_up(log.entries())
        self._watermark = max(self._watermark, report.watermark)
        report = replace(report, watermark=self._watermark)
        self._warn_if_unseen(log, report)
        asked = self._requests(log)
        before = controller.now.epoch
        change = controller.handle(report, [(plan, request.cause) for request, plan in asked])
        if change is None:
            return
        entry = log.write(change.entry(max(newest(), report.batch) + LEAD))
        controller.written(entry)
        if entry.epoch != before:  # otherwise requests wait until there is room for a plan
            self._enacted(log, [request for request, _ in asked])
        if max(newest(), report.batch) + 1 >= entry.first:
            warnings.warn(
                f"plan log entry {entry.number} was written late: micro-batch {entry.first} may "
                "have begun; pairs stay exact unless a task of it is repeated",
                stacklevel=2,
            )

    def _opened(self, query: str) -> tuple[PlanLog, Controller]:
        """The log, begun if it is new, and the controller that goes on from it."""
        keeping = self.keeping
        log = self._open[0] if self._open is not None else PlanLog(keeping.control)
        log.claim(User(query, keeping.operator))
        if self._open is None:
            if not log.entries():
                log.begin(keeping.plan)
            controller = Controller(
                log.entries(),
                keeping.window,
                keeping.delay,
                keeping.settings,
                one_stream=keeping.one_stream,
                bind=keeping.bind,
            )
            self._open = log, controller
        return self._open

    def _requests(self, log: PlanLog) -> list[tuple[Request, Plan]]:
        """Plans asked for by hand that could hold; the others are refused."""
        for name, why in log.unreadable().items():
            _refuse(log, name, why)
        found = []
        for request in log.requests():
            try:
                plan = self.keeping.bind(request.plan)
                if plan.workers > self.keeping.most_workers:
                    raise ValueError(
                        f"{plan} was asked for, but the session has {self.keeping.most_workers} "
                        "shuffle partitions, one for each worker"
                    )
                found.append((request, plan))
            except ValueError as error:
                _refuse(log, request, str(error))
        return found

    def _enacted(self, log: PlanLog, requests: Sequence[Request]) -> None:
        """Take requests off the log; the newest has been enacted."""
        for request in requests[:-1]:
            instead = requests[-1].plan
            why = (
                f"{request.plan} ({request.cause}) was asked for and not yet enacted when "
                f"{instead} was"
            )
            _refuse(log, request, why)
        for request in requests[-1:]:
            log.remove(request)

    def _warn_if_unseen(self, log: PlanLog, report: Report) -> None:
        """Say so if rows are routed as if there were no log: it lies where workers do not look."""
        holding = [entry for entry in log.entries() if entry.first <= report.batch]
        stored = {int(number) for load in report.loads for number in load.newest}
        rows = sum(load.rows_left + load.rows_right for load in report.loads)
        if not holding or not rows or not stored or holding[-1].epoch <= self._unseen:
            return
        if max(stored) < holding[-1].epoch:
            self._unseen = holding[-1].epoch
            warnings.warn(
                f"micro-batch {report.batch} was routed without plan {self._unseen}, which holds "
                f"from micro-batch {holding[-1].first} on: workers do not see {log.path}; name a "
                "directory that all machines share",
                stacklevel=3,
            )


def warn_of_other_plan(control: str, plan: Plan, bind: Callable[[Plan], Plan] = _as_it_is) -> None:
    """A word if a log was begun with another plan than the one that the call names."""
    entries = PlanLog(control).entries()
    if entries and bind(entries[0].plan).fingerprint != plan.fingerprint:
        warnings.warn(
            f"the plan log in {control} was begun with {entries[0].plan}, so plan={plan} has no "
            f"effect and {entries[-1].plan} holds: ask for another with "
            "ab.plans.PlanLog(control).append(...), or name a new directory for a new checkpoint",
            stacklevel=6,
        )


def _refuse(log: PlanLog, request: Request | str, why: str) -> None:
    log.refuse(request, why)
    warnings.warn(f"{why}: request refused", stacklevel=2)
