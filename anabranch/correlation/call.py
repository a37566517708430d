"""One validated call of `correlate`: what to compare, over which window, and what to carry.

The check needs the two schemas and nothing else, so it runs without Spark, finds every problem at
once, and turns the predicate into *slots*: for each term, the columns of the left and the right
side in the form that the kernels compare (a vector, bits, an integer, a code, ...).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anabranch.calls import LONGEST, Duration, describe, microseconds
from anabranch.correlation.emd.locality import Locality
from anabranch.correlation.emd.measure import EmdMeasure
from anabranch.flow.blocks import Block
from anabranch.plans.plan import Plan, Routing
from anabranch.plans.spans import Spans
from anabranch.predicates import (
    Compared,
    Custom,
    Measure,
    Predicate,
    Same,
    Term,
    VectorMeasure,
    Within,
    is_number,
)

__all__ = ["Correlation", "Side", "Slot", "plan_correlation"]

Schema = Mapping[str, str]  # column name -> Spark's simple type name

_INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})
_FLOATING = frozenset({"float", "double"})
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
_VECTORS = frozenset({"array<float>", "array<double>"})
_COUNTS = frozenset(f"array<{kind}>" for kind in _INTEGRAL)  # histograms as they are counted
_TEXT = re.compile(r"string|binary|boolean|decimal\(.*\)|varchar\(.*\)|char\(.*\)")
_DAY = 86_400_000_000


@dataclass(frozen=True)
class Slot:
    """One compared column of one side.

    `kind` is one of ``vector`` (f4 or f8 matrix), ``bits`` (64-bit words), ``int``, ``float``,
    ``code`` (an integer that is the key), ``text`` (a key as text, with its hash in a second
    column) or ``raw`` (handed to a custom function). `measure` names the vector measure.
    """

    name: str
    column: str
    kind: str
    type: str
    dim: int | None = None
    measure: str = ""

    @property
    def stored_type(self) -> str:
        """The type of what is compared and stored: numbers are brought to 64 bits first.

        Examples
        --------
        >>> [Slot("s0", "x", "int", kind).stored_type for kind in ("smallint", "date")]
        ['bigint', 'date']
        """
        if self.kind == "float":
            return "double"
        return "bigint" if self.kind in ("int", "code") and self.type in _INTEGRAL else self.type


@dataclass(frozen=True)
class Side:
    """What the query reads of one input."""

    label: str
    time: str
    id: str
    id_is_text: bool
    slots: tuple[Slot, ...]
    keep: tuple[str, ...]


@dataclass(frozen=True)
class Correlation:
    """A call of `correlate` that can run."""

    where: Predicate
    window: tuple[int, int]
    left: Side
    right: Side
    plan: Plan | None
    drop_bad_rows: bool = False
    late: int | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    kept_types: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def settings(self) -> dict[str, str]:
        """What must stay the same for stored rows to keep their meaning, by name."""
        found = {"window": f"{describe(self.window[0])} and {describe(self.window[1])}"}
        for side, types in zip(self.sides, self.kept_types, strict=True):
            found[f"{side.label} time"] = side.time
            found[f"{side.label} id"] = f"{side.id} ({'text' if side.id_is_text else 'number'})"
            for slot in side.slots:
                found[f"{side.label} column {slot.name[1:]}"] = (
                    f"{slot.column} ({slot.stored_type}, as {slot.kind} {slot.measure}".strip()
                    + ")"
                )
            found[f"{side.label} keep"] = ", ".join(
                f"{name} ({type_})" for name, type_ in zip(side.keep, types, strict=True)
            )
        return found

    @property
    def locality(self) -> Locality | None:
        """Where the keys of a plan by value come from; None if the predicate has none."""
        for number, term in enumerate(self.where.terms):
            if isinstance(term, Compared) and isinstance(term.measure, EmdMeasure):
                near, ground = not term.upward, term.measure.ground
                if near and ground.bins is not None:
                    return Locality(f"s{number}", ground, float(term.threshold))
        return None

    def values(self, block: Block) -> np.ndarray | None:
        """The keys of rows of either side, for a plan by value."""
        locality = self.locality
        return None if locality is None else locality.keys(block)

    def bound(self, plan: Plan) -> Plan:
        """The plan, told the range of keys if it needs it; `ValueError` if it does not fit."""
        if plan.needs == "key" and not self.has_key:
            raise ValueError(
                f"plan {plan} spreads rows by key: it needs an equality such as ab.same('room') in "
                "the predicate"
            )
        if not isinstance(plan, Spans):
            return plan
        if self.locality is None:
            raise ValueError(
                f"plan {plan} cuts the keys of an Earth Mover's Distance: it needs a term such as "
                "ab.emd('hist', dim=256) <= 0.5, with the number of bins, in the predicate"
            )
        return self.locality.bind(plan)

    @property
    def sides(self) -> tuple[Side, Side]:
        return (self.left, self.right)

    @property
    def has_key(self) -> bool:
        """Whether an equality is among the terms."""
        return any(isinstance(term, Same) for term in self.where.terms)


def plan_correlation(
    left: Schema,
    right: Schema,
    *,
    where: Any,
    window: Any,
    time: Any = "ts",
    id: Any = "id",
    keep: Any = (),
    late: Any = None,
    plan: Any = None,
    bad_rows: Any = "fail",
) -> tuple[Correlation | None, list[str]]:
    """The correlation and the problems that stand in its way; one of them is empty.

    Examples
    --------
    >>> from anabranch.predicates import cosine
    >>> schema = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
    >>> where = cosine("v") >= 0.9
    >>> spec, problems = plan_correlation(schema, schema, where=where, window="1 minute")
    >>> spec.window, problems
    ((60000000, 60000000), [])
    >>> plan_correlation(schema, schema, where=cosine("w") >= 0.9, window="-1 minute")[1]
    ["window must not be negative, got '-1 minute'; 0 seconds is allowed", "left has no column 'w' \
(needed by cosine('w') >= 0.9); it has id, ts, v", "right has no column 'w' \
(needed by cosine('w') >= 0.9); it has id, ts, v"]
    """
    check = _Check((left, right))
    spans = check.window(window)
    delay = check.late(late)
    times = check.pair("time", time)
    ids = check.pair("id", id)
    kept = check.keeps(keep)
    if bad_rows not in ("fail", "drop"):
        check.problems.append(f"bad_rows must be 'fail' or 'drop', got {bad_rows!r}")
    if isinstance(plan, Routing):
        check.problems.append(
            f"plan {plan} is for {plan.verb}; correlate takes ab.ssp(...), ab.csp(...), "
            "ab.grid(...) or ab.spans(...)"
        )
    elif plan is not None and not isinstance(plan, Plan):
        check.problems.append(
            "plan must be one of ab.ssp(...), ab.csp(...), ab.grid(...), ab.spans(...), "
            f"got {plan!r}"
        )
    predicate = check.predicate(where)
    slots = check.slots(predicate) if predicate is not None else ((), ())
    for n, label in enumerate(("left", "right")):
        check.type_in(n, times[n], {"timestamp"}, "time", "cast it, for example with to_timestamp")
        check.type_in(n, ids[n], {"bigint", "int", "string"}, "id", "cast it to long or string")
        for column in kept[n]:
            check.exists(n, column, "keep")
        outputs = [f"{label}_{c}" for c in (ids[n], times[n], *kept[n])]
        twice = sorted({c for c in outputs if outputs.count(c) > 1})
        if twice:
            check.problems.append(f"keep: the result would have two columns named {twice[0]!r}")
    keyless = predicate is not None and not any(isinstance(t, Same) for t in predicate.terms)
    if keyless and isinstance(plan, Plan) and plan.needs == "key":
        check.problems.append(f"plan {plan} spreads by key: add ab.same(...) to the predicate")
    if bad_rows == "drop":
        for slot in [slot for slot in slots[0] if _needs_length(slot) and slot.dim is None]:
            verb = slot.measure.split()[0]
            check.problems.append(
                f"bad_rows='drop' needs the length of {slot.column!r}, ab.{verb}(..., dim=64), "
                "or it would depend on what arrives first which rows are dropped"
            )
    if check.problems or predicate is None:
        return None, list(dict.fromkeys(check.problems))
    sides = [
        Side(
            label,
            times[n],
            ids[n],
            check.schemas[n][ids[n]] == "string",
            tuple(slots[n]),
            tuple(kept[n]),
        )
        for n, label in enumerate(("left", "right"))
    ]
    found = Correlation(
        predicate,
        spans,
        sides[0],
        sides[1],
        plan,
        bad_rows == "drop",
        delay,
        check.limits,
        (tuple(left[name] for name in kept[0]), tuple(right[name] for name in kept[1])),
    )
    if plan is None:
        return found, []
    try:
        return replace(found, plan=found.bound(plan)), []
    except ValueError as error:
        return None, [str(error)]


class _Check:
    """Collects what is wrong with one call."""

    def __init__(self, schemas: tuple[Schema, Schema]) -> None:
        self.schemas = schemas
        self.problems: list[str] = []
        self.limits: dict[str, float] = {}

    def window(self, window: Any) -> tuple[int, int]:
        both = window if isinstance(window, (tuple, list)) else (window, window)
        if len(both) != 2:
            self.problems.append(
                f"window must be one duration or a pair (W_left, W_right), got {window!r}"
            )
            return (0, 0)
        spans = [self._duration("window", value) for value in both]
        for value, span in zip(both, spans, strict=True):
            if span < 0:
                self.problems.append(
                    f"window must not be negative, got {value!r}; 0 seconds is allowed"
                )
                break
        return (spans[0], spans[1])

    def late(self, late: Any) -> int | None:
        if late is None:
            return None
        delay = self._duration("late", late)
        if delay < 0:
            self.problems.append(f"late must not be negative, got {late!r}")
        return delay

    def _duration(self, name: str, value: Duration) -> int:
        try:
            found = microseconds(value)
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            return 0
        if found > LONGEST:
            self.problems.append(f"{name} must be at most {describe(LONGEST)}, got {value!r}")
        return found

    def pair(self, name: str, value: Any) -> tuple[str, str]:
        both = value if isinstance(value, (tuple, list)) else (value, value)
        if len(both) != 2 or not all(isinstance(column, str) and column for column in both):
            self.problems.append(f"{name} must be a column name or a pair of them, got {value!r}")
            return ("", "")
        return (both[0], both[1])

    def keeps(self, keep: Any) -> tuple[Sequence[str], Sequence[str]]:
        if isinstance(keep, tuple) and len(keep) == 2 and all(_is_names(part) for part in keep):
            return (keep[0], keep[1])
        if _is_names(keep) and not isinstance(keep, str):
            return (keep, keep)
        self.problems.append(
            f"keep must be a list of column names, or a pair (left_list, right_list), got {keep!r}"
        )
        return ((), ())

    def predicate(self, where: Any) -> Predicate | None:
        if isinstance(where, Measure) and not isinstance(where, Custom):
            self.problems.append(
                f"where={where!r} is not compared with anything: write for example {where!r} >= 0.9"
            )
            return None
        if not isinstance(where, Predicate):
            self.problems.append(
                f"where must be a predicate such as ab.cosine('v') >= 0.9, got {where!r}"
            )
            return None
        self.problems += where.problems()
        return where

    def exists(self, n: int, column: str, needed_by: str) -> bool:
        if column in self.schemas[n] or not column:
            return bool(column)
        label, known = ("left", "right")[n], ", ".join(self.schemas[n])
        self.problems.append(
            f"{label} has no column {column!r} (needed by {needed_by}); it has {known}"
        )
        return False

    def type_in(self, n: int, column: str, allowed: set[str], use: str, remedy: str) -> None:
        if self.exists(n, column, use) and (found := self.schemas[n][column]) not in allowed:
            label, wanted = ("left", "right")[n], " or ".join(sorted(allowed))
            self.problems.append(
                f"{use}: {label} column {column!r} is {found}, not {wanted}; {remedy}"
            )

    def slots(self, where: Predicate) -> tuple[list[Slot], list[Slot]]:
        found: tuple[list[Slot], list[Slot]] = ([], [])
        for number, term in enumerate(where.terms):
            name = f"s{number}"
            columns = _columns_of(term)
            present = [
                all([self.exists(n, column, repr(term)) for column in columns[n]]) for n in (0, 1)
            ]
            if not all(present):
                continue
            types = [[self.schemas[n][column] for column in columns[n]] for n in (0, 1)]
            kind = self._kind(name, term, types)
            if kind is None:
                continue
            measure = getattr(term, "measure", None)
            dim, measured = getattr(measure, "dim", None), getattr(measure, "label", "")
            for n in (0, 1):
                for place, (column, type_) in enumerate(zip(columns[n], types[n], strict=True)):
                    slot = f"{name}_{place}" if kind == "raw" else name
                    found[n].append(Slot(slot, column, kind, type_, dim, measured))
        return found

    def _kind(self, name: str, term: Term, types: Sequence[Sequence[str]]) -> str | None:
        if isinstance(term, Custom) or (
            isinstance(term, Compared) and isinstance(term.measure, Custom)
        ):
            return "raw"
        a, b = types[0][0], types[1][0]
        got = f"left is {a}, right is {b}"
        if isinstance(term, Compared) and isinstance(term.measure, VectorMeasure):
            allowed = _VECTORS | _COUNTS if isinstance(term.measure, EmdMeasure) else _VECTORS
            if a in allowed and b in allowed:
                return "vector"
            if term.measure.kind == "hamming":
                if a == b and a in ("binary", "bigint"):
                    return "bits"
                wanted = "array<float>, array<double>, or binary or bigint on both sides"
            else:
                wanted = "array<float> or array<double>"
                if allowed is not _VECTORS:
                    wanted += ", or arrays of whole numbers"
            self.problems.append(f"{term!r} compares {wanted}; {got}")
            for column, type_ in ((term.measure.left, a), (term.measure.right, b)):
                if type_ not in allowed and type_.startswith("array<"):
                    self.problems[-1] += f"; cast it, F.col({column!r}).cast('array<double>')"
                    break
        elif isinstance(term, Within):
            return self._within(name, term, a, b, got)
        elif (a == b and (a in _INTEGRAL | _TIMES)) or (a in _INTEGRAL and b in _INTEGRAL):
            return "code"
        elif a == b and _TEXT.fullmatch(a):
            return "text"
        elif a in _FLOATING or b in _FLOATING:
            self.problems.append(
                f"{term!r}: equality of floating-point numbers ({got}) is not dependable; use "
                "ab.within with a small limit, or cast to decimal or string"
            )
        else:
            self.problems.append(f"{term!r} needs the same type on both sides; {got}: cast one")
        return None

    def _within(self, name: str, term: Within, a: str, b: str, got: str) -> str | None:
        limit = term.limit
        if a in _TIMES or b in _TIMES:
            if a != b:
                self.problems.append(f"{term!r} needs the same type on both sides; {got}: cast one")
            elif a == "date" and is_number(limit):
                self.limits[name] = int(limit // 1)  # type: ignore[operator, arg-type]
                return "int"
            elif is_number(limit):
                self.problems.append(
                    f"{term!r}: for timestamps write the limit as a duration such as '5 minutes'"
                )
            else:
                try:
                    span = microseconds(limit)  # type: ignore[arg-type]
                except ValueError:
                    return None  # the predicate's own problems name it
                self.limits[name] = span // _DAY if a == "date" else span
                return "int"
        elif {a, b} <= _INTEGRAL | _FLOATING:
            if not is_number(limit):
                self.problems.append(f"{term!r}: for numbers the limit must be a number; {got}")
                return None
            # Distances of whole numbers are whole, and a float need not hold them.
            whole = {a, b} <= _INTEGRAL
            self.limits[name] = int(limit // 1) if whole else float(limit)  # type: ignore[operator, arg-type]
            return "int" if whole else "float"
        else:
            self.problems.append(
                f"{term!r} compares numbers, dates or timestamps; {got}: cast, for example decimal "
                "to double"
            )
        return None


def _needs_length(slot: Slot) -> bool:
    return slot.kind == "vector" or (slot.kind == "bits" and slot.type == "binary")


def _columns_of(term: Term) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(term, Custom):
        return term.left, term.right
    if isinstance(term, Compared):
        if isinstance(term.measure, Custom):
            return term.measure.left, term.measure.right
        assert isinstance(term.measure, VectorMeasure)
        return (term.measure.left,), (term.measure.right,)
    assert isinstance(term, (Within, Same))
    return (term.left,), (term.right,)


def _is_names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(n, str) and n for n in value)
