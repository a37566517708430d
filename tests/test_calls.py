"""How calls are checked: names as Spark finds them, and no value ends in an unexplained error."""

from __future__ import annotations

import operator
import pickle
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.calls import MISSING, Check, Columns, is_whole, microseconds
from anabranch.correlation.call import plan_correlation
from anabranch.errors import changed_settings
from anabranch.neighbours.call import plan_nearest

TYPES = {
    "id": "bigint",
    "ts": "timestamp",
    "v": "array<float>",
    "n": "int",
    "k": "string",
    "x": "double",
    "day": "date",
}
QUERIES = {"query_id": "bigint", "v": "array<float>"}
WHERE = ab.cosine("v") >= 0.5

HOSTILE: list[Any] = [
    *(None, True, 0, -1, 1.5, float("nan"), float("inf"), 1j, 10**400, -(10**400)),
    *("", " ", "x", "v", "-1 s", "9" * 400 + " days", b"v", object(), int, len),
    *([], (), {}, set(), [None], ["v"], ("v",), ("v", "v", "v"), [[]], [["v"], ["v"]]),
    *(np.int64(3), np.float32(0.5), np.float64("nan"), np.bool_(True), np.timedelta64(5, "s")),
    *(np.array(3), np.array([1, 2]), np.array(["v"]), pd.Series([1]), pd.NaT),
    *(Decimal("0.5"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Fraction(1, 3)),
    *(timedelta(-1), timedelta.max, pd.Timedelta("1s"), pd.Timedelta(5, "ns")),
    *(
        ab.cosine("v"),
        WHERE,
        ab.broadcast(2),
        ab.selective(2),
        ab.ranges(4),
        ab.close.gap("1 s"),
        MISSING,
    ),
]


def correlated(where: Any) -> None:
    verdict(plan_correlation(TYPES, TYPES, where=where, window="1 s"))


def verdict(answer: Any) -> None:
    """A call that can run, or sentences that say why it cannot."""
    found, problems = answer
    assert (found is None) == bool(problems)
    assert all(isinstance(problem, str) and problem for problem in problems)


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("verb", ["correlate", "nearest", "assemble"])
def test_any_argument_of_a_verb_is_taken_or_explained(verb: str, value: Any) -> None:
    if verb == "correlate":
        for name in ("where", "window", "time", "id", "keep", "watermark", "plan", "bad_rows"):
            call: dict[str, Any] = {"where": WHERE, "window": "1 s", name: value}
            verdict(plan_correlation(TYPES, TYPES, **call))
    elif verb == "nearest":
        names = (
            "by",
            "time",
            "id",
            "keep",
            "k",
            "window",
            "rows",
            "watermark",
            "plan",
            "method",
            "error",
        )
        for name in (*names, "output", "objects_per_window", "bad_rows"):
            for more in ({}, {"op": "string", "ts": "timestamp"}):
                call = {"by": "v", "k": 1, "window": "1 s", name: value}
                verdict(plan_nearest(TYPES, {**QUERIES, **more}, **call))
    else:
        for name in ("key", "time", "close", "keep", "response", "watermark", "max_open", "clock"):
            call = {"key": "k", "close": ab.close.gap("1 s"), name: value}
            verdict(plan_assembly([TYPES], **call))


MEASURES = ("cosine", "dot", "euclidean", "manhattan", "hamming", "emd")
MADE: list[Any] = [
    *(lambda h, f=f: getattr(ab, f)(h) >= 0.5 for f in MEASURES),
    *(lambda h, f=f: getattr(ab, f)("v", h) >= 0.5 for f in MEASURES),
    *(lambda h, f=f: getattr(ab, f)("v", dim=h) >= 0.5 for f in MEASURES),
    *(lambda h, f=f: getattr(ab, f)("v") < h for f in MEASURES),
    *(lambda h, f=f: h <= getattr(ab, f)("v") for f in MEASURES),
    *(
        lambda h, name=name, ground=ground: ab.emd("v", **{"ground": ground, name: h}) <= 1
        for name in ("ground", "metric", "normalize", "scale", "filters", "scores")
        for ground in ("line", [[0, 0], [1, 1]])
    ),
    *(lambda h, column=column: ab.within(column, h) for column in ("n", "x", "day", "ts")),
    lambda h: ab.within(h, 1),
    lambda h: ab.within("n", h, 1),
    lambda h: ab.same(h),
    lambda h: ab.same("k", h),
    lambda h: ab.custom(h, "x", "x"),
    lambda h: ab.custom(len, h, "x"),
    lambda h: ab.custom(len, "x", h),
    lambda h: ab.custom(len, "x", "x") >= h,
    lambda h: WHERE & h,
    lambda h: h & WHERE,
    lambda h: h & ab.cosine("v"),
]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: type(value).__name__)
def test_any_argument_of_a_predicate_is_taken_or_explained(value: Any) -> None:
    for make in MADE:
        try:
            where = make(value)
        except ab.errors.InvalidCall:
            continue
        correlated(where)


@pytest.mark.parametrize("value", [0, "64", 1.5, True, -3])
def test_the_length_of_vectors_is_checked_by_nearest_too(value: Any) -> None:
    call = {"by": ab.euclidean("v", dim=value), "k": 1, "window": "1 s"}
    assert plan_nearest(TYPES, QUERIES, **call)[1] == [
        f"by: euclidean('v'): dim must be a whole number of at least 1, got {value!r}"
    ]


def test_what_is_missing_is_named_with_an_example() -> None:
    assert plan_correlation(TYPES, TYPES)[1] == [
        "window= is missing: add for example window='1 minute', how far apart two times may be",
        "where= is missing: add for example where=ab.cosine('v') >= 0.9",
    ]
    assert plan_nearest(TYPES, QUERIES, k=1, rows=5)[1] == [
        "by= is missing: add for example by='v', the vector column, or by=ab.cosine('v')"
    ]
    assert plan_assembly([TYPES])[1] == [
        "key= is missing: add for example key='trace_id', which names an instance",
        "close= is missing: add for example close=ab.close.gap('8 seconds')",
    ]
    assert repr(MISSING) == "required" and pickle.loads(pickle.dumps(MISSING)) is MISSING


def shouted(types: dict[str, str]) -> dict[str, str]:
    return {name.upper(): kind for name, kind in types.items()}


def test_names_are_found_whatever_their_case() -> None:
    loud = shouted(TYPES)
    where = WHERE & ab.within("n", 1) & ab.custom(len, ["x"], ["K"])
    call, problems = plan_correlation(TYPES, loud, where=where, window="1 s", keep=["DAY"])
    assert call is not None, problems
    assert (call.left.time, call.left.id, call.left.keep) == ("ts", "id", ("day",))
    assert (call.right.time, call.right.id, call.right.keep) == ("TS", "ID", ("DAY",))
    assert [slot.column for slot in call.left.slots] == ["v", "n", "x"]
    assert [slot.column for slot in call.right.slots] == ["V", "N", "K"]
    queries = shouted({**QUERIES, "k": "int", "op": "string", "ts": "timestamp"})
    found, problems = plan_nearest(loud, queries, by="v", window="1 s")
    assert found is not None, problems
    assert (found.query_point, found.objects.slots[0].column, found.objects.id) == ("V", "V", "ID")
    assert found.has_ops and found.query_columns == {"k": "int", "ts": "TS"}
    close = ab.close.learned(kind="K")
    whole, problems = plan_assembly(
        [loud, TYPES], key=["k", "N"], close=close, keep="x", response="x"
    )
    assert whole is not None, problems
    assert (whole.key, whole.keep, whole.kind, whole.response) == (("K", "N"), ("X",), "K", "X")


def test_where_spark_tells_cases_apart_so_do_calls() -> None:
    types = Columns({**TYPES, "V": "string", "Key": "int"}, case_sensitive=True)
    call, problems = plan_correlation(types, types, where=WHERE, window="1 s", keep=["V"])
    assert call is not None and call.left.keep_types == ("string",), problems
    (left, right) = plan_correlation(types, types, where=ab.same("KEY"), window="1 s")[1]
    assert left.startswith("left has no column 'KEY' (needed by same('KEY')); it has id, ts")
    assert right.startswith("right has no column 'KEY'")


def test_a_field_that_is_not_there_is_answered_with_those_of_its_struct() -> None:
    check = Check(left={"id": "int", "p": "struct<v:int,at:timestamp>", "p.at": "timestamp"})
    assert check.column("left", "p.w", "keep") == ""
    assert check.problems == [
        "left has no column 'p.w' (needed by keep); it has id, p; p is struct<v:int,at:timestamp>"
    ]


@pytest.mark.parametrize("twin", ["v", "V"])
def test_a_name_of_several_columns_is_named(twin: str) -> None:
    types = Columns([*TYPES.items(), (twin, "array<double>")])
    (problem,) = plan_correlation(TYPES, types, where=WHERE, window="1 s")[1]
    assert problem == (
        "right has 2 columns that 'v' (needed by cosine('v') >= 0.5) may stand for, "
        f"v, {twin}: rename or drop all but one"
    )
    (problem,) = plan_nearest(types, QUERIES, by="v", k=1, rows=5)[1]
    assert problem.startswith("objects have 2 columns that 'v' (needed by euclidean('v'))")
    (problem,) = plan_assembly([types], key="v", close=ab.close.gap("1 s"))[1]
    assert problem.startswith("input has 2 columns that 'v' (needed by key) may stand for")
    # Nobody asks for it: Spark does not mind either.
    assert plan_correlation(TYPES, types, where=ab.within("x", 1), window="1 s")[1] == []


def test_a_key_is_not_named_twice_in_two_cases() -> None:
    (problem,) = plan_assembly([TYPES], key=["k", "K"], close=ab.close.gap("1 s"))[1]
    assert problem == "key names 'k' twice"
    (problem,) = plan_assembly([{**TYPES, "Count": "int"}], key="count", close=ab.close.gap("1 s"))[
        1
    ]
    assert problem == "key column 'Count' is also a column of the result: rename it"


def test_equality_and_arithmetic_are_refused() -> None:
    numbers = (1, 0.5, Decimal(1), np.int64(1), np.float32(1), Fraction(1, 2))
    for make in (ab.cosine, ab.emd):
        for number in numbers:
            for compare in (operator.eq, operator.ne):
                for pair in ((make("v"), number), (number, make("v"))):
                    with pytest.raises(
                        ab.errors.InvalidCall, match=r"by == or !=: write >=, >, <= or <"
                    ):
                        compare(*pair)
    with pytest.raises(ab.errors.InvalidCall, match=r"and not 1 - cosine\('v'\) <= 0.1"):
        _ = 1 - ab.cosine("v") <= 0.1  # type: ignore[operator]
    with pytest.raises(ab.errors.InvalidCall, match="& combines predicates, got 5"):
        WHERE & 5


def test_measures_are_told_apart_and_have_hashes() -> None:
    assert ab.cosine("v") == ab.cosine("v", "v") != ab.cosine("v", dim=3)
    assert ab.emd("v", dim=3) == ab.emd("v", dim=3) != ab.emd("v", ground="circle", dim=3)
    assert ab.cosine("v") != "v" and ab.cosine("v") is not None
    assert len({ab.cosine("v"), ab.cosine("v"), ab.dot("v"), ab.emd("v"), ab.emd("v")}) == 3
    assert len({WHERE, ab.same("k"), ab.custom(len, "x", "x")}) == 3


def test_numbers_of_numpy_may_stand_first() -> None:
    for number in (np.float64(0.5), np.float32(0.5), np.int64(0)):
        where = number <= ab.cosine("v")
        assert (where.op, where.threshold) == (">=", float(number))
        correlated(where)


NUMBERS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9),
    st.integers(-(2**70), 2**70),
    st.fractions(max_denominator=10**6),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(np.float32),
)
OPERATORS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


@given(number=NUMBERS, op=st.sampled_from(sorted(OPERATORS)), steps=st.integers(-3, 3))
def test_thresholds_are_exact(number: Any, op: str, steps: int) -> None:
    """Whatever a threshold is, floats next to it fall on the right side."""
    exact = Fraction(*number.as_integer_ratio())
    value = np.float64(float(exact))
    for _ in range(abs(steps)):
        value = np.nextafter(value, np.inf if steps > 0 else -np.inf)
    term = OPERATORS[op](ab.dot("v"), number)
    assert term.own_problems() == []
    assert bool(term.holds(np.array([value]))[0]) == OPERATORS[op](Fraction(float(value)), exact)


def test_limits_of_within_are_exact() -> None:
    for number, limit in (
        (Decimal("0.5"), 0.5),
        (Decimal(2**70 + 1), 2**70 + 1),
        ("0.01", Decimal("0.01")),
        (" 1e3 ", 1000),
        (2**70 + 1, 2**70 + 1),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
    ):
        found = ab.within("x", number)
        assert (found.limit, found.own_problems()) == (limit, [])
    assert ab.within("x", Decimal(2**70 + 1)).limit_as_float == float(2**70)
    assert Fraction(ab.within("x", Decimal("0.1")).limit_as_float) <= Fraction(1, 10)
    assert ab.within("x", 0.1).limit_as_written == Fraction(1, 10)


@pytest.mark.parametrize("odd", [pd.Timedelta(1500, "ns"), np.timedelta64(5, "s"), pd.NaT])
def test_durations_that_are_no_microseconds(odd: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        microseconds(odd)
    assert not is_whole(odd)


def test_problems_are_said_once_and_together() -> None:
    check = Check(left=TYPES)
    for _ in range(2):
        check.whole("k", -1)
    with pytest.raises(ab.errors.InvalidCall, match="nearest cannot start: k must be"):
        check.refuse("nearest")
    Check().refuse("nearest")


def test_changed_settings_are_named() -> None:
    assert changed_settings({"a": "1"}, {"a": "1"}) is None
    assert changed_settings(
        {"window": "1 minute", "k": "5"}, {"k": "5", "window": "2 minutes"}
    ) == (
        "this checkpoint was begun with window='1 minute', and the call now says "
        "window='2 minutes': put it back, or begin a new checkpoint"
    )
    told = changed_settings({"where[1]": "same: k string"}, {"left.keep": "x int"})
    assert told is not None and "begun with where[1]='same: k string', no left.keep, and" in told
    assert "now says no where[1], left.keep='x int': put them back" in told


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2d", 172_800),
        ("5m", 300),
        ("1h30m", 5400),
        ("1w", 604_800),
        ("500ms", 0.5),
        ("2 weeks", 1_209_600),
        ("INTERVAL 10 SECONDS", 10),
        ("interval 1 day 2 hours", 93_600),
        ("INTERVAL '10' SECOND", 10),
        ("INTERVAL '1' DAY '2' HOURS", 93_600),
        ("INTERVAL -'5' MINUTES", -300),
        ("INTERVAL '-1 02:00' DAY TO MINUTE", -93_600),
        ("INTERVAL -'-00:05' HOUR TO MINUTE", 300),
        ("INTERVAL '1 day 2 hours'", 93_600),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 93_784.5),
        ("INTERVAL '00:01:00' HOUR TO SECOND", 60),
        ("2000ns", 2e-6),
    ],
)
def test_durations_of_spark_and_polars(text: str, seconds: float) -> None:
    assert microseconds(text) == round(seconds * 1e6)


@pytest.mark.parametrize("text", ["1mo", "2 years", "1q", "5 ds", "interval", "5", "INTERVAL"])
def test_what_is_no_duration_lists_the_units(text: str) -> None:
    with pytest.raises(ValueError, match="units are w, d, h, m, s, ms, us, ns"):
        microseconds(text)
    if text in ("1mo", "2 years"):
        with pytest.raises(ValueError, match="say days"):
            microseconds(text)


@pytest.mark.parametrize("text", ["1 ns", "0.5us", "1s 1ns"])
def test_durations_between_microseconds_say_so(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration of whole microseconds: at least 1us"):
        microseconds(text)
