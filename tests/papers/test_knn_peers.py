"""The simulated peers: exact with RAPF whatever joins and departs, and messages counted by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from anabranch.errors import InvalidCall
from anabranch.neighbours.methods import Probabilistic, Queries
from benchmarks.origin import package_hash
from papers.knn.cli import app
from papers.knn.peers import Network, PeerSettings
from papers.knn.peers.data import Source, cells_of, read_sensors
from papers.knn.peers.figures import RECIPES, PeerFigure, compute
from papers.knn.peers.overlay import Overlay
from papers.knn.peers.runs import Outcome, errors, run, use_sensors
from tests.neighbours.twin import reports

SMALL = PeerSettings(
    "RAPF", dimension=2, resolution=5, peers=7, queries=9, k=3, window=60, buffer=30,
    objects=500, warmup=0, churn=20,
)  # fmt: skip


def points_of(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "tied":
        return rng.integers(0, 4, (n, 2)) / 4
    if kind == "drifting":
        return rng.random((n, 2)) * 0.3 + 0.7 * np.linspace(0, 1, n)[:, None]
    return rng.random((n, 2))


@pytest.mark.parametrize("kind", ["uniform", "tied", "drifting"])
@pytest.mark.parametrize("merger", ["cells", "box"])
@pytest.mark.parametrize(("buffer", "slack"), [(30, 0.0), (6, 0.0), (1, 0.0), (15, 0.3)])
def test_rapf_over_peers_is_exact_while_peers_and_queries_come_and_go(kind, buffer, slack, merger):
    settings = replace(SMALL, buffer=buffer, slack=slack, merger=merger)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        objects, queries = points_of(kind, 500, seed), points_of("uniform", 9, seed + 100)
        network = Network(settings, rng, queries)
        network.activate(np.arange(6))
        found = []
        for begin in range(0, 500, 25):
            found.append(np.stack(network.publish(objects[begin : begin + 25]), axis=1))
            if begin % 50 == 0 and begin < 400:
                network.join()
                network.depart(int(rng.choice(network.overlay.alive)))
            if begin == 200:
                network.activate(np.arange(6, 9))
                network.cancel(np.arange(2))
        rows = [
            {"point": p, "k": 3, "window": 60, "since": -1 if q < 6 else 224,
             "until": 224 if q < 2 else 10**9}
            for q, p in enumerate(queries.tolist())
        ]  # fmt: skip
        stream = [(s, s, p) for s, p in enumerate(objects.tolist())]
        due = reports(stream, rows, counted=True)
        ours = [tuple(row) for row in np.concatenate(found).tolist()]
        assert len(ours) == len(set(ours)) == network.messages["notify owner peer"]
        assert set(ours) == {(q, s) for q, s, *_ in due}


def test_open_pa_over_peers_is_the_library_s():
    settings = replace(SMALL, method="PA-open", error=0.3)
    objects, queries = points_of("uniform", 500, 1), points_of("uniform", 9, 2)
    network = Network(settings, np.random.default_rng(0), queries)
    network.activate(np.arange(9))
    ours = np.stack(network.publish(objects), axis=1).tolist()
    seq = np.arange(500)
    alone = Probabilistic(Queries.of(queries, 3, 60, counted=True), 0.3)
    theirs = [list(row[:2]) for row in alone.advance(seq, seq, objects, 500).rows()]
    assert sorted(ours) == sorted(theirs)


def slow_mergers(network: Network, thresholds: list[float]) -> np.ndarray:
    """Which peer's merger covers which cell, from the definition."""
    boxed = network.settings.merger == "box"
    resolution, d = network.settings.resolution, network.settings.dimension
    covered = np.zeros_like(network._cover, bool)
    for cell in range(resolution**d):
        low = np.array(np.unravel_index(cell, (resolution,) * d)) / resolution
        for q, threshold in enumerate(thresholds):
            point = network._points[q]
            nearest = np.clip(point, low, low + 1 / resolution)
            if np.linalg.norm(point - nearest) <= threshold:
                covered[cell, network._home[q]] = True
    if boxed:
        for peer in range(covered.shape[1]):
            cells = np.unravel_index(np.flatnonzero(covered[:, peer]), (resolution,) * d)
            if len(cells[0]):
                box = np.zeros((resolution,) * d, bool)
                box[tuple(slice(axis.min(), axis.max() + 1) for axis in cells)] = True
                covered[:, peer] = box.ravel()
    return covered


@pytest.mark.parametrize("merger", ["cells", "box"])
@pytest.mark.parametrize("method", ["RAPF", "PA", "PA-starving"])
def test_mergers_and_interested_notifications_follow_their_definition(method, merger):
    settings = replace(SMALL, method=method, buffer=20, merger=merger)
    objects, queries = points_of("uniform", 300, 3), points_of("uniform", 9, 4)
    network = Network(settings, np.random.default_rng(1), queries)
    network.activate(np.arange(9))
    network.publish(objects[:150])
    cells = cells_of(objects, 5)
    second = 20 if method == "RAPF" else None
    for s in range(150, 300):
        before = dict(network.messages)
        if method == "RAPF":
            kth = network._best[:, settings.k - 1]
            thresholds = np.where(network._sizes >= settings.k, kth, np.inf).tolist()
            covered = slow_mergers(network, thresholds)
            assert (covered == (network._cover > 0)).all()
        expected = 0
        if second:
            cell = cells[s - second]
            expected += int(np.delete(network._cover[cell] > 0, network._owner[cell]).sum())
        held = network._cover.copy()
        network.publish(objects[s : s + 1])
        got = network.messages["notify interested peer"] - before["notify interested peer"]
        if network.messages["merger update"] == before["merger update"] and second is None:
            assert got == np.delete(held[cells[s]] > 0, network._owner[cells[s]]).sum()
        assert got >= expected
        assert network.messages["notify rendezvous peer"] == s + 1


@pytest.mark.parametrize("merger", ["cells", "box"])
def test_merger_updates_are_counted_once_for_each_peer_told(merger):
    network = Network(
        replace(SMALL, method="PA-open", merger=merger),
        np.random.default_rng(2),
        np.full((9, 2), 0.1),
    )
    network.activate(np.arange(1))
    assert network.messages["merger update"] == 6  # everyone else hears of the first query
    network.activate(np.arange(1, 2))
    assert network.messages["merger update"] == 6  # the merger covers all already
    network.cancel(np.arange(1))
    assert network.messages["merger update"] == 6
    network.cancel(np.arange(1, 2))
    assert network.messages["merger update"] == 12
    assert not network._cover.any()
    assert network.messages["query activation"] == network.messages["query cancellation"] == 2


def test_slack_trades_merger_updates_for_notifications():
    few, many = (
        run(replace(SMALL, buffer=20, slack=slack, churn=0, objects=2_000))[0].messages
        for slack in (0.3, 0.0)
    )
    assert few["merger update"] < 0.8 * many["merger update"]
    assert few["notify interested peer"] > many["notify interested peer"]
    assert few["notify owner peer"] == many["notify owner peer"]


def test_pa_over_peers_misses_little_unless_it_starves():
    settings = PeerSettings(
        "PA", dimension=2, resolution=12, peers=30, queries=40, k=9, window=1_000,
        objects=8_000, warmup=4_000, error=0.01,
    )  # fmt: skip
    shares = errors(settings)
    for method in ("PA", "PA-open"):
        assert max(shares[method]) < 0.01
    assert min(shares["PA-starving"]) > 0.05


def test_changes_of_membership_are_counted():
    outcome, _ = run(replace(SMALL, method="PA", churn=20))
    assert outcome.messages["join"] == 20
    assert outcome.messages["departure"] >= 20
    assert outcome.messages["neighbour inform"] > 40
    assert outcome.messages["query handover"] > 0


def test_runs_are_remembered_and_seeds_repeat():
    recipe = replace(
        RECIPES["15"].quick, values=(10, 20), lines=("PA",),
        settings=replace(SMALL, buffer=2, objects=300, churn=0),
    )  # fmt: skip
    memory: dict = {}
    first = compute(recipe, 2, memory=memory)
    assert len(memory) == 4
    again = compute(recipe, 2, memory={key: memory[key] for key in memory})
    assert first.values == again.values == compute(recipe, 2).values
    stored = json.loads(json.dumps(first.to_dict()))
    assert len(stored["curves"]) == 3
    again = PeerFigure.of_form(stored)
    assert json.loads(json.dumps(again.to_dict()))["curves"] == stored["curves"]
    assert Outcome.from_dict(stored["runs"][0]).settings in memory


QUICK = ["--quick", "--objects", "1000", "--warmup", "3000"]


def test_the_command_writes_picture_and_data_and_goes_without_sensors(tmp_path):
    call = [*QUICK, "--figure", "14", "--lines", "PA,RAPF", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "knn-14.json").read_text())
    assert {curve["data"] for curve in data["curves"]} == {"uniform", "clustered"}
    assert (tmp_path / "knn-14.png").stat().st_size > 5_000
    assert data["origin"]["package"] == package_hash()
    runs = json.loads((tmp_path / "knn-runs.json").read_text())
    assert len(runs) == 12 and {run["origin"]["package"] for run in runs} == {package_hash()}
    runs[0]["origin"]["package"] = runs[0]["origin"]["package"][::-1]
    (tmp_path / "knn-runs.json").write_text(json.dumps(runs))
    assert CliRunner().invoke(app, [*call, "--seeds", "2"]).exit_code == 0
    again = json.loads((tmp_path / "knn-runs.json").read_text())
    assert len(again) > 12 and again[:12] == runs, "a run that is kept keeps its origin"
    (tmp_path / "knn-runs.json").write_text('[{"settings": {"beta": 1}}]')
    refused = CliRunner().invoke(app, call)
    assert refused.exit_code == 2
    assert "remove it" in refused.output


def test_the_command_reads_sensors(tmp_path):
    rows = np.random.default_rng(0).random((200, 5))
    np.savetxt(tmp_path / "readings.csv.gz", rows, delimiter=",")
    call = [*QUICK, "--figure", "8", "--lines", "PA", "--data", "sensors", "--no-picture"]
    more = ["--sensors", str(tmp_path / "readings.csv.gz"), "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*call, *more])
    assert result.exit_code == 0, result.output
    assert "sensors" in result.output
    assert CliRunner().invoke(app, call).exit_code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--figure", "7"], "no figure '7'"),
        (["--figure", "8", "--k", "3"], "varies k itself"),
        (["--figure", "8", "--buffer", "many"], "a number of objects or half"),
        (["--figure", "8", "--buffer", "2001"], "half the window"),
        (["--figure", "8", "--lines", "XA"], "known are PA"),
    ],
)
def test_wrong_options_are_explained(options, message):
    result = CliRunner().invoke(app, [*QUICK, *options])
    assert result.exit_code == 2
    assert message in result.output


def test_zones_always_share_the_cells_among_the_peers():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        overlay = Overlay(6, 3, 40, rng)
        for _ in range(60):
            overlay.join() if rng.random() < 0.5 else overlay.depart(int(rng.choice(overlay.alive)))
            assert sorted(np.unique(overlay.owner)) == overlay.alive
            for peer, zones in overlay.zones.items():
                assert (overlay.owner == peer).sum() == sum(zone.cells for zone in zones) > 0
                assert peer not in overlay.neighbours(peer)


def test_zones_are_halves_of_halves():
    sizes = np.bincount(Overlay(8, 2, 16, np.random.default_rng(0)).owner.ravel())
    assert set(sizes.tolist()) <= {1, 2, 4, 8, 16, 32}


def test_data_lie_in_the_unit_cube():
    for data in ("uniform", "clustered"):
        points = Source(PeerSettings(data=data), np.random.default_rng(0)).draw(5_000)
        assert points.min() >= 0
        assert points.max() <= 1
    assert points.std() < 0.35


SENSORS = Path(__file__).parents[3] / "shared" / "data" / "occupancy.csv.gz"


@pytest.mark.skipif(not SENSORS.exists(), reason="the sensor readings are not here")
def test_pa_and_rapf_on_real_readings_with_their_many_ties():
    rows = read_sensors(SENSORS)
    assert rows.shape == (8143, 5)
    assert (rows.min(axis=0), rows.max(axis=0)) == (pytest.approx(0), pytest.approx(1))
    settings = PeerSettings(
        "PA", "sensors", resolution=6, peers=30, queries=30, k=9, window=2_000,
        objects=6_000, warmup=6_000, error=0.01,
    )  # fmt: skip
    use_sensors(rows)
    try:
        assert max(errors(settings)["PA"]) < 0.01
    finally:
        use_sensors(None)


def test_wrong_settings_are_refused_together():
    with pytest.raises(InvalidCall) as caught:
        PeerSettings("XA", data="none", k=0, resolution=40)
    assert len(caught.value.problems) == 4
    with pytest.raises(InvalidCall, match="half the window"):
        PeerSettings("RAPF", window=3000)
