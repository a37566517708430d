"""The parts of `correlate` that know nothing of Spark, on one core: kernels, bands, the router.

The yardstick of the kernels is the *bare product*: one float32 matrix product of all left with all
right vectors into memory that is already there. A kernel does the same product, and finds, tests
and scores the matches; blocks come as they leave the router, with nothing derived beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import anabranch as ab
from anabranch.correlation.call import Correlation, plan_correlation
from anabranch.correlation.filters.bands import Band, band_candidates
from anabranch.correlation.filters.tiles import COLS, ROWS, Pair, comparisons, tiles
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import LEFT, RIGHT, Plan, Rows
from anabranch.plans.routing import LivePlans, branch, route
from benchmarks.measuring import Row, Screen, in_turns, rate, ratio

__all__ = ["KernelRun", "bands", "kernel", "one_core", "routing"]

_SEED = 20
_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_SPAN = 60 * _SECOND
# A symmetric window of this share of the time that uniformly spread rows cover admits
# 1 - (1 - share)^2 of their pairs.
_SHARE_OF_44_PERCENT = 0.2517
_RARE, _FREQUENT = 5e-6, 1e-3
_TARGETS = {16: 0.8, 64: 0.9, 576: 0.8}


@contextmanager
def one_core() -> Iterator[None]:
    """Matrix products use one thread, as inside a Spark task."""
    with threadpool_limits(1, "blas"):
        yield


@dataclass
class KernelRun:
    """One predicate over two sets of vectors (or words), from new blocks each time it is called."""

    where: Any
    left: np.ndarray
    right: np.ndarray
    share: float = 2.0
    two_plans: bool = False
    compared: int = 0
    matched: int = 0

    def __post_init__(self) -> None:
        kind = "binary" if self.left.dtype == np.uint64 else "array<float>"
        self.spec = specification({"v": kind}, self.where)
        self.matcher = Matcher(self.spec)
        random = np.random.default_rng(_SEED + 1)
        self._times = [
            _START + np.sort(random.integers(0, _SPAN, len(vectors)))
            for vectors in (self.left, self.right)
        ]
        width = int(self.share * _SPAN)
        self._window = (width, width)

    def __call__(self) -> None:
        pair = Pair(self._block(self.left, 0), self._block(self.right, 1), self._window)
        self.compared = comparisons(pair)
        self.matched = sum(len(found.left) for found in self.matcher.matches(pair))

    @property
    def match_rate(self) -> float:
        """Matches per comparison."""
        return self.matched / self.compared

    def _block(self, vectors: np.ndarray, side: int) -> Block:
        t = self._times[side]
        columns = {"id": np.arange(len(t)), "s0": vectors}
        if not self.two_plans:
            return Block.of(t, columns)
        # Half the rows came before a change of plan and half after it, sent by both plans: every
        # pair is owned, but nothing about it is the same for all rows.
        epoch = (np.arange(len(t)) >= len(t) // 2).astype(np.int64)
        return Block(t, epoch, np.where(epoch == 1, 0b11, 0b1), columns)


def specification(columns: dict[str, str], where: Any, **more: Any) -> Correlation:
    """A validated call over these columns."""
    schema = {"id": "bigint", "ts": "timestamp", **columns}
    spec, problems = plan_correlation(schema, schema, where=where, window="1 minute", **more)
    assert spec is not None, problems
    return spec


def directions(rows: int, width: int, seed: int) -> np.ndarray:
    """Vectors without any preferred direction: nothing can be skipped."""
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, width), dtype=np.float32)


def cosine_threshold(left: np.ndarray, right: np.ndarray, match_rate: float) -> float:
    """The cosine that about this share of the pairs reaches."""
    products = unit(left[:2000]) @ unit(right).T
    return float(np.quantile(products, 1 - match_rate))


def unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors, each of length 1."""
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def kernel(screen: Screen, quick: bool) -> dict[str, Any]:
    """Kernels against the bare product and against what one writes in numpy instead."""
    details: dict[str, Any] = {"widths": []}
    rows, rounds = (4000, 3) if quick else (12_000, 7)
    with one_core():
        for width in _TARGETS:
            screen.step(f"kernel: {rows:,} x {rows:,} vectors of {width} dimensions")
            details["widths"].append(_one_width(screen, width, rows, rounds))
        _loops(screen, rows // 2, rounds)
    return details


def _one_width(screen: Screen, width: int, rows: int, rounds: int) -> dict[str, Any]:
    left, right = directions(rows, width, _SEED), directions(rows, width, _SEED + 1)
    threshold = cosine_threshold(left, right, _RARE)
    near = _near(left, right, _RARE)
    cosine = ab.cosine("v") >= threshold
    kernels = {
        "cosine": KernelRun(cosine, left, right),
        "euclidean": KernelRun(ab.euclidean("v") <= near, left, right),
        "cosine, window admits 44 %": KernelRun(cosine, left, right, share=_SHARE_OF_44_PERCENT),
        "cosine, two plans live": KernelRun(cosine, left, right, two_plans=True),
        "cosine, 1e-3 of pairs match": KernelRun(
            ab.cosine("v") >= cosine_threshold(left, right, _FREQUENT), left, right
        ),
    }
    a, b = unit(left), unit(right)
    out = np.empty((rows, rows), np.float32)
    small = np.empty(ROWS * COLS, np.float32)
    everything = Pair(Block.of(np.zeros(rows), {}), Block.of(np.zeros(rows), {}), (1, 1))

    def bare() -> None:
        np.dot(a, b.T, out=out)

    def tiled() -> None:
        for top, bottom, start, stop in tiles(everything):
            shape = (bottom - top, stop - start)
            room = small[: shape[0] * shape[1]].reshape(shape)
            np.dot(a[top:bottom], b[start:stop].T, out=room)

    found: list[int] = []

    def plain_numpy() -> None:
        bare()
        i, _ = np.nonzero(out >= threshold)
        found.append(len(i))

    others: dict[str, Callable[[], None]] = {"product in tiles": tiled, "plain numpy": plain_numpy}
    seconds = in_turns({"bare": bare, **kernels, "product in tiles": tiled}, rounds)
    # By themselves: what numpy allocates and frees would slow down the product that comes next.
    seconds |= in_turns({"bare, again": bare, "plain numpy": plain_numpy}, rounds)
    # The kernel decides in float64, numpy here in float32: only pairs on the edge may differ.
    assert abs(kernels["cosine"].matched - found[-1]) <= 2 + found[-1] // 100, "pairs were lost"

    ratios, rates = {}, {"bare": rate(rows * rows, seconds["bare"])}
    for name in (*kernels, *others):
        run = kernels.get(name)
        compared = run.compared if run else rows * rows
        share = compared / (rows * rows)
        yard = "bare, again" if name == "plain numpy" else "bare"
        ratios[name] = share * ratio(seconds[yard], seconds[name])
        rates[name] = rate(compared, seconds[name])
        target = _TARGETS[width] if name in ("cosine", "euclidean") else None
        note = f"{rates[name]:.2e}/s"
        if run:
            note += f", match rate {run.match_rate:.1e}"
        screen.add(Row("kernel", f"{name}, d={width}", ratios[name], "of bare", target, note=note))
        if target is not None:
            assert run is not None and run.match_rate <= 1e-5, (
                "the workload is not the one promised"
            )
    return {"width": width, "ratios": ratios, "rates": rates}


def _near(left: np.ndarray, right: np.ndarray, match_rate: float) -> float:
    """The Euclidean distance that about this share of the pairs keeps within."""
    sample = left[:2000].astype(np.float64)
    squares = (sample**2).sum(1)[:, None] + (right.astype(np.float64) ** 2).sum(1)
    squares -= 2 * sample @ right.T.astype(np.float64)
    return float(np.sqrt(np.quantile(squares, match_rate)))


def _loops(screen: Screen, rows: int, rounds: int) -> None:
    """Distances that no product gives."""
    screen.step("kernel: Manhattan and Hamming distances")
    runs: dict[str, KernelRun] = {}
    for width in (16, 64):
        left, right = directions(rows, width, _SEED), directions(rows, width, _SEED + 1)
        sample = np.abs(left[:200, None, :] - right[None, :2000, :]).sum(axis=2)
        limit = float(np.quantile(sample, 1e-5))
        runs[f"manhattan, d={width}"] = KernelRun(ab.manhattan("v") <= limit, left, right)
    random = np.random.default_rng(_SEED)
    for words in (1, 4, 16):
        left = random.integers(0, 1 << 63, (rows, words), dtype=np.uint64)
        right = random.integers(0, 1 << 63, (rows, words), dtype=np.uint64)
        # Four and a half standard deviations below the mean of random bits.
        limit = int(32 * words - 4.5 * np.sqrt(16 * words))
        runs[f"hamming, {64 * words} bits"] = KernelRun(ab.hamming("v") <= limit, left, right)
    seconds = in_turns(runs, rounds)
    for name, run in runs.items():
        reached = rate(run.compared, seconds[name])
        screen.add(Row("kernel", name, reached, "/s", note=f"match rate {run.match_rate:.1e}"))


def bands(screen: Screen, quick: bool) -> dict[str, Any]:
    """``within`` on two numbers: scanned, and by slices that are sorted once."""
    few, many, rounds = (1000, 16_000, 5) if quick else (4000, 64_000, 15)
    random = np.random.default_rng(_SEED)
    numbers = [random.random((2, few)), random.random((2, many))]
    rates = []
    with one_core():
        for selectivity in (1e-2, 1e-3, 1e-4):
            screen.step(f"bands: {few:,} x {many:,} rows, the first admits {selectivity:g}")
            rates.append(_one_band(screen, numbers, selectivity, rounds))
    return {"rates": rates}


def _one_band(
    screen: Screen, numbers: list[np.ndarray], selectivity: float, rounds: int
) -> dict[str, float]:
    # Uniform numbers lie within s / 2 of each other with probability s, nearly.
    limits = [Band("s0", selectivity / 2), Band("s1", 0.005)]
    where = ab.within("x", limits[0].limit) & ab.within("y", limits[1].limit)
    matcher = Matcher(specification({"x": "double", "y": "double"}, where))
    found: dict[str, int] = {}

    def block(side: int) -> Block:
        x, y = numbers[side]
        return Block.of(_START + np.arange(len(x)), {"id": np.arange(len(x)), "s0": x, "s1": y})

    def pair(right: Block) -> Pair:
        return Pair(block(LEFT), right, (_SPAN, _SPAN))

    def scanned() -> None:
        parts = band_candidates(pair(stored), limits, scan=True)
        found["scan"] = sum(len(part.left) for part in parts)

    def sorted_once() -> None:
        parts = band_candidates(pair(stored), limits, scan=False)
        found["sorted"] = sum(len(part.left) for part in parts)

    def sorted_each_time() -> None:
        for _ in band_candidates(pair(block(RIGHT)), limits, scan=False):
            pass

    def whole() -> None:
        both = pair(stored)
        comparisons(both)
        for _ in matcher.matches(both):
            pass

    stored = block(RIGHT)
    seconds = in_turns(
        {
            "scan": scanned,
            "slices sorted once": sorted_once,
            "sorting included": sorted_each_time,
            "whole kernel step": whole,
        },
        rounds,
    )
    assert found["scan"] == found["sorted"], "scan and sorted search disagree"
    targets = {"scan": 3e9, "slices sorted once": 2e10}
    cells = numbers[LEFT].shape[1] * numbers[RIGHT].shape[1]
    rates = {name: rate(cells, spent) for name, spent in seconds.items()}
    for name, reached in rates.items():
        what = f"{name}, x admits {selectivity:g}"
        screen.add(Row("bands", what, reached, "/s", targets.get(name)))
    return {"selectivity": selectivity, **rates}


def routing(screen: Screen, quick: bool) -> dict[str, Any]:
    """Microseconds per row of the router at 16 workers, for batches as Spark hands them over."""
    rows, rounds = 10_000, 10 if quick else 40
    screen.step(f"routing: batches of {rows:,} rows to 16 workers")
    random = np.random.default_rng(_SEED)
    segment = 5 * _SECOND
    window = (12 * segment, 12 * segment)
    t = _START + np.sort(random.integers(0, _SECOND, rows))
    h = mix(random.integers(0, 1 << 62, rows))
    batch = Rows(t, h, key=h)
    plans: dict[str, tuple[dict[int, Plan], int]] = {
        "broadcast, spread side": ({0: ab.broadcast(16)}, LEFT),
        "broadcast, copied side": ({0: ab.broadcast(16)}, RIGHT),
        "grid(4, 4)": ({0: ab.grid(4, 4)}, LEFT),
        "segments, spread side": ({0: ab.segments(16, length="5 seconds")}, LEFT),
        "segments, copied side, window of 12 segments": (
            {0: ab.segments(16, length="5 seconds")},
            RIGHT,
        ),
        "keyed": ({0: keyed(16)}, LEFT),
        "three live plans": (
            {0: ab.broadcast(16), 1: ab.grid(4, 4), 2: ab.segments(16, length="5 seconds")},
            RIGHT,
        ),
    }
    block = Block.of(t, {"id": np.arange(rows), "s0": directions(rows, 64, _SEED)})

    def encode(live: LivePlans, side: int) -> None:
        for _, part in branch(block, route(live, side, batch, window), live.epoch):
            part.encode()

    routers: dict[str, Callable[[], object]] = {}
    packers: dict[str, Callable[[], object]] = {}
    for name, (numbered, side) in plans.items():
        live = LivePlans(numbered)
        routers[name] = partial(route, live, side, batch, window)
        packers[name] = partial(encode, live, side)
    details: dict[str, Any] = {"microseconds": {}, "copies_per_row": {}}
    for name, spent in in_turns(routers, rounds).items():
        numbered, side = plans[name]
        copies = len(route(LivePlans(numbered), side, batch, window).workers) / rows
        reached = 1e6 / rate(rows, spent)
        note = f"{copies:.3g} {'copy' if copies == 1 else 'copies'} a row"
        screen.add(Row("routing", name, reached, "us a row", 1.0, at_most=True, note=note))
        details["microseconds"][name] = reached
        details["copies_per_row"][name] = copies
    screen.step("routing: routing, gathering and encoding the copies of 64-d rows")
    for name, spent in in_turns(packers, max(3, rounds // 4)).items():
        what = f"with gathering and encoding: {name}"
        screen.add(Row("routing", what, 1e6 / rate(rows, spent), "us a row"))
    return details
