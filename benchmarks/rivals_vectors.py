"""Vectors and histograms on one core without Spark: FAISS, numpy and POT beside `correlate`.

A stored block of vectors meets micro-batches of 1,000 rows, as many as it takes for thousands of
matches at a match rate of at most 1e-5. Ours decides in float64, FAISS and numpy in float32: the
sets of pairs may differ within the rounding of a float32 product alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block
from benchmarks.agreeing import agreed, band_of, codes
from benchmarks.correlate_kernel import cosine_threshold, directions, one_core, specification, unit
from benchmarks.measuring import Row, Screen, in_turns, ratio

__all__ = ["TIMES", "histograms", "vectors", "winning"]

TIMES = "their time / ours"
"""What every ratio here is: above 1, ours is the faster one."""

_WIDTH = 64
_FRESH = 1000  # rows of a micro-batch
_RATE = 8e-6  # of matches; a sample of rows may miss it by a fifth
_COMPARED = 256_000_000
_WINDOW = 1 << 40
_BINS = 64
_NEAR = 0.1  # share of pairs of histograms that match

Batches = list[tuple[np.ndarray, np.ndarray]]
"""What a variant found: left and right row numbers, for each micro-batch."""


def winning(screen: Screen, section: str, rival: str, gains: Mapping[int, float]) -> dict[str, Any]:
    """Say from which size on ours is the faster one, and at which it is not."""
    won = sorted(size for size in gains if all(gains[n] > 1 for n in gains if n >= size))
    lost = sorted(size for size in gains if gains[size] <= 1)
    least = f"from {won[0]:,} on" if won else "at no size tried"
    slower = ", ".join(f"{n:,}" for n in lost) or "none"
    screen.step(f"{section}: ours is faster than {rival} {least}, slower at {slower}")
    return {"faster from": won[0] if won else None, "slower at": lost}


def vectors(screen: Screen, quick: bool) -> dict[str, Any]:
    """Stored blocks of several sizes, on one core; FAISS on two cores as well."""
    sizes = (1000, 4000) if quick else (250, 1000, 4000, 16_000, 64_000)
    gains: dict[str, dict[int, float]] = {}
    found: dict[str, Any] = {}
    with one_core():
        for size in sizes:
            screen.step(f"vectors: batches of {_FRESH:,} x {size:,} stored rows")
            found[str(size)] = _one_size(screen, size, quick)
            for rival, gain in found[str(size)][TIMES].items():
                gains.setdefault(rival, {})[size] = gain
    found["wins"] = {
        rival: winning(screen, "vectors", rival, by_size) for rival, by_size in gains.items()
    }
    return found


def _one_size(screen: Screen, size: int, quick: bool) -> dict[str, Any]:
    compared = _COMPARED // 16 if quick else _COMPARED
    batches = max(1, compared // (_FRESH * size))
    left, right = directions(batches * _FRESH, _WIDTH, 1), directions(size, _WIDTH, 2)
    # A sample of many rows: the tail of a block of 250 rows says little.
    threshold = cosine_threshold(directions(2000, _WIDTH, 3), directions(64_000, _WIDTH, 4), _RATE)
    found: dict[str, Batches] = {}
    runs = _runs(unit(left), unit(right), left, right, threshold, found)
    rounds = 2 if quick else 5
    for run in runs.values():
        run()
    matched = _checked(found, left, right, threshold, 1 if quick else 1000)
    rate = matched / (len(left) * size)
    assert rate <= 1e-5, rate
    one = {name: run for name, run in runs.items() if "two" not in name}
    seconds = in_turns(one, rounds)
    gains = {name: ratio(seconds[name], seconds["ours"]) for name in one if name != "ours"}
    two = {name: run for name, run in runs.items() if name == "ours" or "two" in name}
    if len(two) > 1:  # two cores: what counts is the clock on the wall
        seconds = in_turns(two, rounds, time.perf_counter)
        gains |= {name: ratio(seconds[name], seconds["ours"]) for name in two if name != "ours"}
    note = f"{matched:,} pairs, match rate {rate:.1e}"
    for name, gain in gains.items():
        what = f"correlate on one core against {name}, {size:,} stored rows"
        screen.add(Row("vectors", what, gain, TIMES, note=note))
    return {TIMES: gains, "pairs": matched, "match rate": rate, "batches": batches}


def _runs(
    a: np.ndarray,
    b: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    threshold: float,
    found: dict[str, Batches],
) -> dict[str, Callable[[], None]]:
    """The variants: each writes what it found under its name."""
    matcher = Matcher(specification({"v": "array<float>"}, ab.cosine("v") >= threshold))
    stored = _block(right)
    starts = range(0, len(a), _FRESH)

    def over(name: str, search: Callable[[int], tuple[np.ndarray, np.ndarray]]) -> None:
        found[name] = [search(start) for start in starts]

    def ours(start: int) -> tuple[np.ndarray, np.ndarray]:
        parts = list(
            matcher.matches(Pair(_block(left[start : start + _FRESH]), stored, (_WINDOW, _WINDOW)))
        )
        return _joined(part.left for part in parts), _joined(part.right for part in parts)

    def numpy_consumer(start: int) -> tuple[np.ndarray, np.ndarray]:
        i, j = np.nonzero(a[start : start + _FRESH] @ b.T >= threshold)
        return i, j

    runs: dict[str, Callable[[], None]] = {
        "ours": lambda: over("ours", ours),
        "numpy": lambda: over("numpy", numpy_consumer),
    }
    try:
        import faiss
    except ImportError:
        return runs
    index = faiss.IndexFlatIP(b.shape[1])  # made beforehand, as our bytes are kept
    index.add(np.ascontiguousarray(b))
    for threads, name in ((1, "FAISS on one core"), (2, "FAISS on two cores")):

        def search(start: int, threads: int = threads) -> tuple[np.ndarray, np.ndarray]:
            faiss.omp_set_num_threads(threads)
            limits, _, rows = index.range_search(a[start : start + _FRESH], threshold)
            return np.repeat(np.arange(len(limits) - 1), np.diff(limits.astype(np.int64))), rows

        runs[name] = lambda name=name, search=search: over(name, search)  # type: ignore[misc]
    return runs


def _checked(
    found: Mapping[str, Batches], left: np.ndarray, right: np.ndarray, threshold: float, least: int
) -> int:
    """How many pairs ours found, once every rival has found the same."""
    all_of = {name: _all(batches, len(right)) for name, batches in found.items()}
    for name, theirs in all_of.items():
        if name != "ours":
            agreed(all_of["ours"], theirs, (left, right), threshold, band_of(_WIDTH), least)
    return len(all_of["ours"])


def _all(batches: Batches, wide: int) -> np.ndarray:
    left = _joined(i + number * _FRESH for number, (i, _) in enumerate(batches))
    return codes(left, _joined(j for _, j in batches), wide)


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _block(rows: np.ndarray) -> Block:
    return Block.of(np.arange(len(rows)), {"id": np.arange(len(rows)), "s0": rows})


def histograms(screen: Screen, quick: bool) -> dict[str, Any]:
    """Histograms of 64 bins in a row against POT: pair by pair, and all pairs of 1-d at once.

    POT makes thousands of distances a second, so a tenth of the pairs match, not one in 100,000.
    """
    try:
        import ot
    except ImportError:
        screen.step("histograms: not measured, POT is not installed")
        return {}
    found: dict[str, Any] = {}
    gains: dict[str, dict[int, float]] = {}
    for size in (10, 30) if quick else (1, 3, 10, 30, 100):
        screen.step(f"histograms: {size} x {10 * size}")
        found[str(size)] = of = _near_histograms(screen, ot, size, 2 if quick else 3)
        for rival, gain in of[TIMES].items():
            gains.setdefault(rival, {})[size] = gain
    found["wins"] = {r: winning(screen, "histograms", r, g) for r, g in gains.items()}
    return found


def _near_histograms(screen: Screen, ot: Any, size: int, rounds: int) -> dict[str, Any]:
    random = np.random.default_rng(5)
    left, right = (
        random.dirichlet(np.full(_BINS, 0.3), rows).astype(np.float32) for rows in (size, 10 * size)
    )
    a, b = (t / t.sum(axis=1, keepdims=True, dtype=np.float64) for t in (left, right))
    places = np.arange(float(_BINS))
    costs = np.abs(places[:, None] - places[None])
    i, j = (at.ravel() for at in np.indices((len(a), len(b))))
    apart = np.abs(np.cumsum(a, 1)[i] - np.cumsum(b, 1)[j]).sum(axis=1)
    # Between two distances, so that no rounding decides.
    some = np.sort(apart)[[max(0, int(_NEAR * len(apart)) - 1), int(_NEAR * len(apart))]]
    limit = float(some.mean())
    matcher = Matcher(specification({"v": "array<float>"}, ab.emd("v", ground="line") <= limit))
    stored, pairs = _block(right), {}

    def ours() -> None:
        parts = list(matcher.matches(Pair(_block(left), stored, (_WINDOW, _WINDOW))))
        pairs["ours"] = _joined(part.left for part in parts), _joined(p.right for p in parts)

    def each() -> None:
        near = [ot.emd2(a[x], b[y], costs) <= limit for x, y in zip(i, j, strict=True)]
        pairs["POT, emd2"] = i[near], j[near]

    def at_once() -> None:
        bins = np.repeat(places[:, None], len(i), axis=1)
        near = ot.wasserstein_1d(bins, bins, a[i].T, b[j].T, p=1) <= limit
        pairs["POT, wasserstein_1d"] = i[near], j[near]

    runs = {"ours": ours, "POT, emd2": each, "POT, wasserstein_1d": at_once}
    with one_core():
        seconds = in_turns(runs, rounds)
    sets = {name: codes(*both, len(b)) for name, both in pairs.items()}
    assert all(np.array_equal(sets["ours"], other) for other in sets.values()), "pairs differ"
    gains = {name: ratio(seconds[name], seconds["ours"]) for name in runs if name != "ours"}
    note = f"{len(sets['ours']):,} of {len(i):,} pairs match, the same ones"
    for name, gain in gains.items():
        what = f"correlate against {name}, {size} x {10 * size} rows"
        screen.add(Row("histograms", what, gain, TIMES, note=note))
    return {TIMES: gains, "pairs": len(sets["ours"])}
