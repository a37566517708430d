"""What plans cost, and plans close to a given one: the arithmetic that policies decide by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.flow.hashing import SLOTS_PER_WORKER
from anabranch.plans.hashed import Broadcast, Grid, Keyed
from anabranch.plans.plan import SIDES, Plan
from anabranch.plans.segments import Segments
from anabranch.plans.triangle import Triangle, groups_of

__all__ = [
    "Sight",
    "best_grid",
    "best_segments",
    "choose",
    "copies",
    "predicted_seconds",
    "resized",
    "segment_shares",
    "sent_once",
    "typical_duration",
    "unevenness",
    "weighted",
]


@dataclass(frozen=True)
class Sight:
    """What policies see: smoothed figures of the last few micro-batches.

    `rates` are left and right rows per micro-batch, `duration` the event time a batch covers
    (microseconds), `loads` and `speeds` are per worker: the load metric of the paper's equation 1
    and comparisons per busy second; `ranges` is the work by range of a plan of ranges. Rows of one
    stream count as left and as right ones.
    """

    plan: Plan
    window: tuple[int, int]
    rates: tuple[float, float]
    comparisons: float
    duration: float
    seconds_per_copy: float
    seconds_per_comparison: float
    throughput: float
    loads: Mapping[int, float] = field(default_factory=dict)
    speeds: Mapping[int, float] = field(default_factory=dict)
    most_workers: int = 1
    ranges: tuple[float, ...] = ()
    one_stream: bool = False


def copies(
    plan: Plan, rates: tuple[float, float], window: tuple[int, int], one_stream: bool = False
) -> float:
    """Copies that so many left and right rows make under a plan.

    Rows of one stream are left and right ones at once, and one copy of each serves as both.

    Examples
    --------
    >>> copies(Broadcast(4), (10, 1), (0, 0)), copies(Grid(2, 2), (10, 1), (0, 0))
    (14, 22)
    """
    left, right = rates
    if isinstance(plan, Triangle):
        return plan.groups * left
    if one_stream:
        return copies(plan, rates, window) - left
    if isinstance(plan, Grid):
        return plan.cols * left + plan.rows * right
    if isinstance(plan, (Broadcast, Segments)):
        spread, copied = (left, right) if plan.side == "right" else (right, left)
        if isinstance(plan, Broadcast):
            return spread + plan.workers * copied
        return spread + min(plan.workers, 1 + sum(window) / plan.length) * copied
    return left + right


def best_grid(workers: int, rates: tuple[float, float], one_stream: bool = False) -> Plan:
    """The grid, or single line of one, that makes the fewest copies.

    Of one stream the triangle, or a grid where that leaves too many workers without work.

    Examples
    --------
    >>> print(best_grid(4, (1, 1)), best_grid(4, (9, 1)), best_grid(4, (1, 9)))
    grid(2, 2) broadcast(4, side=right) broadcast(4, side=left)
    """
    if one_stream:
        return _best_of_one(workers)
    # Of equals the one with more rows comes first: two workers get a copy of every right row.
    shapes = [(a, workers // a) for a in range(workers, 0, -1) if workers % a == 0]
    a, b = min(shapes, key=lambda shape: shape[1] * rates[0] + shape[0] * rates[1])
    if a == workers:
        return Broadcast(workers, "right")
    return Broadcast(workers, "left") if b == workers else Grid(a, b)


def _best_of_one(workers: int) -> Plan:
    """The plan of one stream that is even and copies little: a copy weighs a twentieth of a share.

    Examples
    --------
    >>> print(*(str(_best_of_one(workers)) for workers in (1, 2, 4, 5, 8, 11, 18)))
    triangle(1) triangle(2) grid(2, 2) triangle(3) triangle(4) grid(2, 5) triangle(6)
    """
    groups = groups_of(workers)
    options: list[tuple[Plan, int]] = [(Triangle(groups), groups)]
    for a in range(2, workers + 1):
        options += [(Grid(a, b), a + b - 1) for b in range(a, workers // a + 1)]
    return min(options, key=lambda one: (1 + one[1] / 20) / one[0].workers)[0]


def choose(
    workers: int,
    rows: tuple[float, float] = (1, 1),
    duration: int = 0,
    window: tuple[int, int] = (0, 0),
    one_stream: bool = False,
) -> Plan:
    """The plan of `workers` workers that copies least, for so many left and right rows.

    `duration` is the event time that the rows cover, if it is known; where it is long against the
    window, time segments are cheaper than any grid.

    Examples
    --------
    >>> print(choose(4), choose(4, rows=(1_000_000, 1_000)))
    grid(2, 2) broadcast(4, side=right)
    >>> hour = 3_600_000_000
    >>> print(choose(4, duration=24 * hour, window=(hour // 60, hour // 60)))
    segments(4, length=1350 seconds, side=right)
    """
    best = best_grid(workers, rows, one_stream)
    segment = duration // (workers * SLOTS_PER_WORKER)
    if workers > 1 and segment > 0:
        segments = Segments(workers, segment, _slower(rows))
        if copies(segments, rows, window, one_stream) < copies(best, rows, window, one_stream):
            return segments
    return best


def sent_once(
    plan: Plan, side: int, rows: tuple[float, float] = (1, 1), window: tuple[int, int] = (0, 0)
) -> Plan:
    """A plan like this one that sends rows of a side to one worker, if twice the copies will do.

    Examples
    --------
    >>> print(sent_once(Grid(2, 2), 0), sent_once(Grid(2, 2), 1), sent_once(Grid(4, 4), 0))
    broadcast(4, side=right) broadcast(4, side=left) grid(4, 4)
    >>> print(sent_once(Segments(4, 60_000_000, "left"), 0))
    segments(4, length=1 minute, side=right)
    """
    other = SIDES[1 - side]
    found: Plan = Broadcast(plan.workers, other)
    if isinstance(plan, Segments):
        found = replace(plan, side=other)
    dearest = 2 * copies(plan, rows, window)
    return plan if plan.once(side) or copies(found, rows, window) > dearest else found


def best_segments(workers: int, sight: Sight) -> Segments:
    """The segment plan that is predicted to be fastest."""
    copied = _slower(sight.rates)
    longest = max(*sight.window, int(sight.duration), 1)
    options = [
        Segments(workers, max(int(longest * factor / workers), 1), copied)
        for factor in (0.25, 0.5, 1, 2, 4)
    ]
    return min(options, key=lambda plan: predicted_seconds(plan, sight))


def segment_shares(plan: Segments, window: tuple[int, int], duration: float) -> tuple[float, float]:
    """The busiest worker's share of the comparisons, and of the spread rows, of one micro-batch.

    Comparisons that arriving spread rows cause happen where the newest segments live; those caused
    by copied rows are spread over the segments that their window touches. So a batch shorter than a
    segment has half its work in one worker, whatever the number of workers.

    Examples
    --------
    >>> second = 1_000_000
    >>> plan, window = Segments(16, 10 * second), (60 * second, 60 * second)
    >>> [round(1 / segment_shares(plan, window, s * second)[0], 1) for s in (10, 60, 300)]
    [1.8, 6.1, 13.6]
    """
    length, slots = plan.length, len(plan._table)
    points = (np.arange(64) + 0.5) / 64 * max(duration, 1.0)
    back = window[0] if plan.side == "right" else window[1]
    share, received = np.zeros(plan.workers), np.zeros(plan.workers)
    newest = plan._table[(points // length).astype(np.int64) % slots]
    np.add.at(received, newest, 1 / 64)
    np.add.at(share, newest, 0.5 / 64)
    # A copied row meets spread rows that are up to `back` older than itself.
    reach = (points[:, None] - (np.arange(64) + 0.5) / 64 * max(back, 1)) // length
    np.add.at(share, plan._table[reach.astype(np.int64) % slots].ravel(), 0.5 / 64**2)
    return float(share.max()), float(received.max())


def weighted(plan: Plan, speeds: Sequence[float]) -> Plan | None:
    """The same plan with shares that follow the speeds of its workers."""
    mean = sum(speeds) / len(speeds)
    shares = tuple(round(max(speed / mean, 0.05), 1) for speed in speeds)
    if isinstance(plan, (Broadcast, Segments, Keyed)):
        return replace(plan, weights=shares)
    if isinstance(plan, Grid):
        table = np.array(shares).reshape(plan.rows, plan.cols)
        rows = tuple(float(x) for x in table.mean(axis=1).round(1))
        cols = tuple(float(x) for x in table.mean(axis=0).round(1))
        return replace(plan, weights=(rows, cols))
    return None


def resized(plan: Plan, workers: int, rates: tuple[float, float], one_stream: bool = False) -> Plan:
    """A plan of the same kind with another number of workers."""
    if isinstance(plan, (Segments, Keyed)):
        return replace(plan, workers=workers, weights=None)
    return best_grid(workers, rates, one_stream)


def typical_duration(quantiles: Sequence[int]) -> int:
    """The time that rows would cover if all lay as close as the densest tenth of them.

    `quantiles` are times at evenly spaced ranks, first and last included. Unlike the difference of
    the last and the first it takes no notice of a few rows that are far from all others, and
    segments that are cut from it spread the busiest time over all workers.

    Examples
    --------
    >>> typical_duration(range(0, 2100, 100))
    2000
    >>> typical_duration([-(10**15), *range(100, 2000, 100), 10**15])
    2000
    >>> typical_duration([0] * 8 + list(range(0, 1300, 100)))
    0
    """
    times = np.asarray(quantiles, np.int64)
    steps = len(times) - 1
    width = max(1, steps // 10)
    closest = int((times[width:] - times[:-width]).min())
    return closest * steps // width


def predicted_seconds(plan: Plan, sight: Sight) -> float:
    """How long the slowest worker would take for a micro-batch like the recent ones."""
    per_copy, per_comparison = sight.seconds_per_copy, sight.seconds_per_comparison
    if isinstance(plan, Segments):
        most_compared, most_spread = segment_shares(plan, sight.window, sight.duration)
        spread, copied = sight.rates if plan.side == "right" else sight.rates[::-1]
        copies_each = min(1.0, (1 + sum(sight.window) / plan.length) / plan.workers * 1.5)
        received = most_spread * spread + copies_each * copied
        return received * per_copy + most_compared * sight.comparisons * per_comparison
    if isinstance(plan, Triangle):  # a worker has the rows of two groups
        g, rows = plan.groups, sum(sight.rates) / 2
        compared = sight.comparisons * min(1.0, 2 / g**2)
        return min(1.0, 2 / g) * rows * per_copy + compared * per_comparison
    received = copies(plan, sight.rates, sight.window, sight.one_stream) / plan.workers
    return received * per_copy + sight.comparisons / plan.workers * per_comparison


def unevenness(plan: Plan, speeds: Sequence[float]) -> float:
    """Predicted time of the slowest worker by the mean of all, from shares and speeds alone.

    Examples
    --------
    >>> unevenness(Broadcast(2), [1.0, 1.0]), round(unevenness(Broadcast(2), [1.0, 0.5]), 2)
    (1.0, 1.33)
    """
    shares = np.ones(plan.workers)
    if isinstance(plan, Grid) and plan.weights is not None:
        shares = np.outer(*plan.weights).ravel()
    elif isinstance(plan, (Broadcast, Segments, Keyed)) and plan.weights is not None:
        shares = np.array(plan.weights)
    seconds = shares / np.array(speeds)
    return float(seconds.max() / seconds.mean())


def _slower(rates: tuple[float, float]) -> str:
    """The side that is to be copied."""
    return "right" if rates[0] >= rates[1] else "left"
