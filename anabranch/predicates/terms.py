"""Measures, terms and predicates as plain values, which the kernels read.

Problems are collected rather than raised, so that a call can report all of them.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Number
from typing import Any, ClassVar, NoReturn

import numpy as np

from anabranch.calls import EXACT, Duration, is_number, is_whole, microseconds
from anabranch.errors import InvalidCall
from anabranch.predicates.columns import Named, column_of

__all__ = [
    "Compared",
    "Custom",
    "Differs",
    "Measure",
    "Predicate",
    "Same",
    "ScoreFunction",
    "Term",
    "VectorMeasure",
    "Within",
    "together",
]

ScoreFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_HOLDS = {">=": np.greater_equal, ">": np.greater, "<=": np.less_equal, "<": np.less}
_DISTANCES = frozenset({"euclidean", "manhattan", "hamming"})


class _Operand:
    """What stands in an expression; numpy's numbers leave the operators to it."""

    __array_ufunc__ = None

    def _only_and(self, *_: object) -> NoReturn:
        raise InvalidCall(
            "a predicate",
            [
                "predicates combine with & alone: for 'or' unite the results of two calls, "
                "one.unionByName(other).dropDuplicates(['left_id', 'right_id']), and for 'not' "
                "turn the comparison round"
            ],
        )

    __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _only_and


class Predicate(_Operand, ABC):
    """A conjunction of terms.

    Examples
    --------
    >>> from anabranch.predicates import cosine, same, within
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
        raise InvalidCall("a predicate", [f"& combines predicates, got {other!r}"])

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


class Measure(_Operand):
    """A number for a pair of rows, waiting for a comparison."""

    def __ge__(self, threshold: Any) -> Compared:
        return Compared(self, ">=", threshold)

    def __gt__(self, threshold: Any) -> Compared:
        return Compared(self, ">", threshold)

    def __le__(self, threshold: Any) -> Compared:
        return Compared(self, "<=", threshold)

    def __lt__(self, threshold: Any) -> Compared:
        return Compared(self, "<", threshold)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Number):
            raise TypeError(
                f"{self!r} cannot be compared with {other!r} by == or !=: write >=, >, <= or <, or "
                "ab.same(...) for equal columns"
            )
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def _no_sums(self, *_: object) -> NoReturn:
        raise InvalidCall(
            "a predicate",
            [
                f"{self!r} is compared as it is, without arithmetic: write {self!r} >= 0.9 and not "
                f"1 - {self!r} <= 0.1, or use ab.custom(...)"
            ],
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _no_sums
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __abs__ = _no_sums

    def problems_with(self, term: Compared) -> list[str]:
        """What is wrong with this measure in a comparison with a number."""
        return []

    def __and__(self, other: object) -> Predicate:
        raise InvalidCall("a predicate", [_uncompared(self)])

    __rand__ = __and__


@dataclass(frozen=True, eq=False)
class VectorMeasure(Measure):
    """A similarity or distance of two vectors; `dim` fixes their length if given."""

    kind: str
    left: Named
    right: Named
    dim: int | None = None

    def __post_init__(self) -> None:
        _read(self, self.kind)
        if is_whole(self.dim):
            object.__setattr__(self, "dim", int(self.dim))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"{self.kind}({_columns(self.left, self.right)})"

    @property
    def label(self) -> str:
        """What stored vectors mean; state of another label cannot be read."""
        return self.kind

    def value(self, raw: np.ndarray) -> np.ndarray:
        """What is compared and shown, of what kernels compute for this kind."""
        return raw

    def reach(self, threshold: float, upward: bool) -> float:
        """The threshold in what kernels compute; filters add what rounding does."""
        return threshold

    def own_problems(self) -> list[str]:
        """What is wrong with it whatever it is compared with."""
        if self.dim is None or is_whole(self.dim):
            return []
        return [f"{self!r}: dim must be a whole number of at least 1, got {self.dim!r}"]


@dataclass(frozen=True, repr=False, eq=False)
class Compared(Term):
    """A measure compared with a threshold."""

    measure: Measure
    op: str
    threshold: float

    def __post_init__(self) -> None:
        if is_number(self.threshold, EXACT):
            found = _as_float(self.threshold, up=self.op in (">=", "<"))
            object.__setattr__(self, "threshold", found)

    def __repr__(self) -> str:
        return f"{self.measure!r} {self.op} {self.threshold!r}"

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which of `values` satisfy the comparison."""
        found: np.ndarray = _HOLDS[self.op](values, self.threshold)
        return found

    @property
    def upward(self) -> bool:
        """True if greater values match."""
        return self.op in (">=", ">")

    def own_problems(self) -> list[str]:
        value, found = self.threshold, []
        if isinstance(self.measure, (Custom, VectorMeasure)):
            found += self.measure.own_problems()
        if not is_number(value, EXACT):
            return [*found, f"{self!r}: the threshold must be a finite number, got {value!r}"]
        found += self.measure.problems_with(self)
        kind = self.measure.kind if isinstance(self.measure, VectorMeasure) else ""
        if kind == "cosine" and not -1 <= value <= 1:
            found.append(f"{self!r}: a cosine lies between -1 and 1, so compare with such a number")
        if kind in _DISTANCES and value < 0:
            found.append(f"{self!r}: a distance is never negative, so compare with 0 or more")
        return found


@dataclass(frozen=True, repr=False, eq=False)
class Within(Term):
    """``|left - right| <= limit`` on numbers, dates or timestamps."""

    left: Named
    right: Named
    limit: float | Decimal | Duration

    def __post_init__(self) -> None:
        _read(self, "within")
        limit: Any = self.limit
        if isinstance(limit, str) and _NUMBER.fullmatch(limit.strip()):
            object.__setattr__(self, "limit", Decimal(limit.strip()))
        elif is_number(limit, EXACT) and not isinstance(limit, Decimal):
            whole = isinstance(limit, Integral)  # exact, however great
            object.__setattr__(self, "limit", int(limit) if whole else _as_float(limit, up=False))

    @property
    def limit_as_float(self) -> float:
        """The greatest float that is no greater: among floats it draws the same line."""
        return _as_float(self.limit, up=False)

    @property
    def limit_as_written(self) -> Fraction:
        """The limit as its digits say: 0.01 is a hundredth, whatever float stands for it."""
        limit: Any = self.limit
        return Fraction(repr(limit) if isinstance(limit, float) else limit)

    def __repr__(self) -> str:
        return f"within({_columns(self.left, self.right)}, {self.limit!r})"

    def own_problems(self) -> list[str]:
        if is_number(self.limit, EXACT):
            return [] if self.limit >= 0 else [f"{self!r}: the limit must not be negative"]  # type: ignore[operator]
        try:
            negative = microseconds(self.limit) < 0  # type: ignore[arg-type]
        except ValueError as error:
            return [
                f"{self!r}: the limit must be a number (0.5, Decimal('0.01') or '0.01'), or a "
                f"duration for dates; {error}"
            ]
        return [f"{self!r}: the limit must not be negative"] if negative else []


@dataclass(frozen=True, repr=False, eq=False)
class _Columns(Term):
    """A condition on two columns; its name is `label`."""

    left: Named
    right: Named
    label: ClassVar[str]

    def __post_init__(self) -> None:
        _read(self, self.label)

    def __repr__(self) -> str:
        return f"{self.label}({_columns(self.left, self.right)})"


class Same(_Columns):
    """Equality of two columns."""

    label = "same"


class Differs(_Columns):
    """Inequality of two columns."""

    label = "differs"


@dataclass(frozen=True, repr=False, eq=False)
class Custom(Measure, Term):
    """A user's function of two column batches; a term by itself if it returns booleans."""

    function: ScoreFunction
    left: tuple[Named, ...]
    right: tuple[Named, ...]

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


def together(terms: Sequence[Term]) -> Predicate:
    """A predicate of terms, all of which must hold."""
    return _All(tuple(terms))


def _columns(left: Named, right: Named) -> str:
    return repr(left) if left == right else f"{left!r}, {right!r}"


def _read(term: VectorMeasure | Within | _Columns, verb: str) -> None:
    """Let a term hold its columns as they are read."""
    for side in ("left", "right"):
        object.__setattr__(term, side, column_of(verb, getattr(term, side)))


def _uncompared(measure: Measure) -> str:
    return f"{measure!r} is not compared with anything yet: write for example {measure!r} >= 0.9"


def _as_float(value: Any, up: bool) -> float:
    """A number as a float that compares alike with all floats, be it the next one up or down.

    Examples
    --------
    >>> from decimal import Decimal
    >>> [_as_float(number, up=True) for number in (12, Decimal("0.5"), np.float32(2))]
    [12, 0.5, 2.0]
    >>> below, above = (_as_float(Decimal("0.3"), up) for up in (False, True))
    >>> Decimal(below) < Decimal("0.3") < Decimal(above)
    True
    """
    whole = isinstance(value, Integral)
    exact = Fraction(int(value)) if whole else Fraction(*value.as_integer_ratio())
    near = float(exact)
    if near == exact:
        return int(value) if whole else near
    if (near < exact) == up:
        near = math.nextafter(near, math.inf if up else -math.inf)
    return near
