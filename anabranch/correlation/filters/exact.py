"""The value of a measure for given pairs: float64, in one fixed order, without fast-math.

Filters only propose pairs; these functions decide them. The sums are those of `flow.lanes`, so that
a pair has the same score to the last bit whatever plan, tile or batch brought its rows together.
Texts are left to rapidfuzz, and elements of sets are compared as they are.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.correlation.filters.bags import elements_of
from anabranch.errors import extra
from anabranch.flow.blocks import Block, take
from anabranch.flow.extremes import extreme_distance, out_of_range
from anabranch.flow.lanes import PRODUCTS, SIZES, SQUARES, Directions, directions, fetch, summed
from anabranch.flow.process import njit

__all__ = ["common", "directed", "measure", "text_measure"]

_AHEAD = 12  # pairs whose rows are asked for before they are needed
_AT_ONCE = 1 << 16  # pairs whose texts are brought to Python, or compared, together

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _sums(kind, x, y, i, j, out):  # pragma: no cover
    """``out[p]``: the sum of left row ``i[p]`` and right row ``j[p]``."""
    lanes, n = np.empty(8), len(i)
    for p in range(n):
        ahead = min(p + _AHEAD, n - 1)
        fetch(x, i[ahead])  # type: ignore[call-arg]
        fetch(y, j[ahead])
        out[p] = summed(kind, x[i[p]], y[j[p]], lanes)


@njit(nogil=True)
def _roots(x, y, i, j, out):  # pragma: no cover
    """Make distances of sums of squares."""
    lanes = np.empty(8)
    for p in range(len(i)):
        if out_of_range(out[p]):
            out[p] = extreme_distance(x[i[p]], y[j[p]], lanes)
        else:
            out[p] = math.sqrt(out[p])


@njit(nogil=True)
def _unequal(x, y, i, j, out):  # pragma: no cover
    for p in range(len(i)):
        u, v = x[i[p]], y[j[p]]
        count = 0
        for c in range(x.shape[1]):
            count += u[c] != v[c]
        out[p] = count


@njit(nogil=True, error_model="numpy")
def _cosines(dots, left, right, i, j):  # pragma: no cover
    """Divide dot products by the lengths, given the squared norms of both blocks."""
    lengths = np.empty(len(i))
    for p in range(len(i)):
        # sqrt(a * b) makes the cosine of a vector with itself exactly 1.
        lengths[p] = left[i[p]] * right[j[p]]
    for p in range(len(i)):  # a loop of its own, which is compiled to several at a time
        dots[p] = min(1.0, max(-1.0, dots[p] / math.sqrt(lengths[p])))


def directed(block: Block, slot: str) -> Directions:
    """The vectors of a block in a form that has good squared norms, and these; computed once."""
    vectors = block.columns[slot]

    def make(_: Block) -> tuple[np.ndarray | None, np.ndarray]:
        found = directions(vectors)
        # The column itself is not counted a second time among what the block holds.
        return (None if found.vectors is vectors else found.vectors), found.norms

    scaled, norms = block.derive(("directions", slot), make)
    return Directions(vectors if scaled is None else scaled, norms)


def measure(
    kind: str, slot: str, left: Block, right: Block, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """The measure `kind` of left row ``i[p]`` and right row ``j[p]``, for every p."""
    x, y = left.columns[slot], right.columns[slot]
    out = np.empty(len(i))
    if kind == "cosine":
        a, b = directed(left, slot), directed(right, slot)
        _sums(PRODUCTS, a.vectors, b.vectors, i, j, out)
        _cosines(out, a.norms, b.norms, i, j)
    elif kind == "dot":
        _sums(PRODUCTS, x, y, i, j, out)
    elif kind == "euclidean":
        _sums(SQUARES, x, y, i, j, out)
        _roots(x, y, i, j, out)
    elif kind == "manhattan":
        _sums(SIZES, x, y, i, j, out)
    elif x.dtype == np.uint64:
        words: np.ndarray = np.bitwise_count(x[i] ^ y[j])
        out[:] = words.sum(axis=1)
    else:
        _unequal(x, y, i, j, out)
    return out


def text_measure(
    kind: str,
    slot: str,
    left: Block,
    right: Block,
    i: np.ndarray,
    j: np.ndarray,
    most: float | None = None,
) -> np.ndarray:
    """The measure `kind` of texts; an edit distance beyond `most` may be any number beyond it."""
    with extra("text", f"ab.{kind} on executors", "rapidfuzz"):
        from rapidfuzz.distance import JaroWinkler, Levenshtein
        from rapidfuzz.process import cpdist
    found = np.empty(len(i))
    for first in range(0, len(i), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        texts = [
            take(block.columns[slot], rows[part]).to_numpy(False)
            for block, rows in ((left, i), (right, j))
        ]
        if kind == "edit":
            cutoff = None if most is None else math.floor(most)
            edits = cpdist(*texts, scorer=Levenshtein.distance, score_cutoff=cutoff, dtype=np.int64)
            found[part] = edits
        else:  # without a cut-off: near it rapidfuzz would round otherwise
            found[part] = cpdist(*texts, scorer=JaroWinkler.similarity, dtype=np.float64)
    return found


def common(slot: str, left: Block, right: Block, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """How many elements the sets of each pair have in common."""
    x, y = elements_of(left, slot), elements_of(right, slot)
    counts = np.empty(len(i), np.int64)
    nothing = np.empty(0, np.int64)
    _meet(x, y, i, j, counts, nothing, nothing)
    values = [block.columns[slot].flatten() for block in (left, right)]
    if pa.types.is_integer(values[0].type):
        return counts
    # Texts of one hash are nearly always one text; what is not is taken off again.
    for first in range(0, len(i), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        here, there = np.empty((2, int(counts[part].sum())), np.int64)
        whose = np.repeat(np.arange(len(i))[part], counts[part])
        _meet(x, y, i[part], j[part], counts[part], here, there)
        equal = pc.equal(take(values[0], here), take(values[1], there)).to_numpy(False)
        np.subtract.at(counts, whose[~equal], 1)
    return counts


@njit(nogil=True)
def _meet(x, y, i, j, counts, here, there):  # pragma: no cover
    """Count the elements of equal codes of each pair, and say where they are if there is room."""
    found = 0
    for n in range(len(i)):
        p, q, began = x.begins[i[n]], y.begins[j[n]], found
        last, end = x.begins[i[n] + 1], y.begins[j[n] + 1]
        while p < last and q < end:
            if x.codes[p] < y.codes[q]:
                p += 1
            elif x.codes[p] > y.codes[q]:
                q += 1
            else:  # several texts of a set may have this hash
                r = q
                while r < end and y.codes[r] == x.codes[p]:
                    if len(here):
                        here[found], there[found] = x.places[p], y.places[r]
                    found, r = found + 1, r + 1
                p += 1
        counts[n] = found - began
