"""The simulated cluster: conservation, exactness against brute force, reasons of decisions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from anabranch.errors import InvalidCall
from anabranch.plans.costs import copies
from anabranch.plans.hashed import Broadcast
from anabranch.plans.policies import POLICIES
from anabranch.plans.segments import Segments
from benchmarks.origin import package_hash
from papers.vico.cli import app
from papers.vico.simulation import METHODS, RECIPES, Method, Settings, compute, simulate
from papers.vico.simulation.drawing import draw
from papers.vico.simulation.figures import Figure
from papers.vico.simulation.hosts import Cluster
from papers.vico.simulation.workload import draw_hosts, draw_workload

SMALL = Settings(hosts=6, operators=2, rates=(1.0, 4.0), seconds=240, warmup=60, window=(20, 30))
PLANS = ("SSP", "CSP", "grid", "LLF-Distribution")
ADAPTIVE = [name for name, method in METHODS.items() if method.policies]


def pairs_one_by_one(settings: Settings) -> int:
    """Joinable pairs of all operators, looking at each pair alone."""
    work = draw_workload(settings)
    w_left, w_right = settings.window
    total = 0
    for o in range(settings.operators):
        left = work.arriving(0, o, 0, settings.seconds).stamp
        right = work.arriving(1, o, 0, settings.seconds).stamp
        apart = np.subtract.outer(left, right)
        total += int(((-w_left <= apart) & (apart <= w_right)).sum())
    return total


@pytest.mark.parametrize("delay", [0, 4, 25])
def test_with_enough_processor_every_pair_is_compared_once(delay):
    plenty = replace(SMALL, beta=1e6, delay=delay, seconds=150)
    expected = pairs_one_by_one(plenty)
    assert expected > 5000
    for method in PLANS:
        run = simulate(plenty, method)
        assert run.recall == 1.0, method
        assert run.done.sum() == run.due.sum() == expected, method
        assert run.taken_in == 1.0


CHANGING = Settings(
    hosts=4,
    eras=((12.0, 2.0), (2.0, 12.0)),
    redraw=100,
    seconds=600,
    warmup=60,
    window=(20, 15),
    beta=1e5,
    delay=3,
)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_plan_changes_lose_and_repeat_nothing(method):
    run = simulate(CHANGING, method)
    assert run.done.sum() == run.due.sum() == pairs_one_by_one(CHANGING)
    if method != "CSP-segmentAdapt":  # with processors idle, no other length can gain
        assert len(run.changes) >= 3


def test_without_the_rule_of_ownership_pairs_would_be_compared_twice(monkeypatch):
    def all_owned(operator):
        return np.ones((64, 64), bool)

    monkeypatch.setattr("papers.vico.simulation.runs._Operator.own", all_owned)
    run = simulate(CHANGING, "SSP-roleAdapt")
    assert run.done.sum() > 1.01 * run.due.sum()


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("receive", ["first", "shared"])
def test_overload_loses_pairs_but_makes_none(method, receive):
    tight = replace(SMALL, rates=(5.0, 20.0), beta=0.5, redraw=80, receive=receive, delay=2)
    run = simulate(tight, method)
    assert 0 < run.recall < 0.5
    assert (run.done >= 0).all()
    assert run.done.sum() <= run.due.sum()
    assert run.admitted <= run.sent
    hosts = draw_hosts(tight)
    units = run.done.sum(axis=1) * tight.compare_cost
    assert (units <= hosts.speed.sum() * (1 + 1e-9)).all()


def test_pairs_done_waiting_and_lost_are_pairs_met():
    settings = replace(SMALL, operators=1, beta=0.2, queue=5)
    cluster = Cluster(settings, draw_hosts(settings))
    arrivals = np.zeros((100, 1, 2, 1, settings.hosts, 1), np.int32)
    arrivals[..., 0, 0] = 2  # all to the first host, which has room for them
    done = cluster.advance(0, arrivals, np.ones((1, 1, 1), bool))
    room = settings.queue * cluster.hosts.speed[0] / settings.compare_cost
    assert cluster.received.sum() == 400
    met = sum(4 * (min(n, 30) + 1) + 4 * min(n, 20) for n in range(100))
    assert done.sum() + cluster.waiting.sum() + cluster.lost.sum() == pytest.approx(met)
    assert cluster.waiting.sum() <= room * (1 + 1e-9)


@pytest.mark.parametrize(
    ("choice", "limit"),
    [
        ({"link": (0.8, 0.8)}, 10),  # 0.8 Mbit/s carry ten frames of 10 kB
        ({"beta": 0.1, "cpu": (1000.0, 1000.0)}, 10),  # 100 units receive ten frames
    ],
)
def test_a_host_takes_in_what_link_and_processor_allow(choice, limit):
    settings = Settings(hosts=1, rates=(50.0, 50.0), seconds=100, warmup=10, **choice)
    run = simulate(settings, "SSP")
    assert run.admitted == limit * 100


def test_a_host_holds_what_memory_allows():
    settings = Settings(hosts=1, rates=(50.0, 50.0), seconds=100, warmup=10, memory=(1.0, 1.0))
    cluster = Cluster(settings, draw_hosts(settings))
    arrivals = np.full((100, 1, 2, 1, 1, 1), 50, np.int32)
    for second in range(100):
        cluster.advance(second, arrivals[second : second + 1], np.ones((1, 1, 1), bool))
        assert cluster.held.sum() == cluster.stored.sum() <= 100


@pytest.mark.parametrize("method", ["SSP", "CSP", "grid"])
@pytest.mark.parametrize(("hosts", "segment"), [(4, 10), (12, 20), (30, 10)])
def test_copies_are_those_of_the_formulas(method, hosts, segment):
    settings = Settings(
        hosts=hosts,
        eras=((20.0, 10.0),),
        segment=segment,
        seconds=2000,
        warmup=100,
        shares="equal",
        beta=100,
    )
    run = simulate(settings, method)
    plan = run.entries[0][0].plan
    predicted = copies(plan, (20.0, 10.0), settings.window_us) / 30
    assert run.copies_per_frame == pytest.approx(predicted, rel=0.03)


def test_the_same_seed_gives_the_same_run():
    for method in ("grid", "LLF-Diffusion", "CSP-fullAdapt"):
        settings = replace(SMALL, rates=(5.0, 40.0), redraw=60, beta=1.0)
        first, again = simulate(settings, method), simulate(settings, method)
        np.testing.assert_array_equal(first.done, again.done)
        assert first.entries == again.entries
        assert not np.array_equal(first.done, simulate(replace(settings, seed=1), method).done)


def test_methods_meet_the_same_hosts_and_frames():
    larger = replace(SMALL, hosts=12)
    assert set(draw_hosts(SMALL).speed) < set(draw_hosts(larger).speed)
    assert np.array_equal(draw_workload(SMALL).counts, draw_workload(larger).counts)


def test_only_pairs_on_one_host_meet_under_diffusion():
    plenty = replace(SMALL, beta=1e6, operators=1, seconds=600, rates=(4.0, 4.0))
    recall = simulate(plenty, "LLF-Diffusion").recall
    assert 0.5 / plenty.hosts < recall < 2 / plenty.hosts


@pytest.mark.parametrize("method", ["SSP", "CSP"])
def test_the_master_is_spread_and_the_other_stream_copied(method):
    uneven = replace(SMALL, eras=((2.0, 20.0),), operators=1, shares="equal")
    copies_by = {
        master: simulate(replace(uneven, master=master), method).copies_per_frame
        for master in ("left", "right", "faster")
    }
    # Of 22 frames a second 20 are copied if the slower stream is the master, else 2.
    assert copies_by["faster"] == copies_by["right"] < copies_by["left"] / 2


SWAPPING = Settings(eras=((40.0, 4.0), (4.0, 40.0)), redraw=500, seconds=2000, warmup=200, beta=1.0)


def test_roles_follow_the_rates():
    run = simulate(SWAPPING, "SSP-roleAdapt")
    # The slower stream is the one that is copied.
    assert [change.plan.side for change in run.changes] == ["left", "right", "left"]
    for change in run.changes:
        assert change.cause["rule"] == "role"
        figures = change.cause["figures"]
        fast, slow = (
            max(figures["left rows"], figures["right rows"]),
            min(figures["left rows"], figures["right rows"]),
        )
        assert fast > 1.35 * slow
        assert figures["instead"] < figures["copies"]
        # Within a minute of the rates' change.
        assert 0 < change.first * SWAPPING.report % SWAPPING.redraw <= 60
    assert run.throughput > 1.1 * simulate(SWAPPING, "SSP").throughput
    # One plan is live again long before the next change.
    assert run.entries[0][-1].live == (run.entries[0][-1].epoch,)


def test_full_adaptation_changes_roles_and_segments():
    busy = replace(SWAPPING, eras=((50.0, 30.0), (30.0, 50.0)), queue=300)
    run = simulate(busy, "CSP-fullAdapt")
    assert {change.cause["rule"] for change in run.changes} == {"role", "segment"}
    assert all(isinstance(change.plan, Segments) for change in run.changes)


@pytest.mark.parametrize("method", ["SSP-roleAdapt", "CSP-roleAdapt"])
def test_a_rate_that_wobbles_by_a_fifth_changes_nothing(method):
    for left in (0.8, 1.2):
        wobbling = Settings(
            eras=((40.0, 40.0), (40.0 * left, 40.0)), redraw=50, seconds=3000, beta=1.0
        )
        assert simulate(wobbling, method).changes == ()


def test_hosts_report_a_shape_that_settles_once():
    steady = Settings(rates=(20.0, 20.0), seconds=3000, beta=1.0)
    run = simulate(steady, "SSP-shapeAdapt")
    assert len(run.changes) == 1 and not isinstance(run.changes[0].plan, Broadcast)


def test_every_adaptive_method_names_policies_there_are():
    assert {name for method in METHODS.values() for name in method.policies} <= set(POLICIES)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"hosts": 0}, "hosts must be a whole number of at least 1, got 0"),
        ({"beta": 0}, "beta must be above 0"),
        ({"rates": (5.0, 1.0)}, "rates must be a range above 0, lowest first, got 5 to 1"),
        ({"receive": "last"}, "receive must be one of first, shared"),
        ({"master": "both"}, "master must be one of left, right, faster"),
        ({"warmup": 5000}, "warmup=5000 leaves nothing of 5000 seconds"),
        ({"segment_step": 1.0}, "segment_step must be above 1"),
        ({"weights": (1.0, 1.0, 0.0)}, "weights must be at least 0 and sum to 1"),
        ({"window": (-1, 0)}, "window must be two lengths of at least 0"),
        ({"delay": -1}, "delay must be a whole number of at least 0"),
    ],
)
def test_bad_settings_are_refused(choice, says):
    with pytest.raises(InvalidCall, match=says.split("(")[0]):
        Settings(**choice)


def test_unknown_methods_are_refused():
    with pytest.raises(InvalidCall, match="unknown method 'best'; known are SSP"):
        simulate(SMALL, "best")
    with pytest.raises(InvalidCall, match="unknown methods"):
        compute(replace(RECIPES["9"], methods=("best",)))
    with pytest.raises(InvalidCall, match="seeds must be at least 1"):
        compute(RECIPES["9"], seeds=0)


def test_a_method_of_ones_own_runs():
    mine = Method("mine", "grid", ("weights",))
    assert simulate(SMALL, mine).method is mine


def test_more_hosts_help_plans_and_not_whole_operators():
    recipe = replace(RECIPES["9"].quick, sizes=((20, 20), (80, 20)))
    figure = compute(recipe, seeds=1)
    small, large = {}, {}
    for point in figure.points:
        (small if point.hosts == 20 else large)[point.method] = point.mean
    for method in ("SSP", "CSP", "grid"):
        assert large[method] > 3 * small[method]
        assert large[method] > 2 * large["LLF-Distribution"]
    assert large["LLF-Distribution"] < 1.6 * small["LLF-Distribution"]


def test_figures_are_written(tmp_path):
    tiny = ["--quick", "--seeds", "2", "--seconds", "600", "--warmup", "60", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["--figure", "11", *tiny])
    assert result.exit_code == 0, result.output
    assert "SSP-roleAdapt" in result.output and "times SSP" in result.output
    data = json.loads((tmp_path / "vico-11.json").read_text())
    assert data["settings"]["seconds"] == 600
    assert len(data["series"]["SSP"]) == 2 and len(data["series"]["SSP"][0]) == 12
    assert data["stories"]["SSP"] == ["batch 0: starts with plan 0, broadcast(10, side=right)."]
    assert (tmp_path / "vico-11.png").stat().st_size > 10_000
    assert data.pop("origin")["package"] == package_hash()
    assert json.loads(json.dumps(Figure.of_form(data).to_dict())) == data


def test_the_command_refuses_what_it_cannot_do(tmp_path):
    for words, says in (
        (["--figure", "13"], "there is no figure '13'"),
        (["--figure", "9", "--beta", "-1"], "beta must be above 0"),
        (["--figure", "9", "--hosts", "ten"], "hosts must be whole numbers"),
        (["--figure", "9", "--methods", "best"], "unknown methods"),
    ):
        result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
        assert result.exit_code == 2
        assert says in result.output
    assert not list(tmp_path.iterdir())


def test_growth_is_drawn(tmp_path):
    recipe = replace(RECIPES["growth"].quick, sizes=((5, 1), (10, 2)), methods=("grid",))
    assert draw(compute(recipe, seeds=1), tmp_path / "growth.png").exists()
