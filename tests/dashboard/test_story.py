"""One real query under a board: figures, rows and words come through Spark, and nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from tests.dashboard.scenes import PICTURE, PIXEL
from tests.dashboard.test_board import ask
from tests.spark.feeds import ROW, Feed, heard, scripted

ROWS = ROW.append(pa.field("frame", pa.binary()))


def pictured(script: Any) -> Any:
    return [tuple([{**r, "frame": PIXEL} for r in side] for side in batch) for batch in script]


@pytest.mark.slow
def test_a_board_shows_a_real_query_and_its_newest_rows(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, (ROWS, ROWS)).add(pictured(scripted(2, rows=(12, 12), seed=5)))
    with ab.dashboard(spark) as board:
        call = {"where": ab.cosine("v") >= 0.6, "window": "3 seconds", "watermark": "3 seconds"}
        pairs = ab.correlate(*feed.streams(spark), **call, keep=["name", "frame"])
        hidden = board.show(pairs.select("left_id", "right_id", "score"), "late ones")
        assert hidden.schema == pairs.select("left_id", "right_id", "score").schema
        query = feed.run(board.show(pairs))
        heard(spark)
        state = json.loads(ask(board, "/api/state.json")[2])
    (subject,) = [one for one in state["subjects"] if one["query"] == str(query.id)]
    assert subject["words"] == (
        "Pairs of left and right rows with cosine('v') >= 0.6, at most 3 seconds apart"
    )
    found = feed.output(spark).collect()
    assert sum(subject["series"]["found"]) == len(found) == subject["total"]["pairs"] > 0
    assert sum(subject["series"]["left"]) == sum(subject["series"]["right"]) == 24
    assert any(skew is not None for skew in subject["series"]["skew"])
    assert subject["plan"]["text"] and subject["workers"]
    assert subject["health"][0]["light"] == "off"  # it has ended
    rows = state["rows"][str(query.id)]["matches"]["rows"]
    assert rows and len({r["batch"] for r in rows}) == len(
        [n for n in subject["series"]["found"] if n]
    )
    by_ids = {(str(r["left_id"]), str(r["right_id"])): r for r in found}
    for row in rows:
        sides = {one["name"]: (one["left"][0][0], one["right"][0][0]) for one in row["sides"]}
        real = by_ids[sides["id"]]
        assert float(row["facts"]["score"]) == real["score"]
        assert sides["frame"] == (PICTURE, PICTURE)
        assert sides["name"][0].partition(" ")[0] == (real["left_name"] or "null").partition(" ")[0]


def test_beyond_loopback_only_named_columns_are_sent(spark: Any, tmp_path: Path) -> None:
    stream = Feed(tmp_path).add(scripted(1)).streams(spark)[0]
    with ab.dashboard(spark, host="0.0.0.0") as board:
        assert board.show(stream) is stream
    with ab.dashboard(spark, host="0.0.0.0", show=["name"]) as board:
        plan = board.show(stream)._jdf.queryExecution().analyzed().toString()
    assert "anabranch_shown" in plan
    observed = next(line for line in plan.splitlines() if "anabranch_shown" in line)
    assert "struct(name" in observed and "room" not in observed


def test_a_table_is_put_on_the_page(spark: Any) -> None:
    with ab.dashboard(spark) as board:
        board.table("SLA", spark.sql("SELECT 'a' AS service, 3 AS met, 1 AS unknown"))
        state = json.loads(ask(board, "/api/state.json")[2])
    assert state["tables"] == {"SLA": [{"service": "a", "met": "3", "unknown": "1"}]}
