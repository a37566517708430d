"""A worker process keeps what it may keep, and counts what kernels attach to slices."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.flow.blocks import Block
from anabranch.flow.cache import Cache


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
    cache = Cache(budget=10 * block().nbytes)
    for n in range(8):
        cache.put(str(n), block(), "query")
    assert all(cache.get(str(n)) for n in range(8))
    for n in range(8):
        cache.get(str(n)).derive("wide", lambda of: np.zeros(9 * of.nbytes // 8))
    held = [cache.get(str(n)) for n in range(8)]
    cache.put("new", block(), "query")
    kept = [n for n in range(8) if cache.get(str(n)) is not None]
    assert sum(held[n].held_bytes for n in kept) + block().nbytes <= cache.budget
    assert cache.get("new") is not None


def test_forgotten_slices_free_what_they_held() -> None:
    cache = Cache(budget=3 * block().nbytes)
    for n in range(50):
        cache.put(str(n), block(), "query")
        cache.get(str(n)).derive("more", lambda of: np.zeros(of.nbytes // 8))
        cache.get(str(n))
        cache.forget(str(n))
    cache.put("a", block(), "query")
    cache.put("b", block(), "query")
    assert cache.get("a") is not None
    assert cache.get("b") is not None


def test_what_expired_goes_though_another_process_dropped_it() -> None:
    """A merged slice is forgotten where it was merged; elsewhere the watermark is what tells."""
    cache = Cache(budget=1 << 30)
    for n in range(100):
        cache.put(str(n), block(), "one", expires=1000 + n)
    cache.put("other", block(), "two", expires=1)
    cache.hear("one", 1049, batch=7)
    assert [n for n in range(100) if cache.get(str(n))] == list(range(50, 100))
    assert cache.get("other") is not None, "another query's watermark is its own"
    assert cache.nbytes == 51 * block().nbytes


def test_a_kernel_is_of_use_in_the_next_batch_alone() -> None:
    cache = Cache(budget=1 << 30)
    cache.put("kernel", block(), "one", last_batch=8)
    cache.hear("one", 0, batch=8)
    assert cache.get("kernel") is not None
    cache.hear("one", 0, batch=9)
    assert cache.get("kernel") is None and cache.nbytes == 0


def test_owners_that_are_silent_for_long_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("anabranch.flow.cache.time.monotonic", lambda: now)
    cache = Cache(budget=1 << 30)
    cache.put("ended", block(), "ended")
    cache.put("alive", block(), "alive")
    now = 599.0
    cache.hear("alive", 0)
    assert cache.nbytes == 2 * block().nbytes, "to get it would be to hear of its owner"
    now = 601.0
    cache.hear("alive", 0)
    assert cache.get("ended") is None and cache.get("alive") is not None
