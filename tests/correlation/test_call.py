"""Wrong calls: every problem at once, each with what was got and what to do."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import anabranch as ab
from anabranch.calls import describe, microseconds
from anabranch.correlation.call import plan_correlation
from anabranch.plans.hashed import keyed

SCHEMA = {
    "id": "bigint",
    "ts": "timestamp",
    "v": "array<float>",
    "words": "array<string>",
    "counts": "array<int>",
    "x": "double",
    "n": "int",
    "key": "string",
    "day": "date",
    "price": "decimal(10,2)",
    "raw": "binary",
}


def problems(**changes):
    call = {"where": ab.cosine("v") >= 0.9, "window": "1 minute", **changes}
    left = call.pop("left", SCHEMA)
    right = call.pop("right", SCHEMA)
    return plan_correlation(left, right, **call)[1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"window": "-1 second"},
            ["window must not be negative, got '-1 second'; 0 seconds is allowed"],
        ),
        ({"window": "often"}, ["window: 'often' is not a duration"]),
        (
            {"window": ("1 s", "1 s", "1 s")},
            ["window must be a duration or a number of rows or a pair of them"],
        ),
        ({"window": 0.5}, ["window must be a whole number of rows, or a duration, got 0.5"]),
        ({"watermark": "-1 second"}, ["watermark must not be negative"]),
        (
            {"window": timedelta.max, "watermark": "200000000 days"},
            [
                "window must be at most 3650000 days, got datetime.timedelta(days=999999999",
                "watermark must be at most 3650000 days, got '200000000 days'",
            ],
        ),
        ({"time": ""}, ["time must be a column name or a pair of them, got ''"]),
        ({"id": ("id", "")}, ["id must be a column name or a pair of them, got ('id', '')"]),
        ({"keep": [""]}, ["keep must be the name of a column or a list of them"]),
        ({"where": ab.dot("v") >= 10**400}, ["the threshold must be a finite number, got 1000"]),
        ({"time": "when"}, ["left has no column 'when'", "right has no column 'when'"]),
        ({"time": "day"}, ["left column 'day' is date, not timestamp", "right column 'day'"]),
        (
            {"id": "x"},
            ["left column 'x' is double, not bigint or int or string", "right column 'x'"],
        ),
        ({"id": ("id", "uid")}, ["right has no column 'uid' (needed by id); it has id, ts, v"]),
        ({"id": 7}, ["id must be a column name or a pair of them, got 7"]),
        ({"keep": 5}, ["keep must be the name of a column or a list of them"]),
        ({"keep": (["x"], ["z"])}, ["right has no column 'z' (needed by keep)"]),
        ({"keep": ["x", "x"]}, ["two columns named 'left_x'", "two columns named 'right_x'"]),
        ({"where": ab.cosine("v")}, ["where=cosine('v') is not compared with anything"]),
        ({"where": ab.emd("v")}, ["write for example emd('v', ground='line') <= 2"]),
        ({"where": ab.haversine("x", "n")}, ["write for example haversine('x', 'n') <= 500"]),
        (
            {"where": "v > 3"},
            ["where must be a predicate such as ab.cosine('v') >= 0.9, got 'v > 3'"],
        ),
        ({"where": ab.cosine("v") >= 90}, ["a cosine lies between -1 and 1"]),
        ({"where": ab.cosine("v") >= "0.9"}, ["the threshold must be a finite number, got '0.9'"]),
        ({"where": ab.cosine("v") >= True}, ["the threshold must be a finite number, got True"]),
        (
            {"where": ab.dot("v") >= float("nan")},
            ["the threshold must be a finite number, got nan"],
        ),
        ({"where": ab.euclidean("v") <= -1}, ["a distance is never negative"]),
        ({"where": ab.dot("v", dim=0) >= 1}, ["dim must be a whole number of at least 1, got 0"]),
        ({"where": ab.cosine("words") >= 0.9}, ["left is array<string>, right is array<string>"]),
        (
            {"where": ab.cosine("v", "counts") >= 0.9},
            ["right is array<int>; cast it, F.col('counts').cast('array<double>')"],
        ),
        (
            {"where": ab.cosine("v") >= 0.9, "left": {**SCHEMA, "v": "vector"}},
            ["left is vector, right is array<float>; pyspark.ml.functions.vector_to_array('v')"],
        ),
        (
            {"where": ab.emd("key") <= 0.9},
            ["compares array<float> or array<double>, or arrays of whole numbers; left is string"],
        ),
        (
            {"where": ab.cosine("x") >= 0.9},
            ["compares array<float> or array<double>; left is double"],
        ),
        (
            {"where": ab.hamming("raw", "id") <= 1},
            ["binary or bigint on both sides; left is binary"],
        ),
        ({"where": ab.within("key", 1)}, ["compares numbers, dates or timestamps; left is string"]),
        ({"where": ab.within("price", "1 day")}, ["the limit must be a number such as 0.5"]),
        ({"where": ab.within("x", "1 hour")}, ["for numbers the limit must be a number"]),
        ({"where": ab.within("ts", 5)}, ["write the limit as a duration such as '5 minutes'"]),
        ({"where": ab.within("ts", "day", "1 day")}, ["needs the same type on both sides"]),
        ({"where": ab.same("words")}, ["same('words') does not compare array<string>: cast both"]),
        (
            {
                "where": ab.same("key"),
                "left": {**SCHEMA, "key": "string collate UTF8_LCASE"},
                "right": {**SCHEMA, "key": "string collate UTF8_LCASE"},
            },
            ["right is string collate UTF8_LCASE, and texts are the same only if"],
        ),
        ({"where": ab.within("x", -1)}, ["the limit must not be negative"]),
        ({"where": ab.within("x", "soon")}, ["must be a number (0.5, Decimal('0.01') or '0.01')"]),
        ({"where": ab.same("x")}, ["equality of floating-point numbers"]),
        ({"where": ab.same("key", "n")}, ["left is string, right is int: cast one"]),
        (
            {"where": ab.custom("f", ["x"], ["x"])},
            ["the first argument must be a function, got 'f'"],
        ),
        ({"where": ab.custom(len, [], ["x"])}, ["name at least one column of each side"]),
        ({"where": ab.custom(len, ["z"], ["x"])}, ["left has no column 'z'"]),
        ({"where": ab.custom(len, "words", "z")}, ["right has no column 'z'"]),
        (
            {"plan": "grid"},
            [
                "plan must be one of ab.broadcast(...), ab.segments(...), ab.grid(...), "
                "ab.ranges(...), ab.keyed(...), ab.triangle(...), "
                "got 'grid'"
            ],
        ),
        ({"plan": keyed(2)}, ["spreads by key: add ab.same(...)"]),
        ({"bad_rows": "drop"}, ["bad_rows='drop' needs the length of 'v', ab.cosine(..., dim=64)"]),
        ({"bad_rows": "ignore"}, ["bad_rows must be 'fail' or 'drop', got 'ignore'"]),
    ],
)
def test_a_wrong_call_is_explained(changes, says):
    found = problems(**changes)
    assert len(found) == len(says), found
    for problem, part in zip(found, says, strict=True):
        assert part in problem


def test_all_problems_are_reported_together():
    found = problems(window="-1 s", watermark="-1 s", id="uid", where=ab.cosine("w") >= 7, plan=3)
    assert len(found) == 8
    error = ab.errors.InvalidCall("correlate", found)
    assert str(error).startswith("correlate cannot start, 8 problems:\n  1. window")


@pytest.mark.parametrize(
    "where",
    [
        ab.cosine("v") >= 0.9,
        (ab.hamming("raw") <= 3) & ab.same("key"),
        ab.within("n", 3) & ab.within("x", "n", 0.5) & ab.within("day", "2 days"),
        ab.within("ts", timedelta(seconds=5)),
        ab.custom(len, ["key"], ["words"]) >= 0,
        ab.emd("counts", "v", dim=np.int64(4)) <= np.int32(1),
        ab.within("n", np.int64(3)) & ab.within("x", np.float32(0.5)),
    ],
)
def test_right_calls_have_no_problems(where):
    assert problems(where=where, window=(timedelta(seconds=1), "0 seconds"), keep=["key"]) == []


@pytest.mark.parametrize("column", [["v"], 5, None, "", object()])
def test_columns_are_named(column):
    for make in (ab.cosine, ab.emd, ab.same, lambda name: ab.within(name, 1)):
        with pytest.raises(ab.errors.InvalidCall, match="a column is a name, 'v' or"):
            make(column)


def test_a_routing_of_another_verb_is_refused():
    schema = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
    where = ab.cosine("v") >= 0.5
    _, problems = plan_correlation(
        schema, schema, where=where, window="1 second", plan=ab.selective(4)
    )
    assert problems == [
        "plan selective(4) is for ab.nearest, whose queries say what may matter; correlate takes "
        "ab.broadcast(...), ab.segments(...), ab.grid(...), ab.ranges(...), ab.keyed(...) or, "
        "of one stream, ab.triangle(...)"
    ]


def test_whole_numbers_of_numpy_are_taken_as_pythons():
    two = np.int64(2)
    for plan, same in (
        (ab.broadcast(two), ab.broadcast(2)),
        (ab.segments(two), ab.segments(2)),
        (ab.grid(two, two), ab.grid(2, 2)),
        (ab.ranges(two, count=np.uint8(4)), ab.ranges(2, count=4)),
        (keyed(two), keyed(2)),
    ):
        assert plan.fingerprint == same.fingerprint
    assert repr(ab.selective(two)) == repr(ab.selective(2))
    assert ab.adaptive(two) == ab.adaptive(2)
    assert ab.close.count(two, "1 s") == ab.close.count(2, "1 s")
    assert repr(ab.cosine("v", dim=two).dim) == repr(ab.emd("v", dim=two).ground.bins) == "2"


def test_predicates_that_python_would_misread_are_refused():
    with pytest.raises(ab.errors.InvalidCall, match="brackets"):
        _ = ab.cosine("v") >= 0.9 & ab.same("key")
    with pytest.raises(ab.errors.InvalidCall, match="two comparisons"):
        _ = 0.5 <= ab.cosine("v") <= 0.9
    with pytest.raises(ab.errors.InvalidCall, match="not 'and'"):
        ab.same("key") and ab.same("n")
    with pytest.raises(ab.errors.InvalidCall, match="not compared with anything yet"):
        ab.same("key") & ab.cosine("v")
    with pytest.raises(ab.errors.InvalidCall, match="not compared with anything yet"):
        ab.cosine("v") & ab.same("key")
    with pytest.raises(ab.errors.InvalidCall, match=r"write for example edit\('key'\) <= 2"):
        ab.same("key") & ab.edit("key")
    with pytest.raises(
        ab.errors.InvalidCall, match=r"without arithmetic: write .*\('v'\) <= 2, or"
    ):
        _ = 1 - ab.euclidean("v")
    with pytest.raises(ab.errors.InvalidCall, match=r"write within\(column, limit\)"):
        ab.within("x")


def test_the_types_of_two_columns_of_one_stream_are_both_said() -> None:
    where = ab.differs("key", "n")
    _, (problem,) = plan_correlation(SCHEMA, None, where=where, window="1 s", ordered=True)
    assert "needs the same type on both sides; 'key' is string, 'n' is " in problem


def test_a_typo_lists_what_exists():
    with pytest.raises(AttributeError, match=r"no attribute 'corelate'; it has .*correlate"):
        ab.corelate  # noqa: B018


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1 day", 86_400_000_000),
        ("1.5 s", 1_500_000),
        ("2 hours 3 min", 7_380_000_000),
        ("7us", 7),
        ("7 µs", 7),
        ("INTERVAL '1 02' DAY TO HOUR", 93_600_000_000),
        ("interval '1 02:03' day to  minute", 93_780_000_000),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 93_784_500_000),
        ("INTERVAL '02:03' HOUR TO MINUTE", 7_380_000_000),
        ("INTERVAL '02:03:04' HOUR TO SECOND", 7_384_000_000),
        ("INTERVAL '03:04' MINUTE TO SECOND", 184_000_000),
    ],
)
def test_durations(text, us):
    assert microseconds(text) == us
    assert microseconds(describe(us)) == us


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "five seconds", "1.5 us", "1 fortnight", "seconds", None),
        *("INTERVAL '5'", "INTERVAL '02:03' DAY TO SECOND", "INTERVAL '1 02' HOUR TO DAY"),
        *("INTERVAL -'1 day 2 hours'", "INTERVAL '02:03' HOUR"),
    ],
)
def test_bad_durations(text):
    with pytest.raises(ValueError, match="is not a duration"):
        microseconds(text)


@pytest.mark.parametrize("columns", [None, "", 3, [None], ["x", ""]])
def test_columns_of_a_custom_function_are_names(columns):
    with pytest.raises(ab.errors.InvalidCall, match=r"a column is a name, .*; got (None|''|3)"):
        ab.custom(len, columns, "x")
