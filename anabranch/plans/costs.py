"""What plans cost, and plans close to a given one: the arithmetic that policies decide by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anabranch.plans.plan import Csp, Grid, Keyed, Plan, Ssp

__all__ = ["best_grid", "copies", "resized", "segment_shares", "typical_span", "weighted"]


def copies(plan: Plan, rates: tuple[float, float], window: tuple[int, int]) -> float:
    """Copies that so many left and right rows make under a plan.

    Examples
    --------
    >>> copies(Ssp(4), (10, 1), (0, 0)), copies(Grid(2, 2), (10, 1), (0, 0))
    (14, 22)
    """
    left, right = rates
    if isinstance(plan, Grid):
        return plan.cols * left + plan.rows * right
    if isinstance(plan, (Ssp, Csp)):
        master, slave = (left, right) if plan.master == "left" else (right, left)
        if isinstance(plan, Ssp):
            return master + plan.count * slave
        return master + min(plan.count, 1 + sum(window) / plan.segment) * slave
    return left + right


def best_grid(workers: int, rates: tuple[float, float]) -> Plan:
    """The grid, or single line of one, that makes the fewest copies.

    Examples
    --------
    >>> print(best_grid(4, (1, 1)), best_grid(4, (9, 1)), best_grid(4, (1, 9)))
    grid(2, 2) ssp(4, master=left) ssp(4, master=right)
    """
    shapes = [(a, workers // a) for a in range(workers, 0, -1) if workers % a == 0]
    a, b = min(shapes, key=lambda shape: shape[1] * rates[0] + shape[0] * rates[1])
    if a == workers:
        return Ssp(workers, "left")
    return Ssp(workers, "right") if b == workers else Grid(a, b)


def segment_shares(plan: Csp, window: tuple[int, int], span: float) -> tuple[float, float]:
    """The busiest worker's share of the comparisons, and of the masters, of one micro-batch.

    Comparisons that arriving masters cause happen where the newest segments live; those caused by
    arriving slaves are spread over the segments that their window touches. So a batch shorter than
    a segment has half its work in one worker, whatever the number of workers.

    Examples
    --------
    >>> second = 1_000_000
    >>> plan, window = Csp(16, 10 * second), (60 * second, 60 * second)
    >>> [round(1 / segment_shares(plan, window, s * second)[0], 1) for s in (10, 60, 300)]
    [1.8, 6.1, 13.6]
    """
    length, slots = plan.segment, len(plan._table)
    points = (np.arange(64) + 0.5) / 64 * max(span, 1.0)
    back = window[0] if plan.master == "left" else window[1]
    share, masters = np.zeros(plan.count), np.zeros(plan.count)
    newest = plan._table[(points // length).astype(np.int64) % slots]
    np.add.at(masters, newest, 1 / 64)
    np.add.at(share, newest, 0.5 / 64)
    # A slave meets masters that are up to `back` older than itself.
    reach = (points[:, None] - (np.arange(64) + 0.5) / 64 * max(back, 1)) // length
    np.add.at(share, plan._table[reach.astype(np.int64) % slots].ravel(), 0.5 / 64**2)
    return float(share.max()), float(masters.max())


def weighted(plan: Plan, speeds: Sequence[float]) -> Plan | None:
    """The same plan with shares that follow the speeds of its workers."""
    mean = sum(speeds) / len(speeds)
    shares = tuple(round(max(speed / mean, 0.05), 1) for speed in speeds)
    if isinstance(plan, (Ssp, Csp, Keyed)):
        return replace(plan, weights=shares)
    if isinstance(plan, Grid):
        table = np.array(shares).reshape(plan.rows, plan.cols)
        rows = tuple(float(x) for x in table.mean(axis=1).round(1))
        cols = tuple(float(x) for x in table.mean(axis=0).round(1))
        return replace(plan, weights=(rows, cols))
    return None


def resized(plan: Plan, workers: int, rates: tuple[float, float]) -> Plan:
    """A plan of the same kind with another number of workers."""
    if isinstance(plan, (Csp, Keyed)):
        return replace(plan, count=workers, weights=None)
    return best_grid(workers, rates)


def typical_span(quantiles: Sequence[int]) -> int:
    """The time that rows would cover if all lay as close as the densest tenth of them.

    `quantiles` are times at evenly spaced ranks, first and last included. Unlike the difference of
    the last and the first it takes no notice of a few rows that are far from all others, and
    segments that are cut from it spread the busiest time over all workers.

    Examples
    --------
    >>> typical_span(range(0, 2100, 100))
    2000
    >>> typical_span([-(10**15), *range(100, 2000, 100), 10**15])
    2000
    >>> typical_span([0] * 8 + list(range(0, 1300, 100)))
    0
    """
    times = np.asarray(quantiles, np.int64)
    steps = len(times) - 1
    width = max(1, steps // 10)
    closest = int((times[width:] - times[:-width]).min())
    return closest * steps // width
