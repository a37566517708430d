"""Whatever is passed by mistake, the answer names it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab

ROWS = [("w", "p", 10.0), ("w", "q", 2.0), ("x", "w", 3.0), ("x", "r", 1.0)]
SOURCES = {"p": "P", "q": "Q", "r": "cloud"}
LINKS = [("e", "f", 1.0)]
GPS = ab.feed("gps", by="user")
PEOPLE = pd.DataFrame({"user": ["ann"], "rate": [1.0]})

NOTHING = {
    "None": None,
    "nan": math.nan,
    "NA": pd.NA,
    "NaT": pd.NaT,
    "decimal nan": Decimal("nan"),
    "list": [None],
    "set": {1},
    "dict": {None: None},
    "rows": [([], "p", 1.0)],
    "array": np.zeros((2, 3)),
    "series": pd.Series([1, 2]),
    "frame": pd.DataFrame([[1, 2, 3, 4]], columns=["view", "view", "input", "rate"]),
    "arrow": pa.table({"x": [1]}),
}
"""No id, no number, no table, no word."""

OTHERS = {
    "huge": 10**400,
    "negative": -1,
    "infinite": math.inf,
    "text": "x",
    "nothing": "",
    "complex": 1j,
    "bytes": b"abc",
    "type": int,
    "function": len,
    "object": object(),
}
"""No number, no table; some may be ids."""


@functools.cache
def plan() -> ab.placement.Placement:
    found: ab.placement.Placement = ab.place(ROWS, SOURCES)
    return found


def core(links: Any = LINKS, attached: Any = None, sites: Any = None) -> Any:
    attached = {"P": "e", "Q": "f"} if attached is None else attached
    network = ab.placement.CoreNetwork(links, attached, {"r": "e"} if sites is None else sites)
    return ab.place(ROWS, SOURCES, core=network)


def column(name: str, value: Any) -> pd.DataFrame:
    held = np.empty(1, object)
    held[0] = value
    return PEOPLE.assign(**{name: pd.Series(held, dtype=object)})


IDS: dict[str, Callable[[Any], Any]] = {
    "view": lambda v: ab.place([(v, "p", 1.0)], SOURCES),
    "input": lambda v: ab.place([("w", v, 1.0)], SOURCES),
    "source": lambda v: ab.place([("w", "p", 1.0)], [(v, "P"), ("p", "P")]),
    "device": lambda v: ab.place([("w", "p", 1.0)], {"p": v}),
    "changed view": lambda v: plan().replan([(v, "p", 1.0)]),
    "changed input": lambda v: plan().replan([("w", v, 1.0)]),
    "explained view": lambda v: plan().explain(v),
    "failed device": lambda v: plan().without(v),
    "key": lambda v: ab.placement.template("t", {GPS: 1.0}).over(column("user", v)),
    "site": lambda v: ab.placement.CoreNetwork([(v, "f", 1.0)], {}),
    "site of a device": lambda v: core(attached={"P": v, "Q": "e"}),
}

OTHER: dict[str, Callable[[Any], Any]] = {
    "inputs": lambda v: ab.place(v, SOURCES),
    "sources": lambda v: ab.place(ROWS, v),
    "upload_cost": lambda v: ab.place(ROWS, SOURCES, upload_cost=v),
    "download_cost": lambda v: ab.place(ROWS, SOURCES, download_cost={"P": v, "Q": 1.0}),
    "capacity": lambda v: ab.place(ROWS, SOURCES, capacity={"P": v}),
    "capacities": lambda v: ab.place(ROWS, SOURCES, capacity=v if v is not None else "1"),
    "load": lambda v: ab.place(ROWS, SOURCES, capacity={"P": 1.0}, load={"w": v, "x": 1.0}),
    "loads": lambda v: ab.place(
        ROWS, SOURCES, capacity={"P": 1.0}, load=v if v is not None else -1
    ),
    "shared": lambda v: ab.place(ROWS, SOURCES, shared=v),
    "core": lambda v: ab.place(ROWS, SOURCES, core=v if v is not None else 1),
    "time_limit": lambda v: ab.place(ROWS, SOURCES, time_limit=v),
    "rate": lambda v: ab.place([("w", "p", v), ("w", "q", 1.0)], SOURCES),
    "changes": lambda v: plan().replan(v),
    "changed rate": lambda v: plan().replan([("w", "p", v)]),
    "feed": lambda v: ab.feed(v if not isinstance(v, str) else "", by="user"),
    "by": lambda v: ab.feed("gps", by=v if not isinstance(v, str) else ""),
    "home": lambda v: ab.feed("gps", by="user", home=v if v is not None else 1),
    "template": lambda v: ab.placement.template(v if not isinstance(v, str) else "", {GPS: 1.0}),
    "template inputs": lambda v: ab.placement.template("t", v),
    "template rate": lambda v: ab.placement.template("t", {GPS: v}).over(PEOPLE),
    "where": lambda v: ab.placement.template(
        "t", {GPS: 1.0}, where=v if not isinstance(v, str) else 1
    ),
    "symmetric": lambda v: ab.placement.template("t", {GPS: 1.0}, symmetric=v),
    "reference": lambda v: ab.placement.template("t", {GPS: 1.0}).over(v),
    "reference rate": lambda v: ab.placement.template("t", {GPS: "rate"}).over(column("rate", v)),
    "links": lambda v: ab.placement.CoreNetwork(v, {}),
    "link": lambda v: ab.placement.CoreNetwork([v], {}),
    "link cost": lambda v: ab.placement.CoreNetwork([("e", "f", v)], {}),
    "attached": lambda v: core(attached=v if v is not None else 1),
    "sites": lambda v: core(sites=v if v is not None else 1),
    "plan": lambda v: ab.placement.Switcher(v, 1.0),
    "price": lambda v: ab.placement.Switcher(plan(), v),
    "price of a device": lambda v: ab.placement.Switcher(plan(), {"P": v, "Q": 1.0}),
    "observed": lambda v: ab.placement.Switcher(plan(), 1.0).observe(v),
    "duration": lambda v: ab.placement.Switcher(plan(), 1.0).observe([("w", "p", 1.0)], v),
}


def accepted(call: Callable[[Any], Any], values: dict[str, Any]) -> list[str]:
    found = []
    for name, value in values.items():
        try:
            call(value)
        except ab.errors.InvalidCall:
            continue
        found.append(name)
    return found


@pytest.mark.parametrize("call", IDS)
def test_what_is_no_id_is_refused(call: str) -> None:
    assert accepted(IDS[call], NOTHING) == []


@pytest.mark.parametrize("call", OTHER)
def test_what_is_no_value_is_refused(call: str) -> None:
    assert accepted(OTHER[call], NOTHING | OTHERS) == []


def test_empty_tables_and_calls() -> None:
    for wrong in (lambda: ab.place([], SOURCES), lambda: ab.place(pd.DataFrame(), SOURCES)):
        with pytest.raises(ab.errors.InvalidCall, match=r"inputs (is empty|has no column)"):
            wrong()
    same_plan = plan().replan([])
    assert same_plan.location == plan().without().location == plan().location
    nothing = plan().without("P", "Q")
    assert nothing.location == {} and nothing.cost == 0 and nothing.optimal
    assert nothing.table().num_rows == nothing.traffic().num_rows == 0
    assert "0 views" in nothing.summary()
    assert ab.placement.Switcher(nothing, 1.0).observe([]) == []


def test_messages_say_what_was_got_and_what_is_allowed() -> None:
    for call, text in (
        (lambda: ab.place([(["w"], "p", 1.0)], SOURCES), r"'view' of inputs holds \['w'\]: an id"),
        (lambda: plan().replan([("w", {}, 1.0)]), r"'input' of changes holds {}: an id must be"),
        (lambda: ab.place([("w", "p", 1j)], SOURCES), r"view 'w' for input 'p' \(1j\)"),
        (lambda: ab.place([(10**400, "p", 1.0)], SOURCES), "an integer of 401 digits"),
        (lambda: ab.place(ROWS, [(None, "P")]), "1 rows of sources name no source"),
        (lambda: ab.place(ROWS, SOURCES, time_limit=None), "seconds above 0, got None"),  # type: ignore[arg-type]
        (lambda: ab.feed("gps", by=None), "or a list of columns, got None"),  # type: ignore[arg-type]
        (lambda: ab.placement.template("t", {GPS: 1.0}, where=3), "filter as text, got 3"),  # type: ignore[arg-type]
        (lambda: ab.placement.CoreNetwork(None, {}), r"a list of \(site, site, cost\), got None"),  # type: ignore[arg-type]
        (lambda: ab.placement.CoreNetwork(LINKS, 3), "attached must be a dict to sites, got 3"),  # type: ignore[arg-type]
        (lambda: ab.placement.Switcher(3, 1.0), r"plan must come from ab\.place, got int"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ab.errors.InvalidCall, match=text):
            call()


def test_times_are_no_rates() -> None:
    frame = pd.DataFrame({"view": ["w"], "input": ["p"], "rate": [pd.Timestamp("2024-01-01")]})
    with pytest.raises(ab.errors.InvalidCall, match="rate must be a number of at least 0"):
        ab.place(frame, SOURCES)
