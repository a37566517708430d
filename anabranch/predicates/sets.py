"""How much two sets have in common: words of a title, tags, articles in a basket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.errors import renamed
from anabranch.predicates.measures import PairMeasure
from anabranch.predicates.terms import Compared

__all__ = ["SetMeasure", "jaccard"]


@dataclass(frozen=True, eq=False, repr=False)
class SetMeasure(PairMeasure):
    """The share of common elements of two sets."""

    as_written = True

    def problems_with(self, term: Compared) -> list[str]:
        if not 0 <= term.threshold <= 1:
            return [f"{term!r}: it lies between 0 and 1, so compare with such a number"]
        return []


@renamed()
def jaccard(left: Any, right: Any = None) -> SetMeasure:
    """Common elements of two sets divided by all their elements, 0 to 1; of two empty sets 1.

    A threshold counts as it is written: 4 common elements of 5 reach 0.8, and 2 of 3 reach
    ``Fraction(2, 3)``.

    Examples
    --------
    >>> jaccard("words") >= 0.8
    jaccard('words') >= 0.8
    """
    return SetMeasure("jaccard", left, left if right is None else right)
