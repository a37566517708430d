"""`nearest` with the user's own names, and columns of the objects that come with each hit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.spark.nearest_feed import (
    closing,
    feed_of,
    got,
    lasting_queries,
    objects_in_batches,
    query_frame,
    want,
)

ADVERTS = """SELECT * FROM VALUES
    (1, timestamp_seconds(100), array(0.0D, 0.0D), 'cook', map('pay', 1.5D)),
    (2, timestamp_seconds(101), array(5.0D, 5.0D), NULL, map('pay', 2.5D)),
    (3, timestamp_seconds(102), array(0.0D, 1.0D), 'waiter', NULL)
    AS t(job, posted, skills, title, terms)"""
PROFILES = """SELECT * FROM VALUES ('ann', array(0.0D, 0.0D)), ('bob', array(5.0D, 4.0D))
    AS t(candidate, skills)"""
CALL: dict[str, Any] = {
    "by": "skills", "time": "posted", "id": ("job", "candidate"), "k": 1, "window": "1 hour",
}  # fmt: skip


def test_own_names_and_kept_columns(spark: Any) -> None:
    adverts, profiles = spark.sql(ADVERTS), spark.sql(PROFILES)
    hits = ab.nearest(adverts, profiles, keep=["title", "terms"], **CALL)
    assert hits.columns[0] == "candidate" and hits.columns[-2:] == ["object_title", "object_terms"]
    found = {(r.candidate, r.object_id): (r.object_title, r.object_terms) for r in hits.collect()}
    cook, waiter = ("cook", {"pay": 1.5}), ("waiter", None)
    other = (None, {"pay": 2.5})
    # A table is answered to its end, so the waiter comes when nearer ones have left.
    assert found == {
        ("ann", 1): cook, ("ann", 3): waiter, ("bob", 1): cook, ("bob", 2): other,
        ("bob", 3): waiter,
    }  # fmt: skip


def test_the_top_has_them_too(spark: Any) -> None:
    adverts, profiles = spark.sql(ADVERTS), spark.sql(PROFILES)
    tops = ab.nearest(adverts, profiles, keep="title", output="top", **CALL)
    best = {row.candidate: row.object_title for row in ab.top(tops, id="candidate").collect()}
    assert best == {"ann": "cook", "bob": None}


@pytest.mark.slow
@pytest.mark.parametrize("plan", [ab.broadcast(2), ab.selective(2)], ids=str)
def test_kept_columns_of_a_stream_and_after_a_restart(
    spark: Any, tmp_path: Path, plan: Any
) -> None:
    objects = [*objects_in_batches(5), [closing()]]
    queries = lasting_queries()
    call: dict[str, Any] = {"by": "v", "watermark": "3 seconds", "plan": plan, "keep": "v"}
    if isinstance(plan, type(ab.selective(1))):
        call["control"] = str(tmp_path / "control")
    feed = feed_of(tmp_path, objects[:3])
    feed.run(ab.nearest(feed.streams(spark)[1], query_frame(spark, queries), **call))
    feed.add([([], batch) for batch in objects[3:]])
    feed.run(ab.nearest(feed.streams(spark)[1], query_frame(spark, queries), **call))
    output = feed.output(spark)
    assert got(output) == want(objects, queries)
    points = {made["id"]: made["v"] for batch in objects for made in batch}
    assert all(row.object_v == points[row.object_id] for row in output.collect())


WRONG = {
    "objects have no column 'nothing'": {"keep": "nothing"},
    "two columns named 'object_title'": {"keep": ["title", "title"]},
    "keep must be a column name or a list of them, got 5": {"keep": 5},
    "queries have no column 'query_id'": {"id": "job"},
    "id must be a column name or a pair of them": {"id": ("job", "candidate", "x")},
}


@pytest.mark.parametrize("says", WRONG)
def test_wrong_names_are_refused(spark: Any, says: str) -> None:
    with pytest.raises(ab.errors.InvalidCall) as found:
        ab.nearest(spark.sql(ADVERTS), spark.sql(PROFILES), **{**CALL, **WRONG[says]})
    assert says in str(found.value)
