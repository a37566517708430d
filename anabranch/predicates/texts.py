"""How alike two texts are, letter by letter: misspelt names, the same company in two registers.

A letter is a code point of Unicode. The package rapidfuzz computes both measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from anabranch.errors import InvalidCall, renamed
from anabranch.predicates.measures import PairMeasure
from anabranch.predicates.terms import Compared

__all__ = ["TextMeasure", "edit", "jaro_winkler"]


@dataclass(frozen=True, eq=False, repr=False)
class TextMeasure(PairMeasure):
    """A similarity or distance of two texts."""

    def problems_with(self, term: Compared) -> list[str]:
        if self.kind == "edit" and term.threshold < 0:
            return [f"{term!r}: a distance is never negative, so compare with 0 or more"]
        if self.kind == "jaro_winkler" and not 0 <= term.threshold <= 1:
            return [f"{term!r}: it lies between 0 and 1, so compare with such a number"]
        return []


@renamed()
def edit(left: Any, right: Any = None) -> TextMeasure:
    """Levenshtein distance: how many letters to insert, delete or replace.

    Examples
    --------
    >>> edit("name") <= 2
    edit('name') <= 2
    >>> edit("name", "title") <= 1
    edit('name', 'title') <= 1
    """
    return _text("edit", left, right)


@renamed()
def jaro_winkler(left: Any, right: Any = None) -> TextMeasure:
    """Jaro-Winkler similarity, 0 to 1: letters in common, nearly in order; a common start counts.

    Examples
    --------
    >>> jaro_winkler("name") >= 0.92
    jaro_winkler('name') >= 0.92
    """
    return _text("jaro_winkler", left, right)


def _text(kind: str, left: Any, right: Any) -> TextMeasure:
    if find_spec("rapidfuzz") is None:
        problem = "it needs the package rapidfuzz, here and on the executors"
        raise InvalidCall(kind, [f"{problem}: pip install 'anabranch[text]'"])
    return TextMeasure(kind, left, left if right is None else right)
