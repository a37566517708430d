"""When bytes are made and used: never where they cost more, by the model that decides it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.correlation.filters.choosing import Habits, vector_candidates
from anabranch.correlation.filters.costs import (
    Making,
    balls_pay,
    bytes_pay,
    cost_of_balls,
    cost_of_bytes,
    cost_of_product,
    may_pay,
    most_proposed,
    to_come,
)
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.quantised import made
from anabranch.correlation.filters.tiles import Pair
from anabranch.flow.blocks import Block
from tests.examples import examples

NAMES = st.sampled_from(["Vnni512", "Vnni256", "Avx2", "Neon"])
WIDTHS = st.integers(1, 2048)
PAIRS = st.integers(0, 10**9)
MAKING = st.builds(Making, st.integers(0, 10**6), st.floats(0, 1e12))
BOTH = st.lists(MAKING, max_size=2)


@settings(max_examples=examples(60))
@given(WIDTHS, PAIRS, BOTH, st.integers(0, 10**6), NAMES)
def test_bytes_are_not_made_where_they_cost_more_than_the_product(
    width: int, pairs: int, both: Sequence[Making], rows: int, by: str
) -> None:
    if may_pay(width, pairs, both, rows, by):
        assert cost_of_bytes(width, pairs, 0, by) < cost_of_product(width, pairs)
    now = [made._replace(later=0.0) for made in both]
    if may_pay(width, pairs, now, rows, by):  # without any hope
        assert may_pay(width, pairs, both, rows, by)


@settings(max_examples=examples(60))
@given(WIDTHS, PAIRS, PAIRS, BOTH, st.integers(0, 10**6), NAMES)
def test_what_pays_does_so_with_more_pairs_fewer_rows_and_better_prospects(
    width: int, pairs: int, more: int, both: Sequence[Making], rows: int, by: str
) -> None:
    if not may_pay(width, pairs, both, rows, by):
        return
    assert may_pay(width, pairs + more, both, rows, by)
    assert may_pay(width, pairs, both, rows // 2, by)
    assert may_pay(width, pairs, [made._replace(rows=made.rows // 2) for made in both], rows, by)
    assert may_pay(width, pairs, [m._replace(later=m.later + more) for m in both], rows, by)
    assert may_pay(width, pairs, both[:1], rows, by)


@settings(max_examples=examples(60))
@given(WIDTHS, st.integers(1, 10**7), st.integers(0, 10**7), NAMES)
def test_bytes_are_not_used_where_a_sample_says_that_they_cost_more(
    width: int, pairs: int, proposed: int, by: str
) -> None:
    pays = bytes_pay(width, pairs, proposed, by)
    assert pays == (proposed <= most_proposed(width, pairs, by))
    if pays:
        assert cost_of_bytes(width, pairs, proposed, by) <= cost_of_product(width, pairs)
        assert bytes_pay(width, pairs, proposed // 2, by)


@settings(max_examples=examples(60))
@given(WIDTHS, st.floats(0, 1), NAMES)
def test_balls_are_not_used_where_they_leave_more_than_bytes_would_cost(
    width: int, share: float, by: str
) -> None:
    if balls_pay(width, share, by):
        assert cost_of_balls(width, 1, share, by) <= cost_of_bytes(width, 1, 0, by)
        assert balls_pay(width, share / 2, by)
    assert balls_pay(width, 0.0, by) and not balls_pay(width, 1.0, by)


@settings(max_examples=examples(60))
@given(*[st.integers(0, 10**6)] * 4, st.integers(0, 2**70), st.integers(0, 2**70))
def test_longer_waits_bring_no_fewer_comparisons(
    rows: int, at: int, count: int, span: int, wait: int, more: int
) -> None:
    mine, others = (rows, at, at + span), (count, at, at + span)
    assert 0 <= to_come(mine, others, wait) <= to_come(mine, others, wait + more)


def test_stored_rows_are_rounded_when_few_new_ones_have_come_again() -> None:
    """Each visit alone does not pay for the bytes of all stored rows; several do."""
    if not available():
        return
    random = np.random.default_rng(0)

    def block(n: int, begin: int) -> Block:
        vectors = random.standard_normal((n, 64)).astype("f4")
        return Block.of(np.linspace(begin, begin + 100, n), {"id": np.arange(n), "s0": vectors})

    def visits(window: int) -> list[bool]:
        stored, habits, found = block(8000, 0), Habits(), []
        for turn in range(6):
            pair = Pair(block(20, 100 * turn), stored, (window, window))
            list(vector_candidates(pair, "s0", "cosine", True, 0.9, habits))
            found.append(made(pair, "s0", "cosine", True, available()[0])[1])
        return found

    seen = visits(100_000)
    assert not seen[0] and seen[-1] and seen == sorted(seen)
    assert not any(visits(0))  # rows that will meet no more are not rounded
