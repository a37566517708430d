"""Whatever is given in place of an argument: it works, or the call says what was got."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.assembly.fitting import Erlang, fit_two_moments
from anabranch.errors import InvalidCall

SAMPLE = pa.table({"kind": np.repeat(np.arange(40), 3), "ts": np.arange(120) * 1_000_000})
HOSTILE = [
    None,
    True,
    0,
    -1,
    1.5,
    2**80,
    math.nan,
    math.inf,
    Decimal("0.5"),
    "",
    "x",
    "-5 seconds",
    b"x",
    [],
    [None],
    [math.nan],
    (),
    ("kind", "kind"),
    ([1, 2], [math.nan, 1.0]),
    ([math.inf], [1.0]),
    {},
    {"a": 1},
    np.array([1.0, 2.0]),
    object(),
    pd.DataFrame(),
    pd.Series([1.0]),
]

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "close.count": (ab.close.count, {"n": 3, "timeout": "5 s", "remember": None, "declared": True}),
    "close.gap": (ab.close.gap, {"duration": "5 s", "remember": "1 s"}),
    "close.after": (ab.close.after, {"duration": "5 s", "remember": "1 s"}),
    "close.until": (
        ab.close.until,
        {"marker": "a", "grace": "5 s", "otherwise": ab.close.gap("1 s")},
    ),
    "close.learned": (
        ab.close.learned,
        {
            "timeout": "5 s",
            "risk": 0.1,
            "kind": "a",
            "cap": 10,
            "coverage": 0.5,
            "after": 5,
            "remember": "5 s",
            "spread": 1,
            "max_kinds": 10,
        },
    ),
    "fit_windows": (
        ab.fit_windows,
        {
            "sample": SAMPLE,
            "cover": 0.9,
            "cut": 0.1,
            "tolerance": None,
            "key": "kind",
            "time": "ts",
            "complete": None,
            "settle": 0,
        },
    ),
    "estimate_state": (
        ab.estimate_state,
        {
            "rate": 3.0,
            "windows": None,
            "events": None,
            "close": None,
            "size": 3,
            "timeout": 5.0,
            "sizes": [1, 2],
            "duration": Erlang(2, 1.0),
            "watermark": None,
            "trigger": "1 s",
            "arrival_scv": 1.0,
            "tuple_bytes": 100,
            "peak": 0.99,
        },
    ),
    "fit_two_moments": (fit_two_moments, {"mean": 1.0, "scv": 0.5}),
}


@pytest.mark.parametrize(
    ("call", "name"), [(call, name) for call, (_, good) in CALLS.items() for name in good]
)
def test_wrong_arguments_are_named(call: str, name: str) -> None:
    verb, good = CALLS[call]
    verb(**good)
    refused = 0
    for wrong in HOSTILE:
        try:
            verb(**{**good, name: wrong})
        except InvalidCall as error:
            refused += 1
            assert error.verb == call
            # By its name, or by what was got.
            text = str(error)
            assert name in text or repr(wrong) in text or "column" in text, (name, wrong, text)
    assert refused >= 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ab.close.gap(None), "close.gap cannot start: duration: None is not a duration"),
        (lambda: ab.close.after(None), "duration: None is not a duration"),
        (lambda: ab.close.learned(None), "timeout: None is not a duration"),
        (
            lambda: ab.close.count(None, 5),
            "n must be a whole number of at least 1, got None",
        ),
        (lambda: ab.fit_windows(None), "sample must be a Spark DataFrame, a pandas DataFrame or"),
        (lambda: ab.fit_windows(SAMPLE, key=5), "key must be a column or a list of columns, got 5"),
        (lambda: ab.fit_windows(SAMPLE, key=[]), "key must be a column or a list of columns"),
        (lambda: ab.fit_windows(SAMPLE, key=[["a"]]), "key must name columns by their names"),
        (lambda: ab.fit_windows(SAMPLE, settle="soon"), "settle must be a number of seconds"),
        (lambda: ab.fit_windows(SAMPLE, cover=None), "cover must be a number between 0 and 1"),
        (
            lambda: ab.fit_windows(
                SAMPLE.append_column("ok", pa.array(["no"] * 120)), complete="ok"
            ),
            "column 'ok' is string; complete must be of truth values",
        ),
        (
            lambda: ab.fit_windows(pa.table({"k": [[1]], "ts": [1]}), key="k"),
            "key column 'k' is list<item: int64>, which is no key",
        ),
        (
            lambda: ab.fit_windows(pd.DataFrame([[1, 1, 2]], columns=["ts", "k", "k"]), key="k"),
            "the sample has several columns 'k': rename one",
        ),
        (
            lambda: ab.fit_windows(pd.DataFrame({"k": [1, "a"], "ts": [1, 2]}), key="k"),
            "sample cannot be read",
        ),
    ],
)
def test_wrong_calls_say_what_was_got(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidCall) as error:
        make()
    assert message in str(error.value)


def test_settling_takes_durations() -> None:
    assert ab.fit_windows(SAMPLE, settle="30 seconds").unsettled == 10
    assert ab.fit_windows(SAMPLE, settle=30).unsettled == 10


def test_columns_that_are_not_asked_for_do_no_harm() -> None:
    frame = SAMPLE.to_pandas()
    frame["mixed"] = [1, "a"] * 60
    frame[5] = 0
    assert ab.fit_windows(frame, key="kind").instances == ab.fit_windows(SAMPLE).instances
