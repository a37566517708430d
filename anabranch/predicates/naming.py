"""Which columns a predicate compares on either side, and the same predicate by other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from anabranch.predicates.bounds import Between
from anabranch.predicates.columns import Named
from anabranch.predicates.globe import Globe, on_globe
from anabranch.predicates.measures import Custom, PairMeasure, VectorMeasure
from anabranch.predicates.terms import (
    Compared,
    Either,
    Measure,
    Negated,
    Predicate,
    Term,
    together,
)
from anabranch.predicates.values import Differs, Same, Within

__all__ = ["columns_of", "with_names"]

_Pair = TypeVar("_Pair", bound=PairMeasure)

Sides = tuple[tuple[Named, ...], tuple[Named, ...]]


def columns_of(compared: Predicate | Measure) -> Sides:
    """The columns of the left and of the right side, each once.

    Examples
    --------
    >>> from anabranch.predicates import same, within
    >>> columns_of(within("bid", "ask", 1) & same("room"))
    (('bid', 'room'), ('ask', 'room'))
    """
    if isinstance(compared, Compared):
        return columns_of(compared.measure)
    if isinstance(compared, Negated):
        return columns_of(compared.term)
    if isinstance(compared, (Custom, Globe)):
        return compared.left, compared.right
    if isinstance(compared, Between):
        return (compared.left,), tuple(compared.bounds.values())
    if isinstance(compared, (PairMeasure, Within, Same, Differs)):
        return (compared.left,), (compared.right,)
    assert isinstance(compared, Predicate)
    each = [columns_of(leaf) for leaf in compared.leaves]
    left, right = (dict.fromkeys(name for term in each for name in term[n]) for n in (0, 1))
    return tuple(left), tuple(right)


def with_names(
    compared: Predicate | VectorMeasure,
    name: Callable[[int, Named], Named],
    point: Callable[[int, str, str], str] | None = None,
) -> Predicate | VectorMeasure:
    """The same comparison of other columns; `name` gives that of a side, 0 or 1.

    `point` gives the column of the points that two columns of latitude and longitude name; who has
    none takes no points.

    Examples
    --------
    >>> from anabranch.predicates import cosine, same
    >>> with_names((cosine("v") > 0.5) & same("a", "b"), lambda side, name: f"{name}{side}")
    (cosine('v0', 'v1') > 0.5) & same('a0', 'b1')
    """
    if isinstance(compared, VectorMeasure):
        return _pair(compared, name)
    terms: list[Term] = []
    for term in compared.terms:
        if isinstance(term, Compared) and isinstance(term.measure, Globe):
            if point is None or term.problems():
                terms.append(term)  # as the user wrote it, for those who check calls
                continue
            sides = [
                (str(name(side, lat)), str(name(side, lon)))
                for side, (lat, lon) in enumerate((term.measure.left, term.measure.right))
            ]
            points = point(0, *sides[0]), point(1, *sides[1])
            terms += on_globe(term, (sides[0][0], sides[1][0]), points)
        elif isinstance(term, Either):
            parts = [with_names(part, name, point) for part in term.parts]
            terms.append(Either(tuple(part for part in parts if isinstance(part, Predicate))))
        else:
            terms.append(_term(term, name))
    return terms[0] if len(terms) == 1 else together(terms)


def _term(term: Term, name: Callable[[int, Named], Named]) -> Term:
    if isinstance(term, Compared):
        measure = term.measure
        if isinstance(measure, Custom):
            return replace(term, measure=_custom(measure, name))
        assert isinstance(measure, PairMeasure)
        return replace(term, measure=_pair(measure, name))
    if isinstance(term, Negated):
        return Negated(_term(term.term, name))
    if isinstance(term, Custom):
        return _custom(term, name)
    if isinstance(term, Between):
        bounds = {bound: name(1, column) for bound, column in term.bounds.items()}
        return replace(term, left=name(0, term.left), **bounds)
    assert isinstance(term, (Within, Same, Differs))
    return replace(term, left=name(0, term.left), right=name(1, term.right))


def _pair(measure: _Pair, name: Callable[[int, Named], Named]) -> _Pair:
    return replace(measure, left=name(0, measure.left), right=name(1, measure.right))


def _custom(measure: Custom, name: Callable[[int, Named], Named]) -> Custom:
    left, right = (
        tuple(name(side, column) for column in columns)
        for side, columns in enumerate((measure.left, measure.right))
    )
    return replace(measure, left=left, right=right)
