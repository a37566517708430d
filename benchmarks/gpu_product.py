"""A bare product on tensor cores, for what its sums lose."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["product"]

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def product(a, b, out, D: tl.constexpr, DEPTH: tl.constexpr, SIZE: tl.constexpr):
    """``out = a @ b.T`` in tiles, added as `anabranch.flow.gpu.join.scan` adds."""
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    j = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    e = tl.arange(0, DEPTH)
    value = tl.zeros((SIZE, SIZE), tl.float32)
    for first in tl.range(0, D, DEPTH):
        left = tl.load(a + i[:, None] * D + (first + e)[None, :])
        right = tl.load(b + j[None, :] * D + (first + e)[:, None])
        value = tl.dot(left, right, value)
    tl.store(out + i[:, None] * (tl.num_programs(1) * SIZE) + j[None, :], value)
