"""Where shots begin: cuts, gradual changes and fades, decided frame by frame with a lag of two.

All that is known of a frame here is its signature. The decision about a frame depends on the 22
before it and the two after it, and on when the last shot began. So the frames of a channel may be
cut into segments and batches in any way: what is kept between them are the last few frames.

=========  =====================================================================================
cut        unlike the frame before, much more so than the twelve before that and the two after; and
           no flash, after which the picture is what it was
gradual    far from the frame 16 before; most steps between had their share, and they were much
           larger than those before and after (a moving picture's are not)
fade       the first calm frame after black or white
longest    nothing of these for `longest`: a still channel has key frames too
=========  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from anabranch.flow.instants import BEGINNING
from anabranch.flow.process import njit
from anabranch.video.rows import GAP
from anabranch.video.signature import BYTES, LOW, distances

__all__ = ["REASONS", "Chosen", "Cutter"]

REASONS = ("", "start", "cut", "gradual", "fade", "longest")
_START, _CUT, _GRADUAL, _FADE, _LONGEST = range(1, 6)
_AHEAD = 2  # frames that must be known before one is decided
_TWIN = 16
_USUAL = 12
_SHORTEST = 8
_BEFORE = 5
_KEPT = _TWIN + _BEFORE + 1  # decided frames that later decisions look back on
_FAR = 0.14
_CALM = 0.045


@njit(nogil=True)
def _steps(sigs: np.ndarray, steps: np.ndarray, begin: int) -> None:
    """Distances to the frame before."""
    for t in range(max(begin, 1), len(sigs)):
        steps[t] = distances(sigs, t - 1, sigs, t)


@njit(nogil=True)
def _is_cut(sigs: np.ndarray, steps: np.ndarray, t: int) -> bool:
    d = steps[t]
    if d <= LOW:
        return False
    low = max(1, t - _USUAL)
    usual = np.median(steps[low:t]) if low < t else 0.0
    if d <= 3.0 * usual + LOW / 2.0:
        return False
    after = min(t + _AHEAD, len(sigs) - 1)
    for k in range(t + 1, after + 1):
        if steps[k] > 0.6 * d:
            return False
    for k in range(max(t - 3, 0), t - 1):
        if distances(sigs, k, sigs, t) < 0.5 * d:
            return False  # a flash is over
    return bool(distances(sigs, t - 1, sigs, after) >= 0.5 * d)


@njit(nogil=True)
def _is_gradual(sigs: np.ndarray, steps: np.ndarray, t: int, last: int) -> bool:
    begin = t - _TWIN
    if steps[t] >= _CALM or steps[begin] >= _CALM:
        return False
    far = distances(sigs, begin, sigs, t)
    if far <= _FAR:
        return False
    moving, total = 0, 0.0
    for k in range(begin + 1, t):
        moving += steps[k] > 0.25 * far / _TWIN
        total += steps[k]
    before = _mean(steps, max(last + 1, begin - _BEFORE), begin + 1)
    after = _mean(steps, t, min(t + _AHEAD + 1, len(steps)))
    usual = 1.6 * max(before, after) + 0.55 * min(before, after)
    stands_out = total / (_TWIN - 1) > usual
    return bool(stands_out and 2 * moving > _TWIN - 1 and total < 2.5 * far)


@njit(nogil=True)
def _mean(steps: np.ndarray, begin: int, end: int) -> float:
    """In order, so that it is the same wherever an array begins."""
    total = 0.0
    for k in range(begin, end):
        total += steps[k]
    return total / (end - begin)


@njit(nogil=True)
def _is_blank(sigs: np.ndarray, t: int) -> bool:
    """Black or white all over."""
    least, most = 255, 0
    for b in range(128, 192):
        least, most = min(least, sigs[t, b]), max(most, sigs[t, b])
    return bool(most <= 20 or least >= 235)


@njit(nogil=True)
def _decide(
    sigs: np.ndarray,
    steps: np.ndarray,
    found: np.ndarray,
    span: tuple[int, int],
    memory: np.ndarray,
) -> None:
    """Say of the frames of a span how a shot begins there, if one does.

    `memory` holds where the last shot began, whether it has been black since, and how it began.
    """
    for t in range(span[0], span[1]):
        how = 0
        blank = _is_blank(sigs, t)
        since = t - memory[0]
        if t == 0:
            how = _START
        elif blank:
            memory[1] = 1
        elif memory[1] == 1 and since >= _SHORTEST and steps[t] < LOW / 2.0:
            how = _FADE
        # A gradual change is seen late, and may be followed by a cut at once.
        elif since >= (2 if memory[2] == _GRADUAL else _SHORTEST) and _is_cut(sigs, steps, t):
            how = _CUT
        elif memory[1] == 0 and since > _TWIN + 2 and _is_gradual(sigs, steps, t, memory[0]):
            how = _GRADUAL
        if how:
            found[t], memory[0], memory[1], memory[2] = how, t, 0, how


@dataclass(frozen=True)
class Chosen:
    """A key frame: the place of its row among those given, how its shot began, and when."""

    row: Any
    reason: str
    began: int


@dataclass
class Cutter:
    """The shots of one channel, frame after frame.

    `rows` are whatever stands for the undecided frames; they are given back with key frames.

    Examples
    --------
    >>> dark, light = np.full((20, 320), 60, np.uint8), np.full((20, 320), 180, np.uint8)
    >>> cutter = Cutter(longest=10_000_000)
    >>> times = np.arange(40) * 40_000
    >>> sigs, seconds = np.concatenate([dark, light]), times % 1_000_000 == 0
    >>> found = cutter.take(sigs, times, np.zeros(40), seconds)
    >>> [(chosen.row, chosen.reason) for chosen in found]
    [(0, 'start'), (20, 'cut')]
    """

    longest: int
    sigs: np.ndarray = field(default_factory=lambda: np.zeros((0, BYTES), np.uint8))
    steps: np.ndarray = field(default_factory=lambda: np.zeros(0))
    times: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    anchors: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    rows: list[Any] = field(default_factory=list)  # of the last frames, those not yet decided
    run: int = -1
    last: int = 0  # where the last shot began, counted from the first frame that is kept
    black: int = 0
    how: int = 0  # the last shot began
    waits: tuple[int, int] | None = None  # how and when a shot began that has no key frame yet
    latest: int = BEGINNING  # when the last key frame was

    def take(
        self,
        sigs: np.ndarray,
        times: np.ndarray,
        runs: np.ndarray,
        anchors: np.ndarray,
        rows: list[Any] | None = None,
        final: bool = False,
    ) -> list[Chosen]:
        """The key frames that further frames decide; all that are left if they are `final`."""
        rows = list(range(len(times))) if rows is None else rows
        found: list[Chosen] = []
        before = self.times[-1] if len(self.times) else BEGINNING
        gaps = np.diff(times, prepend=before) > GAP
        turns = np.diff(runs, prepend=self.run) != 0
        cold = np.flatnonzero(gaps | turns)
        edges = sorted({0, *cold.tolist(), len(times)})
        for begin, end in pairwise(edges):
            if begin in cold:
                found += self._finish()
                self._forget(int(runs[begin]))
            self._append(sigs[begin:end], times[begin:end], anchors[begin:end], rows[begin:end])
            found += self._choose(len(self.times) - _AHEAD)
        if final:
            found += self._finish()
        return found

    def _append(
        self, sigs: np.ndarray, times: np.ndarray, anchors: np.ndarray, rows: list[Any]
    ) -> None:
        known = len(self.times)
        self.sigs = np.concatenate([self.sigs, sigs])
        self.times = np.concatenate([self.times, times])
        self.anchors = np.concatenate([self.anchors, anchors])
        self.steps = np.concatenate([self.steps, np.zeros(len(times))])
        self.rows += rows
        _steps(self.sigs, self.steps, known)

    def _finish(self) -> list[Chosen]:
        """Decide with what there is: nothing of this run will follow."""
        return self._choose(len(self.times))

    def _forget(self, run: int) -> None:
        fresh = Cutter(self.longest)
        for name in ("sigs", "steps", "times", "anchors", "rows", "last", "black", "how", "waits"):
            setattr(self, name, getattr(fresh, name))
        self.run, self.latest = run, BEGINNING

    def _choose(self, until: int) -> list[Chosen]:
        """Decide the frames before this one, and keep what later decisions need."""
        decided = len(self.times) - len(self.rows)
        if until <= decided:
            return []
        codes, memory = np.zeros(until, np.int64), np.array([self.last, self.black, self.how])
        _decide(self.sigs, self.steps, codes, (decided, until), memory)
        self.last, self.black, self.how = (int(number) for number in memory)
        found = []
        may = self.anchors | (self.steps > LOW)
        for t in decided + np.flatnonzero((codes > 0)[decided:] | may[decided:until]):
            found += self._chosen(int(t), int(codes[t]), bool(may[t]) or codes[t] == _START)
        self.rows = self.rows[until - decided :]
        drop = max(0, until - _KEPT)
        self.last = max(self.last - drop, -_TWIN - 3)  # longer ago makes no difference
        for name in ("sigs", "steps", "times", "anchors"):
            setattr(self, name, getattr(self, name)[drop:].copy())
        return found

    def _chosen(self, t: int, code: int, may: bool) -> list[Chosen]:
        """The key frame of the shot that began, or of one that is still without."""
        time = int(self.times[t])
        if code:
            self.waits = (code, time)
        elif self.waits is None and time - self.latest >= self.longest:
            self.waits = (_LONGEST, time)
        if self.waits is None or not may:
            return []
        reason, began = self.waits
        self.waits, self.latest = None, time
        row = self.rows[t - (len(self.times) - len(self.rows))]
        return [Chosen(row, REASONS[reason], began)]
