"""Is the GPU exact? Pairs and scores against the CPU's, and what the sums of tensor cores lose."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as ab
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.gpu import search
from anabranch.correlation.matching import Matcher
from anabranch.flow.gpu.device import UNIT
from benchmarks.gpu_areas import histograms
from benchmarks.gpu_worlds import SECOND, block_of, call_of, device, directions, say

__all__ = ["exact"]


def exact() -> dict[str, Any]:
    """Pairs and scores of the GPU against the CPU's, and what its sums lose."""
    search.WORTHWHILE = 0
    checked, wrong = 0, []
    kinds = {
        "cosine": ab.cosine,
        "dot": ab.dot,
        "euclidean": ab.euclidean,
        "manhattan": ab.manhattan,
        "emd": ab.emd,
    }
    on = device()
    for d in (3, 64, 100, 200, 576):
        for kind, measure in kinds.items():
            make = histograms if kind == "emd" else directions
            a, b = make(3001, d, d), make(4003, d, d + 1)
            b[:500] = a[:500] + 0.05 * b[:500]
            pairs = [
                Pair(block_of(a, 60, True, 1), block_of(b[part], 60, True, 2), (span, span // 2))
                for part in (slice(0, 2500), slice(2500, 4003))
                for span in (9 * SECOND, 100 * SECOND)
            ]
            for upward in (True, False):
                edge = _edge(kind, a, b, upward)
                where = measure("v") >= edge if upward else measure("v") <= edge
                got, expected = _found(where, pairs, on), _found(where, pairs, None)
                checked += len(expected)
                if got != expected or not expected:
                    wrong.append(f"{kind} {upward} d={d}: {len(got)} and not {len(expected)}")
    say(f"pairs equal to the CPU's bit for bit: {checked:,}; wrong: {wrong or 'none'}")
    assert not wrong, wrong
    return {"pairs": checked, "sums": _sums(), "overflow": _overflow()}


def _edge(kind: str, a: np.ndarray, b: np.ndarray, upward: bool) -> float:
    """A value of the measure that some pair has exactly, or nearly, and few exceed."""
    x, y = a[:400].astype(float), b[:400].astype(float)
    if kind in ("manhattan", "emd"):
        if kind == "emd":
            x, y = (np.cumsum(z / z.sum(axis=1, keepdims=True), axis=1) for z in (x, y))
        far = np.abs(x[:, None] - y[None]).sum(axis=2)
        return float(np.quantile(far, 0.999 if upward else 0.001, method="lower"))
    dots = x @ y.T
    squares = [(z**2).sum(axis=1) for z in (x, y)]
    if kind == "cosine":
        dots /= np.sqrt(squares[0][:, None] * squares[1][None])
    elif kind == "euclidean":
        dots = np.sqrt(np.maximum(0, squares[0][:, None] + squares[1][None] - 2 * dots))
    return float(np.quantile(dots, 0.999 if upward else 0.001, method="lower"))


def _found(where: Any, pairs: list[Pair], device: Any) -> list[tuple[int, int, int, float]]:
    found = []
    for pair, matches in Matcher(call_of(where), device).over(pairs):
        number = next(n for n, other in enumerate(pairs) if other is pair)
        columns = (part.tolist() for part in matches)
        found += [(number, *rest) for rest in zip(*columns, strict=True)]
    return sorted(found)


def _overflow() -> bool:
    """A list that is too short is made longer, and nothing is lost."""
    on = device()
    on._capacity = [64, 64]
    left, right = (block_of(directions(2000, 64, n), 60, True, n) for n in (1, 2))
    pairs = [Pair(left, right, (10**8, 10**8))]
    where = ab.cosine("v") >= 0.2
    assert _found(where, pairs, on) == _found(where, pairs, None)
    return True


def _sums() -> dict[str, float]:
    """The greatest error of tensor cores' sums, as a share of what the bound allows for them."""
    import torch

    from benchmarks.gpu_product import product

    shares = {}
    for d in (64, 128, 576):
        random = np.random.default_rng(d)
        worst = 0.0
        for spread in (0, 4, 12, 24):
            a, b = (
                torch.tensor(
                    random.normal(size=(512, d)) * 2.0 ** random.integers(-spread, 1, (512, d))
                )
                .cuda()
                .bfloat16()
                for _ in range(2)
            )
            b[:256] = -b[:256].flip(1)  # sums that cancel
            out = torch.empty((512, 512), device="cuda", dtype=torch.float32)
            product[(4, 4)](a, b, out, D=d, DEPTH=64, SIZE=128)
            x, y = a.double(), b.double()
            error = (out.double() - x @ y.T).abs()
            allowed = 1.5 * (d + 4) * UNIT * x.norm(dim=1)[:, None] * y.norm(dim=1)[None]
            worst = max(worst, float((error / allowed).max()))
        shares[str(d)] = worst
    say(f"error of sums, as a share of what the bound allows: {shares}")
    assert max(shares.values()) <= 1, "tensor cores lose more than the bound allows"

    return shares
