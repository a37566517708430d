"""Every plan obeys the law, for any window and weights; a plan that does not is caught."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import broadcast, csp, grid, segments, selective, ssp
from anabranch.errors import InvalidCall
from anabranch.plans.costs import choose, typical_duration
from anabranch.plans.hashed import Broadcast, Grid, keyed
from anabranch.plans.plan import LEFT, RIGHT, Plan, Routes, Rows, plan_from_dict
from anabranch.plans.segments import Segments
from anabranch.testing import check_plan

SECOND = 1_000_000
sides = st.sampled_from(["left", "right"])
lengths = st.one_of(st.just(0), st.integers(1, 100 * SECOND))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    k = draw(st.integers(1, 9))

    def shares(count: int) -> list[float] | None:
        weights = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
        return [float(w) for w in weights] if any(weights) else None

    kind = draw(st.sampled_from(["broadcast", "segments", "grid", "keyed"]))
    if kind == "broadcast":
        return broadcast(k, draw(sides), weights=shares(k))
    if kind == "segments":
        segment = draw(st.integers(1, 50 * SECOND))
        return Segments(k, segment, draw(sides), weights=tuple(shares(k) or [1.0] * k))
    if kind == "keyed":
        return keyed(k, weights=shares(k))
    rows, cols = shares(k), shares(3)
    return grid(k, 3, weights=(rows, cols) if rows and cols else None)


@given(plans(), st.tuples(lengths, lengths), st.integers(0, 1000))
def test_every_plan_obeys_the_law(plan: Plan, window: tuple[int, int], seed: int):
    check_plan(plan, window, rows=80, seed=seed)


@dataclass(frozen=True)
class ForgetsTheFuture(Segments):
    """A segment plan whose slave rows reach back in time but not ahead."""

    def route(self, side, rows, window):
        return super().route(side, rows, (window[0], 0) if side == 1 else (0, window[1]))


@dataclass(frozen=True)
class Everywhere(Broadcast):
    """Both sides to all workers: every pair meets k times."""

    def route(self, side, rows, window):
        return super().route(1, rows, window)


@dataclass(frozen=True)
class Moody(Grid):
    """Sends a row elsewhere when it comes in other company."""

    def route(self, side, rows, window):
        routes = super().route(side, rows, window)
        moved = (routes.workers + (len(rows.t) < 100)) % self.workers
        return Routes(routes.offsets, moved)


@pytest.mark.parametrize(
    "broken",
    [ForgetsTheFuture(4, 60 * SECOND), Everywhere(3), Moody(2, 2)],
    ids=lambda p: type(p).__name__,
)
def test_the_law_suite_catches_broken_plans(broken: Plan):
    with pytest.raises(AssertionError):
        check_plan(broken)


def test_weights_decide_the_shares():
    h = np.random.default_rng(0).integers(-(2**63), 2**63, 100_000)
    t = np.zeros(len(h), np.int64)
    workers = broadcast(3, weights=[1, 2, 1]).route(0, Rows(t, h), (0, 0)).workers
    assert np.allclose(np.bincount(workers) / len(h), [0.25, 0.5, 0.25], atol=0.01)


def test_copies_are_as_the_formulas_say():
    t = np.arange(0, 1000 * SECOND, SECOND)
    h = np.arange(len(t)) << 40
    window = (60 * SECOND, 60 * SECOND)

    def copies(plan, side):
        return len(plan.route(side, Rows(t, h), window).workers) / len(t)

    assert copies(broadcast(8), 0) == 1 and copies(broadcast(8), 1) == 8
    assert copies(grid(4, 2), 0) == 2 and copies(grid(4, 2), 1) == 4
    # A slave row touches (W1 + W2) / T segments and the one it is in.
    assert copies(segments(16, "10 seconds"), 0) == 1
    assert copies(segments(16, "10 seconds"), 1) == pytest.approx(12 + 1, abs=0.2)
    assert copies(segments(4, "10 seconds"), 1) == 4


def test_the_choice_follows_rows_and_span():
    assert choose(1) == Broadcast(1)
    assert choose(8) == Grid(4, 2)
    assert choose(6, rows=(10, 10_000)) == Broadcast(6, "left")
    assert isinstance(choose(4, rows=(10, 10), duration=10**12, window=(1000, 1000)), Segments)


def test_fingerprints_tell_plans_apart():
    some = [
        broadcast(4),
        broadcast(4, "left"),
        broadcast(5),
        grid(4, 1),
        grid(2, 2),
        segments(4),
        keyed(4),
        broadcast(2, weights=[1, 2]),
    ]
    assert len({plan.fingerprint for plan in some}) == len(some)
    assert all(plan_from_dict(plan.to_dict()).fingerprint == plan.fingerprint for plan in some)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: broadcast(0), "workers must be a whole number of at least 1, got 0"),
        (lambda: broadcast(None), "workers must be a whole number of at least 1, got None"),
        (lambda: keyed("4"), "workers must be a whole number of at least 1, got '4'"),
        (lambda: broadcast(20_161), "workers must be a whole number of at most 20,160, got 20,161"),
        (lambda: selective(-1), "workers must be a whole number of at least 1, got -1"),
        (lambda: grid(200, 200), r"rows \* cols must be a whole number of at most 20,160"),
        (lambda: grid(None, []), "rows must be .* got None"),
        (lambda: broadcast(2, None), "side must be 'left' or 'right', got None"),
        (lambda: segments(2, side=["left"]), "side must be 'left' or 'right'"),
        (lambda: segments(2, None), "length: None is not a duration"),
        (lambda: segments(2, "99999999999 weeks"), "length must be .* at most"),
        (lambda: segments(2, weights=float("nan")), "weights must be a list of numbers"),
        (lambda: broadcast(2, "middle"), "side must be 'left' or 'right'"),
        (lambda: segments(2, "-1 second"), "length must be longer than zero"),
        (lambda: segments(2, "soon"), "not a duration"),
        (lambda: grid(2, 2.5), "cols must be a whole number"),
        (lambda: broadcast(2, weights=[1]), "one share for each of 2"),
        (lambda: broadcast(2, weights=[0, 0]), "one of them above 0"),
        (
            lambda: broadcast(2, weights=5),
            "weights must be a list of numbers, one for each of 2, got 5",
        ),
        (lambda: broadcast(2, weights="ab"), "weights must be a list of numbers"),
        (lambda: broadcast(2, weights=[]), "one share for each of 2, got 0"),
        (lambda: keyed(2, weights=[1, None]), "weights must be numbers of at least 0"),
        (lambda: broadcast(2, weights=[1, float("nan")]), "weights must be numbers of at least 0"),
        (lambda: broadcast(2, weights=[1, -1]), "weights must be numbers of at least 0"),
        (lambda: broadcast(2, weights=[True, 1]), "weights must be numbers of at least 0"),
        (lambda: grid(2, 2, weights=5), r"weights must be a pair, .* got 5"),
        (lambda: grid(2, 2, weights=([1, 2],)), "weights must be a pair"),
        (lambda: grid(2, 2, weights=([1, 2], None)), r"weights\[1\] must be a list of numbers"),
        (lambda: grid(2, 2, weights=([1, 2], [1, "x"])), r"weights\[1\] must be numbers"),
    ],
)
def test_bad_plans_are_refused(make, says):
    with pytest.raises(InvalidCall, match=says):
        make()


def test_a_time_far_off_does_not_put_all_rows_on_one_worker():
    """Segments cut from the first to the last time would be of 62 years, and one would hold all."""
    minute, day = 60_000_000, 86_400_000_000
    t = np.sort(np.random.default_rng(0).integers(0, 30 * day, 100_000)) + 1_700_000_000_000_000
    t[-1] = 253_402_214_400_000_000  # 9999-12-31
    span = typical_duration(np.quantile(t, np.linspace(0, 1, 21), method="nearest").tolist())
    assert 0.9 * 30 * day < span <= 30 * day
    plan = choose(8, (len(t), len(t)), span, (minute, minute))
    assert plan.name == "segments"
    workers = plan.route(LEFT, Rows(t, np.zeros_like(t)), (minute, minute)).workers
    assert np.bincount(workers, minlength=8).max() < 1.1 * len(t) / 8


def test_rows_of_one_moment_are_not_cut_by_time():
    day, minute = 86_400_000_000, 60_000_000
    t = [*range(0, 5 * day, day // 2), *[5 * day] * 90]
    span = typical_duration(np.quantile(t, np.linspace(0, 1, 21), method="nearest").tolist())
    assert span == 0 and choose(8, (100, 100), span, (minute, minute)).name == "grid"


def test_times_at_the_ends_of_64_bits_meet_their_neighbours():
    """Times and windows are added up in 64 bits, and must not come round."""
    ends = np.iinfo(np.int64)
    minute = 60 * SECOND
    for t in (ends.max - 10 + np.arange(10), ends.min + np.arange(10)):
        rows = Rows(t, np.zeros(len(t), np.int64))
        for plan in (segments(4), segments(4, "1 hour", "left"), segments(3, weights=[1, 2, 3])):
            lefts, rights = (plan.route(side, rows, (minute, minute)) for side in (LEFT, RIGHT))
            for i in range(len(t)):
                home = set(lefts.workers[lefts.offsets[i] : lefts.offsets[i + 1]].tolist())
                for j in range(len(t)):
                    other = rights.workers[rights.offsets[j] : rights.offsets[j + 1]].tolist()
                    assert len(home & set(other)) == 1


def test_a_plan_that_needs_a_key_says_so():
    with pytest.raises(ValueError, match=r"keyed\(4\) routes rows by key, and these have none"):
        keyed(4).route(0, Rows(np.zeros(1, np.int64), np.zeros(1, np.int64)), (0, 0))


def test_what_is_not_a_plan_is_not_checked():
    with pytest.raises(TypeError, match=r"check_plan takes a plan .* got Selective\(workers=4\)"):
        check_plan(selective(4))


@dataclass(frozen=True)
class Mine(Plan):
    """A plan class of a user: one worker for all."""

    workers: int = 1
    name = "mine"

    def route(self, side, rows, window):
        return Routes(np.arange(len(rows.t) + 1), np.zeros(len(rows.t), np.int32))


def test_a_plan_of_ones_own_may_be_checked():
    check_plan(Mine())
    known = "known: broadcast, grid, keyed, ranges"
    with pytest.raises(ValueError, match=f"unknown plan 'mine'; {known}"):
        plan_from_dict(Mine().to_dict())


def test_the_names_of_the_paper_say_which_side_is_spread():
    assert ssp(3, "right") == broadcast(3, "left") and ssp(3) == broadcast(3)
    assert csp(2, "5 seconds", "right") == segments(2, "5 seconds", "left")
    with pytest.raises(InvalidCall, match="master must be 'left' or 'right', got 'both'"):
        ssp(3, "both")
    with pytest.raises(InvalidCall, match="master must be 'left' or 'right', got None"):
        csp(3, master=None)
