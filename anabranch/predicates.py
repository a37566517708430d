"""What makes a pair: ``cosine("v") >= 0.9``, ``within("x", 0.5) & same("room")``.

A *measure* gives a number for a pair of rows; compared with a threshold it becomes a *term*; terms
combined with ``&`` are a *predicate*. Nothing here computes: predicates are plain values that the
kernels read. Problems are collected rather than raised, so that a call can report all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.calls import Duration, is_whole, microseconds
from anabranch.errors import InvalidCall

__all__ = [
    "Compared",
    "Custom",
    "Measure",
    "Predicate",
    "Same",
    "Term",
    "VectorMeasure",
    "Within",
    "cosine",
    "custom",
    "dot",
    "euclidean",
    "hamming",
    "is_number",
    "manhattan",
    "same",
    "within",
]

ScoreFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]

_DISTANCES = frozenset({"euclidean", "manhattan", "hamming"})


class Predicate(ABC):
    """A conjunction of terms.

    Examples
    --------
    >>> where = (cosine("v") >= 0.9) & within("price", 2) & same("shop")
    >>> where
    (cosine('v') >= 0.9) & within('price', 2) & same('shop')
    >>> [type(term).__name__ for term in where.terms]
    ['Compared', 'Within', 'Same']
    """

    @property
    @abstractmethod
    def terms(self) -> tuple[Term, ...]:
        """The conditions, all of which must hold."""

    def __and__(self, other: object) -> Predicate:
        if isinstance(other, Predicate):
            return _All(self.terms + other.terms)
        if isinstance(other, Measure):
            raise InvalidCall("a predicate", [_uncompared(other)])
        return NotImplemented

    def __rand__(self, other: object) -> Predicate:
        # Python reads `cosine("v") >= 0.9 & p` as `cosine("v") >= (0.9 & p)`.
        raise InvalidCall(
            "a predicate", ["put each comparison in brackets, (cosine('v') >= 0.9) & same('key')"]
        )

    def __bool__(self) -> bool:
        raise InvalidCall(
            "a predicate",
            [
                "it has no truth value of its own: combine predicates with & (not 'and'), and "
                "write a range as two comparisons, (cosine('v') >= 0.5) & (cosine('v') <= 0.9)"
            ],
        )

    @property
    def scored(self) -> Term | None:
        """The term whose value is the pair's score: the first measure, else the first band."""
        for kind in (Compared, Within):
            for term in self.terms:
                if isinstance(term, kind):
                    return term
        return None

    def problems(self) -> list[str]:
        """Everything wrong with the predicate that needs no data to see."""
        return [text for term in self.terms for text in term.own_problems()]


@dataclass(frozen=True, repr=False, eq=False)
class _All(Predicate):
    parts: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.parts

    def __repr__(self) -> str:
        return " & ".join(f"({t!r})" if isinstance(t, Compared) else repr(t) for t in self.parts)


class Term(Predicate):
    """One condition on a pair; a predicate of itself alone."""

    @property
    def terms(self) -> tuple[Term, ...]:
        return (self,)

    def own_problems(self) -> list[str]:
        return []


class Measure:
    """A number for a pair of rows, waiting for a comparison."""

    def __ge__(self, threshold: float) -> Compared:
        return Compared(self, ">=", threshold)

    def __gt__(self, threshold: float) -> Compared:
        return Compared(self, ">", threshold)

    def __le__(self, threshold: float) -> Compared:
        return Compared(self, "<=", threshold)

    def __lt__(self, threshold: float) -> Compared:
        return Compared(self, "<", threshold)

    def problems_with(self, term: Compared) -> list[str]:
        """What is wrong with this measure in a comparison with a number."""
        return []

    def __and__(self, other: object) -> Predicate:
        raise InvalidCall("a predicate", [_uncompared(self)])

    __rand__ = __and__


@dataclass(frozen=True)
class VectorMeasure(Measure):
    """A similarity or distance of two vectors; `dim` fixes their length if given."""

    kind: str
    left: str
    right: str
    dim: int | None = None

    def __post_init__(self) -> None:
        _refuse_unnamed(self.kind, self.left, self.right)
        if is_whole(self.dim):
            object.__setattr__(self, "dim", int(self.dim))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"{self.kind}({_columns(self.left, self.right)})"

    @property
    def label(self) -> str:
        """What stored vectors mean; state of another label cannot be read."""
        return self.kind


@dataclass(frozen=True, repr=False, eq=False)
class Compared(Term):
    """A measure compared with a threshold."""

    measure: Measure
    op: str
    threshold: float

    def __repr__(self) -> str:
        return f"{self.measure!r} {self.op} {self.threshold!r}"

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which of `values` satisfy the comparison."""
        if self.op == ">=":
            return values >= self.threshold
        if self.op == ">":
            return values > self.threshold
        if self.op == "<=":
            return values <= self.threshold
        return values < self.threshold

    @property
    def upward(self) -> bool:
        """True if greater values match."""
        return self.op in (">=", ">")

    def own_problems(self) -> list[str]:
        value, found = self.threshold, []
        if isinstance(self.measure, Custom):
            found += self.measure.own_problems()
        if not is_number(value):
            return [*found, f"{self!r}: the threshold must be a finite number, got {value!r}"]
        found += self.measure.problems_with(self)
        kind = self.measure.kind if isinstance(self.measure, VectorMeasure) else ""
        if kind == "cosine" and not -1 <= value <= 1:
            found.append(f"{self!r}: a cosine lies between -1 and 1, so compare with such a number")
        if kind in _DISTANCES and value < 0:
            found.append(f"{self!r}: a distance is never negative, so compare with 0 or more")
        dim = getattr(self.measure, "dim", None)
        if dim is not None and not is_whole(dim):
            found.append(f"{self!r}: dim must be a whole number of at least 1, got {dim!r}")
        return found


@dataclass(frozen=True, repr=False, eq=False)
class Within(Term):
    """``|left - right| <= limit`` on numbers, dates or timestamps."""

    left: str
    right: str
    limit: float | Duration

    def __post_init__(self) -> None:
        _refuse_unnamed("within", self.left, self.right)

    def __repr__(self) -> str:
        return f"within({_columns(self.left, self.right)}, {self.limit!r})"

    def own_problems(self) -> list[str]:
        if is_number(self.limit):
            return [] if self.limit >= 0 else [f"{self!r}: the limit must not be negative"]  # type: ignore[operator]
        try:
            negative = microseconds(self.limit) < 0  # type: ignore[arg-type]
        except ValueError as error:
            return [f"{self!r}: the limit must be a number, or a duration for dates; {error}"]
        return [f"{self!r}: the limit must not be negative"] if negative else []


@dataclass(frozen=True, repr=False, eq=False)
class Same(Term):
    """Equality of two columns."""

    left: str
    right: str

    def __post_init__(self) -> None:
        _refuse_unnamed("same", self.left, self.right)

    def __repr__(self) -> str:
        return f"same({_columns(self.left, self.right)})"


@dataclass(frozen=True, repr=False, eq=False)
class Custom(Measure, Term):
    """A user's function of two column batches; a term by itself if it returns booleans."""

    function: ScoreFunction
    left: tuple[str, ...]
    right: tuple[str, ...]

    __and__ = Predicate.__and__
    __rand__ = Predicate.__rand__

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        return f"custom({name}, left={list(self.left)}, right={list(self.right)})"

    def own_problems(self) -> list[str]:
        if not callable(self.function):
            return [f"{self!r}: the first argument must be a function, got {self.function!r}"]
        if not self.left or not self.right:
            return [f"{self!r}: name at least one column of each side"]
        return []


def cosine(left: str, right: str | None = None, *, dim: int | None = None) -> VectorMeasure:
    """Cosine of the angle between two vectors, -1 to 1.

    Examples
    --------
    >>> cosine("v") >= 0.9
    cosine('v') >= 0.9
    >>> cosine("title_vec", "body_vec", dim=384) > 0.5
    cosine('title_vec', 'body_vec') > 0.5
    """
    return VectorMeasure("cosine", left, left if right is None else right, dim)


def dot(left: str, right: str | None = None, *, dim: int | None = None) -> VectorMeasure:
    """Dot product of two vectors.

    Examples
    --------
    >>> dot("v") >= 12
    dot('v') >= 12
    """
    return VectorMeasure("dot", left, left if right is None else right, dim)


def euclidean(left: str, right: str | None = None, *, dim: int | None = None) -> VectorMeasure:
    """Euclidean distance of two vectors.

    Examples
    --------
    >>> euclidean("position") <= 2.5
    euclidean('position') <= 2.5
    """
    return VectorMeasure("euclidean", left, left if right is None else right, dim)


def manhattan(left: str, right: str | None = None, *, dim: int | None = None) -> VectorMeasure:
    """Sum of the absolute differences of two vectors.

    Examples
    --------
    >>> manhattan("profile") > 10
    manhattan('profile') > 10
    """
    return VectorMeasure("manhattan", left, left if right is None else right, dim)


def hamming(left: str, right: str | None = None, *, dim: int | None = None) -> VectorMeasure:
    """Number of differing bits (binary, long) or of differing elements (arrays).

    Examples
    --------
    >>> hamming("fingerprint") <= 3
    hamming('fingerprint') <= 3
    """
    return VectorMeasure("hamming", left, left if right is None else right, dim)


def within(left: str, *right_and_limit: Any) -> Within:
    """``|left - right| <= limit``, on numbers (a number) or dates and timestamps (a duration).

    Examples
    --------
    >>> within("price", 0.5)
    within('price', 0.5)
    >>> within("bid", "ask", 0.5)
    within('bid', 'ask', 0.5)
    >>> within("published", "2 days")
    within('published', '2 days')
    """
    if len(right_and_limit) == 1:
        return Within(left, left, right_and_limit[0])
    if len(right_and_limit) == 2:
        return Within(left, right_and_limit[0], right_and_limit[1])
    raise InvalidCall("within", ["write within(column, limit) or within(left, right, limit)"])


def same(left: str, right: str | None = None) -> Same:
    """Equality of two columns; it lets the join spread by key.

    Examples
    --------
    >>> same("room"), same("host", "server")
    (same('room'), same('host', 'server'))
    """
    return Same(left, left if right is None else right)


def custom(
    function: ScoreFunction, left: str | Sequence[str], right: str | Sequence[str]
) -> Custom:
    """Any vectorised function of two column batches.

    `function` gets two mappings from column name to a one-dimensional array with n and m rows and
    returns an n by m matrix of booleans, or of scores to compare with a threshold. The type of a
    column alone decides the array: numbers and booleans as such, dates and timestamps as
    ``datetime64``, anything else as objects; of an array column each is a numpy array, and
    ``np.stack`` makes a matrix of them. Rows with nulls are bad rows and not shown. A cell must
    depend on its own two rows alone, since the library is free to choose which rows it shows
    together. A single column may be given by its name alone.

    Examples
    --------
    >>> def ratio(l, r):
    ...     return l["size"][:, None] / r["size"][None, :]
    >>> custom(ratio, left=["size"], right=["size"]) >= 0.5
    custom(ratio, left=['size'], right=['size']) >= 0.5
    """
    return Custom(function, _names(left), _names(right))


def _names(columns: Any) -> tuple[str, ...]:
    """Columns of a custom function; one may be given by its name alone."""
    names = (columns,) if not isinstance(columns, (list, tuple)) else tuple(columns)
    _refuse_unnamed("custom", *names)
    return names


def _columns(left: str, right: str) -> str:
    return repr(left) if left == right else f"{left!r}, {right!r}"


def _refuse_unnamed(verb: str, *columns: Any) -> None:
    wrong = [column for column in columns if not (isinstance(column, str) and column)]
    if wrong:
        raise InvalidCall(
            verb,
            [
                f"columns are given by name, for example ab.{verb}('v', ...), got {wrong[0]!r}; "
                "make an expression a column first, with withColumn"
            ],
        )


def _uncompared(measure: Measure) -> str:
    return f"{measure!r} is not compared with anything yet: write for example {measure!r} >= 0.9"


def is_number(value: object) -> bool:
    """Whether a threshold or limit is a number that a float can stand for."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
