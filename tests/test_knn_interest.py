"""Interest routing by horizon: exact whatever the batches, and it sends little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidCall
from anabranch.knn.algorithm import FOREVER, METRICS, Queries
from anabranch.knn.interest import Interest, rows_per_object
from tests.test_knn_repair import STREAMS, calls, objects_of, wanted


@settings(max_examples=250)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(STREAMS),
    metric=st.sampled_from(METRICS),
    counted=st.booleans(),
    workers=st.integers(1, 4),
    horizon=st.sampled_from([0.1, 0.5, 0.9]),
    spare=st.sampled_from([None, 0, 3]),
    longest=st.sampled_from([1, 10, 60]),
)
def test_equals_brute_force(
    seed: int,
    kind: str,
    metric: str,
    counted: bool,
    workers: int,
    horizon: float,
    spare: int | None,
    longest: int,
) -> None:
    random = np.random.default_rng(seed)
    n, count, dim = int(random.integers(0, 90)), int(random.integers(1, 6)), 2
    points = objects_of(kind, n, dim, random)
    t = np.sort(random.integers(0, 120, n)) if random.random() < 0.7 else np.arange(n)
    queries = Queries.of(
        objects_of(str(random.choice(STREAMS[:2])), count, dim, random),
        k=random.integers(1, 6, count),
        window=random.integers(3, 60, count),
        since=np.where(random.random(count) < 0.7, -FOREVER, random.integers(0, 80, count)),
        until=np.where(random.random(count) < 0.7, FOREVER, random.integers(0, 130, count)),
        counted=counted,
        metric=metric,
    )
    run = Interest(queries, workers, horizon, spare)
    got, at = [], 0
    for stop in calls(t, random, longest):
        end = int(np.searchsorted(t, stop, "right"))
        part = slice(at, end)
        got += run.advance(t[part], np.arange(at, end), points[part], stop).rows()
        at = end
    assert len({(q, s) for q, s, *_ in got}) == len(got)
    assert sorted(got) == wanted(t, points, queries)


def test_it_sends_a_fraction_of_what_sending_everything_does() -> None:
    random = np.random.default_rng(3)
    n, window, workers = 6_000, 2_000, 8
    queries = Queries.of(random.random((24, 2)), k=5, window=window)
    run = Interest(queries, workers)
    t = np.arange(n)
    for at in range(0, n, 250):
        run.advance(t[at : at + 250], t[at : at + 250], random.random((250, 2)), at + 249)
    assert run.sent.objects == n
    assert run.sent.rows_per_object < 0.35 * workers
    assert run.sent.dropped > 0.9 * run.sent.withheld - run.sent.later - 3 * window * workers


def test_what_plans_cost() -> None:
    rows = rows_per_object(400, 81, 40_000, 16)
    assert rows["A"] == 16 and 2 <= rows["B"] <= 4 and 14 <= rows["C"] <= 18
    assert rows_per_object(10**6, 9, 40_000, 16)["B"] == pytest.approx(16)


def test_wrong_settings() -> None:
    queries = Queries.of([[0.0]], k=1, window=2)
    with pytest.raises(InvalidCall, match="at least 3 for a horizon") as error:
        Interest(queries, 0, 1.5)
    assert len(error.value.problems) == 3
