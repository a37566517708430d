"""A worker process keeps what it may keep, and counts what kernels attach to slices."""

from __future__ import annotations

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.cache import SliceCache


def block(rows: int = 100, width: int = 8) -> Block:
    random = np.random.default_rng(rows)
    return Block.of(range(rows), {"v": random.random((rows, width)).astype(np.float32)})


def test_what_is_derived_counts_once_it_is_there() -> None:
    slice_ = block()
    plain = slice_.held_bytes
    assert plain == slice_.nbytes
    slice_.derive("table", lambda of: {"wide": np.zeros((len(of), 50)), "parts": [np.ones(3), "x"]})
    assert slice_.held_bytes == plain + 100 * 50 * 8 + 3 * 8
    slice_.derive("table", lambda of: np.zeros(10**6))
    assert slice_.held_bytes == plain + 100 * 50 * 8 + 3 * 8


def test_the_budget_holds_although_slices_grow_after_they_came() -> None:
    cache = SliceCache(budget=10 * block().nbytes)
    for n in range(8):
        cache.put(str(n), block())
    assert all(cache.get(str(n)) for n in range(8))
    for n in range(8):
        cache.get(str(n)).derive("wide", lambda of: np.zeros(9 * of.nbytes // 8))
    held = [cache.get(str(n)) for n in range(8)]
    cache.put("new", block())
    kept = [n for n in range(8) if cache.get(str(n)) is not None]
    assert sum(held[n].held_bytes for n in kept) + block().nbytes <= cache.budget
    assert cache.get("new") is not None


def test_forgotten_slices_free_what_they_held() -> None:
    cache = SliceCache(budget=3 * block().nbytes)
    for n in range(50):
        cache.put(str(n), block())
        cache.get(str(n)).derive("more", lambda of: np.zeros(of.nbytes // 8))
        cache.get(str(n))
        cache.forget(str(n))
    cache.put("a", block())
    cache.put("b", block())
    assert cache.get("a") is not None
    assert cache.get("b") is not None
