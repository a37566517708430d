"""Shares are nested, met, and evenly spread; bands cut them apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.edge.sampling import bands, priorities, sampled, share_of

TICKS = np.arange(1 << 16)


@given(st.floats(0.001, 1.0), st.floats(0.001, 1.0))
def test_the_smaller_share_is_a_part_of_the_larger(one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert not (sampled(TICKS, 1, small) & ~sampled(TICKS, 1, large)).any()


@given(st.floats(0.001, 1.0))
def test_a_share_is_met_and_has_no_long_gaps(share: float) -> None:
    taken = np.flatnonzero(sampled(TICKS, 1, share))
    assert abs(len(taken) / len(TICKS) - share) < 1e-4
    assert np.diff(taken).max(initial=1) <= 2 / share


@given(st.integers(0, 2**62), st.integers(1, 10**9))
def test_a_priority_is_the_tick_read_backwards(t: int, tick: int) -> None:
    backwards = int(f"{(t // tick) % 2**32:032b}"[::-1], 2)
    assert priorities(np.array([t]), tick)[0] == backwards / 2**32


@given(st.lists(st.sampled_from([0.05, 0.2, 0.5, 0.7, 1.0]), min_size=1), st.integers(0, 10**6))
def test_a_share_is_the_bands_below_it(shares: list[float], first: int) -> None:
    t = first + np.arange(500)
    cut = bands(t, 1, shares)
    for share in shares:
        below = [rows for low, rows in cut if low < share]
        assert sorted(np.concatenate([*below, []])) == np.flatnonzero(sampled(t, 1, share)).tolist()


def test_without_a_tick_every_row_is_taken() -> None:
    assert sampled(TICKS, 0, 0.01).all()
    assert share_of(5, 0) == 1.0
