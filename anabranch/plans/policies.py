"""Policies: each looks at the load and may suggest another plan; none of them decides.

The rules are those of the ViCo paper (section 3.4) made steady: a change must pay for itself in
three reports in a row, so that a rate that wobbles by a fifth changes nothing.

===========  ===================================================================================
``shape``    role switch and grid shape, from the rates of the two streams
``role``     role switch alone, for segments too
``kind``     segments or grid, by the predicted time of the slowest worker
``weights``  shares of workers, from their speed (least loaded first, ahead of time)
``segment``  segment length, by climbing the measured throughput
``workers``  more workers when they are busy, fewer when they idle
``ranges``    cuts of the keys, from the work that each range makes
===========  ===================================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from anabranch.calls import describe
from anabranch.plans.arguments import other_side
from anabranch.plans.costs import (
    Sight,
    best_grid,
    best_segments,
    copies,
    predicted_seconds,
    resized,
    unevenness,
    weighted,
)
from anabranch.plans.hashed import Broadcast, Grid, Keyed
from anabranch.plans.plan import Plan
from anabranch.plans.ranges import Ranges, balance, imbalance
from anabranch.plans.segments import Segments

__all__ = ["PATIENCE", "POLICIES", "Policy", "SegmentPolicy", "Suggestion"]

PATIENCE = 3  # reports in a row


@dataclass(frozen=True)
class Suggestion:
    """A plan, the rule that wants it, and why."""

    plan: Plan
    rule: str
    why: str
    figures: Mapping[str, float | str]


class Policy(ABC):
    """Asked once per report; remembers what it needs between them."""

    rule: ClassVar[str]

    def __init__(self) -> None:
        self._wanted: object = None
        self._times = 0

    @abstractmethod
    def suggest(self, sight: Sight) -> Suggestion | None:
        """A better plan, if this policy knows one."""

    def plan_changed(self) -> None:
        """Told after any change, whoever suggested it."""
        self._wanted, self._times = None, 0

    def _persists(self, wish: object) -> bool:
        """Whether the same wish was there `PATIENCE` times in a row."""
        if wish is None:
            self._wanted, self._times = None, 0
            return False
        self._times = self._times + 1 if wish == self._wanted else 1
        self._wanted = wish
        return self._times >= PATIENCE


class ShapePolicy(Policy):
    """The grid with the fewest copies for the present rates; role switching is its edge case."""

    rule = "shape"

    def suggest(self, sight: Sight) -> Suggestion | None:
        plan = sight.plan
        if not isinstance(plan, (Broadcast, Grid)) or sum(sight.rates) <= 0:
            return None
        best = best_grid(plan.workers, sight.rates, sight.one_stream)
        now, then = (
            copies(option, sight.rates, sight.window, sight.one_stream) for option in (plan, best)
        )
        # It must pay even if either rate comes back by a third: rates that sway by a fifth against
        # each other reach a ratio of 1.5 and are back again soon. One stream has one rate.
        left, right = sight.rates
        steady = sight.one_stream or all(
            copies(best, rates, sight.window) <= copies(plan, rates, sight.window)
            for rates in ((left / 1.5, right), (left, right / 1.5))
        )
        if not self._persists(best if then < 0.85 * now and steady else None):
            return None
        return Suggestion(
            best,
            self.rule,
            f"saves {1 - then / now:.0%} of the copies",
            {
                "left rows": sight.rates[0],
                "right rows": sight.rates[1],
                "copies": now,
                "instead": then,
            },
        )


class RolePolicy(Policy):
    """The slower stream is the one to copy in ``broadcast`` and ``segments`` (ViCo, section 3.4).

    The paper switches as soon as the copied stream is faster, which flaps. Two equal streams of
    which one wobbles by a fifth reach a ratio of 1.25; a switch needs more than that, and more than
    what random arrivals do to counts as small as these.
    """

    rule = "role"
    FASTER = 1.35

    def suggest(self, sight: Sight) -> Suggestion | None:
        plan = sight.plan
        if not isinstance(plan, (Broadcast, Segments)) or sum(sight.rates) <= 0:
            return None
        if sight.one_stream:  # both sides are the same rows
            return None
        spread, copied = sight.rates if plan.side == "right" else sight.rates[::-1]
        other = replace(plan, side=other_side(plan.side))
        now = copies(plan, sight.rates, sight.window)
        then = copies(other, sight.rates, sight.window)
        beyond, noise = copied - self.FASTER * spread, (copied + self.FASTER**2 * spread) ** 0.5
        pays = beyond > noise and then < 0.95 * now
        if not self._persists(other if pays else None):
            return None
        return Suggestion(
            other,
            self.rule,
            "the copied stream has become the faster one",
            {
                "left rows": sight.rates[0],
                "right rows": sight.rates[1],
                "copies": now,
                "instead": then,
            },
        )


class KindPolicy(Policy):
    """Segments against a grid by predicted time of the slowest worker, with hysteresis."""

    rule = "kind"

    def suggest(self, sight: Sight) -> Suggestion | None:
        plan = sight.plan
        if (
            isinstance(plan, Keyed)
            or plan.workers < 2
            or sum(sight.rates) <= 0
            or sight.duration <= 0
        ):
            return None
        grid = best_grid(plan.workers, sight.rates, sight.one_stream)
        segments = plan if isinstance(plan, Segments) else best_segments(plan.workers, sight)
        grid_time, segment_time = predicted_seconds(grid, sight), predicted_seconds(segments, sight)
        wish: Plan | None = None
        if isinstance(plan, Segments) and grid_time < segment_time:
            wish = grid
        elif not isinstance(plan, Segments) and grid_time > 1.25 * segment_time:
            wish = segments
        # The best length follows every duration; that it is segments is what must persist.
        if not self._persists(None if wish is None else type(wish)) or wish is None:
            return None
        return Suggestion(
            wish,
            self.rule,
            "the slowest worker is predicted to take less",
            {
                "grid seconds": grid_time,
                "segment seconds": segment_time,
                "batch duration": describe(int(sight.duration)),
            },
        )


class WeightsPolicy(Policy):
    """Shares that follow the workers' speeds once the load is uneven."""

    rule = "weights"

    def suggest(self, sight: Sight) -> Suggestion | None:
        plan = sight.plan
        known = [sight.speeds.get(worker, 0.0) for worker in range(plan.workers)]
        loads = [sight.loads.get(worker, 0.0) for worker in range(plan.workers)]
        if plan.workers < 2 or min(known) <= 0 or sum(loads) <= 0:
            return None
        uneven = max(loads) * len(loads) / sum(loads)
        if not self._persists("uneven" if uneven > 1.2 else None):
            return None
        better = weighted(plan, known)
        if better is None or better == plan:
            return None
        # Unevenness that speeds do not explain, such as a hot key, is not for shares to mend.
        if unevenness(better, known) > 0.95 * unevenness(plan, known):
            return None
        return Suggestion(
            better,
            self.rule,
            "shares follow the workers' speeds",
            {"max load / mean": uneven, "fastest / slowest": max(known) / min(known)},
        )


class SegmentPolicy(Policy):
    """Climbs the throughput over segment lengths: longer, shorter, and stays at the best.

    A try costs a transition, so none is made that cannot gain: a longer segment only saves copies,
    a shorter one only evens out the load.
    """

    rule = "segment"

    def __init__(self, factor: float = 1.5) -> None:
        super().__init__()
        self._factor = factor
        self._samples: list[float] = []
        self._best: tuple[float, int] | None = None  # throughput, length
        self._direction = 1
        self._turned = self._done = False
        # Side, workers and rates that this climb began with: under others it means nothing.
        self._began: tuple[str, int, tuple[float, float]] | None = None

    def plan_changed(self) -> None:
        super().plan_changed()
        self._samples = []

    def suggest(self, sight: Sight) -> Suggestion | None:
        plan = sight.plan
        if not isinstance(plan, Segments):
            self._began = None
            return None
        began = self._began
        same = began is not None and began[:2] == (plan.side, plan.workers)
        if began is None or not same or _moved(sight.rates, began[2]):
            self._began = (plan.side, plan.workers, sight.rates)
            self._samples, self._best, self._turned, self._done = [], None, False, False
        elif self._done:
            return None
        self._samples.append(sight.throughput)
        # Over a window at least: less would see single segments, and what had been waiting.
        if len(self._samples) < max(PATIENCE, max(sight.window) / max(sight.duration, 1.0)):
            return None
        value = float(np.mean(self._samples))
        if self._best is None or value > 1.03 * self._best[0]:
            self._best = (value, plan.length)
        else:  # worse this way: try the other from the best
            self._turn()
        best = replace(plan, length=self._best[1])
        while not self._done:
            length = max(round(best.length * self._factor**self._direction), 1)
            if _can_gain(best, length, sight):
                return self._to(plan, length, value)
            self._turn()
        return None if plan == best else self._to(plan, best.length, value)

    def _turn(self) -> None:
        self._done, self._turned, self._direction = self._turned, True, -self._direction

    def _to(self, plan: Segments, length: int, value: float) -> Suggestion:
        best = self._best[0] if self._best else value
        return Suggestion(
            replace(plan, length=length),
            self.rule,
            "climbing the throughput",
            {f"throughput at {describe(plan.length)}": value, "best so far": best},
        )


class WorkersPolicy(Policy):
    """Twice the workers when the mean load is high, half of them when it is low."""

    rule = "workers"
    HIGH, LOW = 0.8, 0.25

    def suggest(self, sight: Sight) -> Suggestion | None:
        if not sight.loads:
            return None
        now = sight.plan.workers
        mean = sum(sight.loads.values()) / now
        count = now
        if mean > self.HIGH:
            count = min(2 * now, sight.most_workers)
        elif mean < self.LOW:
            count = max(now // 2, 1)
        if not self._persists(count if count != now else None):
            return None
        word = "busy" if count > now else "idle"
        return Suggestion(
            resized(sight.plan, count, sight.rates, sight.one_stream),
            self.rule,
            f"workers are {word}",
            {"mean load": mean},
        )


class RangesPolicy(Policy):
    """Moves cuts and names hot ranges once the load is uneven and that would mend it.

    The feedback loop of EMD-DDSJ. Workers report what the pairs of each range cost them, in pairs
    looked at and in exact solutions. The load of a range does not depend on who owns it, so the
    cuts that would even it out can be computed at once, and what they would gain is known before
    they are made.
    """

    rule = "ranges"
    UNEVEN = 0.2

    def suggest(self, sight: Sight) -> Suggestion | None:
        plan, load = sight.plan, np.array(sight.ranges)
        if not isinstance(plan, Ranges) or len(load) != plan.ranges or plan.workers < 2:
            self._persists(None)
            return None
        cuts, hot = balance(load, plan.workers)
        better = replace(plan, cuts=cuts, hot=hot)
        now, then = imbalance(plan.shares(load)), imbalance(better.shares(load))
        if not self._persists("uneven" if now > self.UNEVEN and then < now / 2 else None):
            return None
        return Suggestion(
            better,
            self.rule,
            "cuts follow the load",
            {"imbalance": now, "instead": then, "hot ranges": float(len(hot))},
        )


POLICIES: Mapping[str, type[Policy]] = {
    policy.rule: policy
    for policy in (
        ShapePolicy,
        RolePolicy,
        KindPolicy,
        WeightsPolicy,
        SegmentPolicy,
        WorkersPolicy,
        RangesPolicy,
    )
}


def _can_gain(plan: Segments, segment: int, sight: Sight) -> bool:
    """Whether this segment length could be worth 3 % at best."""
    loads = sight.loads.values()
    uneven = max(loads, default=0.0) * len(loads) / max(sum(loads), 1e-12)
    if segment < plan.length:
        return uneven > 1.03
    if uneven > 1.2:  # it would only get worse
        return False
    comparing = sight.comparisons * sight.seconds_per_comparison
    now, then = (
        copies(option, sight.rates, sight.window, sight.one_stream) * sight.seconds_per_copy
        + comparing
        for option in (plan, replace(plan, length=segment))
    )
    return now > 1.03 * then


def _moved(now: Sequence[float], then: Sequence[float]) -> bool:
    """Whether counts differ by a quarter, and by more than random arrivals make them differ."""
    pairs = zip(now, then, strict=True)
    return any(abs(a - b) > 0.25 * b + 2 * max(b, 1.0) ** 0.5 for a, b in pairs)
