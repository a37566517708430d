"""Joins by Earth Mover's Distance as real queries: moving cuts, hot ranges, kills, bad rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.correlation.emd.solve import solve
from anabranch.plans.ranges import Ranges
from tests.correlation import twin
from tests.spark.emd_driver import BINS, LATE, SCHEMA, SPANS, TURNS, batches, score
from tests.spark.feeds import Feed, agree, found, settings
from tests.spark.processes import driver
from tests.spark.tws import Correlating

BATCHES, KILL = 30, 14
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, list[twin.Batch]]:
    """A feed whose driver was killed while cuts moved."""
    script = batches(BATCHES, rows=12, seed=3)
    folder = tmp_path_factory.mktemp("ranges")
    feed = Feed(folder, (SCHEMA, SCHEMA)).add(script)
    with driver(folder, f"left_id >= {2000 * KILL}", script="emd_driver.py") as run:
        run.kill_when_held()
    with driver(folder, script="emd_driver.py") as run:
        run.finish()
    return feed, script


@pytest.mark.slow
def test_each_pair_once_under_moving_cuts_hot_ranges_and_kills(spark: Any, survived) -> None:
    feed, script = survived
    want = twin.pairs_in_time(feed.taken(script), SPANS, score, LATE)
    got = found(feed.output(spark))
    agree({pair: round(value, 9) for pair, value in got.items()}, want)
    assert len(want) > 500


@pytest.mark.slow
def test_the_log_tells_of_the_cuts(survived) -> None:
    feed, _ = survived
    entries = ab.plans.PlanLog(str(feed.folder / "control")).entries()
    asked = [entry.plan for entry in entries if entry.cause["rule"] == "by hand"]
    assert len(asked) >= 4
    moved = [plan for plan in asked if isinstance(plan, Ranges)]
    assert all(plan.reach is not None for plan in moved)
    assert {(plan.cuts, plan.hot) for plan in moved} >= {(t.cuts, t.hot) for t in TURNS[:2]}
    assert max(len(entry.live) for entry in entries) >= 2
    assert any(entry.cause.get("retired") for entry in entries)


def test_any_metric_in_batch_and_stream_with_figures(spark: Any, tmp_path: Path) -> None:
    script = batches(4, rows=15, seed=8)
    feed = Feed(tmp_path, (SCHEMA, SCHEMA)).add(script)
    places = np.stack([np.arange(BINS) % 4, np.arange(BINS) // 4], axis=1).astype(float)
    costs = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))

    def near(a: twin.Row, b: twin.Row) -> float | None:
        value = solve(np.array(a["h"]) / 20, np.array(b["h"]) / 20, costs).value
        return value if value <= 0.513 else None

    where = ab.emd("h", ground=places, scores="exact") <= 0.513
    call = {"where": where, "window": ("3 seconds", "2 seconds")}
    with settings(spark, shuffle__partitions=2):
        plan = ab.ranges(2)
        table = ab.correlate(*feed.tables(spark), **call, plan=plan)
        everything = twin.pairs(*[[r for b in script for r in b[n]] for n in (0, 1)], SPANS, near)
        agree(found(table), everything)
        query = feed.run(
            ab.correlate(*feed.streams(spark), **call, plan=plan, watermark="3 seconds")
        )
        agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, near, LATE))
    figures = ab.metrics(query)
    assert figures["solved"] >= figures["pairs"]  # exact scores solve every match
    assert figures["pruned"]["key"] > 0
    assert sum(worker["solved"] for worker in figures["workers"]) == figures["solved"]
    assert any(sum(worker["ranges"]) > 0 for worker in figures["workers"])


def test_a_bad_histogram_stops_the_query_by_name() -> None:
    script = batches(2, rows=5, seed=9)
    script[1][0][2]["h"] = [0] * BINS  # type: ignore[index]
    call = {"where": ab.emd("h", dim=BINS) <= 1, "window": "2 seconds", "watermark": "3 seconds"}
    call["plan"] = ab.broadcast(2)
    ident = script[1][0][2]["id"]
    with pytest.raises(ab.errors.BadRow, match=f"left row with id {ident} .*has no mass"):
        Correlating((SCHEMA, SCHEMA), **call).run(script)
    run = Correlating((SCHEMA, SCHEMA), **call, bad_rows="drop").run(script)
    assert run.bench.total("rejected") == 1
