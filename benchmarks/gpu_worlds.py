"""What benchmarks of the GPU share: a device, blocks, calls, and thresholds for a match rate."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from anabranch.correlation.call import Correlation, plan_correlation
from anabranch.flow.blocks import Block
from anabranch.flow.cache import Cache

__all__ = [
    *("BEGAN", "SECOND", "START", "block_of", "call_of", "device", "directions", "edge"),
    *("kernel_seconds", "say"),
]

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
BEGAN = time.perf_counter()
_SAMPLE = 8_000


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.perf_counter() - BEGAN:6.1f} s  {text}", flush=True)


def device(tiling: Any = None) -> Any:
    """The first GPU, with room for what a benchmark keeps there."""
    from anabranch.flow.gpu.torch_device import TorchDevice

    return TorchDevice(0, Cache(32 << 30), tiling)


def call_of(where: Any, window: str = "1 minute") -> Correlation:
    """A checked call over vectors."""
    schema = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
    found, problems = plan_correlation(schema, schema, where=where, window=window)
    assert found is not None, problems
    return found


def block_of(vectors: np.ndarray, seconds: float, mixed: bool = False, seed: int = 0) -> Block:
    """Rows at random times of a span; `mixed`: half of them came under an older plan."""
    n, random = len(vectors), np.random.default_rng(seed)
    t = START + np.sort(random.integers(0, int(seconds * SECOND), n))
    columns = {"id": np.arange(n), "s0": vectors}
    if not mixed:
        return Block.of(t, columns)
    epoch = (np.arange(n) >= n // 2).astype(np.int64)
    return Block(t, epoch, random.integers(0, 16, n), columns)


def directions(rows: int, width: int, seed: int) -> np.ndarray:
    """Vectors without any preferred direction."""
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, width), dtype=np.float32)


def edge(kind: str, rate: float, d: int) -> float:
    """The cosine, or the distance, that about this share of pairs of `directions` reaches."""
    a, b = directions(_SAMPLE, d, 98), directions(_SAMPLE, d, 99)
    dots = a @ b.T
    squares = [np.square(x).sum(axis=1) for x in (a, b)]
    if kind == "cosine":
        dots /= np.sqrt(squares[0][:, None] * squares[1][None])
    else:  # the nearest come last
        dots = 2 * dots - squares[0][:, None] - squares[1][None]
    best = np.sort(np.partition(dots.ravel(), -2000)[-2000:])
    wanted = rate * _SAMPLE**2
    if wanted >= 20:
        found = best[-min(2000, int(wanted))]
    else:  # beyond the sample the logarithm of the rate falls about as fast as at its end
        found = best[-20] + (best[-20] - best[0]) * np.log(20 / wanted) / np.log(100)
    return float(found if kind == "cosine" else np.sqrt(-found))


def kernel_seconds(on: Any, started: Any) -> float:
    """How long the kernels of a launch run, which are launched again."""
    import torch

    spent = []
    with on._stream("kernels"):
        for _ in range(5):
            ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            ends[0].record()
            on._launched(*started[:5])
            ends[1].record()
            torch.cuda.synchronize()
            spent.append(ends[0].elapsed_time(ends[1]) / 1e3)
    return float(median(spent))
