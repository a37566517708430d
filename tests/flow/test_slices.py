"""Slices: found by time, dropped whole, merged now and then, written only when new."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block, concat
from anabranch.flow.slices import SLICE_BYTES, Notes, Slice, Slices


def block(*times: int) -> Block:
    return Block.of(t=sorted(times), columns={"id": np.array(sorted(times))})


def times(window: Slices, side: int = 0) -> list[int]:
    return sorted(t for found in window.reach(side, -(10**18), 10**18) for t in found.t.tolist())


def keeping(window: Slices) -> Callable[[Slice], Block]:
    """Reads what a window has now, as a store does later."""
    held = {entry.number: window.read(entry.number) for entry in window.entries.values()}
    return lambda entry: held[entry.number]


def test_reach_reads_only_slices_that_overlap():
    window = Slices((100, 100), Notes())
    window.append(0, block(10, 20))
    window.append(0, block(30, 40))
    window.append(1, block(10))
    assert [found.t.tolist() for found in window.reach(0, 20, 29)] == [[10, 20]]
    assert [found.t.tolist() for found in window.reach(0, 21, 29)] == []
    assert [found.t.tolist() for found in window.reach(0, 20, 30)] == [[10, 20], [30, 40]]


def test_expiry_is_exact_at_the_closed_end():
    #  t=10 ---------- stays 100 ----------> a partner at 110 still joins; the watermark promises
    #                                        later rows are > it, so 110 frees the slice, 109 not
    window = Slices((100, 0), Notes())
    window.append(0, block(10))
    window.append(1, block(10))
    assert window.next_expiry() == 10
    assert window.expire(9) == 0
    assert window.expire(10) == 1 and times(window, 1) == []
    assert window.next_expiry() == 110
    assert window.expire(109) == 0 and times(window) == [10]
    assert window.expire(110) == 1 and window.next_expiry() is None


def test_only_changes_are_written():
    window = Slices((100, 100), Notes())
    window.append(0, block(10))
    stored = {entry.number: found.encode() for entry, found in window.added.values()}
    again = Slices.open(
        (100, 100), Notes, window.head(), lambda entry: Block.decode(stored[entry.number])
    )
    assert again.added == {} and again.dropped == []
    assert times(again) == [10]
    again.append(0, block(500))
    again.expire(300)
    assert [e.number for e in again.dropped] == [0] and [
        e.number for e, _ in again.added.values()
    ] == [1]


def test_a_slice_added_and_dropped_in_one_step_is_never_written():
    window = Slices((0, 0), Notes())
    window.append(0, block(10))
    window.expire(10)
    assert window.added == {} and window.dropped == []


def test_small_slices_merge_within_an_eighth_of_the_span():
    window = Slices((800, 800), Notes())
    for n in range(40):
        window.append(0, block(n * 10, n * 10 + 5))
    before = times(window)
    window.merge_small()
    assert times(window) == before
    assert len(window.entries) < 10
    assert max(entry.last - entry.first for entry in window.entries.values()) <= 100
    assert all((np.diff(found.t) >= 0).all() for found in window.reach(0, 0, 10**6))


@pytest.mark.parametrize("apart", [1, 100, 10**6])
def test_slices_are_few_however_far_apart_rows_are(apart):
    """The newest 2,000 rows of a stream, one more in each step; the span says nothing of them."""
    window, rewritten = Slices((800, 800), Notes()), 0
    for n in range(6_000):
        window.append(0, block(n * apart))
        window.expire((n - 2_000) * apart + 800)
        window.merge_small()
        rewritten += sum(entry.rows for entry, _ in window.added.values()) - 1
        window.fetch, window.added, window.dropped = keeping(window), {}, []
        assert len(window.entries) <= 65
        assert window.rows <= min(n + 1, 2_000 + 2_000 // 4)
    assert times(window)[-2_000:] == [n * apart for n in range(4_000, 6_000)]
    assert rewritten <= 60 * 6_000


def test_big_blocks_are_cut_to_slices():
    n = SLICE_BYTES // 64
    vectors = np.zeros((n, 32), np.float32)
    window = Slices((10, 10), Notes())
    window.append(0, Block.of(t=np.arange(n), columns={"v": vectors}))
    assert len(window.entries) > 1
    assert all(entry.bytes <= 1.5 * SLICE_BYTES for entry in window.entries.values())
    assert window.rows == n


def test_other_versions_are_refused():
    with pytest.raises(StateMismatch, match="another version"):
        Slices.open((1, 1), Notes, b"anabra\x09{}", lambda entry: block(1))
    with pytest.raises(StateMismatch, match="another version"):
        Block.decode(b"something else entirely")


def test_a_missing_slice_is_said():
    window = Slices((100, 100), Notes())
    window.append(0, block(10))
    with pytest.raises(StateMismatch, match="nowhere to read"):
        list(Slices((100, 100), Notes(), None, window.entries).reach(0, 0, 100))


def test_blocks_keep_stamps_and_columns():
    import pyarrow as pa

    one = Block.of(t=[1, 2], columns={"id": pa.array(["a", None]), "v": np.eye(2)}, epoch=3, mask=5)
    two = Block.of(t=[0], columns={"id": pa.array(["c"]), "v": np.ones((1, 2))}, epoch=4, mask=1)
    both = Block.decode(concat([one, two]).in_time_order().encode(side=1))
    assert both.t.tolist() == [0, 1, 2]
    assert both.epoch.tolist() == [4, 3, 3] and both.mask.tolist() == [1, 5, 5]
    assert both.columns["id"].to_pylist() == ["c", "a", None]
    assert both.columns["v"].tolist() == [[1, 1], [1, 0], [0, 1]]
    assert both.meta == {"side": 1}
    with pytest.raises(ValueError, match="read-only"):
        both.columns["v"][0] = 7
