"""`ab.follow` over tables equals brute force; what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import anabranch as ab
from anabranch.edge.definitions import View
from anabranch.edge.wishes import Requests, Wishes
from anabranch.placement.views import wishes_of
from anabranch.spark.follow_source import Followed, asking
from anabranch.spark.follow_stream import follow_frames
from anabranch.spark.follow_tables import result_columns
from anabranch.spark.jetstream import JetStreamReader
from tests.spark import follow_world as world
from tests.spark.follow_frames import recorded


@pytest.mark.parametrize(
    "chosen", [["nearby", "fast"], pytest.param([], marks=pytest.mark.slow)], ids=["two", "all"]
)
def test_the_batch_answer_equals_brute_force(spark: Any, chosen: list[str]) -> None:
    rows = world.rows()
    views = [one for one in world.views() if not chosen or one.view.name in chosen]
    frame = ab.follow(spark, views, feeds={"gps": world.table(spark, rows)})
    assert frame.columns == [
        *("view", "left_key", "right_key", "left_n", "right_n", "left_time", "right_time"),
        *("score", "left_xy", "right_xy", "left_room", "place", "epoch"),
    ]
    found = frame.collect()
    names = [name for one in views for name in one.rows["view"]]
    expected = [one for one in world.truth(rows) if one[0] in names]
    assert {len(one) for one in expected} == {2, 3}
    assert {one[0] for one in expected} == set(names)  # every view finds something
    assert world.identities(found) == sorted(expected)
    by = {(row["key"], row["n"]): row for row in rows}
    for row in found:
        left = by[row.left_key, row.left_n]
        if row.view.startswith("nearby"):
            right = by[row.right_key, row.right_n]
            assert (row.left_xy, row.right_xy) == (left["xy"], right["xy"])
            assert row.score <= 5
        elif row.view.startswith("fast"):
            assert row.left_room == left["room"] and row.right_key is None and row.score is None
        else:
            assert row.score is None and row.left_xy is None
        assert row.place is None and row.epoch is None


def test_the_stream_equals_the_batch_answer_across_moves_and_a_restart(
    spark: Any, tmp_path: Path
) -> None:
    """Recorded frames: views move between the cloud and devices, and the query is restarted."""
    rows, views = world.rows(), world.views()
    hub = recorded(tmp_path / "control", wishes_of(views), rows)
    frames = [(seq, *frame) for seq, frame in enumerate(hub.frames)]
    fields = "seq long, subject string, data binary"
    found: list[Any] = []
    (tmp_path / "frames").mkdir()
    for number in range(2):
        part = frames[number * len(frames) // 2 : (number + 1) * len(frames) // 2]
        mixed = pd.DataFrame(part[::-1], columns=["seq", "subject", "data"])
        mixed.to_parquet(tmp_path / "frames" / f"{number}.parquet")
        stream = spark.readStream.schema(fields).parquet(str(tmp_path / "frames"))
        query = (
            follow_frames(stream, result_columns(views), str(tmp_path / "control"))
            .writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert query.exception() is None
    assert world.identities(found) == sorted(world.truth(rows))
    assert {row.place for row in found} == {"cloud", "ann", "bob", "cy"}
    assert {row.epoch for row in found} == {0, 1, 2, 3}
    by = {(row["key"], row["n"]): row for row in rows}
    for row in found:
        left, right = by[row.left_key, row.left_n], by.get((row.right_key, row.right_n))
        assert row.left_time.timestamp() == pytest.approx(left["t"] / 1e6, abs=1e-6)
        if row.view.startswith("nearby"):
            assert right is not None and row.right_xy == right["xy"]
            assert row.score == pytest.approx(math.dist(left["xy"], right["xy"]), rel=1e-12)


def test_only_a_query_that_starts_asks_for_views(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = ab.follow(spark, world.views(), broker="tls://hub:4222", control=str(tmp_path))
    assert frame.isStreaming and list(tmp_path.iterdir()) == []
    wishes = wishes_of(world.views())
    options = {"url": "tls://hub:4222", **asking(str(tmp_path), wishes)}
    reader: Any = Followed(options).streamReader(None)  # type: ignore[arg-type]
    assert Requests(tmp_path).newest() is None
    monkeypatch.setattr(JetStreamReader, "initialOffset", lambda self: {"seq": 0})
    assert reader.initialOffset() == {"seq": 0}
    assert Requests(tmp_path).newest() == wishes


def test_equal_demands_are_one_view() -> None:
    nearby, _, fast = world.views()
    wishes = wishes_of([nearby, fast], upload_cost={"ann": 2.0, None: 1.0}, download_cost=1.0)
    names = [stream.name for stream in wishes.streams]
    assert sorted(names) == [f"gps[{who}]" for who in world.PEOPLE]
    assert wishes.views[-1] == View("fast(gps[dee])", "fast", (names.index("gps[dee]"),), (0.5,))
    assert Wishes.from_dict(json.loads(json.dumps(wishes.to_dict()))) == wishes
    assert nearby.rows.to_numpy().tolist()[:2] == [
        ["nearby(gps[ann],gps[bob])", "gps[ann]", 1.0],
        ["nearby(gps[ann],gps[bob])", "gps[bob]", 0.5],
    ]
    assert len(nearby.rows) == 6
    assert ab.place(nearby).optimal


FEED = ab.feed("gps", by="user", tick="1 second", columns="x double")
OTHER = ab.feed("gps", by="friend", tick="1 second", columns="x double")
VECTORS = ab.feed("gps", by="user", columns="v array<double>, s string")
OTHER_VECTORS = ab.feed("gps", by="friend", columns="v array<double>, s string")
TABLE = pd.DataFrame({"user": ["ann"], "friend": ["bob"], "every": ["1 second"], "n": [3]})


def view(**changed: Any) -> Any:
    call = {"inputs": {FEED: None, OTHER: None}, "window": "1 second", **changed}
    return ab.view("v", call.pop("inputs"), **call)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: view(inputs={}), "inputs must be a dict of one or two feeds"),
        (lambda: view(inputs={FEED: 3, OTHER: None}), "inputs: 3 is not a duration"),
        (lambda: view(inputs={FEED: "1 ms", OTHER: None}), "are a tick apart"),
        (lambda: view(inputs={FEED: "0 s", OTHER: None}), "must be some time apart"),
        (
            lambda: view(inputs={ab.feed("a", "b", columns="x double"): "1 s", FEED: None}),
            "has no tick=",
        ),
        (lambda: view(inputs={ab.feed("gps", "user"): None, OTHER: None}), "has no columns"),
        (
            lambda: view(inputs={ab.feed("n", "u", "cloud", columns="x int"): None, FEED: None}),
            "is in the cloud",
        ),
        (lambda: ab.view("v", {FEED: None, OTHER: None}), "window= is missing"),
        (lambda: ab.view("v", {FEED: None}, window="1 s"), "window= is for views over two feeds"),
        (lambda: view(window="soon"), "'soon' is not a duration"),
        (lambda: view(where="x"), "where must be such as"),
        (lambda: view(where=ab.custom(len, "x", "x") >= 1), "cannot be shipped to devices"),
        (lambda: view(where=ab.within("y", 1)), "no column 'y'"),
        (lambda: ab.view("v", {FEED: None}, where=3), "is a list of comparisons"),
        (lambda: ab.view("v", {FEED: None}, where=[("y", "<", 1)]), "no column 'y'"),
        (lambda: ab.view("v", {FEED: None}, where=[([1], "<", 1)]), "no column [1]"),
        (
            lambda: view(
                inputs={VECTORS: None, OTHER_VECTORS: None},
                where=(ab.euclidean("v") <= 1) | ab.differs("s"),
            ),
            "view 'v' cannot start: inside | ab.euclidean('v') needs the length of the vectors: "
            "add dim=",
        ),
        (lambda: view(keep="y"), "keep: feed 'gps' has no column 'y'"),
        (lambda: view(deliver="phone"), "deliver must be 'cloud', 'inputs' or both"),
        (lambda: view(symmetric=1), "symmetric must be True or False"),
        (lambda: view(symmetric=True, window=("1 s", "2 s")), "symmetric views compare one feed"),
        (lambda: ab.view("", {FEED: None}), "name must be a word"),
        (lambda: ab.feed("gps", "user", tick="soon"), "'soon' is not a duration"),
        (lambda: ab.feed("gps", "user", columns="x date"), "types are double, float"),
        (lambda: ab.feed("gps", "user", columns="x int, x int"), "names must differ"),
        (lambda: ab.feed("gps", "user", columns={"time": "int"}), "also from key, n and time"),
        (lambda: ab.feed("gps", "user", columns="x int, X int"), "'x', 'X': names must differ"),
        (lambda: ab.feed("gps", "user", columns="Key int"), "by more than upper and lower case"),
        (lambda: ab.feed("gps", "user", columns=3), "columns must be names and types"),
        (lambda: view(inputs={FEED: "e", OTHER: None}).over(TABLE), "no column 'e'"),
        (lambda: view(inputs={FEED: "n", OTHER: None}).over(TABLE), "column 'n': 3 is not a"),
        (
            lambda: view(inputs={FEED: "every", OTHER: None}).over(TABLE.assign(every=None)),
            "has no duration in 1 rows",
        ),
        (
            lambda: view().over(TABLE.drop(columns="friend")),
            "view 'v' cannot start: the reference table has no column 'friend'; it has 'user'",
        ),
        (lambda: view().over(TABLE.assign(friend="ann")), "would compare a stream with itself"),
        (lambda: ab.follow(None, 3, feeds={}), "views must be what ab.view"),
        (lambda: ab.follow(None, [view().over(TABLE)] * 2, feeds={}), "views of one name"),
        (lambda: ab.follow(None, view().over(TABLE), feeds=3), "feeds must be a dict of tables"),
        (lambda: ab.follow(None, view().over(TABLE), feeds={}), "feeds has no table 'gps'"),
    ],
)
def test_wrong_calls(call: Any, words: str) -> None:
    with pytest.raises(ab.errors.InvalidCall) as error:
        call()
    assert words in str(error.value)


def test_wrong_tables(spark: Any) -> None:
    table = spark.sql("SELECT 'a' AS key, 1.5 AS n, date'2020-01-01' AS time")
    with pytest.raises(ab.errors.InvalidCall) as error:
        ab.follow(spark, view().over(TABLE), feeds={"gps": table})
    for words in ("column 'n' is decimal(2,1)", "column 'time' is date", "no column 'x'"):
        assert words in str(error.value)


def test_a_table_with_a_row_that_cannot_be_compared_stops_the_query(spark: Any) -> None:
    table = spark.sql(
        "SELECT key, id AS n, timestamp_seconds(id) AS time, nullif(double(id), 2.0) AS x "
        "FROM range(4), (VALUES ('ann'), ('bob')) AS t(key)"
    )
    with pytest.raises(Exception, match=r"BadRow: .*'x' is null"):
        ab.follow(
            spark, view(where=ab.within("x", 1.0)).over(TABLE), feeds={"gps": table}
        ).collect()


def test_columns_may_have_any_name(spark: Any) -> None:
    """What a row has on its way beside the columns of its feed is called otherwise than these."""
    names = ("priority", "place", "view", "share", "id", "t", "first", "epoch", "score", "a.b")
    columns = {name: "double" for name in names}
    shown = ", ".join(f"double(100 + id) AS `{name}`" for name in names)
    table = spark.sql(
        f"SELECT key, id AS n, timestamp_seconds(id) AS time, {shown} "
        "FROM range(4), (VALUES ('ann'), ('bob')) AS t(key)"
    )
    me = ab.feed("gps", by="user", tick="1 second", columns=columns)
    them = ab.feed("gps", by="friend", tick="1 second", columns=columns)
    one = ab.view("one", {me: "2 s"}, where=[("priority", ">=", 101), ("view", "<", 103)])
    kept = list(names[:-1])  # correlate reads a dot as a field of a struct
    two = ab.view(
        "two", {me: None, them: None}, where=ab.within("share", 0), window="0 s", keep=kept
    )
    views = [one.over(TABLE), two.over(TABLE)]
    found = ab.follow(spark, views, feeds={"gps": table}).collect()
    assert world.identities(found) == [
        ("one(gps[ann])", 2),
        *(("two(gps[ann],gps[bob])", n, n) for n in range(4)),
    ]
    pair = found[-1]
    assert {pair[f"{side}_{name}"] for side in ("left", "right") for name in kept} == {
        100.0 + pair.left_n
    }


def test_a_view_of_one_feed_decides_as_devices_do(spark: Any) -> None:
    """Rows that no device would put stop the query, and 0.1 is as many digits here as there."""
    rows = "(0, 0.1, '1', null), (1, 0.2, null, null), (2, 0.1, 'nan', 1), (3, 0.3, '-inf', 1)"
    table = spark.sql(
        "SELECT 'ann' AS key, n, timestamp_seconds(n) AS time, float(f) AS f, double(x) AS x, "
        f"int(i) AS i FROM VALUES {rows} AS t(n, f, x, i)"
    )
    part = ab.feed("gps", by="user", columns="f float, x double, i int")

    def found(*where: Any, below: int = 9) -> list[int]:
        views = ab.view("v", {part: None}, where=list(where), keep="x").over(TABLE)
        rows = ab.follow(spark, views, feeds={"gps": table.filter(f"n < {below}")})
        return sorted(row.left_n for row in rows.collect())

    assert found(("f", "==", 0.1)) == []
    assert found(("f", "==", float(np.float32(0.1)))) == [0, 2]
    assert found(("f", "<", 0.15), ("x", ">=", 1), below=1) == [0]
    for where, words in [
        (("x", ">=", 1), r"row 'v\(gps\[ann\]\) 1': 'x' is null.*'x' is not finite; repair"),
        (("i", ">=", 1), "'i' is null"),
    ]:
        with pytest.raises(Exception, match=rf"BadRow: .*{words}"):
            found(where)


def test_what_correlate_rejects_is_told_of_the_view(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejected(*_: Any, **__: Any) -> None:
        raise ab.errors.InvalidCall("correlate", ["it cannot"])

    monkeypatch.setattr("anabranch.spark.follow_tables.correlate", rejected)
    table = spark.sql("SELECT 'a' AS key, 1 AS n, timestamp_seconds(1) AS time, 1D AS x")
    with pytest.raises(ab.errors.InvalidCall, match="follow cannot start: view 'v': it cannot"):
        ab.follow(spark, view().over(TABLE), feeds={"gps": table})


def test_kept_columns_that_differ_by_case_alone_are_refused() -> None:
    parts = [ab.feed(name, by="user", columns=f"{name} double") for name in "xX"]
    views = [ab.view(part.name, {part: None}, keep=part.name).over(TABLE) for part in parts]
    with pytest.raises(ab.errors.InvalidCall, match="views keep left_x and left_X, one column"):
        ab.follow(None, views, feeds={})  # type: ignore[arg-type]
