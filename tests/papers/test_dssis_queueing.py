"""Every queue solver against closed forms, another solver, and the queue played through."""

# ruff: noqa: SIM300 - L and W are values here, not constants

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.assembly.fitting import Erlang, PhaseType, fit_two_moments
from anabranch.errors import AnabranchError, InvalidCall
from papers.dssis.equations import EQ7, EQ8, calibrated, calibrated_span
from papers.dssis.queueing import (
    MAP,
    bulk_queue,
    gg_infinity,
    ggc,
    linear_law,
    max_rate_for_loss,
    poisson,
    renewal,
    window_array,
    windowed_join,
)
from papers.dssis.queueing.bulk import _Chain
from papers.dssis.queueing.stationary import gth, sparse_lu, stationary
from papers.dssis.tracing import generate_trace
from tests.examples import examples
from tests.papers.queue_twin import play_bulk, play_join, play_windows

BURSTS = MAP([[-10.0, 0.1], [0.1, -0.3]], [[9.9, 0.0], [0.0, 0.2]])
BATCH = Erlang(53, 53 / 0.6121)


# The exact queue


@settings(max_examples=examples(40), deadline=None)
@given(st.floats(0.05, 3.0), st.integers(1, 25))
def test_poisson_and_exponential_are_the_textbook(load, room):
    """M/M/1/K with K = room + 1 in the system."""
    found = bulk_queue(poisson(load), Erlang(1, 1.0), room)
    weights = load ** np.arange(room + 2)
    p = weights / weights.sum()
    assert found.P_loss == pytest.approx(p[-1], rel=1e-10)
    assert found.P_busy == pytest.approx(1 - p[0], rel=1e-10)
    assert found.P_busy_arrival == pytest.approx(found.P_busy, rel=1e-10)  # PASTA
    assert found.L == pytest.approx(float(np.arange(room + 2) @ p), rel=1e-9)
    assert found.W == pytest.approx(found.L / (load * (1 - p[-1])), rel=1e-9)


def test_poisson_and_general_service_is_pollaczek_khinchine():
    service = fit_two_moments(1.0, 3.0)
    found = bulk_queue(poisson(0.6), service, room=400)
    assert found.Lq == pytest.approx(0.6**2 * (1 + 3.0) / (2 * 0.4), rel=1e-6)


def test_renewal_input_and_exponential_service_is_the_textbook_root():
    """GI/M/1: an arrival finds k in the system with probability (1 - s) s^k."""
    gaps = Erlang(3, 3 * 0.8)
    found = bulk_queue(gaps, Erlang(1, 1.0), room=300)
    root = 0.5
    for _ in range(500):
        root = (2.4 / (2.4 + 1 - root)) ** 3
    assert found.P_busy_arrival == pytest.approx(root, rel=1e-9)
    assert found.P_busy == pytest.approx(0.8, rel=1e-9)
    assert found.W == pytest.approx(1 / (1 - root), rel=1e-8)


def test_a_batch_that_fills_an_idle_server():
    """Served at once, batches of K at low load: on average (K - 1)/2 wait."""
    found = bulk_queue(poisson(1.0), Erlang(2, 2000.0), 40, a=10)
    assert found.Lq == pytest.approx(4.5, rel=1e-6)
    assert found.Wq == pytest.approx(4.5, rel=1e-6)


@pytest.mark.parametrize(
    ("arrivals", "service", "room", "a", "b"),
    [
        (renewal(EQ7), EQ8, 30, 1, 1),
        (renewal(EQ7), Erlang(5, 8.0).phase_type(), 30, 5, 5),
        (BURSTS, Erlang(2, 1.0).phase_type(), 40, 3, 8),
        (poisson(4.0), fit_two_moments(0.2, 4.0).phase_type(), 90, 1, 1),
    ],
    ids=["rare", "batch", "bursts", "full"],
)
def test_elimination_and_factorisation_agree(arrivals, service, room, a, b):
    chain = _Chain(arrivals, service, room, a, b).generator()
    exact, quick = gth(chain.toarray()), sparse_lu(chain)
    assert np.max(np.abs(exact - quick)) < 1e-14
    seen = exact > 0
    assert np.max(np.abs(quick[seen] / exact[seen] - 1)) < 1e-9  # also where 1e-100 is due
    residual = exact @ chain.toarray()
    assert np.max(np.abs(residual)) < 1e-12 * np.max(np.abs(chain.diagonal()))


CASES = {
    "single": (poisson(0.8), Erlang(2, 2.0), 5, 1, 1),
    "bursts": (BURSTS.faster(0.1), Erlang(1, 1.0), 12, 1, 1),
    "batches": (renewal(Erlang(2, 4.0).phase_type()), Erlang(3, 3 / 3.0), 12, 3, 6),
    "wide": (poisson(2.0), fit_two_moments(1.0, 4.0), 15, 2, 4),
}


def play(case: str, count: int):
    arrivals, service, room, a, b = CASES[case]
    gaps = arrivals.sample(count, seed=1)
    services = service.sample(count, seed=2)
    return bulk_queue(arrivals, service, room, a=a, b=b), play_bulk(gaps, services, a, b, room)


@pytest.mark.parametrize("case", CASES)
def test_played_queues_agree(case):
    found, played = play(case, 100_000)
    assert played.L == pytest.approx(found.L, rel=0.06)
    assert played.Lq == pytest.approx(found.Lq, rel=0.08)
    assert played.W == pytest.approx(found.W, rel=0.06)
    assert played.busy == pytest.approx(found.P_busy, rel=0.03)
    assert played.busy_at_arrivals == pytest.approx(found.P_busy_arrival, rel=0.03)
    assert played.loss == pytest.approx(found.P_loss, rel=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_queues_played_at_length_agree(case):
    found, played = play(case, 4_000_000)
    assert played.L == pytest.approx(found.L, rel=0.01)
    assert played.W == pytest.approx(found.W, rel=0.01)
    assert played.busy_at_arrivals == pytest.approx(found.P_busy_arrival, rel=0.005)
    assert played.loss == pytest.approx(found.P_loss, rel=0.03)


# The paper's tables


def test_table_8():
    found = bulk_queue(EQ7, EQ8, 60)
    assert round(found.L, 6) == 0.005699  # printed .005698, cut off
    assert found.L == pytest.approx(0.0056986, abs=5e-8)
    assert found.W == pytest.approx(0.005388, abs=1e-6)
    assert found.Lq == pytest.approx(0.000025, abs=1e-6)
    assert found.Wq == pytest.approx(0.000024, abs=1e-6)
    assert found.P_busy == pytest.approx(0.005673, abs=5e-7)
    # Printed as what an arrival finds; that is another number.
    assert found.P_busy_arrival == pytest.approx(0.006015, abs=5e-7)
    # The printed loss belongs to room for one, not for 60.
    assert found.P_loss < 1e-100
    assert bulk_queue(EQ7, EQ8, 1).P_loss == pytest.approx(0.000027, abs=5e-7)


def test_table_9():
    found = bulk_queue(EQ7, BATCH, 60, a=20)
    assert found.states == 6506
    assert found.Lq == pytest.approx(9.500, abs=5e-4)
    assert found.Wq == pytest.approx(8.9837, abs=1e-3)
    # As printed: a batch of 20 counted as one.
    assert found.Lq + found.P_busy == pytest.approx(9.5324, abs=5e-5)
    assert (found.Lq + found.P_busy) / found.rate == pytest.approx(9.0134, abs=1e-3)
    # As it is.
    assert found.L == pytest.approx(10.147, abs=1e-3)
    assert found.W == pytest.approx(9.595, abs=1e-3)
    assert found.P_busy == pytest.approx(0.0324, abs=5e-5)  # printed .00324
    assert found.P_loss < 1e-80
    slower = bulk_queue(EQ7.scaled(1.1049 / EQ7.mean), BATCH, 60, a=20)
    assert slower.W == pytest.approx(11.107, abs=0.003)


def test_table_10():
    found = ggc(1000 / 9.778, 20.7137, 10_000)
    assert found.L == pytest.approx(2118.40, abs=0.01)
    assert (found.W, found.Wq, found.P_wait) == (20.7137, 0.0, 0.0)
    assert gg_infinity(1000 / 11.8092, 20.7137).L == pytest.approx(1754.03, abs=0.01)
    # Equation 12's 2119 servers are the edge of stability, not a size to choose.
    edge = ggc(1000 / 9.778, 20.7137, 2119)
    assert edge.utilisation == pytest.approx(0.9997, abs=5e-5) and edge.Lq > 1000


def test_equation_11_needs_no_fit():
    for K in (10, 20, 40, 80):
        exact = bulk_queue(EQ7, BATCH, 2 * K, a=K)
        law = linear_law(K, exact.rate, BATCH.mean)
        assert law.L == pytest.approx(exact.L, rel=2e-3)
        assert law.W == pytest.approx(exact.W, rel=2e-3)
    law = linear_law(8000, 1 / 1.1049, 0.6121)
    assert law.L == pytest.approx(3994.47, rel=2e-3)
    assert law.W == pytest.approx(4413.9, rel=2e-3)


# Many servers


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (3, 2.5), (20, 18.0)])
def test_mmc_is_exact(servers, load):
    terms = [load**k / math.factorial(k) for k in range(servers)]
    full = load**servers / math.factorial(servers) / (1 - load / servers)
    wait = full / (sum(terms) + full)
    found = ggc(load, 1.0, servers)
    assert found.P_wait == pytest.approx(wait, rel=1e-10)
    assert found.Lq == pytest.approx(wait * load / (servers - load), rel=1e-10)


def test_infinite_servers_have_the_variance_of_their_input():
    """Poisson input: variance is the mean. Other input: played through."""
    service = Erlang(2, 0.1)
    assert gg_infinity(5.0, service, arrival_scv=1.0).spread == pytest.approx(1.0)
    gaps = fit_two_moments(0.02, 4.0)
    rng = np.random.default_rng(3)
    starts = np.cumsum(gaps.sample(400_000, rng))
    ends = np.sort(starts + service.sample(len(starts), rng))
    looks = np.linspace(300, starts[-1] - 10, 20_000)
    inside = np.searchsorted(starts, looks) - np.searchsorted(ends, looks)
    told = gg_infinity(50.0, service, arrival_scv=4.0)
    assert inside.mean() == pytest.approx(told.L, rel=0.01)
    assert inside.var() / inside.mean() == pytest.approx(told.spread, rel=0.1)
    assert np.mean(inside > told.peak) < 0.006


# The window array


SPAN = calibrated_span()


@pytest.mark.parametrize(
    ("size", "timeout"),
    [
        (13, 22.0),
        *(
            pytest.param(size, timeout, marks=pytest.mark.slow)
            for size, timeout in ((10, 22.0), (13, 10.0), (17, 22.0))
        ),
    ],
)
def test_the_window_array_as_played(size, timeout):
    trace = generate_trace(seed=5, span_cap=None, instances=30_000, kinds=25_000)
    told = window_array(1000 / 9.778, size, timeout, calibrated(), SPAN)
    rows = play_windows(trace, size, timeout)
    opened, closed = (np.array([row[at] for row in rows]) for at in (1, 2))
    begun = trace.event_ts[trace.service == 0]
    low, high = int(begun[0]) + 60_000_000, int(begun[-1]) - 1_000_000
    rate = np.sum((begun > low) & (begun <= high)) / (high - low) * 1e6
    scale = rate / told.rate
    inside = (np.clip(closed, low, high) - np.clip(opened, low, high)).sum() / (high - low)
    assert inside == pytest.approx(told.windows * scale, rel=0.01)
    held = sum(
        (np.clip(row[2], low, high) - np.clip(trace.arrival_ts[row[4]], low, high)).sum()
        for row in rows
    ) / (high - low)
    assert held == pytest.approx(told.tuples * scale, rel=0.03)
    assert (closed - opened).mean() / 1e6 == pytest.approx(told.life, rel=0.01)
    first = {}
    for row in sorted(rows, key=lambda row: row[1]):
        first.setdefault(row[0], row)
    whole = [len(row[4]) == trace.degree[row[4][0]] for row in first.values()]
    assert np.mean(whole) == pytest.approx(told.complete, abs=0.01)
    assert np.mean([row[3] == "full" for row in first.values()]) == pytest.approx(
        told.full, abs=0.01
    )


def test_smaller_windows_may_hold_more():
    small, large = (
        window_array(1000 / 9.778, size, 22.0, calibrated(), SPAN).windows for size in (10, 13)
    )
    assert small == pytest.approx(2767, rel=0.01)
    assert large == pytest.approx(1952, rel=0.01)


def test_windows_of_one_close_at_once():
    told = window_array(10.0, 1, 5.0, ([1], [1.0]), SPAN)
    assert told.first_life == 0.0 and told.full == 1.0


@pytest.mark.parametrize(
    ("size", "timeout", "count", "mean", "near"),
    [
        *((size, 10.0, count, 3.0, 0.1) for size, count in ((1, 3), (2, 4), (3, 6))),
        (5, 1.0, 3, 40.0, 0.1),
        (2, 4.0, 3, 10.0, 0.35),  # a few events are not spaced evenly
    ],
)
def test_later_windows_fill_up_too_and_are_no_more_than_events(size, timeout, count, mean, near):
    """Windows of many instances, one after the other, opened and closed as their events come."""
    span = Erlang(3, 3 / mean)
    random = np.random.default_rng(1)
    spans = span.ppf(random.uniform(size=4000))
    lasting, number = 0.0, 0
    for between, last in zip(random.uniform(size=(4000, count - 2)), spans, strict=True):
        opened, held = -math.inf, size
        for t in np.sort([0.0, *between * last, last]):
            if held == size or t >= opened + timeout:
                lasting += 0.0 if held == size else timeout
                opened, held, number = t, 0, number + 1
            held += 1
            lasting += t - opened if held == size else 0.0
        lasting += 0.0 if held == size else timeout
    told = window_array(1.0, size, timeout, ([count], [1.0]), span)
    assert told.windows == pytest.approx(lasting / 4000, rel=near, abs=1e-9)
    assert 1 + told.later == pytest.approx(number / 4000, rel=near)


def test_many_degrees_are_grouped_without_harm():
    rng = np.random.default_rng(1)
    counts, times = np.unique(rng.geometric(0.003, 20_000), return_counts=True)
    share = times / times.sum()
    told = window_array(1.0, 300, 20.0, (counts, share), SPAN)
    some = counts <= 300
    assert told.complete == pytest.approx(share[some].sum() * float(SPAN.cdf(20.0)), rel=1e-9)
    assert 0 < told.windows < 45


# The join


@pytest.mark.parametrize(
    ("rates", "windows", "base", "each"),
    [
        ((20, 20), (5, 5), 0.002, 0.0001),
        ((50, 10), (2, 8), 0.001, 0.0001),
        ((40, 20), (10, 1), 0.004, 0.00006),
        ((10, 60), (4, 4), 0.001, 0.00015),
    ],
)
def test_the_join_as_played(rates, windows, base, each):
    told = windowed_join(rates, windows, base, each, selectivity=0.01, tuple_bytes=100)
    waits = [play_join(rates, windows, base, each, 4_000, seed) for seed in (1, 2, 3)]
    assert told.Wq == pytest.approx(np.mean(waits), rel=0.15)
    assert told.pollaczek_khinchine < told.Wq
    assert told.state == rates[0] * windows[0] + rates[1] * windows[1]
    assert told.output == pytest.approx(0.01 * rates[0] * rates[1] * sum(windows))
    assert told.storage == told.state * 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "windows", "base", "each"),
    [
        ((20, 20), (5, 5), 0.002, 0.00008),
        ((30, 30), (3, 3), 0.001, 0.00013),
        ((40, 20), (10, 1), 0.004, 0.00006),
        ((100, 100), (1, 1), 0.0005, 0.000035),
        ((10, 60), (4, 4), 0.001, 0.00015),
        ((50, 50), (2, 2), 0.0004, 0.00008),
    ],
)
def test_the_join_as_played_at_length(rates, windows, base, each):
    told = windowed_join(rates, windows, base, each)
    waits = [play_join(rates, windows, base, each, 40_000, seed) for seed in range(5)]
    assert told.Wq == pytest.approx(np.mean(waits), rel=0.1)


# Load shedding


def test_shedding_finds_the_rate():
    found = max_rate_for_loss(poisson(2.0), Erlang(1, 1.0), 5, 0.01)
    again = bulk_queue(poisson(2.0 * found.factor), Erlang(1, 1.0), 5)
    assert again.P_loss == pytest.approx(0.01, rel=1e-6)
    assert found.shed == pytest.approx(1 - found.factor)
    spare = max_rate_for_loss(poisson(0.01), Erlang(1, 1.0), 5, 0.01)
    assert spare.shed == 0.0 and spare.rate == pytest.approx(found.rate, rel=1e-6)


# Wrong calls


def test_bad_matrices_and_rooms_are_refused_by_name():
    with pytest.raises(InvalidCall, match=r"D0\[0, 1\] is -0.5"):
        MAP([[-1.0, -0.5], [0.0, -1.0]], [[1.5, 0.0], [0.0, 1.0]])
    with pytest.raises(InvalidCall, match=r"D1\[1, 0\] is -1"):
        MAP([[-1.0, 0.0], [0.0, -1.0]], [[1.0, 0.0], [-1.0, 2.0]])
    with pytest.raises(InvalidCall, match=r"row 0 of D0 \+ D1 sums to"):
        MAP([[-1.0]], [[0.9]])
    with pytest.raises(InvalidCall, match="would never start"):
        bulk_queue(poisson(1.0), Erlang(1, 1.0), 5, a=10)
    with pytest.raises(InvalidCall, match="fit_two_moments"):
        bulk_queue(poisson(1.0), 3.0, 5)
    with pytest.raises(InvalidCall, match="states"):
        bulk_queue(poisson(1.0), Erlang(100, 1.0), 10_000)
    with pytest.raises(AnabranchError, match="2 sets of states"):
        stationary(np.array([[-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    with pytest.raises(InvalidCall, match="cannot keep up"):
        windowed_join((100, 100), (10, 10), 0.01, 0.01)
    with pytest.raises(InvalidCall, match="rate must be a finite number above 0, got '10'"):
        window_array("10", 3, 5.0, ([2], [1.0]), Erlang(2, 1.0))


def test_phases_never_entered_do_no_harm():
    """Equation 8 has a fourth phase that nothing leads to."""
    three = PhaseType([1, 0, 0], EQ8.T[:3, :3])
    assert bulk_queue(EQ7, EQ8, 20).W == pytest.approx(bulk_queue(EQ7, three, 20).W, rel=1e-12)


# Queues that cannot keep up


@pytest.mark.parametrize("room", [60, 350, 500, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("load", [0.5, 0.999, 1.0, 1.01, 1.5, 3.0, 15.0, 1e6])
def test_overloaded_queues_are_the_textbook(load, room):
    """M/M/1/K, by weights relative to the likelier end."""
    found = bulk_queue(poisson(load), Erlang(1, 1.0), room)
    n = np.arange(room + 2)
    weights = np.exp((n - (room + 1) * (load > 1)) * math.log(load))
    p = weights / weights.sum()
    assert found.P_loss == pytest.approx(p[-1], rel=1e-9)
    assert found.L == pytest.approx(float(n @ p), rel=1e-9)
    assert found.P_busy == pytest.approx(1 - p[0], rel=1e-9)
    assert found.effective_rate == pytest.approx(1 - p[0], rel=1e-9)  # what is served


@pytest.mark.parametrize(
    "arrivals, service, room, a, b",
    [
        (renewal(Erlang(3, 30.0).phase_type()), fit_two_moments(1.0, 4.0), 60, 1, 1),
        (BURSTS, Erlang(4, 0.4), 45, 2, 3),
        (poisson(50.0), Erlang(9, 9.0), 40, 5, 5),
    ],
)
def test_overloaded_chains_by_both_solvers(arrivals, service, room, a, b):
    chain = _Chain(arrivals, getattr(service, "phase_type", lambda: service)(), room, a, b)
    generator = chain.generator()
    eliminated = gth(generator.toarray())
    for crowded in (False, True):
        assert sparse_lu(generator, crowded=crowded) == pytest.approx(eliminated, rel=1e-9)


@pytest.mark.parametrize("arrivals", [poisson(4.0), BURSTS.faster(20.0)])
def test_a_crowded_chain_is_solved_from_either_end(arrivals):
    generator = _Chain(arrivals, Erlang(2, 2.0).phase_type(), 600, 1, 1).generator()
    for crowded in (False, True):
        steady = sparse_lu(generator, crowded=crowded)
        assert np.abs(steady @ generator.toarray()).max() < 1e-12
        assert steady.sum() == pytest.approx(1)
        assert steady[-4:].sum() > 0.05


@pytest.mark.parametrize("size, solve", [(101, gth), (801, sparse_lu)])
def test_answers_are_put_back_into_the_equations(size, solve, monkeypatch):
    """Both ends are next to never visited."""
    chain = np.zeros((size, size))
    middle = size // 2
    for n in range(size - 1):
        chain[n, n + 1], chain[n + 1, n] = (1e-9, 1e9) if n >= middle else (1e9, 1e-9)
    assert solve(chain)[middle] == pytest.approx(1)
    monkeypatch.setattr("papers.dssis.queueing.stationary._RESIDUAL", -1.0)  # none is good enough
    with pytest.raises(AnabranchError, match=f"the chain of {size} states could not be solved"):
        solve(chain)


@pytest.mark.parametrize(
    "room, loss",
    [
        (60, 0.9),
        *(
            pytest.param(room, loss, marks=pytest.mark.slow)
            for room, loss in ((350, 0.9), (500, 0.5), (1000, 0.3), (500, 0.2))
        ),
    ],
)
def test_shedding_of_an_overload(room, loss):
    found = max_rate_for_loss(poisson(1.0), Erlang(1, 1.0), room, loss)
    assert found.factor == pytest.approx(1 / (1 - loss), rel=1e-6)  # 1 - 1/r for large rooms
    assert found.loss == pytest.approx(loss)


def test_shedding_says_what_it_cannot_reach():
    nearly = max_rate_for_loss(poisson(1.0), Erlang(1, 1.0), 5, 1 - 2.0**-50)
    assert nearly.factor == pytest.approx(2.0**50, rel=1e-6)
    for loss, message in (
        (1e-60, "a loss of 1e-60 is out of reach: with input e^60 times as slow"),
        (1 - 1e-17, "loss must be a number between 0 and 1, got 1.0"),
        (0, "loss must be a number between 0 and 1, got 0"),
        (math.nan, "loss must be a number between 0 and 1, got nan"),
        ("0.1", "loss must be a number between 0 and 1, got '0.1'"),
    ):
        with pytest.raises(InvalidCall, match=message.replace("^", r"\^")):
            max_rate_for_loss(poisson(1.0), Erlang(1, 1.0), 1, loss)
