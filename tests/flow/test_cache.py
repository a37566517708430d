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
    assert cache.get("alive") is not None
    assert cache.nbytes == 2 * block().nbytes, "to get it would be to hear of its owner"
    now = 660.0
    cache.hear("alive", 0)
    assert cache.get("ended") is None and cache.get("alive") is not None


def test_what_a_worker_no_longer_lists_goes_though_another_process_dropped_it() -> None:
    """Ranks, and rows that go by arrival, lie beyond every watermark."""
    cache = Cache(budget=1 << 30)
    for n in range(10):
        cache.put(f"mine {n}", block(), "query", worker=3)
        cache.put(f"other {n}", block(), "query", worker=4)
    cache.put("shared", block(), "query")
    cache.hear("query", 0, batch=5, worker=3, listed={"mine 8", "mine 9", "mine 10"})
    assert [n for n in range(10) if cache.get(f"mine {n}")] == [8, 9]
    assert all(cache.get(f"other {n}") for n in range(10)) and cache.get("shared")


def test_what_never_expires_goes_when_nobody_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that moved for good lists nothing here any more, and its owner goes on."""
    now = 0.0
    monkeypatch.setattr("anabranch.flow.cache.time.monotonic", lambda: now)
    cache = Cache(budget=1 << 30)
    cache.put("moved", block(), "query", worker=3)
    cache.put("waits", block(), "query", worker=4, expires=10**15)
    cache.put("used", block(), "query")
    for now in range(0, 1200, 100):
        cache.hear("query", 0, batch=now // 100)
        cache.get("used")
    assert cache.nbytes == 2 * block().nbytes
    assert [cache.get(name) is None for name in ("moved", "waits", "used")] == [True, False, False]


def test_where_nobody_is_heard_what_is_not_used_goes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a driver, and in batch queries."""
    now = 0.0
    monkeypatch.setattr("anabranch.flow.cache.time.monotonic", lambda: now)
    cache = Cache(budget=1 << 30)
    most = 0
    for now in range(0, 60_000, 10):
        cache.put(f"file {now}", block(), "rejected rows")
        most = max(most, cache.nbytes)
    assert most <= 67 * block().nbytes, "ten minutes of them, and the minute between two looks"


def test_what_grows_after_it_was_derived_is_weighed() -> None:
    slice_ = block()
    held: list[np.ndarray] = slice_.derive("lessons", lambda _: [np.zeros(10)], grows=True)
    before = slice_.held_bytes
    held.append(np.zeros(1000))
    assert slice_.held_bytes == before + 8000


def scanned(cache: Cache, window: range, batch: int, owner: str = "query") -> int:
    """How many slices a step reads back that looks at all of its window, one after the other."""
    missing = 0
    for number in window:
        if cache.get(f"{owner} {number}") is None:
            missing += 1
            cache.put(f"{owner} {number}", block(), owner)
    cache.hear(owner, 0, batch)
    return missing


def test_of_a_window_that_does_not_fit_only_the_rest_is_read_again() -> None:
    cache, window = Cache(budget=10 * block().nbytes), range(12)
    assert scanned(cache, window, 40) == 12
    # The least recently used one is always the next to be asked for.
    assert [scanned(cache, window, batch) for batch in range(41, 46)] == [2] * 5
    assert cache.nbytes <= cache.budget


def test_slices_that_a_window_has_left_make_way_for_new_ones() -> None:
    cache = Cache(budget=10 * block().nbytes)
    for batch in range(30):
        window = range(batch, batch + 8)
        missing = scanned(cache, window, batch)
        assert missing == (8 if batch == 0 else 1), batch
    assert all(cache.get(f"query {number}") is not None for number in window)


def test_a_worker_that_is_called_elsewhere_makes_way() -> None:
    cache = Cache(budget=10 * block().nbytes)
    for batch in range(3):
        scanned(cache, range(8), batch)
    # Another worker of the same query now comes here, and the first does not.
    missing = [scanned(cache, range(100, 108), batch) for batch in range(3, 8)]
    assert missing[0] == 8 and missing[-1] == 0


def test_two_queries_keep_what_they_have() -> None:
    cache = Cache(budget=10 * block().nbytes)
    for batch in range(4):
        found = [scanned(cache, range(6), batch, owner) for owner in ("one", "two")]
    assert sum(found) <= 3, "twelve slices, of which ten fit"


def test_kernels_are_kept_before_slices() -> None:
    cache, window = Cache(budget=10 * block().nbytes), range(12)
    for batch in range(5):
        scanned(cache, window, batch)
        cache.put("kernel", block(), "query", last_batch=batch + 1)
        assert cache.get("kernel") is not None


def test_an_owner_that_goes_back_has_nothing_here() -> None:
    """A checkpoint was put back: what is here of later batches would never make way."""
    cache, window = Cache(budget=10 * block().nbytes), range(8)
    scanned(cache, range(100, 108), 1000)
    assert scanned(cache, window, 5) == 8
    # What it put before it said so went too.
    assert [scanned(cache, window, batch) for batch in range(6, 9)] == [8, 0, 0]
