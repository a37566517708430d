"""Captions as readers spell them: whether two agree, and which of many is right."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

__all__ = ["agree", "caption", "grams", "overlap"]

_AGREE = 0.5  # share of 3-grams that two captions have in common


def agree(one: str, other: str) -> bool:
    """Whether two captions share half of their 3-grams, whatever their case and spaces.

    Examples
    --------
    >>> agree("BRIDGE SHUT IN RIGA", "Bridge shutin Riga"), agree("Flood in Ghent", "Mill fire")
    (True, False)
    """
    return overlap(grams(one), grams(other))


def overlap(first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether two captions agree, by their 3-grams."""
    return bool(first and second) and len(first & second) >= _AGREE * len(first | second)


def grams(text: str) -> frozenset[str]:
    """The 3-grams of a caption, without case and spaces, which readers lose."""
    plain = "".join(text.lower().split())
    return frozenset(plain[at : at + 3] for at in range(len(plain) - 2))


def caption(lines: Mapping[str, int]) -> str | None:
    """The line that is most like all of them, by their 3-grams; None if there are none.

    Each line is given as often as key frames show it, and votes for its 3-grams, with one vote
    altogether, however long it is. Readers err in a letter here and there, so the right line may be
    on few frames; what it has in common with the wrong ones is on all of them.

    Examples
    --------
    >>> caption({"BR1DGE SHUT IN RIGA": 1, "BRIDGE SHUT IN RIGA": 1, "BRIDGE SHUT IN R|GA": 1,
    ...          "WEATHER": 2})
    'BRIDGE SHUT IN RIGA'
    """
    of = {line: grams(line) or frozenset({line}) for line in sorted(lines)}
    votes: defaultdict[str, float] = defaultdict(float)
    for line, parts in of.items():
        share = lines[line] / math.sqrt(len(parts))
        for part in sorted(parts):
            votes[part] += share
    alike = {
        # Sums in another order differ in their last digits, which must decide nothing.
        line: round(sum(votes[part] for part in sorted(parts)) / math.sqrt(len(parts)), 9)
        for line, parts in of.items()
    }
    return min(alike, key=lambda line: (-alike[line], -lines[line], line), default=None)
