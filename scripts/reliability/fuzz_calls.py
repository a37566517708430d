"""Random arguments of the verbs below: a call is taken, or refused with all its problems named."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.fitting.windows import fit_windows
from anabranch.assembly.predicting import estimate_state
from anabranch.correlation.call import plan_correlation
from anabranch.errors import InvalidCall
from anabranch.neighbours.call import plan_nearest
from scripts.reliability.odd import Odd

__all__ = ["check"]

_TYPES = ["bigint", "int", "string", "timestamp", "timestamp_ntz", "date", "boolean", "binary",
          "double", "float", "decimal(10,2)", "decimal(38,18)", "array<float>", "array<double>",
          "array<int>", "array<string>", "array<array<float>>", "map<string,int>", "void",
          "struct<a:int,b.c:string>", "variant", "interval day to second", "",
          "string collate UTF8_LCASE"]  # fmt: skip
_DURATIONS = ["1 second", "500ms", "0 seconds", "-1 hour", "2 weeks", "1 month", "5", "", " ",
              "INTERVAL 5 SECONDS", "1e3 seconds", "99999999999999999999 days", "0.1 us",
              "NaN seconds", "\uff11 second", dt.timedelta(seconds=3), dt.timedelta.max,
              dt.timedelta(-1), 5, 0, -3, 2.5, 10**30]  # fmt: skip
_ANY = [None, True, False, 0, 1, -1, 3, 10**30, 0.5, -0.0, math.nan, math.inf, 1e308, "", "v",
        "id", "x.y", "`", "\x00", b"v", [], (), {}, ["v"], ["v", "v"], ("id", "id"), [None],
        ("a", "b", "c"), object, len, Decimal("NaN"), Decimal("0.01"), 1j, {"v": 1}, {"v"},
        range(3), dt.date.max, Ellipsis]  # fmt: skip


def check(seed: int) -> str:
    """Make a random call; what became of it."""
    odd = Odd(f"calls {seed}")
    verb = odd.pick(list(_VERBS))
    try:
        problems = _VERBS[verb](odd)
    except InvalidCall as error:
        problems = list(error.problems)
        assert str(error).strip(), "a refusal without a word"
    for problem in problems:
        assert isinstance(problem, str) and len(problem) > 10, f"no reason: {problem!r}"
    return "refused, with a reason" if problems else "taken"


def _schema(odd: Odd) -> dict[str, str]:
    """Columns of all types, with those that a call needs nearly always."""
    named = {name: odd.pick(_TYPES) for name in odd.names(odd.below(8))}
    usual = {"id": "bigint", "ts": "timestamp", "v": "array<double>", "query_id": "bigint",
             "k": "int", "page": "string", "x": "double", "words": "array<string>"}  # fmt: skip
    for name in list(usual):
        if odd.chance(0.03):
            del usual[name]
        elif odd.chance(0.04):
            usual[name] = odd.pick(_TYPES)
    return {**named, **usual}


def _column(odd: Odd) -> Any:
    if odd.chance(0.1):
        return odd.pick(_ANY)
    return odd.pick(["v", "v", "id", "ts", "x", "page", "words", "missing", odd.names(1)[0]])


_SUITED = {"edit": "page", "jaro_winkler": "page", "jaccard": "words", "same": "page",
           "differs": "page", "within": "x"}  # fmt: skip


def _span(odd: Odd) -> Any:
    return odd.pick(_DURATIONS) if odd.chance(0.15) else odd.pick(["1 second", "90s", 3, "2 days"])


def _number(odd: Odd) -> Any:
    if odd.chance(0.05):
        return odd.pick(_ANY)
    return odd.pick([0, 0.5, -1, 1e300, 2**63]) if odd.chance(0.15) else odd.pick([1, 1, 0.5, 3])


def _predicate(odd: Odd, depth: int = 0) -> Any:
    if odd.chance(0.02):
        return odd.pick(_ANY)
    if depth < 3 and odd.chance(0.35):
        a, b = _predicate(odd, depth + 1), _predicate(odd, depth + 1)
        if not isinstance(a, ab.predicates.Predicate):
            return a
        if odd.chance(0.2):
            return ~a
        if not isinstance(b, ab.predicates.Predicate):
            return b
        return a & b if odd.chance(0.5) else a | b
    name = odd.pick(["cosine", "dot", "euclidean", "manhattan", "hamming", "emd", "edit", "within",
                     "jaro_winkler", "jaccard", "same", "differs", "custom",
                     "haversine"])  # fmt: skip
    column = _SUITED.get(name, "v") if odd.chance(0.85) else _column(odd)
    if name == "within":
        return ab.within(column, _span(odd) if odd.chance(0.3) else _number(odd))
    if name in ("same", "differs"):
        return getattr(ab, name)(*[column] * (1 + odd.below(2)))
    if name == "custom":
        return ab.custom(odd.pick([len, None, max]), left=odd.pick([["v"], "v", [], None]),
                         right=odd.pick([["v"], ["missing"], 5]))  # fmt: skip
    if name == "haversine":
        columns = (
            ["x", "x"] if odd.chance(0.85) else [_column(odd) for _ in range(2 + odd.below(3))]
        )
        return _compare(odd, ab.haversine(*columns), _number(odd))
    dim: dict[str, Any] = {"dim": _number(odd)} if odd.chance(0.15) and name not in _NO_DIM else {}
    measure = getattr(ab, name)(column, **dim)
    return _compare(odd, measure, _number(odd))


_NO_DIM = {"edit", "jaro_winkler", "jaccard"}


def _compare(odd: Odd, measure: Any, threshold: Any) -> Any:
    op = odd.pick(["__ge__", "__gt__", "__le__", "__lt__"])
    found = getattr(measure, op)(threshold)
    return measure if found is NotImplemented else found


def _plan(odd: Odd) -> Any:
    if odd.chance(0.5):
        return None
    make: list[Callable[[], Any]] = [
        lambda: ab.grid(_number(odd), _number(odd)),
        lambda: ab.broadcast(_number(odd), odd.pick(["left", "right", "both", 5])),
        lambda: ab.segments(_number(odd), _span(odd)),
        lambda: ab.keyed(_number(odd), weights=odd.pick([None, [1, 2], [0, 0], [math.nan], "ab"])),
        lambda: ab.triangle(_number(odd)),
        lambda: ab.selective(_number(odd)),
        lambda: ab.ranges(_number(odd), **_some(odd, {"count": lambda: _number(odd)})),
        lambda: ab.adaptive(_number(odd)),
        lambda: odd.pick(_ANY),
    ]
    return odd.pick(make)()


def _some(odd: Odd, options: dict[str, Callable[[], Any]], share: float = 0.25) -> dict[str, Any]:
    """Some of these arguments, with values that may be anything."""
    return {name: make() if odd.chance(0.97) else odd.pick(_ANY)
            for name, make in options.items() if odd.chance(share)}  # fmt: skip


def _correlate(odd: Odd) -> list[str]:
    schema = _schema(odd)
    other = None if odd.chance(0.2) else _schema(odd) if odd.chance(0.3) else schema
    call = {"where": _predicate(odd), "window": _span(odd)}
    if odd.chance(0.2):
        call["window"] = (_span(odd), _span(odd))
    call |= _some(odd, {
        "time": lambda: odd.pick(["ts", ("ts", "ts"), _column(odd)]),
        "id": lambda: odd.pick(["id", ("id", "id"), _column(odd)]),
        "keep": lambda: odd.pick([["x"], "x", (["x"], []), [_column(odd)]]),
        "watermark": lambda: _span(odd),
        "plan": lambda: _plan(odd),
        "bad_rows": lambda: odd.pick(["fail", "drop", "keep"]),
        "how": lambda: odd.pick(["inner", "left", "anti", "dedupe", "outer"]),
        "device": lambda: odd.pick(["auto", "cpu", "tpu"]),
    })  # fmt: skip
    return plan_correlation(schema, other, **call)[1]


def _nearest(odd: Odd) -> list[str]:
    by = odd.pick(["v", ab.euclidean("v"), ab.cosine("v", dim=3), ab.hamming("v"), _column(odd)])
    call = {"by": by} | _some(odd, {
        "k": lambda: _number(odd), "window": lambda: _span(odd), "rows": lambda: _number(odd),
        "where": lambda: _predicate(odd),
        "keep": lambda: odd.pick(["x", ["x", "page"], [_column(odd)]]),
        "watermark": lambda: _span(odd), "plan": lambda: _plan(odd),
        "method": lambda: odd.pick(["exact", "relaxed", "probabilistic", "fast"]),
        "error": lambda: _number(odd), "output": lambda: odd.pick(["hits", "top", "all"]),
        "bad_rows": lambda: odd.pick(["fail", "drop"]), "time": lambda: _column(odd),
        "id": lambda: _column(odd), "objects_per_window": lambda: _number(odd),
    })  # fmt: skip
    return plan_nearest(_schema(odd), _schema(odd), **call)[1]


def _assemble(odd: Odd) -> list[str]:
    schemas = (
        [_schema(odd)] * odd.pick([1, 1, 2, 70])
        if odd.chance(0.9)
        else [_schema(odd), _schema(odd)]
    )
    call = {"key": odd.pick(["page", ["page", "id"], _column(odd)]), "close": _policy(odd)}
    call |= _some(odd, {
        "time": lambda: _column(odd), "keep": lambda: odd.pick(["x", ["x", "x"], [_column(odd)]]),
        "response": lambda: _column(odd), "watermark": lambda: _span(odd),
        "max_open": lambda: _number(odd),
        "clock": lambda: odd.pick(["event", "processing", "wall"]),
        "bad_rows": lambda: odd.pick(["fail", "drop"]),
    })  # fmt: skip
    return plan_assembly(schemas, **call)[1]


def _policy(odd: Odd, depth: int = 0) -> Any:
    span = lambda: _span(odd)  # noqa: E731
    make: list[Callable[[], Any]] = [
        lambda: ab.close.count(_number(odd), span()),
        lambda: ab.close.gap(span(), **_some(odd, {"remember": span})),
        lambda: ab.close.after(span()),
        lambda: ab.close.learned(span(), **_some(odd, {
            "risk": lambda: _number(odd), "after": lambda: _number(odd),
            "cap": lambda: _number(odd), "coverage": lambda: _number(odd),
            "spread": lambda: _number(odd), "kind": lambda: _column(odd),
            "remember": span, "max_kinds": lambda: _number(odd)})),
        lambda: odd.pick(_ANY),
    ]  # fmt: skip
    if depth == 0:
        make.append(lambda: ab.close.until(_column(odd), span(), otherwise=_policy(odd, 1)))
    return odd.pick(make)()


def _place(odd: Odd) -> list[str]:
    def weight() -> Any:
        return _number(odd)

    def name() -> Any:
        return (
            odd.pick(["a", "b", "c", "s1", "s2", *odd.names(1)])
            if odd.chance(0.95)
            else odd.pick(_ANY)
        )

    rows: Any = [(name(), name(), weight()) for _ in range(odd.below(5))]
    sources: Any = {odd.pick(["s1", "s2", "a"]): odd.pick(["d1", "d2", None, 5]) for _ in range(2)}
    if odd.chance(0.1):
        rows = odd.pick(_ANY)
    if odd.chance(0.1):
        sources = odd.pick(_ANY)
    more = _some(odd, {"capacity": lambda: odd.pick([{"d1": 1}, {"d1": -1}, {"x": 1}, 5])}, 0.3)
    ab.place(rows, sources, weight(), weight(), **more)
    return []


def _fit(odd: Odd) -> list[str]:
    """Over a small sample in memory, whose values may not suit either."""
    count = odd.pick([0, 1, 3, 30])
    sample: Any = pd.DataFrame(
        {
            "page": [odd.below(4) for _ in range(count)],
            "ts": [odd.real(tame=0.97) for _ in range(count)],
            "x": [odd.whole() for _ in range(count)],
        }
    )
    if odd.chance(0.1):
        sample = odd.pick([*_ANY, pa.Table.from_pandas(sample)])
    share = lambda: odd.pick([0.5, 0.9, 0, 1, -1, 2, math.nan])  # noqa: E731
    call = {"key": "page"} | _some(odd, {
        "cover": share, "cut": share, "tolerance": share, "key": lambda: _column(odd),
        "time": lambda: odd.pick(["ts", "x", _column(odd)]), "settle": lambda: _span(odd),
        "complete": lambda: odd.pick(["x > 0", "x", "x >", "missing = 1", _column(odd)]),
    })  # fmt: skip
    fit_windows(sample, **call)
    return []


def _estimate(odd: Odd) -> list[str]:
    call = {"rate": _number(odd), "size": _number(odd), "timeout": _span(odd)}
    call |= _some(odd, {
        "events": lambda: _number(odd), "close": lambda: _policy(odd),
        "sizes": lambda: odd.pick([[1, 2, 3], [], ([1, 2], [0.5, 0.5]), ([1], [2]), [math.nan]]),
        "watermark": lambda: _span(odd), "trigger": lambda: _span(odd),
        "arrival_scv": lambda: _number(odd), "tuple_bytes": lambda: _number(odd),
        "peak": lambda: odd.pick([0.9, 0.999, 0, 1, math.nan]),
    })  # fmt: skip
    for name in list(call):
        if odd.chance(0.2):
            del call[name]
    estimate_state(**call)
    return []


_VERBS: dict[str, Callable[[Odd], list[str]]] = {
    "correlate": _correlate,
    "nearest": _nearest,
    "assemble": _assemble,
    "place": _place,
    "fit_windows": _fit,
    "estimate_state": _estimate,
}
