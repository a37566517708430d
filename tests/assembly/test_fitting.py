"""Fitted distributions against closed forms, simulation, and the numbers the paper prints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import expm

from anabranch.assembly.fitting import (
    Erlang,
    HyperErlang,
    PhaseType,
    Survival,
    WithZeros,
    expectation,
    fit_erlang,
    fit_hyper_erlang,
    fit_three_moments,
    fit_two_moments,
    moments_of,
)
from anabranch.errors import InvalidCall
from papers.dssis.acyclic import canonical, fit_acyclic
from papers.dssis.equations import EQ4, EQ5, EQ7, EQ8
from tests.examples import examples

ZERO = WithZeros(0.2, Erlang(3, 2.0))
ALL = [EQ4, EQ5, EQ7, EQ8, ZERO, PhaseType([0.5, 0.5], [[-3.0, 1.0], [2.0, -4.0]])]


# The paper's printed numbers


def test_equation_4():
    assert [round(float(EQ4.cdf(n)), 4) for n in (12, 13, 14)] == [0.7186, 0.9199, 0.9857]
    constant = 100 * np.log10(8.7963) - np.log10(np.e) * _lgamma(100)
    assert 10 ** (constant + 62) == pytest.approx(2.884, abs=0.001)


def test_equation_5():
    assert EQ5.mean == pytest.approx(11.253, abs=5e-4)
    assert float(EQ5.cdf(22)) == pytest.approx(0.9503, abs=5e-5)
    assert float(EQ5.ppf(0.95)) == pytest.approx(21.97, abs=5e-3)


def test_equation_5_without_its_brackets_gives_another_timeout():
    def printed(x):
        inner = sum(np.exp(-0.3666 * x) * 0.3666 * x**n / _factorial(n) for n in range(4))
        return 1 - (0.0247 * np.exp(-0.0404 * x) + 0.9753 * inner)

    from scipy.optimize import brentq

    assert brentq(lambda x: printed(x) - 0.95, 15, 60) == pytest.approx(28.7, abs=0.05)


def test_equations_6_and_8_are_no_rate_matrices():
    with pytest.raises(InvalidCall, match=r"T\[0, 1\] is -0.0329"):
        PhaseType([1, 0], [[-0.1452, -0.0329], [0, -0.1191]])
    repaired = PhaseType([1, 0], [[-0.1452, 0.0329], [0, -0.1191]])
    assert repaired.mean == pytest.approx(8.79, abs=5e-3)  # printed: 9.778
    assert EQ8.mean == pytest.approx(0.0053644, abs=5e-8)


def test_equation_7():
    printed = PhaseType([1, 0], [[-1.1215, 0.0001], [0, -0.0021]])
    assert printed.mean == pytest.approx(0.9341, abs=1e-4)  # printed: .9457
    assert EQ7.mean == pytest.approx(0.9457, abs=2e-4)
    assert EQ7.scv == pytest.approx(58, abs=0.5)


# Closed forms


def test_erlang_is_scipys_gamma():
    x = np.linspace(0, 30, 301)
    truth = stats.gamma(100, scale=1 / 8.7963)
    np.testing.assert_allclose(EQ4.cdf(x), truth.cdf(x), rtol=1e-12)
    np.testing.assert_allclose(EQ4.pdf(x), truth.pdf(x), rtol=1e-9, atol=1e-300)
    assert (EQ4.mean, EQ4.scv) == pytest.approx((truth.mean(), 1 / 100))


@pytest.mark.parametrize("fit", ALL, ids=lambda fit: type(fit).__name__)
def test_moments_density_and_quantile_agree(fit):
    p = np.array([0.3, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(fit.cdf(fit.ppf(p)), p, rtol=1e-9)
    assert float(fit.cdf(-1.0)) == 0.0 and float(fit.pdf(-1.0)) == 0.0
    assert np.shape(fit.ppf(0.5)) == () and np.shape(fit.cdf([1.0, 2.0])) == (2,)
    low, high = (float(value) for value in fit.ppf([0.4, 0.8]))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = low + (high - low) * (nodes + 1) / 2
    mass = float(fit.pdf(x) @ weights) * (high - low) / 2
    assert mass == pytest.approx(0.4, rel=1e-6)
    drawn = fit.sample(200_000, seed=11)
    assert drawn.mean() == pytest.approx(fit.mean, rel=6 * np.sqrt(fit.scv / 200_000))
    gap = stats.kstest(drawn[drawn > 0][:5000], lambda x: _above_zero(fit, x)).pvalue
    assert gap > 1e-4
    assert np.array_equal(drawn[:100], fit.sample(200_000, seed=11)[:100])


@pytest.mark.parametrize("fit", [EQ7, EQ8, ALL[-1], EQ5.phase_type()], ids=str)
def test_phase_type_is_the_matrix_exponential(fit):
    for x in (0.0, 0.1 * fit.mean, fit.mean, 7 * fit.mean):
        exact = fit.alpha @ expm(fit.T * x)
        assert float(fit.sf(x)) == pytest.approx(float(exact.sum()), rel=1e-9, abs=1e-13)
        assert float(fit.pdf(x)) == pytest.approx(float(exact @ fit.exit), rel=1e-9, abs=1e-9)


def test_hyper_erlang_is_its_phase_type():
    x = np.linspace(0, 80, 200)
    np.testing.assert_allclose(EQ5.phase_type().cdf(x), EQ5.cdf(x), atol=1e-13)
    assert EQ5.phase_type().moment(3) == pytest.approx(EQ5.moment(3))


@settings(max_examples=examples(100), deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(0.005, 200))
def test_two_moments_are_met(mean, scv):
    fit = fit_two_moments(mean, scv)
    assert fit.mean == pytest.approx(mean, rel=1e-9)
    assert fit.scv == pytest.approx(scv, rel=1e-6)


NEARLY = st.floats(0, 1e-6)
SHARES = st.one_of(st.floats(0, 1), NEARLY, NEARLY.map(lambda x: 1 - x))
# Rates far apart, and next to alike, as they are near a squared variation of 1.
RATES = st.one_of(st.floats(-12, 12), st.floats(-1e-6, 1e-6)).map(lambda power: 10.0**power)


@settings(max_examples=examples(250), deadline=None)
@given(SHARES, RATES, RATES, SHARES, SHARES.map(lambda share: min(share, 0.999)))
@example(1.0, 1.0, 1.0, 1.0, 0.0)
@example(0.001953125, 1.0, 1.0, 1.0, 0.0)  # a squared variation of 1 - 8e-6
@example(1e-6, 1.0, 1.0, 1.0, 0.0)  # the equation's coefficients are rounding alone
@example(0.9999993315490587, 1.0, 10**10.46875, 1.0, 0.0)  # a phase next to no time
@example(1.2e-38, 1e-9, 1.0, 1.0, 0.0)  # exponential but for the third moment
def test_three_moments_of_any_two_phases_are_met(share, x, y, on, back):
    """Phases that lead to each other or end, whatever their rates."""
    truth = PhaseType([share, 1 - share], [[-x, on * x], [back * y, -y]])
    wanted = [truth.moment(order) for order in (1, 2, 3)]
    found = fit_three_moments(*wanted)
    assert [found.moment(order) for order in (1, 2, 3)] == pytest.approx(wanted, rel=1e-13)
    assert np.all(found.alpha >= 0) and np.all(np.diag(found.T) < 0)


@pytest.mark.parametrize(
    "moments",
    [
        (1.0, 1.49, 3.0),  # less variation than two equal phases
        (1.0, 2.5, 9.0),  # above the exponential: at least 1.5 m2^2 / m1
        (1.0, 1.8, 5.0),  # below it: between equal phases and a start at the first
        (1.0, 2.0, 5.9),
        (None, 2.0, 6.0),
        (1.0, "2", 6.0),
        (1.0, 2.0, np.inf),
        (1.0, -2.0, 6.0),
    ],
)
def test_moments_that_no_two_phases_have_are_refused(moments):
    with pytest.raises(InvalidCall, match=r"no two phases have|finite numbers above 0, got"):
        fit_three_moments(*moments)


def test_moments_of_data_feed_the_fit():
    truth = HyperErlang([0.8, 0.2], [1, 1], [2.0, 0.2])
    found = fit_three_moments(*moments_of(truth.sample(200_000, seed=2)))
    assert found.mean == pytest.approx(truth.mean, rel=0.02)
    assert found.scv == pytest.approx(truth.scv, rel=0.05)


# Fitting


@pytest.mark.parametrize(
    "truth",
    [
        EQ4,
        EQ5,
        Erlang(1, 0.3),
        HyperErlang([0.5, 0.5], [30, 50], [30.0, 10.0]),
        HyperErlang([0.2, 0.3, 0.5], [1, 2, 5], [0.01, 1.0, 10.0]),
    ],
    ids=["eq4", "eq5", "exponential", "two needles", "three branches"],
)
def test_hyper_erlang_finds_what_made_the_data(truth):
    data = truth.sample(15_000, seed=4)
    found = fit_hyper_erlang(data)
    assert len(found.weights) == len(truth.weights)
    x = truth.ppf(np.linspace(0.01, 0.99, 50))
    assert np.max(np.abs(found.cdf(x) - truth.cdf(x))) < 0.01
    assert float(np.mean(found.logpdf(data))) >= float(np.mean(truth.logpdf(data))) - 1e-3


def test_expectation_never_loses_likelihood():
    from anabranch.assembly.fitting.expectation import Candidates, run
    from anabranch.assembly.fitting.sample import read_sample

    data = EQ5.sample(3_000, seed=1)
    sample = read_sample(np.minimum(data, 15), data < 15, verb="test")
    found = Candidates.start([(1, 4), (2, 2, 3), (7,)], sample)
    before = np.full(3, -np.inf)
    for _ in range(60):
        found = run(found, sample, rounds=1)
        assert np.all(found.likelihood >= before - 1e-8 * np.abs(found.likelihood))
        before = found.likelihood.copy()


def test_counts_are_not_fitted_by_needles():
    counts = np.rint(EQ4.sample(20_000, seed=5))
    found = fit_hyper_erlang(counts, counts=True)
    seen = Survival(counts)
    assert len(found.weights) == 1
    assert seen.distance(found.cdf(seen.values + 0.5), counts=True) < 0.01
    assert len(fit_hyper_erlang(counts).weights) > 1


def test_a_large_sample_is_read_a_few_hundred_times(monkeypatch):
    """Shortened samples choose among the candidates; few see all of a hundred thousand points."""
    step, work = expectation._step, []

    def counted(found, sample, *more):
        work.append(found.weights.size * len(sample.values))  # terms that are computed
        step(found, sample, *more)

    monkeypatch.setattr(expectation, "_step", counted)
    data = HyperErlang([0.5, 0.5], [30, 50], [30.0, 10.0]).sample(100_000, seed=1)
    fit_hyper_erlang(data)
    assert work and sum(work) < 1000 * len(data)


def test_erlang_by_likelihood():
    found = fit_erlang(Erlang(7, 2.0).sample(50_000, seed=6))
    assert found.shape == 7 and found.rate == pytest.approx(2.0, rel=0.02)
    assert fit_erlang([3.0, 3.0]).scv < 0.001


@pytest.mark.parametrize(
    ("truth", "phases"),
    [
        pytest.param(
            PhaseType([0.3, 0.7], [[-0.5, 0.5], [0, -3.0]]), 2, id="two", marks=pytest.mark.slow
        ),
        pytest.param(EQ5, 5, id="eq5", marks=pytest.mark.slow),
        pytest.param(Erlang(4, 2.0), 4, id="erlang"),
    ],
)
def test_acyclic_fit(truth, phases):
    data = truth.sample(30_000, seed=7)
    found = fit_acyclic(data, phases)
    rates = -np.diag(found.T)
    assert np.all(np.diff(rates) >= -1e-12)
    assert found.mean == pytest.approx(data.mean(), rel=0.01)
    ours, best = (float(np.mean(np.log(fit.pdf(data)))) for fit in (found, truth))
    assert ours > best - 2e-3


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.1, 50)), min_size=2, max_size=5))
def test_canonical_form_is_the_same_distribution(parts):
    alpha = np.array([weight for weight, _ in parts])
    alpha /= alpha.sum()
    rates = np.array([rate for _, rate in parts])
    chain = PhaseType(alpha, np.diag(-rates) + np.diag(rates[:-1], 1))
    start, sorted_rates = canonical(alpha, rates)
    same = PhaseType(start, np.diag(-sorted_rates) + np.diag(sorted_rates[:-1], 1))
    for order in (1, 2, 3, 4):
        assert same.moment(order) == pytest.approx(chain.moment(order), rel=1e-8)


# Censoring


def test_without_cuts_survival_is_the_share_of_values():
    data = np.random.default_rng(1).integers(0, 20, 500)
    seen = Survival(data)
    for x in range(-1, 21):
        assert float(seen.cdf(x)) == pytest.approx(np.mean(data <= x), abs=1e-12)
    for p in (0.05, 0.5, 0.95, 1.0):
        assert float(seen.ppf(p)) == np.quantile(data, p, method="inverted_cdf")


def test_survival_by_hand():
    # Times 1 2+ 3 3 4+ 5: at risk 6, 4, 1 at the three times.
    seen = Survival([1, 2, 3, 3, 4, 5], complete=[1, 0, 1, 1, 0, 1])
    kept = np.cumprod([5 / 6, 2 / 4, 0 / 1])
    assert seen.values.tolist() == [1, 3, 5]
    np.testing.assert_allclose(1 - seen.probabilities, kept, atol=1e-12)
    assert float(Survival([1, 2], complete=[1, 0]).ppf(0.9)) == np.inf


def test_cut_durations_neither_pull_the_fit_down_nor_the_estimate():
    spans = EQ5.sample(40_000, seed=9)
    seen = np.minimum(spans, 15.0)
    found = fit_hyper_erlang(seen, complete=spans <= 15)
    naive = fit_hyper_erlang(seen)
    truth = float(EQ5.ppf(0.95))
    assert float(found.ppf(0.95)) == pytest.approx(truth, rel=0.03)
    assert float(naive.ppf(0.95)) < 0.8 * truth
    cuts = np.random.default_rng(2).exponential(30, len(spans))
    estimate = Survival(np.minimum(spans, cuts), complete=spans <= cuts)
    assert float(estimate.ppf(0.95)) == pytest.approx(truth, rel=0.03)
    assert float(np.quantile(np.minimum(spans, cuts), 0.95)) < 0.95 * truth


def test_learning_from_closed_windows_shrinks_the_timeout():
    """Each round the spans are cut by the last timeout, and the quantile learned from the rest."""
    spans = EQ5.sample(200_000, seed=10)
    timeout, rounds = 22.0, []
    for _ in range(5):
        timeout = float(np.quantile(spans[spans <= timeout], 0.95))
        rounds.append(timeout)
    assert rounds[:2] == pytest.approx([18.6, 16.7], abs=0.3)
    assert rounds[-1] == pytest.approx(13.7, abs=0.3)
    assert float(EQ5.cdf(rounds[-1])) == pytest.approx(0.73, abs=0.02)


# Wrong calls


def test_bad_data_and_bad_matrices_are_refused_by_name():
    with pytest.raises(InvalidCall, match=r"data\[1\] is nan"):
        fit_hyper_erlang([1.0, float("nan")])
    with pytest.raises(InvalidCall, match="1 of 2 values are not above"):
        fit_hyper_erlang([1.0, 0.0])
    with pytest.raises(InvalidCall, match="no complete value"):
        fit_erlang([1.0, 2.0], complete=[False, False])
    with pytest.raises(InvalidCall, match="row 0 of T sums to"):
        PhaseType([1, 0], [[-1, 1.5], [0, -1]])
    with pytest.raises(InvalidCall, match="from phase 0 of T the end is never reached"):
        PhaseType([1, 0, 0], [[-1, 1, 0], [1, -1, 0], [0, 0, -1]])
    with pytest.raises(InvalidCall, match=r"T\[1, 1\] is 0"):
        PhaseType([1, 0], [[-1, 1], [0, 0]])
    with pytest.raises(InvalidCall, match="alpha must sum to 1"):
        PhaseType([0.5, 0.4], [[-1, 1], [0, -1]])
    with pytest.raises(InvalidCall) as caught:
        HyperErlang([0.5, -0.5], [1, 2.5], [1, 0])
    assert len(caught.value.problems) == 3
    with pytest.raises(ValueError, match="probabilities"):
        EQ5.ppf(1.5)


def test_plot_draws_both(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    left, right = EQ5.plot(EQ5.sample(1000))
    assert left.get_ylabel() == "density" and right.get_ylabel() == "probability"


def _above_zero(fit, x):
    none = float(fit.cdf(0.0))
    return (fit.cdf(x) - none) / (1 - none)


def _lgamma(shape):
    from scipy.special import gammaln

    return float(gammaln(shape))


def _factorial(n):
    return float(np.prod(np.arange(1, n + 1)))
