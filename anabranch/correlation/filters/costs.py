"""What looking at pairs of vectors costs, so that bytes are made and used only where they pay.

All costs are nanoseconds on one core, measured on one machine; only their ratios matter. Bytes cost
a row once to make and then little a pair, but every pair that they propose has to be decided. So
the answer depends on three things: how long vectors are, how often a row is compared, and which
share of the pairs bytes cannot tell from matches. Balls rule out pairs before bytes look at them,
but those that are left cost several times as much: rows are gathered for each ball anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "Making",
    "balls_pay",
    "bytes_pay",
    "cost_of_balls",
    "cost_of_bytes",
    "cost_of_product",
    "may_pay",
    "most_proposed",
    "to_come",
]

# Of a float32 product, with its scan: a pair, and each place of its vectors.
_CELL, _PLACE = 0.05, 0.0155
# Of that, what bytes take by each of the instructions; of NEON not measured.
_SHARES = {"Vnni512": 0.12, "Vnni256": 0.26, "Avx2": 0.5, "Neon": 0.5}
_MAKE_ROW, _MAKE_PLACE = 5.0, 0.4  # bytes of a row, with the form from which they are rounded
_BEGIN, _BEGIN_ROW = 35_000.0, 1.5  # more than a product takes to begin, and the bounds of a row
# A proposed pair: to find it, to look at its stamps, to gather its rows and to decide it.
_PROPOSED, _PROPOSED_PLACE = 20.0, 0.15
# A pair that balls leave, beside its bytes: to gather a row for some fifty others. And how many
# rows have one centre, as bytes are compared with centres, too.
_GATHER, _GATHER_PLACE, _PER_CENTRE = 1.0, 0.0024, 32
# Bytes are to gain so much at least where their proposals are counted: costs are not exact.
_MARGIN = 0.8


class Making(NamedTuple):
    """What it takes to make the bytes of one block.

    Attributes
    ----------
    rows
        Of the block; 0 if its bytes are there.
    later
        How many more comparisons these rows are expected to see after the pair in question.
    """

    rows: int
    later: float = 0.0


def cost_of_product(width: int, pairs: float) -> float:
    """Of so many pairs of vectors of some length."""
    return pairs * (_CELL + _PLACE * width)


def cost_of_bytes(width: int, pairs: float, proposed: float, by: str) -> float:
    """Of so many pairs, some of which are proposed, by the instructions of a name.

    Examples
    --------
    >>> cost_of_product(64, 1000) / cost_of_bytes(64, 1000, 0, "Vnni512") > 8
    True
    """
    found = cost_of_product(width, pairs) * _SHARES[by]
    return found + proposed * (_PROPOSED + _PROPOSED_PLACE * width)


def may_pay(width: int, pairs: float, both: Sequence[Making], rows: int, by: str) -> bool:
    """Whether bytes cost less than the product if they propose few of the pairs of two blocks.

    Making bytes is charged by shares to all comparisons that the rows are expected to see. `rows`
    are those of both blocks, whose bounds are made for every pair of blocks.

    Examples
    --------
    A few new rows against many that are stored: what these bytes cost is paid later.

    >>> stored = 20_000
    >>> may_pay(64, 12 * stored, [Making(12), Making(stored)], 12 + stored, "Vnni512")
    False
    >>> may_pay(64, 12 * stored, [Making(12), Making(stored, 40 * stored)], 12 + stored, "Vnni512")
    True
    >>> may_pay(64, 12 * stored, [Making(12), Making(0)], 12 + stored, "Vnni512")
    True

    Of longer vectors fewer pairs are enough.

    >>> [may_pay(width, 10_000, [], 200, "Vnni512") for width in (16, 64, 576)]
    [False, False, True]
    """
    if pairs <= 0:
        return False
    charged = _BEGIN + _BEGIN_ROW * rows
    for made in both:
        making = made.rows * (_MAKE_ROW + _MAKE_PLACE * width)
        charged += making * pairs / (pairs + max(0.0, made.later))
    return charged + cost_of_bytes(width, pairs, 0, by) < cost_of_product(width, pairs)


def bytes_pay(width: int, pairs: float, proposed: float, by: str) -> bool:
    """Whether bytes that are made cost less than the product, going by a sample of pairs.

    Examples
    --------
    >>> [bytes_pay(64, 10_000, proposed, "Vnni512") for proposed in (0, 100, 1000)]
    [True, True, False]
    """
    return cost_of_bytes(width, pairs, proposed, by) <= _MARGIN * cost_of_product(width, pairs)


def cost_of_balls(width: int, pairs: float, share: float, by: str) -> float:
    """Of so many pairs, of which balls leave a share to bytes."""
    centres = cost_of_bytes(width, pairs, 0, by) / _PER_CENTRE
    left = share * pairs
    return centres + left * (_GATHER + _GATHER_PLACE * width) + cost_of_bytes(width, left, 0, by)


def balls_pay(width: int, share: float, by: str) -> bool:
    """Whether balls that are made, and leave such a share of all pairs, cost less than bytes.

    Examples
    --------
    >>> [balls_pay(64, share, "Vnni512") for share in (0.01, 0.05, 0.2)]
    [True, True, False]
    >>> balls_pay(576, 0.2, "Vnni512")
    True
    """
    return cost_of_balls(width, 1, share, by) <= _MARGIN * cost_of_bytes(width, 1, 0, by)


def most_proposed(width: int, pairs: int, by: str) -> int:
    """The greatest number of proposals of a sample with which bytes pay; -1 if none does.

    Examples
    --------
    >>> most = most_proposed(64, 10_000, "Vnni512")
    >>> bytes_pay(64, 10_000, most, "Vnni512"), bytes_pay(64, 10_000, most + 1, "Vnni512")
    (True, False)
    """
    left = _MARGIN * cost_of_product(width, pairs) - cost_of_bytes(width, pairs, 0, by)
    found = int(left / (_PROPOSED + _PROPOSED_PLACE * width)) + 1
    while found >= 0 and not bytes_pay(width, pairs, found, by):
        found -= 1
    return found


def to_come(mine: tuple[int, int, int], others: tuple[int, int, int], wait: int) -> float:
    """How many comparisons rows will see that wait so long for the other side's.

    Of both sides the number of rows and their first and last time are known. The others are
    expected to come on as fast as these did.

    Examples
    --------
    Half of the wait is left after the newest of the others, of which ten come in a microsecond.

    >>> to_come((100, 0, 0), (50, 25, 30), wait=60)
    30000.0
    >>> to_come((100, 0, 0), (50, 25, 30), wait=20)
    0.0
    """
    rows, first, last = mine
    count, begin, end = others
    left = min(float(wait), max(0.0, (first + last) / 2 + wait - end))
    return rows * left * count / max(1, end - begin)
