"""Summaries merge in any order and with any weights; their quantiles are within one per cent."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.assembly.service_stats.store import SummaryStore
from anabranch.assembly.service_stats.summary import Summary
from anabranch.assembly.service_stats.wilson import wilson_lower
from anabranch.errors import InvalidCall, StateMismatch

FIGURES = st.lists(st.floats(1e-3, 1e6), max_size=40)


def close(a: Summary, b: Summary) -> bool:
    same = all(
        math.isclose(getattr(a, name), getattr(b, name), rel_tol=1e-6, abs_tol=1e-3)
        for name in ("count", "mean", "m2", "complete", "rated")
    )
    return same and a.classes == pytest.approx(b.classes)


@given(FIGURES, FIGURES, FIGURES)
def test_merging_is_summarising_all(x: list[float], y: list[float], z: list[float]) -> None:
    a, b, c = (Summary.of(part, [0.5] * len(part)) for part in (x, y, z))
    whole = Summary.of([*x, *y, *z], [0.5] * len([*x, *y, *z]))
    assert close(a.merge(b).merge(c), whole)
    assert close(c.merge(a.merge(b)), whole)


def test_what_is_known_without_figures_is_not_lost() -> None:
    """A metric that is null leaves a verdict and a count_ratio, and no figure."""
    bare = Summary.of([], [0.5, 1.0, None])
    bare.unknown, bare.violated = 3.0, 1.0
    one = Summary.of([4.0], [1.0])
    for both in (
        bare.merge(bare).merge(one),
        one.merge(bare).merge(bare),
        bare.merge(one.merge(bare)),
    ):
        assert (both.count, both.mean, both.m2) == (1.0, 4.0, 0.0)
        assert (both.unknown, both.violated, both.rated, both.complete) == (6.0, 2.0, 5.0, 4.0)
    twice = bare.merge(bare)
    assert (twice.unknown, twice.count_ratio, twice.compliance) == (6.0, 0.75, None)
    assert (twice.low, twice.high) == (0.0, 0.75)
    gone = bare.merge(one).decay(1e6, 1.0)
    assert gone.merge(gone) == gone and gone.quantile(0.5) is None


def test_figures_without_end_are_left_out() -> None:
    found = Summary.of([1.0, math.inf, 3.0, -math.inf, math.nan], [1.0] * 5)
    assert (found.count, found.mean, found.m2, found.rated) == (2.0, 2.0, 2.0, 5.0)
    assert found.quantile(1.0) == pytest.approx(3.0, rel=0.011)
    assert Summary.of([math.inf]).quantile(0.5) is None


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_quantiles_are_within_one_per_cent(figures: list[float], q: float) -> None:
    rank = min(len(figures) - 1, max(0, math.ceil(q * len(figures) - 1e-9) - 1))
    found = Summary.of(figures).quantile(q)
    assert found == pytest.approx(sorted(figures)[rank], rel=0.0101)


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=60), st.floats(0, 1))
def test_figures_of_either_sign_have_their_quantiles(figures: list[float], q: float) -> None:
    rank = min(len(figures) - 1, max(0, math.ceil(q * len(figures) - 1e-9) - 1))
    found = Summary.of(figures).quantile(q)
    assert found == pytest.approx(sorted(figures)[rank], rel=0.0101, abs=1e-300)


@pytest.mark.parametrize("q", [None, "x", -0.1, 1.1, math.nan])
def test_what_is_no_rank_is_refused(q: Any) -> None:
    with pytest.raises(InvalidCall, match="q must be a number from 0 to 1, got"):
        Summary.of([1.0]).quantile(q)


def test_zero_is_a_value_of_its_own() -> None:
    assert Summary.of([0.0, 0.0, 5.0]).quantile(0.5) == 0.0
    assert Summary().quantile(0.5) is None and Summary().count_ratio is None


@given(FIGURES, st.floats(0, 100), st.floats(0, 100))
def test_decay_in_two_steps_is_decay_in_one(x: list[float], a: float, b: float) -> None:
    s = Summary.of(x)
    assert close(s.decay(a, 50).decay(b, 50), s.decay(a + b, 50))
    assert s.decay(a, 50).quantile(0.5) == pytest.approx(s.quantile(0.5)) if x else True


def test_old_figures_fade(tmp_path: Path) -> None:
    store = SummaryStore(str(tmp_path))
    hour = 3_600_000_000
    store.write(0, [("a", 0, Summary.of([100.0] * 50))])
    store.write(1, [("a", 10 * hour, Summary.of([1.0] * 10))])
    plain, fading = store.of("a"), store.of("a", half_life=3600)
    assert plain.mean == pytest.approx(83.5)
    weight = 50 * 0.5**10
    assert fading.count == pytest.approx(10 + weight)
    assert fading.mean == pytest.approx((10 + 100 * weight) / (10 + weight))
    assert plain.quantile(0.5) == pytest.approx(100, rel=0.011)
    assert fading.quantile(0.5) == pytest.approx(1, rel=0.011)


def test_compacting_and_replaying_change_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    store = SummaryStore(str(tmp_path))
    parts = [[("s", int(p), Summary.of(random.random(5))) for p in (0, 1)] for _ in range(6)]
    for number, part in enumerate(parts):
        store.write(number, part)
    before = {key: s.count for key, s in store.read().items()}
    store.compact()
    assert len(list(tmp_path.glob("*.json"))) == 1
    store.write(5, parts[5])  # the last batch, run again
    store.write(6, parts[0])
    assert before == {("s", 0): 30.0, ("s", 1): 30.0}
    assert {key: s.count for key, s in store.read().items()} == {("s", 0): 35.0, ("s", 1): 35.0}


def test_batches_of_a_new_checkpoint_are_refused(tmp_path: Path) -> None:
    """It counts from 0 again: its batches would be lost, or take the place of others."""
    store = SummaryStore(str(tmp_path))
    part = [("s", 0, Summary.of([1.0]))]
    for number in range(3):
        store.write(number, part, "one")
    with pytest.raises(StateMismatch, match="holds the batches of query one, these are of two"):
        store.write(0, part, "two")
    store.write(2, part, "one")
    store.compact()
    store.write(2, part, "one")
    for query in ("one", None):  # an older checkpoint put back, or nobody knows
        with pytest.raises(StateMismatch, match="a new checkpoint counts from 0 again"):
            store.write(0, part, query)
    assert store.of("s").count == 3.0


NAMES = [
    date(2024, 5, 1),
    datetime(2024, 5, 1, 12, 0, 0, 7),
    datetime(2024, 5, 1, tzinfo=UTC),
    timedelta(days=-1, microseconds=3),
    Decimal("1.50"),
    b"\x00\xff",
    "a",
    7,
    0.1,
]


def test_services_of_any_name(tmp_path: Path) -> None:
    store = SummaryStore(str(tmp_path))
    store.write(0, [(name, 0, Summary.of([1.0])) for name in NAMES])
    store.write(None, [(name, 0, Summary.of([2.0])) for name in NAMES])
    store.compact()
    assert [store.of(name).count for name in NAMES] == [2.0] * len(NAMES)
    assert set(store.read()) == {(name, 0) for name in NAMES}


def test_any_address_that_pyarrow_opens(tmp_path: Path) -> None:
    store = SummaryStore(f"file://{tmp_path}/known")
    store.write(0, [("a", 0, Summary.of([1.0]))])
    store.write(1, [("a", 0, Summary.of([2.0]))])
    store.compact()
    assert SummaryStore(str(tmp_path / "known")).of("a").count == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["known"]


def test_files_of_another_layout_are_refused(tmp_path: Path) -> None:
    (tmp_path / "batch-000000000000.json").write_text('{"version": 1, "summaries": []}')
    with pytest.raises(StateMismatch, match="has layout 1, this version reads 2"):
        SummaryStore(str(tmp_path)).read()


def test_tables_add_up_beside_batches(tmp_path: Path) -> None:
    store = SummaryStore(str(tmp_path))

    def counts() -> dict[str, float]:
        return {name: store.of(name).count for name in "abc"}

    store.write(None, [("a", 0, Summary.of([1.0]))])
    store.write(None, [("a", 0, Summary.of([2.0, 3.0])), ("b", 0, Summary.of([1.0]))])
    assert counts() == {"a": 3.0, "b": 1.0, "c": 0.0}
    store.compact()  # of tables alone
    assert len(list(tmp_path.glob("*.json"))) == 1
    store.write(0, [("c", 0, Summary.of([1.0]))])
    store.write(0, [("c", 0, Summary.of([1.0]))])
    assert counts() == {"a": 3.0, "b": 1.0, "c": 1.0}
    store.write(1, [("c", 0, Summary.of([1.0]))])
    store.compact()
    store.write(None, [("b", 0, Summary.of([5.0]))])
    store.write(1, [("c", 0, Summary.of([1.0]))])
    assert counts() == {"a": 3.0, "b": 2.0, "c": 2.0}


def test_a_compaction_cut_short_counts_no_table_twice(tmp_path: Path) -> None:
    store = SummaryStore(str(tmp_path))
    store.write(None, [("a", 0, Summary.of([1.0]))])
    store.write(0, [("a", 0, Summary.of([1.0]))])
    before = {path: path.read_text() for path in tmp_path.glob("*.json")}
    store.compact()
    for path, text in before.items():  # as if they had never been removed
        path.write_text(text)
    assert store.of("a").count == 2.0
    store.write(1, [("a", 0, Summary.of([1.0]))])
    store.compact()
    assert store.of("a").count == 3.0
    assert not list(tmp_path.glob("table-*.json"))


def test_no_weight_is_too_small_for_a_lower_bound() -> None:
    assert wilson_lower(1e-300, 1e-300) == pytest.approx(0.0, abs=1e-12)
    assert wilson_lower(1e-5, 2e-5) == pytest.approx(0.0, abs=1e-4)


@given(st.integers(0, 50), st.integers(0, 50))
def test_the_lower_bound_is_below_the_share_and_rises_with_evidence(met: int, missed: int) -> None:
    total = met + missed
    if not total:
        return
    lower = wilson_lower(met, total)
    assert 0 <= lower <= met / total
    assert wilson_lower(10 * met, 10 * total) >= lower - 1e-12


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_single_share_only_where_nothing_is_unknown(
    met: int, violated: int, unknown: int
) -> None:
    """Whatever the unknown ones were, the true share lies between low and high."""
    found = Summary(met=met, violated=violated, unknown=unknown)
    n = met + violated + unknown
    if not n:
        assert found.low is found.high is found.compliance is None
        assert (found.lower, found.upper) == (0.0, 1.0)
        return
    assert found.low == met / n and found.high == (met + unknown) / n
    for kept in range(unknown + 1):
        assert found.low <= (met + kept) / n <= found.high
    assert found.compliance == (None if unknown else met / n)
    assert found.lower <= found.low <= found.high <= found.upper + 1e-12


def test_wilson_by_the_quadratic_that_defines_it() -> None:
    """The bound p solves |met/n - p| = z sqrt(p (1 - p) / n)."""
    for met, n in ((3, 7), (88, 100), (1, 1000)):
        p = wilson_lower(met, n)
        assert met / n - p == pytest.approx(1.959963984540054 * math.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("kind", ["file", "mock"])
def test_a_folder_at_an_address(tmp_path: Path, kind: str) -> None:
    """What is not a local path is opened by pyarrow; its mock lives in memory."""
    address = f"file://{tmp_path}/stats" if kind == "file" else "mock:///some/stats"
    known = ab.assembly.ServiceStats(address, {"a": "90 seconds"})
    assert known.table() == [] and known.get("a").count == 0
    hour = 3_600_000_000
    for batch, figures in enumerate([[1.0, 3.0], [8.0], [8.0, 4.0]]):
        for _ in range(2):  # run again
            known.store.write(batch, [("a", batch * hour, Summary.of(figures))], query="q")
    known.store.write(None, [("b", 0, Summary.of([7.0]))])
    assert known.get("a").count == 5 and known.get("a").mean == pytest.approx(4.8)
    before = known.table()
    assert [(row["service"], row["period"]) for row in before] == [
        *(("a", batch * hour) for batch in range(3)),
        ("b", 0),
    ]
    known.store.compact()
    assert known.table() == before
    with pytest.raises(StateMismatch, match="holds the batches of query q"):
        known.store.write(3, [], query="another")
    with pytest.raises(StateMismatch, match="batch 1 comes once more"):
        known.store.write(1, [], query="q")
    if kind == "file":
        assert ab.assembly.ServiceStats(tmp_path / "stats").table() == before
