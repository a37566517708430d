"""What is derived of blocks is weighed once, and keeps no block alive."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa

from anabranch.correlation.filters import apart
from anabranch.correlation.filters.tiles import Pair
from anabranch.flow.blocks import Block
from anabranch.flow.sides import right_role


def rows(**columns: np.ndarray) -> Block:
    return Block.of(np.arange(100), {"s0": np.zeros((100, 8)), **columns})


def test_a_block_that_compares_the_same_columns_in_either_role_does_not_hold_itself() -> None:
    gc.disable()
    try:
        block = rows()
        assert right_role(block) is block and block.held_bytes == block.nbytes
        gone = weakref.ref(block)
        del block
        assert gone() is None, "without a collection"
    finally:
        gc.enable()


def test_what_is_derived_of_a_derived_block_is_weighed_and_shared_buffers_are_not() -> None:
    block = rows(r0=np.ones((100, 8)))
    before, role = block.held_bytes, right_role(block)
    assert role is not block and block.held_bytes == before
    role.derive("matrix", lambda _: np.zeros(1000))
    assert block.held_bytes == before + 8000
    halves = block.derive("halves", lambda of: {"first": of.slice(0, 50)})
    after = block.held_bytes
    halves["first"].derive("more", lambda _: np.zeros(10))
    assert block.held_bytes == after + 80


def test_a_column_of_many_values_keeps_no_list_of_them() -> None:
    for values in (np.arange(100), pa.array([f"user {n}" for n in range(100)])):
        block = Block.of(np.arange(100), {"s0": values})
        assert apart.taken_apart(Pair(block, block, (9, 9)), "s0", 1e9) is None
        assert block.derive(("values", "s0"), lambda _: "never asked") is None
