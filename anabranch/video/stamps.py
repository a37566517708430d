"""Timestamps of a file's packets: which of them bear each other out, and how long they say it is.

A flipped bit of a head says that a segment lasts 15 days, and one of a packet that it is shown in
13 hours. What packets say together is safe: a timestamp counts if others are near it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Span", "span_of", "unborne"]

_NEIGHBOURS = 16  # frames that are shown later than they are stored, at most
_USUAL = 4  # usual steps, within which another timestamp is near


@dataclass(frozen=True)
class Span:
    """Where a file begins and how long it is, in ticks; and whether timestamps of it are wrong."""

    first: int
    length: int
    wrong: bool


def unborne(stamps: Sequence[int], second: int, ahead: int) -> np.ndarray:
    """Which timestamps, in the order of packets, no others bear out.

    It is nowhere near its neighbours, and not between those that are borne out either, as frames
    that come now and then are. The first ones may be as much as `ahead` before these, and the last
    ones as much behind. `second` and `ahead` are in ticks.

    Examples
    --------
    >>> unborne([0, 4, 8, 900, 16, 20], 100, 1000).nonzero()[0]
    array([3])
    >>> unborne([0, 4, 8, 900, 904, 908], 100, 1000).any()
    np.False_
    >>> unborne([0, 4, 8, 300, 600, 900, 904, 908, 1500], 100, 1000).any()
    np.False_
    """
    at = np.array(stamps, np.int64)
    count = len(at)
    steps = np.diff(np.unique(at))
    if count < 3 or not len(steps):
        return np.zeros(count, bool)
    reach = max(second, _USUAL * int(np.median(steps)))
    near = np.zeros(count, np.int64)
    for k in range(1, min(_NEIGHBOURS, count - 1) + 1):
        close = np.abs(at[k:] - at[:-k]) <= reach
        near[k:] += close
        near[:-k] += close
    alone: np.ndarray = near < min(2, (count - 1) // 2)
    if alone.all():
        return alone
    held = at[~alone]
    before = np.maximum.accumulate(np.where(alone, held.min() - 1, at))
    after = np.minimum.accumulate(np.where(alone, held.max() + 1, at)[::-1])[::-1]
    first, last = before < held.min(), after > held.max()  # before all that are held, or behind
    low = np.where(first, after - ahead, before)
    high = np.where(last, before + ahead, after)
    return alone & ~((low < at) & (at < high))


def span_of(stamps: Sequence[int], usual: int, second: int, ahead: int) -> Span:
    """What timestamps say that bear each other out; each of `usual` length.

    Where they jump by more than `ahead`, or back, time continues, as it does for frames.

    Examples
    --------
    >>> span_of([0, 4, 8, 900, 16, 20], 4, 100, 1000)
    Span(first=0, length=24, wrong=True)
    >>> span_of([50, 54, 58, 9000, 9004, 9008], 4, 100, 1000)
    Span(first=50, length=24, wrong=False)
    """
    wrong = unborne(stamps, second, ahead)
    held = [at for at, bad in zip(stamps, wrong.tolist(), strict=True) if not bad]
    if not held:
        return Span(0, 0, bool(wrong.any()))
    low = high = held[0]
    begins: int | None = None
    # Packets are not in the order of showing, and a head may lie about how long a frame is.
    steps = np.diff(np.unique(held))
    step = int(np.median(steps)) if len(steps) else usual
    total, back = 0, max(second, _NEIGHBOURS * step)
    for at in [*held[1:], None]:
        if at is not None and high - back <= at <= high + 2 * usual + ahead:
            low, high = min(low, at), max(high, at)
            continue
        begins = low if begins is None else begins
        total += high + usual - low
        low = high = 0 if at is None else at
    return Span(low if begins is None else begins, total, bool(wrong.any()))
