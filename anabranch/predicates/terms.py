"""Measures, terms and predicates as plain values, which the kernels read.

Problems are collected rather than raised, so that a call can report all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Number, Rational
from typing import Any, ClassVar, NoReturn

import numpy as np

from anabranch.calls import EXACT, is_number
from anabranch.errors import InvalidCall, UnfitOperator
from anabranch.predicates.columns import Named, column_of
from anabranch.predicates.outline import Outline, outline_html

__all__ = [
    "Compared",
    "Either",
    "Measure",
    "Negated",
    "Predicate",
    "Term",
    "as_written",
    "columns_text",
    "nearest_float",
    "read_columns",
    "together",
    "uncompared",
]

_HOLDS = {">=": np.greater_equal, ">": np.greater, "<=": np.less_equal, "<": np.less}
_OPPOSITE = {">=": "<", "<": ">=", "<=": ">", ">": "<="}


class _Operand:
    """What stands in an expression; numpy's numbers leave the operators to it."""

    __array_ufunc__ = None

    def _no_xor(self, *_: object) -> NoReturn:
        what = "predicates combine with &, | and ~: for a ^ b write (a | b) & ~(a & b)"
        raise InvalidCall("a predicate", [what])

    __xor__ = __rxor__ = _no_xor


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
    >>> ~where
    (cosine('v') < 0.9) | ~within('price', 2) | differs('shop')
    >>> ~(~where & same("day"))
    ((cosine('v') >= 0.9) & within('price', 2) & same('shop')) | differs('day')
    """

    @property
    @abstractmethod
    def terms(self) -> tuple[Term, ...]:
        """The conditions, all of which must hold."""

    @property
    def leaves(self) -> tuple[Term, ...]:
        """The single conditions, also those inside ``|``, in the order in which they stand."""
        return tuple(leaf for term in self.terms for leaf in term.leaves)

    def __and__(self, other: object) -> Predicate:
        return _All(self.terms + _operand("&", other).terms)

    def __or__(self, other: object) -> Predicate:
        return Either(_alternatives(self) + _alternatives(_operand("|", other)))

    @abstractmethod
    def __invert__(self) -> Predicate:
        """What holds where this does not, and all columns are known."""

    def __rand__(self, other: object) -> Predicate:
        # Python reads `cosine("v") >= 0.9 & p` as `cosine("v") >= (0.9 & p)`.
        raise InvalidCall(
            "a predicate", ["put each comparison in brackets, (cosine('v') >= 0.9) & same('key')"]
        )

    __ror__ = __rand__

    def __bool__(self) -> bool:
        raise InvalidCall(
            "a predicate",
            [
                "it has no truth value of its own: combine predicates with &, | and ~ (not 'and', "
                "'or' and 'not'), and write a range as two comparisons, (cosine('v') >= 0.5) & "
                "(cosine('v') <= 0.9)"
            ],
        )

    @property
    def scored(self) -> Term | None:
        """The term whose value is the pair's score: the first measure, else the first band."""
        graded = [leaf for leaf in self.leaves if leaf.grade is not None]
        return min(graded, key=lambda leaf: leaf.grade or 0, default=None)

    @abstractmethod
    def outline(self, score: Term | None) -> Outline:
        """The predicate as it is drawn; the term `score` is marked."""

    def _repr_html_(self) -> str:
        return outline_html(self.outline(self.scored), repr(self))

    def problems(self) -> list[str]:
        """Everything wrong with the predicate that needs no data to see."""
        return [text for leaf in self.leaves for text in leaf.own_problems()]


@dataclass(frozen=True, repr=False, eq=False)
class _All(Predicate):
    parts: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.parts

    def outline(self, score: Term | None) -> Outline:
        return Outline("all of", parts=tuple(part.outline(score) for part in self.parts))

    def __repr__(self) -> str:
        return " & ".join(map(_bracketed, self.parts))

    def __invert__(self) -> Predicate:
        return Either(tuple(part for term in self.parts for part in _alternatives(~term)))


class Term(Predicate):
    """One condition on a pair; a predicate of itself alone.

    The value of the term of the least `grade`, the first of them, is the pair's score.
    """

    @property
    def grade(self) -> int | None:
        """How far it is from being the score; None if it has no value."""
        return None

    @property
    def matches(self) -> str:
        """Which numbers or differences match, as `Outline` has it; nothing if there are none."""
        return ""

    def outline(self, score: Term | None) -> Outline:
        return Outline(repr(self), self.matches, score=self is score)

    @property
    def plain(self) -> Term:
        """Itself, or what it negates."""
        return self

    @property
    def terms(self) -> tuple[Term, ...]:
        return (self,)

    @property
    def leaves(self) -> tuple[Term, ...]:
        return (self,)

    def own_problems(self) -> list[str]:
        return []


@dataclass(frozen=True, repr=False, eq=False)
class Either(Term):
    """At least one of several predicates holds."""

    parts: tuple[Predicate, ...]

    @property
    def leaves(self) -> tuple[Term, ...]:
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    def outline(self, score: Term | None) -> Outline:
        return Outline("any of", parts=tuple(part.outline(score) for part in self.parts))

    def __repr__(self) -> str:
        return " | ".join(map(_bracketed, self.parts))

    def __invert__(self) -> Predicate:
        return together([term for part in self.parts for term in (~part).terms])


@dataclass(frozen=True, repr=False, eq=False)
class Negated(Term):
    """A condition does not hold that has no other name for that."""

    term: Term

    @property
    def grade(self) -> int | None:
        return self.term.grade

    @property
    def matches(self) -> str:
        return "beyond" if self.term.matches == "within" else ""

    @property
    def plain(self) -> Term:
        return self.term

    def __repr__(self) -> str:
        return f"~{self.term!r}"

    def __invert__(self) -> Predicate:
        return self.term

    def own_problems(self) -> list[str]:
        return self.term.own_problems()


class Measure(_Operand):
    """A number for a pair of rows, waiting for a comparison."""

    as_written: ClassVar[bool] = False
    """Whether thresholds count as they are written, and not as the nearest float."""

    @property
    def example(self) -> str:
        """A comparison that finds what is alike, for messages."""
        return ">= 0.9"

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
            what = f"{self!r} cannot be compared with {other!r} by == or !=: write >=, >, <= or <"
            raise UnfitOperator("a predicate", [f"{what}, or ab.same(...) for equal columns"])
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def _no_sums(self, *_: object) -> NoReturn:
        what = f"{self!r} is compared as it is, without arithmetic: write {self!r} {self.example}"
        what += f" and not 1 - {self!r} <= 0.1" * (self.example == ">= 0.9")
        raise InvalidCall("a predicate", [f"{what}, or use ab.custom(...)"])

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _no_sums
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __abs__ = _no_sums

    def own_problems(self) -> list[str]:
        """What is wrong with it whatever it is compared with."""
        return []

    def problems_with(self, term: Compared) -> list[str]:
        """What is wrong with this measure in a comparison with a number."""
        return []

    def __and__(self, other: object) -> Predicate:
        raise InvalidCall("a predicate", [uncompared(self)])

    def __invert__(self) -> Predicate:
        raise InvalidCall("a predicate", [uncompared(self)])

    __rand__ = __or__ = __ror__ = __and__


@dataclass(frozen=True, repr=False, eq=False)
class Compared(Term):
    """A measure compared with a threshold."""

    measure: Measure
    op: str
    threshold: float

    @property
    def grade(self) -> int:
        return 0

    def __post_init__(self) -> None:
        if is_number(self.threshold, EXACT) and not self.measure.as_written:
            found = nearest_float(self.threshold, up=self.op in (">=", "<"))
            object.__setattr__(self, "threshold", found)

    def __repr__(self) -> str:
        return f"{self.measure!r} {self.op} {self.threshold!r}"

    def __invert__(self) -> Predicate:
        return Compared(self.measure, _OPPOSITE[self.op], self.threshold)

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which of `values` satisfy the comparison."""
        found: np.ndarray = _HOLDS[self.op](values, self.threshold)
        return found

    @property
    def matches(self) -> str:
        return self.op

    @property
    def upward(self) -> bool:
        """True if greater values match."""
        return self.op in (">=", ">")

    def own_problems(self) -> list[str]:
        found = self.measure.own_problems()
        if not is_number(self.threshold, EXACT):
            got = f"the threshold must be a finite number, got {self.threshold!r}"
            return [*found, f"{self!r}: {got}"]
        return found + self.measure.problems_with(self)


def together(terms: Sequence[Term]) -> Predicate:
    """A predicate of terms, all of which must hold."""
    return _All(tuple(terms))


def _operand(sign: str, other: object) -> Predicate:
    if isinstance(other, Predicate):
        return other
    if isinstance(other, Measure):
        raise InvalidCall("a predicate", [uncompared(other)])
    raise InvalidCall("a predicate", [f"{sign} combines predicates, got {other!r}"])


def _alternatives(of: Predicate) -> tuple[Predicate, ...]:
    return of.parts if isinstance(of, Either) else (of,)


def _bracketed(part: Predicate) -> str:
    return f"({part!r})" if isinstance(part, (Compared, _All, Either)) else repr(part)


def columns_text(left: Named, right: Named) -> str:
    """Two columns as a term shows them: once if they are one."""
    return repr(left) if left == right else f"{left!r}, {right!r}"


def read_columns(term: Any, verb: str) -> None:
    """Let a term hold its columns, `left` and `right`, as they are read."""
    for side in ("left", "right"):
        object.__setattr__(term, side, column_of(verb, getattr(term, side), side))


def uncompared(measure: Measure) -> str:
    """That a measure stands alone, and what to write instead."""
    write = f"write for example {measure!r} {measure.example}"
    return f"{measure!r} is not compared with anything yet: {write}"


def nearest_float(value: Any, up: bool) -> float:
    """A number as a float that compares alike with all floats, be it the next one up or down.

    Examples
    --------
    >>> [nearest_float(number, up=True) for number in (12, Decimal("0.5"), np.float32(2))]
    [12, 0.5, 2.0]
    >>> below, above = (nearest_float(Decimal("0.3"), up) for up in (False, True))
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


def as_written(value: Any) -> Fraction:
    """A number as its digits say: 0.8 is four fifths, whatever float stands for it.

    Examples
    --------
    >>> [str(as_written(value)) for value in (0.8, np.float32(0.3), Decimal("0.30"), 1)]
    ['4/5', '3/10', '3/10', '1']
    """
    exact = isinstance(value, (Rational, Decimal))
    return Fraction(value if exact else str(value))
