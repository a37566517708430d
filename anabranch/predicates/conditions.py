"""The predicate of a view as data, and decided with numpy exactly as `ab.correlate` decides it.

A form is made of lists, texts and numbers, so it can be shipped; it is never code. What decides is
float64 summed in eight lanes and one fixed tree, as in `flow.lanes`: a pair has the same score to
the last bit on a device, in the cloud and in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral
from typing import Any

import numpy as np

from anabranch.calls import Check, is_number
from anabranch.errors import InvalidCall
from anabranch.predicates.comparable import key_form, within_form
from anabranch.predicates.measures import VectorMeasure
from anabranch.predicates.terms import Compared, Either, Negated, Predicate, Term, together
from anabranch.predicates.values import Differs, Same, Within

__all__ = [
    "PairConditions",
    "RowConditions",
    "comparison_problems",
    "predicate_of",
    "to_form",
]

_MEASURES = ("euclidean", "cosine", "dot", "manhattan")
_SHIPPED = "euclidean, cosine, dot, manhattan, within, same, differs, and these with &, | and ~"
_LEAST_INT = -(1 << 63)  # which is what can be sent
_LEAST, _MOST = 2.0**-450, 2.0**450  # as in flow.lanes
_LEAST_SQUARE = 2.0**-960  # as in flow.extremes
_ORDERS = {
    ">=": np.greater_equal,
    ">": np.greater,
    "<=": np.less_equal,
    "<": np.less,
    "==": np.equal,
    "!=": np.not_equal,
}
Columns = Mapping[str, Any]


def to_form(where: Predicate) -> list[Any]:
    """A predicate as data.

    Examples
    --------
    >>> from anabranch.predicates import euclidean, same
    >>> to_form((euclidean("xy") <= 100) & same("room"))
    ['and', [['euclidean', 'xy', 'xy', None, '<=', 100], ['same', 'room', 'room']]]
    """
    if not isinstance(where, Term):
        return ["and", [to_form(term) for term in where.terms]]
    if isinstance(where, Either):
        return ["or", [to_form(part) for part in where.parts]]
    if isinstance(where, Negated):
        return ["not", to_form(where.term)]
    if isinstance(where, Compared) and isinstance(where.measure, VectorMeasure):
        measure = where.measure
        if measure.kind in _MEASURES:
            names = _names(where, measure.left, measure.right)
            return [measure.kind, *names, measure.dim, where.op, where.threshold]
    if isinstance(where, Within):
        limit: Any = where.limit
        limit = str(limit) if isinstance(limit, Decimal) else limit
        return ["within", *_names(where, where.left, where.right), limit]
    if isinstance(where, (Same, Differs)):
        return [where.label, *_names(where, where.left, where.right)]
    raise InvalidCall("view", [f"{where!r} cannot be shipped to devices: use {_SHIPPED}"])


def _names(where: Predicate, *columns: Any) -> list[str]:
    if not all(isinstance(column, str) for column in columns):
        raise InvalidCall("view", [f"{where!r} needs columns by name, to be shipped to devices"])
    return list(columns)


def predicate_of(form: list[Any]) -> Predicate:
    """The predicate of a form.

    Examples
    --------
    >>> predicate_of(["or", [["same", "a", "b"], ["not", ["within", "x", "x", 2]]]])
    same('a', 'b') | ~within('x', 2)
    """
    try:
        kind, *rest = form
        if kind == "and":
            return together([term for part in rest[0] for term in predicate_of(part).terms])
        if kind == "or":
            return Either(tuple(predicate_of(part) for part in rest[0]))
        if kind == "not":
            return ~predicate_of(rest[0])
        if kind in _MEASURES:
            left, right, dim, op, threshold = rest
            return Compared(VectorMeasure(kind, left, right, dim), op, threshold)
        if kind == "within":
            return Within(*rest)
        if kind in ("same", "differs"):
            return (Same if kind == "same" else Differs)(*rest)
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidCall("view", [f"{form!r} is no condition ({error})"]) from error
    raise InvalidCall("view", [f"{form!r} is no condition; there are {_SHIPPED}"])


class PairConditions:
    """Decides pairs of rows of two streams.

    Examples
    --------
    >>> both = {"xy": "array<double>"}
    >>> near = PairConditions(["euclidean", "xy", "xy", None, "<=", 5], both, both)
    >>> one, other = {"xy": np.array([[0.0, 0.0]])}, {"xy": np.array([[3.0, 4.0], [9.0, 9.0]])}
    >>> good, score = near.decide(one, other, np.array([0, 0]), np.array([0, 1]))
    >>> good.tolist(), score.tolist()
    ([0], [5.0])
    """

    def __init__(self, form: list[Any] | None, left: Mapping[str, str], right: Mapping[str, str]):
        self._where = None if form is None else predicate_of(form)
        self._limits: dict[str, float] = {}
        check = Check()
        for term in () if self._where is None else self._where.leaves:
            check.problems += term.own_problems()
            self._read(check, term.plain, left, right)
        check.refuse("view")

    def _read(
        self, check: Check, term: Any, left: Mapping[str, str], right: Mapping[str, str]
    ) -> None:
        """Find the columns of a term and what ``within`` is in their unit; say what is wrong."""
        vector = isinstance(term, Compared)
        where = term.measure if vector else term
        named = ((where.left, left), (where.right, right))
        lacking = {name: columns for name, columns in named if name not in columns}
        for name, columns in lacking.items():
            known = ", ".join(columns) or "nothing"
            check.say(f"{term!r}: there is no column {name!r}; the feed has {known}")
        if lacking:
            return
        types = left[where.left], right[where.right]
        got = f"left is {types[0]}, right is {types[1]}"
        if vector:
            if not all(type_ in ("array<double>", "array<float>") for type_ in types):
                check.say(f"{term!r} compares array<float> or array<double>; {got}")
        elif isinstance(term, Within):
            form = within_form(check, term, types, got)
            if form is not None:
                self._limits[repr(term)] = form.limit
        else:
            key_form(check, term, types, got)

    def decide(
        self, left: Columns, right: Columns, i: np.ndarray, j: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which of the pairs (``i[p]``, ``j[p]``) match, and their scores."""
        if self._where is None:
            return np.arange(len(i)), np.full(len(i), np.nan)
        good = np.flatnonzero(self._holds(self._where, left, right, i, j))
        scored = self._where.scored
        if scored is None:
            return good, np.full(len(good), np.nan)
        return good, self._value(scored.plain, left, right, i[good], j[good])

    def _holds(
        self, where: Predicate, left: Columns, right: Columns, i: np.ndarray, j: np.ndarray
    ) -> np.ndarray:
        if not isinstance(where, Term):
            parts = [self._holds(term, left, right, i, j) for term in where.terms]
            every: np.ndarray = np.logical_and.reduce(parts)
            return every
        if isinstance(where, Either):
            parts = [self._holds(part, left, right, i, j) for part in where.parts]
            some: np.ndarray = np.logical_or.reduce(parts)
            return some
        if isinstance(where, Negated):
            return ~self._holds(where.term, left, right, i, j)
        if isinstance(where, (Same, Differs)):
            same: np.ndarray = left[_name(where.left)][i] == right[_name(where.right)][j]
            return same if isinstance(where, Same) else ~same
        if isinstance(where, Compared):
            return where.holds(self._value(where, left, right, i, j))
        a, b = left[_name(where.left)][i], right[_name(where.right)][j]  # type: ignore[attr-defined]
        found: np.ndarray = _distance(a, b) <= self._limits[repr(where)]
        return found

    def _value(
        self, term: Term, left: Columns, right: Columns, i: np.ndarray, j: np.ndarray
    ) -> np.ndarray:
        if isinstance(term, Compared):
            measure: Any = term.measure
            x, y = left[measure.left], right[measure.right]
            if x.shape[1] != y.shape[1] or x.shape[1] != (measure.dim or x.shape[1]):
                return np.full(len(i), np.nan)  # which no threshold lets pass
            return _measure(measure.kind, x[i], y[j])
        a, b = left[_name(term.left)][i], right[_name(term.right)][j]  # type: ignore[attr-defined]
        return _distance(a, b).astype(np.float64)


class RowConditions:
    """Decides single rows: all of several comparisons of a column with a number or text.

    Examples
    --------
    >>> fast = RowConditions([["speed", ">=", 30], ["mode", "==", "car"]],
    ...                      {"speed": "double", "mode": "string"})
    >>> fast.decide({"speed": np.array([31.0, 50.0]), "mode": np.array(["bus", "car"])}, 2).tolist()
    [1]
    """

    def __init__(self, form: list[Any] | None, columns: Mapping[str, str]) -> None:
        self._terms = form or []
        check = Check()
        for name, op, value in self._terms:
            if problem := _unknown(name, op, columns):
                check.say(problem)
            elif isinstance(value, str) != (columns[name] == "string"):
                check.say(f"where: column {name!r} is {columns[name]}, compared with {value!r}")
        check.refuse("view")

    def decide(self, columns: Columns, rows: int) -> np.ndarray:
        """Which rows match."""
        good = np.ones(rows, bool)
        for name, op, value in self._terms:
            column = columns[name]
            if column.dtype == np.float32:  # or numpy rounds the constant to it, and Spark does not
                column = column.astype(np.float64)
            good &= _ORDERS[op](column, value)
        return np.flatnonzero(good)


def comparison_problems(form: list[Any], columns: Mapping[str, str]) -> list[str]:
    """What is wrong with comparisons of a new view: constants too, of which a stored one has any.

    Examples
    --------
    >>> comparison_problems([["x", ">=", 3], ["x", "<", True]], {"x": "double"})
    ["where: column 'x' is double, compared with True by <; it is compared with a finite number, \
and a whole one of 64 bits at most"]
    """
    problems = []
    for name, op, value in form:
        if problem := _unknown(name, op, columns):
            problems.append(problem)
        elif wanted := _wanted(columns[name], op, value):
            problems.append(
                f"where: column {name!r} is {columns[name]}, compared with {value!r} by {op}; "
                f"it is compared with {wanted}"
            )
    return problems


def _unknown(name: Any, op: Any, columns: Mapping[str, str]) -> str | None:
    """A column or a comparison that there is not."""
    if not isinstance(name, str) or name not in columns:
        known = ", ".join(columns) or "nothing"
        return f"where: there is no column {name!r}; the feed has {known}"
    if not isinstance(op, str) or op not in _ORDERS:
        return f"where: {op!r} is no comparison; there are {', '.join(_ORDERS)}"
    if columns[name].startswith("array"):
        return f"where: column {name!r} is {columns[name]}, which has no order"
    return None


def _wanted(type_: str, op: str, value: Any) -> str | None:
    """What a column of a type is compared with, if that is not what it is compared with."""
    if type_ == "string":
        return None if isinstance(value, str) else "a text"
    if type_ == "boolean":
        good = isinstance(value, bool) and op in ("==", "!=")
        return None if good else "True or False, by == or !="
    fits = not isinstance(value, Integral) or _LEAST_INT <= int(value) < -_LEAST_INT
    good = is_number(value) and fits
    return None if good else "a finite number, and a whole one of 64 bits at most"


def _name(column: Any) -> str:
    return str(column)


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|; of integers as unsigned ones, which cannot overflow."""
    if a.dtype.kind == "i" and b.dtype.kind == "i":
        a, b = a.astype(np.int64), b.astype(np.int64)
        apart: np.ndarray = np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)
        return apart
    return np.abs(a.astype(np.float64) - b.astype(np.float64))


def _measure(kind: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The measure of row p of `x` and row p of `y`, for every p."""
    if kind == "cosine":
        (x, a), (y, b) = _directions(x), _directions(y)
        with np.errstate(invalid="ignore", divide="ignore"):
            # sqrt(a * b) makes the cosine of a vector with itself exactly 1.
            cosines: np.ndarray = np.clip(_sums(x, y, "dot") / np.sqrt(a * b), -1.0, 1.0)
        return cosines
    sums = _sums(x, y, kind)
    if kind != "euclidean":
        return sums
    found: np.ndarray = np.sqrt(sums)
    extreme = np.flatnonzero((sums <= _LEAST_SQUARE) | np.isinf(sums))
    if len(extreme):  # as in flow.extremes: by way of differences near one
        apart = x[extreme].astype(np.float64) - y[extreme].astype(np.float64)
        scale = np.frexp(np.abs(apart).max(axis=1, initial=0.0))[1]
        near = np.ldexp(apart, -scale[:, None])
        found[extreme] = np.ldexp(np.sqrt(_sums(near, near, "dot")), scale)
    return found


def _sums(x: np.ndarray, y: np.ndarray, kind: str) -> np.ndarray:
    """Sums over pairs of vectors: element c goes into lane c % 8, and the lanes into a tree."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(over="ignore"):
        if kind == "dot":
            terms = x * y
        else:
            terms = np.abs(x - y) if kind == "manhattan" else np.square(x - y)
        lanes = np.zeros((len(terms), 8))
        for first in range(0, terms.shape[1], 8):
            part = terms[:, first : first + 8]
            lanes[:, : part.shape[1]] += part
        for width in (4, 2, 1):
            lanes = lanes[:, 0::2] + lanes[:, 1::2]
            assert lanes.shape[1] == width
    return lanes[:, 0]


def _directions(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`flow.lanes.directions` of vectors: those of extreme length by a power of two."""
    norms = _sums(vectors, vectors, "dot")
    extreme = np.flatnonzero(~((norms >= _LEAST) & (norms <= _MOST)))
    if vectors.dtype != np.float64 or not len(extreme):
        return vectors, norms
    scaled = vectors.copy()
    largest = np.abs(scaled[extreme]).max(axis=1, initial=0.0)
    scaled[extreme] = np.ldexp(scaled[extreme], -np.frexp(largest)[1][:, None])
    return scaled, _sums(scaled, scaled, "dot")
