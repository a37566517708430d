"""What texts and sets have in common, and predicates with nulls, in lines too plain to be wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from rapidfuzz.distance import JaroWinkler

__all__ = ["all_of", "any_of", "edit", "jaccard", "jaro_winkler", "not_"]


def edit(a: str, b: str) -> int:
    """Insertions, deletions and replacements of letters, by the textbook's table.

    Examples
    --------
    >>> edit("kitten", "sitting"), edit("", "ab")
    (3, 2)
    """
    line = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, line[0] = line[0], i
        for j, y in enumerate(b, 1):
            before, line[j] = line[j], min(before + (x != y), line[j] + 1, line[j - 1] + 1)
    return line[-1]


def jaro_winkler(a: str, b: str) -> float:
    """The one that decides, asked of this pair alone.

    Examples
    --------
    >>> round(jaro_winkler("MARTHA", "MARHTA"), 4)
    0.9611
    """
    return JaroWinkler.similarity(a, b)


def jaccard(a: Iterable[object], b: Iterable[object]) -> Fraction:
    """Common elements by all elements.

    Examples
    --------
    >>> jaccard("abb", "bc"), jaccard("", "")
    (Fraction(1, 3), Fraction(1, 1))
    """
    x, y = set(a), set(b)
    return Fraction(len(x & y), len(x | y)) if x | y else Fraction(1)


def not_(value: bool | None) -> bool | None:
    """SQL's NOT; None is unknown."""
    return None if value is None else not value


def all_of(values: Sequence[bool | None]) -> bool | None:
    """SQL's AND.

    Examples
    --------
    >>> all_of([True, None]), all_of([None, False]), all_of([True, True])
    (None, False, True)
    """
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def any_of(values: Sequence[bool | None]) -> bool | None:
    """SQL's OR."""
    return not_(all_of([not_(value) for value in values]))
