"""Does a GPU pay for `nearest`, and is it exact there? Rates beside a core, and the break-even.

A world has windows of 100,000 objects, k = 9, and queries and objects without any preferred
direction. Its windows are filled once, and the same lists then go on with the GPU and without.
"""

from __future__ import annotations

import cProfile
import io
import itertools
import pstats
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from anabranch.flow.gpu.choice import Choice
from anabranch.flow.gpu.device import Device
from anabranch.flow.process import single_threaded
from anabranch.neighbours.lists import products, resting
from anabranch.neighbours.lists.repair import ListWithRepair
from anabranch.neighbours.methods import Queries
from benchmarks.gpu_worlds import device, kernel_seconds, say

__all__ = ["nearest"]

_WINDOW, _K, _BATCH = 100_000, 9, 65_536
_PATIENCE = 2.0  # seconds of a core for one figure of its own
_KINDS = ("uniform", "tied", "far off", "scales", "alike", "drifting")


@dataclass(frozen=True)
class Opened(Choice):
    """A choice whose device is open, and which must have it: a failure is none of speed."""

    device: Any = None

    def open(self) -> Device | None:
        return self.device  # type: ignore[no-any-return]


def nearest() -> dict[str, Any]:
    """Hits against the CPU's bit for bit, rates, and the least work that is worth a launch."""
    on = device()
    choice = Opened("nearest", "gpu", device=on)
    least, scoring = products.WORTHWHILE, resting._SCORING
    products.WORTHWHILE = resting._SCORING = 0  # everything is worthwhile, nothing in vain
    try:
        found: dict[str, Any] = {"hits": _exact(choice), "break_even": _even(choice)}
    finally:
        products.WORTHWHILE, resting._SCORING = least, scoring
    found["worthwhile"] = least
    sizes = [*itertools.product((16, 64, 128, 576), (1_000, 10_000)), (64, 30_000)]
    found["rates"] = [_rates(choice, *size) for size in sizes]
    return found


# ---------------------------------------------------------------- exact


def _exact(choice: Opened) -> dict[str, int]:
    """Random worlds, each with the GPU and without it, report for report."""
    worlds = reports = launches = 0
    before = choice.device.start

    def counted(*about: Any) -> Any:
        nonlocal launches
        launches += 1
        return before(*about)

    choice.device.start = counted
    for d, metric, kind in itertools.product(
        (1, 5, 16, 64, 100, 200, 576), ("euclidean", "cosine"), _KINDS
    ):
        random = np.random.default_rng([d, len(metric), _KINDS.index(kind)])
        points, centres = (_points(kind, n, d, random) for n in (3_000, 300))
        counts = bool(random.integers(2))
        t = np.arange(3_000) if counts else np.sort(random.integers(0, 20_000, 3_000))
        k, window = random.integers(1, 12, 300), random.integers(20, 15_000, 300)
        queries = Queries.of(centres, k, window, counted=counts, metric=metric)
        stops = sorted({*random.integers(0, t[-1], 6).tolist(), int(t[-1])})
        expected = _played(queries, t, points, stops, None)
        got = _played(queries, t, points, stops, choice)
        assert np.array_equal(got, expected), f"{kind} {metric} d={d}: other hits than the CPU's"
        worlds, reports = worlds + 1, reports + expected.shape[1]
    del choice.device.start
    say(f"hits equal to the CPU's bit for bit: {reports:,} of {worlds} worlds, {launches} launches")
    assert launches > 3 * worlds, "the GPU had too little to do with it"
    return {"worlds": worlds, "hits": reports, "launches": launches}


def _points(kind: str, n: int, d: int, random: np.random.Generator) -> np.ndarray:
    points = random.standard_normal((n, d))
    if kind == "tied":
        points = np.round(points)
    elif kind == "far off":
        points += 300.0
    elif kind == "scales":
        points = np.ldexp(points, random.choice([-400, -20, 0, 20, 400]) + random.integers(-3, 3))
    elif kind == "alike":
        points[random.random(n) < 0.5] = points[0]
    elif kind == "drifting":
        points += np.linspace(0, 3, n)[:, None]
    points[~points.any(axis=1), 0] = 1.0  # a zero vector has no cosine
    return points


def _played(
    queries: Queries, t: np.ndarray, points: np.ndarray, stops: list[int], choice: Opened | None
) -> np.ndarray:
    lists, found, at = ListWithRepair(queries, index="product"), [], 0
    if choice is not None:
        lists.use(choice)
    for stop in [*stops, stops[-1] + 40_000]:
        end = int(np.searchsorted(t, stop, "right"))
        rows = lists.advance(t[at:end], np.arange(at, end), points[at:end], stop)
        distance = rows.distance.view(np.int64)
        found.append(np.stack([rows.query, rows.seq, rows.entered_t, distance, rows.rank]))
        at = end
    return np.concatenate(found, axis=1)


# ---------------------------------------------------------------- rates


class Stream:
    """An endless stream that goes round one array, and what has come of it."""

    def __init__(self, d: int, count: int) -> None:
        random = np.random.default_rng([d, count])
        self._points = random.standard_normal((_WINDOW + 2 * _BATCH, d))
        points = random.standard_normal((count, d))
        self.queries = Queries.of(points, _K, _WINDOW, counted=True)
        self.at = 0

    def batches(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers and points of the next objects."""
        while True:
            begin = self.at % (len(self._points) - size)
            yield np.arange(self.at, self.at + size), self._points[begin : begin + size]
            self.at += size


def _full(choice: Opened, d: int, count: int) -> tuple[ListWithRepair, Stream]:
    """Lists whose windows are full."""
    stream = Stream(d, count)
    lists = ListWithRepair(stream.queries, index="product")
    lists.use(choice)
    batches = stream.batches(_BATCH // 4)
    while stream.at < 1.2 * _WINDOW:
        seq, points = next(batches)
        lists.advance(seq, seq, points, int(seq[-1]))
    stream.at = int(lists.newest) + 1
    return lists, stream


def _timed(
    lists: ListWithRepair, stream: Stream, size: int, times: int
) -> tuple[list[float], int, int]:
    """Seconds of some batches; how many hits, and how many lists ran short."""
    stream.at, seconds, hits, repairs = int(lists.newest) + 1, [], 0, lists.repairs
    for seq, points in itertools.islice(stream.batches(size), times):
        began = time.perf_counter()
        hits += len(lists.advance(seq, seq, points, int(seq[-1])))
        seconds.append(time.perf_counter() - began)
    return seconds, hits, lists.repairs - repairs


def _rates(choice: Opened, d: int, count: int) -> dict[str, Any]:
    """Objects a second with the GPU, beside one core with the same lists."""
    with single_threaded():
        lists, stream = _full(choice, d, count)
        alone = ListWithRepair.from_bytes(lists.to_bytes())
        started: list[Any] = []
        begin = choice.device.start

        def watched(*about: Any) -> Any:
            started[:] = [begin(*about)]
            return started[0]

        choice.device.start = watched
        _timed(lists, stream, _BATCH, 1)
        seconds, hits, repairs = _timed(lists, stream, _BATCH, 3)
        del choice.device.start
        inside = kernel_seconds(choice.device, started[0])
        compared = count * int(started[0].work[0].stretches[0, 1])
        row: dict[str, Any] = {"d": d, "queries": count, "rate": _BATCH / median(seconds)}
        row |= {"hits_per_object": hits / (3 * _BATCH), "repairs": repairs}
        row |= {"kernels": compared / inside}
        size = max(64, min(_BATCH // 4, int(_PATIENCE / (count * d * 0.3e-9))))
        _timed(alone, stream, size, 1)
        seconds = _timed(alone, stream, size, 2)[0]
        row |= {"core": size / median(seconds)}
        row |= {"ratio": row["rate"] / row["core"], "core_comparisons": row["core"] * count}
        say(f"nearest, {row}")
        if d == 64 and count == 10_000:
            _profiled(lists, stream)
    return row


def _profiled(lists: ListWithRepair, stream: Stream) -> None:
    profile = cProfile.Profile()
    profile.enable()
    _timed(lists, stream, _BATCH, 1)
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(12)
    print("\n".join(line for line in text.getvalue().splitlines()[6:] if line.strip()), flush=True)


# ---------------------------------------------------------------- break-even


def _even(choice: Opened) -> list[dict[str, Any]]:
    """Micro-batches of every size: which multiplications a core has done before a GPU answers."""
    found = []
    with single_threaded():
        for d, count in itertools.product((16, 64, 576), (300, 3_000)):
            lists, stream = _full(choice, d, count)
            alone = ListWithRepair.from_bytes(lists.to_bytes())
            for size in (8, 32, 128, 512, 2_048):
                work = size * d * count
                if not 1e5 < work < 2e9:
                    continue
                _timed(lists, stream, size, 3)
                gpu = median(_timed(lists, stream, size, 15)[0])
                _timed(alone, stream, size, 1)
                core = median(_timed(alone, stream, size, 5)[0])
                row = {"d": d, "queries": count, "objects": size, "multiplications": work}
                found.append({**row, "gpu": gpu, "core": core, "ratio": core / gpu})
                say(f"{work:>13,} multiplications ({d} x {count} x {size}): {core / gpu:.2f}")
    slower = [row["multiplications"] for row in found if row["ratio"] < 1]
    faster = [row["multiplications"] for row in found if row["ratio"] > 1]
    say(f"a core is faster up to {max(slower, default=0):,}, the GPU from {min(faster):,} on")
    return found
