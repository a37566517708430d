"""Texts and sets that may be similar: their bags overlap as much as the measure needs.

An edit distance, a Jaro-Winkler similarity and a Jaccard similarity all say how much two bags of
given sizes must have in common. Right rows are ordered by size, so this is asked once for all rows
of one size, and where it is more than the smaller bag holds they are skipped.

Letters: i is a left row, j a right row, c one of a run, e a word of bits; `a` and `b` are the sizes
of two bags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anabranch.correlation.filters.bags import Bags, bags_of, words_for
from anabranch.correlation.filters.tiles import Candidates, Pair, admit, put, scratch, stamp_of
from anabranch.flow.bits import ones
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["Overlap"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg"

_LANES = 128
_KINDS = {"edit": 0, "jaro_winkler": 1, "jaccard": 2}
_EDIT, _JARO, _JACCARD = range(3)
_SLACK = 1e-6  # of one letter or element: far more than rounding does


class _Order(NamedTuple):
    """Rows by rising size: `rows`, and where each size begins in it, and the end."""

    sizes: np.ndarray
    begins: np.ndarray
    rows: np.ndarray
    bits: np.ndarray  # word by word
    rest: np.ndarray
    heads: np.ndarray


@dataclass(frozen=True)
class Overlap:
    """What a measure of texts or sets needs of two bags to be at or beyond a threshold."""

    slot: str
    kind: str
    threshold: float

    def candidates(self, pair: Pair) -> Iterator[Candidates]:
        """Every pair of the two blocks whose bags overlap enough."""
        words = words_for(pair.left, pair.right, self.slot)
        bags, order = bags_of(pair.left, self.slot, words), _order(pair.right, self.slot, words)
        _, out = scratch()
        at = np.array([0, 0], np.int64)
        while at[0] < len(pair.left):
            if count := _search(*self._asked, bags, order, pair.stamps, at, out):
                yield out.first(count)

    def likely(self, left: Block, right: Block, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Which of given pairs have bags that overlap enough."""
        words = words_for(left, right, self.slot)
        found = np.empty(len(i), bool)
        x, y = (bags_of(block, self.slot, words) for block in (left, right))
        _test(*self._asked, x, y, i, j, found)
        return found

    @property
    def _asked(self) -> tuple[int, float]:
        return _KINDS[self.kind], self.threshold


def _order(block: Block, slot: str, words: int) -> _Order:
    def make(of: Block) -> _Order:
        bags: Bags = bags_of(of, slot, words)
        rows = np.argsort(bags.sizes, kind="stable").astype(np.int32)
        sizes, begins = np.unique(bags.sizes[rows], return_index=True)
        turned = np.ascontiguousarray(bags.bits[rows].T)
        ends = np.append(begins, len(rows))
        return _Order(sizes, ends, rows, turned, bags.rest[rows], bags.heads[rows])

    return block.derive(("bag order", slot, words), make)


@njit(inline="always")
def _needed(kind, threshold, a, b, prefix):  # pragma: no cover
    """The least overlap of bags of two sizes, if as many first letters are alike."""
    if kind == _EDIT:  # what the larger bag has alone costs an edit each
        return max(a, b) - np.int64(np.floor(threshold))
    if a + b == 0:
        return 0
    if kind == _JACCARD:
        return np.int64(np.ceil(threshold * (a + b) / (1 + threshold) - _SLACK))
    # The Jaro similarity is at most (m/a + m/b + 1) / 3; a common start adds a tenth a letter of
    # what is missing.
    jaro = (threshold - 0.1 * prefix) / (1 - 0.1 * prefix)
    return np.int64(np.ceil((3 * jaro - 1) * a * b / (a + b) - _SLACK))


@njit(inline="always")
def _alike(head, other):  # pragma: no cover
    """How many first letters are alike, four at most; never too few."""
    count, apart = 0, head ^ other
    while count < 4 and apart & np.uint64(0xFFFF) == 0:
        count, apart = count + 1, apart >> np.uint64(16)
    return count


@njit(nogil=True)
def _search(kind, threshold, bags, order, stamps, at, out):  # pragma: no cover
    """Fill the output from position `at`, which then says where to go on."""
    sizes, begins, rows, bits, rest, heads = order
    found, room = 0, len(out.left)
    counts = np.empty(_LANES, np.int64)
    i, resume = at[0], at[1]
    while i < len(bags.sizes):
        a, mine, without = np.int64(bags.sizes[i]), stamp_of(i, stamps), bags.rest[i]
        for run in range(len(sizes)):
            b = np.int64(sizes[run])
            least = _needed(kind, threshold, a, b, 4)
            if least > min(a, b) or begins[run + 1] <= resume:
                continue
            for begin in range(max(begins[run], resume), begins[run + 1], _LANES):
                end = min(begin + _LANES, begins[run + 1])
                if found + end - begin > room:
                    at[0], at[1] = i, begin
                    return found
                count, others = counts[: end - begin], rest[begin:end]
                for c in range(len(count)):
                    count[c] = min(without, others[c])
                for e in range(len(bits)):
                    word, line = bags.bits[i, e], bits[e, begin:end]
                    for c in range(len(count)):
                        count[c] += np.int64(ones(word & line[c]))
                hit = False
                for c in range(len(count)):
                    hit |= count[c] >= least
                if not hit:
                    continue
                for c in range(len(count)):
                    if count[c] < least:
                        continue
                    if kind == _JARO:
                        prefix = _alike(bags.heads[i], heads[begin + c])
                        if count[c] < _needed(kind, threshold, a, b, prefix):
                            continue
                    j = rows[begin + c]
                    found = put(out, found, i, j, admit(mine, j, stamps))
        i, resume = i + 1, 0
    at[0], at[1] = i, 0
    return found


@njit(nogil=True)
def _test(kind, threshold, x, y, i, j, found):  # pragma: no cover
    for p in range(len(i)):
        r, s = i[p], j[p]
        count = np.int64(min(x.rest[r], y.rest[s]))
        for e in range(x.bits.shape[1]):
            count += np.int64(ones(x.bits[r, e] & y.bits[s, e]))
        prefix = _alike(x.heads[r], y.heads[s])
        a, b = np.int64(x.sizes[r]), np.int64(y.sizes[s])
        found[p] = count >= _needed(kind, threshold, a, b, prefix)
