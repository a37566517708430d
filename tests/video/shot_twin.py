"""Shots by one pass over a whole film, in words too plain to be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from anabranch.video.signature import distance
from tests.video.twin import in_order

LOW = 0.06


def key_frames(
    sigs: Sequence[bytes],
    times: Sequence[int],
    runs: Sequence[int],
    anchors: Sequence[bool],
    longest: int,
) -> list[tuple[int, str, int]]:
    """The place of each key frame, how its shot began and when."""
    found: list[tuple[int, str, int]] = []
    begin = 0
    for end in range(1, len(sigs) + 1):
        ends = end == len(sigs) or runs[end] != runs[end - 1]
        if ends or times[end] - times[end - 1] > 1_000_000:
            part = slice(begin, end)
            for t, how, began in one_run(sigs[part], times[part], anchors[part], longest):
                found.append((begin + t, how, began))
            begin = end
    return found


def one_run(
    sigs: Sequence[bytes], times: Sequence[int], anchors: Sequence[bool], longest: int
) -> list[tuple[int, str, int]]:
    d = [0.0] + [distance(sigs[t - 1], sigs[t]) for t in range(1, len(sigs))]
    found = []
    waits: tuple[str, int] | None = None
    latest = -(10**18)
    last, black, began = 0, False, ""
    for t in range(len(sigs)):
        how = ""
        cells = np.frombuffer(sigs[t][128:192], np.uint8)
        blank = bool(cells.max() <= 20 or cells.min() >= 235)
        shortest = 2 if began == "gradual" else 8
        if t == 0:
            how = "start"
        elif blank:
            black = True
        elif black and t - last >= 8 and d[t] < LOW / 2:
            how = "fade"
        elif t - last >= shortest and is_cut(sigs, d, t):
            how = "cut"
        elif not black and t - last > 18 and is_gradual(sigs, d, t, last):
            how = "gradual"
        if how:
            last, black, began, waits = t, False, how, (how, times[t])
        elif waits is None and times[t] - latest >= longest and (anchors[t] or d[t] > LOW):
            waits = ("longest", times[t])
        if waits is not None and (anchors[t] or d[t] > LOW or t == 0):
            found.append((t, *waits))
            waits, latest = None, times[t]
    return found


def is_cut(sigs: Sequence[bytes], d: Sequence[float], t: int) -> bool:
    before = d[max(1, t - 12) : t]
    usual = median(before) if before else 0.0
    after = sigs[min(t + 2, len(sigs) - 1)]
    stands_out = d[t] > LOW and d[t] > 3 * usual + LOW / 2
    stands_out = stands_out and all(step <= 0.6 * d[t] for step in d[t + 1 : t + 3])
    over = any(distance(sigs[k], sigs[t]) < 0.5 * d[t] for k in range(max(t - 3, 0), t - 1))
    return stands_out and not over and distance(sigs[t - 1], after) >= 0.5 * d[t]


def is_gradual(sigs: Sequence[bytes], d: Sequence[float], t: int, last: int) -> bool:
    far = distance(sigs[t - 16], sigs[t])
    if d[t] >= 0.045 or d[t - 16] >= 0.045 or far <= 0.14:
        return False
    steps = d[t - 15 : t]
    moving = sum(step > 0.25 * far / 16 for step in steps)
    ends = [mean(d[max(last + 1, t - 21) : t - 15]), mean(d[t : t + 3])]
    calm = 1.6 * max(ends) + 0.55 * min(ends)
    return 2 * moving > 15 and in_order(steps) < 2.5 * far and in_order(steps) / 15 > calm


def mean(numbers: Sequence[float]) -> float:
    return in_order(numbers) / len(numbers)
