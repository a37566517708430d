"""Slices come back from a state store as they went, and take no more room there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.flow.blocks import Block
from anabranch.flow.stored import restored, stored


@given(size=st.integers(0, 20_000), kinds=st.integers(1, 256), seed=st.integers(0, 1 << 30))
def test_any_bytes_come_back_and_take_no_more_room(size: int, kinds: int, seed: int) -> None:
    data = np.random.default_rng(seed).integers(0, kinds, size, np.uint8).tobytes()
    kept = stored(data)
    assert bytes(restored(bytearray(kept))) == data
    assert len(kept) <= len(data)


def test_a_slice_of_vectors_is_shorter_and_quick_to_hand_over() -> None:
    rows = 2000
    vectors = np.random.default_rng(1).standard_normal((rows, 64), dtype=np.float32)
    block = Block.of(np.arange(rows) + 10**15, {"id": np.arange(rows), "s0": vectors})
    plain, kept = block.encode(), stored(block.encode())
    assert len(kept) < 0.95 * len(plain)
    # Of these Spark makes two bytes each, on a slow path.
    assert max(kept) < 128
    again = Block.decode(restored(kept))
    assert again.columns["s0"].tobytes() == vectors.tobytes()
    assert not again.columns["s0"].flags.writeable


@pytest.mark.parametrize("small", [True, False])
def test_what_an_earlier_version_stored_is_read(small: bool) -> None:
    block = Block.of(np.arange(5000), {"id": np.arange(5000)})
    for data in (block.encode(small=small), bytearray(block.encode(small=small))):
        assert Block.decode(restored(data)).t.tolist() == block.t.tolist()


def test_what_cannot_be_made_shorter_is_stored_as_it_is() -> None:
    noise = np.random.default_rng(2).bytes(50_000)
    assert stored(noise) is noise
