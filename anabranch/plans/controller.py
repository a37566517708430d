"""The controller: load reports in, plan changes out. It knows no clock, no thread and no Spark.

Policies suggest; the controller decides, keeps plans apart in time, and looks after their lives: a
plan that has been replaced stays live until no row stamped with it can still join, and only then
is it retired. Its whole memory is the plan log and a few smoothed figures, so it can be started
again from the log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import renamed
from anabranch.flow.load import Load
from anabranch.plans.arguments import is_finite, is_list, is_positive, refuse, worker_problems
from anabranch.plans.cells import cells_html
from anabranch.plans.costs import Sight, choose
from anabranch.plans.hashed import keyed
from anabranch.plans.log import Entry
from anabranch.plans.plan import Plan
from anabranch.plans.policies import PATIENCE, POLICIES, Policy, Suggestion
from anabranch.plans.routing import MAX_LIVE

__all__ = ["Adaptive", "Change", "Controller", "Report", "adaptive"]

_MOST_LIVE = 2  # more plans than this, and policies wait until one is retired
_SMOOTH = 0.5  # weight of the newest report: about three reports of memory


@dataclass(frozen=True)
class Adaptive:
    """Settings of an adaptive plan; see `adaptive`."""

    workers: int
    start: Plan | None = None
    weights: tuple[float, float, float] = (0.8, 0.1, 0.1)
    policies: tuple[str, ...] = tuple(POLICIES)
    memory: float = float(1 << 30)
    bandwidth: float = 1e8

    def first_plan(self, by_key: bool = False, one_stream: bool = False) -> Plan:
        """The plan to begin with."""
        if self.start is not None or by_key:
            return self.start or keyed(self.workers)
        return choose(self.workers, one_stream=one_stream)

    def _repr_html_(self) -> str:
        start = self.first_plan()
        note = f"begins so; {', '.join(self.policies)} may change it"
        title = f"adaptive({self.workers}), from {start}"
        return cells_html(title, start.name, start.cells(), note)


@renamed()
def adaptive(
    workers: int,
    start: Plan | None = None,
    weights: Sequence[float] = (0.8, 0.1, 0.1),
    *,
    policies: Sequence[str] = tuple(POLICIES),
    memory: float = float(1 << 30),
    bandwidth: float = 1e8,
) -> Adaptive:
    """A plan that changes while the query runs; needs ``control=``.

    Parameters
    ----------
    workers
        The most workers to use.
    start
        The plan to begin with; by default the squarest grid.
    weights
        Importance of processor, memory and network in a worker's load (ViCo, equation 1).
    policies
        Which rules may suggest changes: any of ``shape, role, kind, weights, segment, workers,
        ranges``.
    memory, bandwidth
        What counts as full for one worker: bytes of state, bytes received per second.

    Examples
    --------
    >>> adaptive(8, policies=["shape"]).policies
    ('shape',)
    """
    problems = worker_problems("workers", workers)
    if start is not None and not isinstance(start, Plan):
        problems.append(f"start must be a plan such as ab.grid(2, 2), got {start!r}")
    elif start is not None and not problems and start.workers > workers:
        problems.append(f"start={start} has more than {workers} workers")
    if not _sums_to_one(weights):
        problems.append(
            f"weights must be three numbers of at least 0 that sum to 1, got {weights!r}"
        )
    problems += _policy_problems(policies)
    for name, value in (("memory", memory), ("bandwidth", bandwidth)):
        if not is_positive(value):
            problems.append(f"{name} must be a number of bytes above 0, got {value!r}")
    refuse("adaptive", problems)
    cpu, mem, net = (float(weight) for weight in weights)
    chosen = tuple(dict.fromkeys(policies))
    return Adaptive(int(workers), start, (cpu, mem, net), chosen, float(memory), float(bandwidth))


def _sums_to_one(weights: Any) -> bool:
    if not is_list(weights) or len(weights) != 3:
        return False
    return all(is_finite(w) and w >= 0 for w in weights) and abs(sum(weights) - 1) <= 1e-9


def _policy_problems(policies: Any) -> list[str]:
    known = ", ".join(POLICIES)
    if not is_list(policies) or not len(policies):
        return [f"policies must be a list of one or more of {known}, got {policies!r}"]
    unknown = [name for name in policies if not isinstance(name, str) or name not in POLICIES]
    return [f"unknown policies {unknown}; known are {known}"] if unknown else []


@dataclass(frozen=True)
class Report:
    """One micro-batch as the controller sees it; times in microseconds, `seconds` on the wall."""

    batch: int
    seconds: float
    watermark: int
    loads: tuple[Load, ...]


@dataclass(frozen=True)
class Change:
    """What the next entry of the plan log shall say."""

    epoch: int
    plan: Plan
    live: tuple[int, ...]
    cause: Mapping[str, Any]
    marks: Mapping[int, int] = field(default_factory=dict)

    def entry(self, first: int) -> Entry:
        """The entry, to hold from micro-batch `first` on."""
        return Entry(0, self.epoch, self.plan, first, self.live, self.cause, self.marks)


class Controller:
    """Decides over one correlation.

    Parameters
    ----------
    entries
        The plan log so far; at least its first entry.
    window
        The two windows, in microseconds.
    delay
        How late rows may be, in microseconds.
    settings
        What may be adapted; None keeps the plan and only retires what requests replaced.
    policies
        The policies themselves, where they are not those that `settings` names as they come.
    one_stream
        Whether a stream is correlated with itself.
    bind
        Raises `ValueError` for a plan that the call cannot run under.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        window: tuple[int, int],
        delay: int,
        settings: Adaptive | None = None,
        policies: Sequence[Policy] | None = None,
        one_stream: bool = False,
        bind: Callable[[Plan], Plan] | None = None,
    ) -> None:
        if not entries:
            raise ValueError("the plan log has no entry yet")
        self.window, self.delay, self.settings = window, delay, settings
        self._bind = bind
        self._entries = list(entries)
        self._policies: list[Policy] = (
            [POLICIES[name]() for name in settings.policies] if settings else []
        )
        if policies is not None:
            self._policies = list(policies)
        self._seen = _Seen(one_stream=one_stream)
        self._since: int | None = None  # watermark when the present plan first held
        self._reports = 0

    @property
    def now(self) -> Entry:
        """The newest entry."""
        return self._entries[-1]

    def handle(self, report: Report, requests: Sequence[tuple[Plan, str]] = ()) -> Change | None:
        """What to write after this report, if anything; `written` must follow if it is."""
        entry = self.now
        self._seen.take_in(report, entry.plan, self.settings)
        marks = self._marks(report)
        gone = self._expired(report, marks)
        live = tuple(number for number in entry.live if number not in gone)
        kept = {number: mark for number, mark in marks.items() if number in live}
        wish = self._wish(report, requests)
        if wish is not None and entry.epoch + 1 - min(live) < MAX_LIVE:
            cause = {
                "rule": wish.rule,
                "why": wish.why,
                "figures": dict(wish.figures),
                "old": str(entry.plan),
                "new": str(wish.plan),
            }
            number = entry.epoch + 1
            return Change(number, wish.plan, (*live, number), cause, kept)
        if gone or kept != dict(entry.marks):
            ended = {"rule": "retire" if gone else "mark", "retired": gone}
            return Change(entry.epoch, entry.plan, live, ended, kept)
        return None

    def catch_up(self, entries: Sequence[Entry]) -> None:
        """Told the log as it is, in case another run of the query has written to it."""
        for entry in entries[len(self._entries) :]:
            self.written(entry)

    def written(self, entry: Entry) -> None:
        """Told which entry a change became."""
        if entry.epoch != self.now.epoch:
            self._since, self._reports = None, 0
            for policy in self._policies:
                policy.plan_changed()
        self._entries.append(entry)

    def _marks(self, report: Report) -> dict[int, int]:
        """Newest event times of replaced plans, known once a later plan's batch has begun.

        The watermark of a batch is the newest time of all earlier ones less `delay`, in whole
        milliseconds, so rows of earlier batches are no newer than this. Workers report what they
        hold as well, in case a router still sends rows under the old plan, or another watermark of
        the query holds this one back. Worker 0 hears of the newest row of every batch, so nothing
        is concluded without its report.
        """
        marks = dict(self.now.marks)
        heard = any(load.worker == 0 for load in report.loads)
        begins: dict[int, int] = {}
        for entry in self._entries:
            begins.setdefault(entry.epoch, entry.first)
        for number in self.now.live:
            later = [first for epoch, first in begins.items() if epoch > number]
            if heard and number not in marks and later and report.batch >= min(later):
                marks[number] = report.watermark + self.delay + 1000
        for load in report.loads:
            for number in marks:
                marks[number] = max(marks[number], load.newest.get(str(number), 0))
        return marks

    def _expired(self, report: Report, marks: Mapping[int, int]) -> list[int]:
        longest = max(self.window)
        return [
            number
            for number in self.now.live
            if number != self.now.epoch
            and number in marks
            and report.watermark >= marks[number] + longest
        ]

    def _wish(self, report: Report, requests: Sequence[tuple[Plan, str]]) -> Suggestion | None:
        if requests:
            plan, cause = requests[-1]
            return Suggestion(plan, "by hand", cause, {})
        rows = sum(load.rows_left + load.rows_right for load in report.loads)
        if self.settings is None or self.now.first > report.batch or rows == 0:
            return None
        # A query that has just begun has no watermark yet, and a window has not passed.
        if self._since is None and report.watermark > 0:
            self._since = report.watermark
        self._reports += 1
        if self._since is None or len(self.now.live) > _MOST_LIVE:
            return None
        # Until a window has passed, figures still speak of the plan before.
        if report.watermark - self._since < max(self.window) or self._reports < PATIENCE:
            return None
        sight = self._seen.sight(self.now.plan, self.window, self.settings)
        if sight is None:
            return None
        # Every policy is asked, so that each sees every report; the first suggestion counts.
        for suggestion in [policy.suggest(sight) for policy in self._policies]:
            if suggestion is not None and self._allowed(suggestion.plan):
                return suggestion
        return None

    def _allowed(self, plan: Plan) -> bool:
        assert self.settings is not None
        fits = plan.workers <= self.settings.workers and plan.needs == self.now.plan.needs
        try:
            if self._bind is not None:
                self._bind(plan)
        except ValueError:
            return False
        return fits and plan != self.now.plan


@dataclass
class _Seen:
    """Smoothed figures of the reports so far."""

    rates: tuple[float, float] | None = None
    comparisons: float = 0.0
    duration: float = 0.0
    per_copy: float = 0.0
    per_comparison: float = 0.0
    throughput: float = 0.0
    loads: dict[int, float] = field(default_factory=dict)
    speeds: dict[int, float] = field(default_factory=dict)
    watermark: int = 0
    ranges: tuple[float, ...] = ()
    one_stream: bool = False

    def take_in(self, report: Report, plan: Plan, settings: Adaptive | None) -> None:
        """Add one report."""
        if settings is None or not report.loads:
            return
        loads = report.loads
        left, right = sum(x.rows_left for x in loads), sum(x.rows_right for x in loads)
        if self.one_stream:
            right = left
        if left + right == 0:
            return
        if self.rates is None:
            self.rates = (float(left), float(right))
        self.rates = (_mean(self.rates[0], left), _mean(self.rates[1], right))
        compared = sum(x.comparisons for x in loads)
        received = sum(x.copies_left + x.copies_right for x in loads)
        comparing = sum(x.compare_seconds for x in loads)
        busy = sum(x.busy_seconds for x in loads)
        self.comparisons = _mean(self.comparisons or compared, compared)
        if compared and comparing:
            self.per_comparison = _mean(self.per_comparison, comparing / compared)
        if received and busy > comparing:
            self.per_copy = _mean(self.per_copy, (busy - comparing) / received)
        # A worker may still report the ranges of the plan before.
        reported = [x.ranges for x in loads if x.ranges and len(x.ranges) == plan.ranges]
        if reported:
            work = [sum(parts) for parts in zip(*reported, strict=True)]
            before = self.ranges if len(self.ranges) == plan.ranges else work
            self.ranges = tuple(map(_mean, before, work))
        slowest = max(x.busy_seconds for x in loads)
        if slowest:
            self.throughput = compared / slowest
        if self.watermark and report.watermark > self.watermark:
            self.duration = _mean(self.duration, report.watermark - self.watermark)
        self.watermark = max(self.watermark, report.watermark)
        cpu, mem, net = settings.weights
        seconds = max(report.seconds, 1e-9)
        # A worker of the plan that reports nothing had nothing to do.
        heard = {x.worker for x in loads}
        for n in range(plan.workers):
            if n not in heard:
                self.loads[n] = (1 - _SMOOTH) * self.loads.get(n, 0.0)
        self.loads = {n: load for n, load in self.loads.items() if n < plan.workers}
        for x in loads:
            load = cpu * x.busy_seconds / seconds + mem * x.state_bytes / settings.memory
            load += net * x.bytes_in / seconds / settings.bandwidth
            self.loads[x.worker] = _mean(self.loads.get(x.worker, load), load)
            if x.comparisons and x.compare_seconds:
                # Of comparing alone: what every step costs would make a worker with little to do
                # look slow, and give it still less.
                speed = x.comparisons / x.compare_seconds
                self.speeds[x.worker] = _mean(self.speeds.get(x.worker, speed), speed)

    def sight(self, plan: Plan, window: tuple[int, int], settings: Adaptive) -> Sight | None:
        """The figures as policies see them."""
        if self.rates is None:
            return None
        return Sight(
            plan,
            window,
            self.rates,
            self.comparisons,
            self.duration,
            self.per_copy,
            self.per_comparison,
            self.throughput,
            dict(self.loads),
            dict(self.speeds),
            settings.workers,
            self.ranges,
            self.one_stream,
        )


def _mean(old: float, new: float) -> float:
    return new if not old else (1 - _SMOOTH) * old + _SMOOTH * new
