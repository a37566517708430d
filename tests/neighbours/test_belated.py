"""Lists that take objects in after their turn are as if the objects had come in time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.neighbours.lists.algorithm import Queries
from anabranch.neighbours.selective.belated import BelatedLists
from tests.examples import examples
from tests.neighbours.test_repair import wanted


@settings(max_examples=examples(300))
@given(
    seed=st.integers(0, 2**32 - 1),
    few=st.sampled_from([2, 3, 6]),
    spare=st.sampled_from([1, 2, 5]),
    stops=st.integers(1, 6),
)
def test_withheld_objects_take_their_place_in_the_past(
    seed: int, few: int, spare: int, stops: int
) -> None:
    random = np.random.default_rng(seed)
    n, count = int(random.integers(1, 120)), int(random.integers(1, 4))
    t = np.sort(random.integers(0, 100, n))
    points = random.integers(0, few, (n, 2)) * 1.0  # many at the same distance
    queries = Queries.of(
        random.integers(0, few, (count, 2)) * 1.0,
        k=random.integers(1, 4, count),
        window=random.integers(5, 60, count),
        since=random.integers(-50, 30, count),
    )
    told = wanted(t, points, queries)
    first = np.full(n, 10**6)
    for _, number, entered, *_ in told:
        first[number] = min(first[number], entered)
    # Each object may come at any stop before it first matters, or in its own turn.
    ends = np.sort(random.integers(0, 130, stops)).tolist()
    ends.append(200)
    lists = BelatedLists(queries, spare=spare, index="grid")
    come = np.zeros(n, bool)
    numbers: list[int] = []  # the objects that the lists know, in order
    got = []
    reached = -1
    for end in ends:
        may = ~come & (t <= end)
        due = may & ((first <= end) | (random.random(n) < 0.4))
        belated = np.flatnonzero(due & (t <= reached))
        known = np.array(numbers, int)
        before = np.searchsorted(known, belated)
        lists.insert(before, t[belated], before + np.arange(len(belated)), points[belated])
        numbers = sorted([*numbers, *belated.tolist()])
        fresh = np.flatnonzero(due & (t > reached))
        seq = np.arange(len(numbers), len(numbers) + len(fresh))
        numbers += fresh.tolist()
        found = lists.advance(t[fresh], seq, points[fresh], end)
        got += [(q, numbers[s], *rest) for q, s, *rest in found.rows()]
        come |= due
        reached = end
    assert sorted(got) == told
