"""How fast are sums of absolute differences on a GPU: Manhattan distances, and EMD on a line?"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.correlation.matching import Matcher
from anabranch.flow.process import single_threaded
from benchmarks.gpu_worlds import SECOND, block_of, call_of, device, directions, kernel_seconds, say

__all__ = ["areas", "histograms"]

_WHOLE = (100 * SECOND, 100 * SECOND)


def areas() -> list[dict[str, Any]]:
    """The kernels, rows resident, and the whole of matching beside one core, same rows."""
    found = []
    for name, d, rows in (("emd", 64, 100_000), ("emd", 256, 100_000), ("manhattan", 64, 100_000)):
        make = histograms if name == "emd" else directions
        measure = ab.emd("v") if name == "emd" else ab.manhattan("v")
        a, b = make(rows, d, 1), make(rows, d, 2)
        # About one pair in a million, from what a sample of the rows has.
        few = Pair(block_of(a[:3000], 60), block_of(b[:3000], 60), _WHOLE)
        every = [m.score for m in Matcher(call_of(measure <= 1e9)).matches(few)]
        limit = float(np.sort(np.concatenate(every))[9])
        call = call_of(measure <= limit)
        row: dict[str, Any] = {"measure": name, "d": d, "rows": rows, "limit": limit}
        row |= _on_device(call, block_of(a, 60, True, 1), b)
        core = Pair(block_of(a[:20_000], 60), block_of(b[:20_000], 60), _WHOLE)
        row["core"] = _on_core(Matcher(call), core)
        row["ratio"] = row["rate"] / row["core"]
        say(
            f"{name}, {d} columns: kernels {row['kernels']:.3g}/s, matched {row['rate']:.3g}/s, "
            f"one core {row['core']:.3g}/s, {row['matches']} matches"
        )
        found.append(row)
    return found


def histograms(rows: int, bins: int, seed: int) -> np.ndarray:
    """Grey values of made-up pictures: two humps each, and noise."""
    random = np.random.default_rng(seed)
    x = np.arange(bins) / bins
    out = np.empty((rows, bins), np.float32)
    for top in range(0, rows, 10_000):
        n = min(10_000, rows - top)
        centre, width = random.random((2, n, 1)), 0.02 + 0.2 * random.random((2, n, 1))
        humps = np.exp(-(((x - centre) / width) ** 2))
        out[top : top + n] = humps.sum(axis=0) + 0.05 * random.random((n, bins))
    return out


def _on_device(call: Any, left: Any, rows: np.ndarray) -> dict[str, Any]:
    on = device()
    matcher = Matcher(call, on)
    size = 16_384
    slices = [block_of(rows[top : top + size], 60, True, top) for top in range(0, len(rows), size)]
    pairs = [Pair(left, part, _WHOLE) for part in slices]
    matches = sum(len(found.left) for _, found in matcher.over(pairs))
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in matcher.over(pairs):
            pass
        spent.append(time.perf_counter() - began)
    looking = matcher._search
    assert looking is not None
    started = looking._start(pairs).launch
    on.finish(started)
    kernels = kernel_seconds(on, started)
    every = len(left) * len(rows)
    return {"kernels": every / kernels, "rate": every / median(spent), "matches": matches}


def _on_core(matcher: Matcher, pair: Pair) -> float:
    spent = []
    with single_threaded():
        for _ in range(3):
            fresh = Pair(pair.left, pair.right, pair.window)
            began = time.perf_counter()
            for _ in matcher.matches(fresh):
                pass
            spent.append(time.perf_counter() - began)
    return comparisons(pair) / median(spent[1:])
