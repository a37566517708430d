"""The value of one condition for given pairs, and whether it holds: no filter has a say here."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow.compute as pc

from anabranch.correlation.call import Correlation
from anabranch.correlation.filters.bags import elements_of
from anabranch.correlation.filters.bands import in_one_word
from anabranch.correlation.filters.exact import common, measure, text_measure
from anabranch.correlation.filters.overlap import Overlap
from anabranch.errors import InvalidCall
from anabranch.flow.arguments import plain
from anabranch.flow.blocks import Block, take
from anabranch.flow.words import at_most, difference, magnitude
from anabranch.predicates import Compared, Custom, Differs, Same, Term, VectorMeasure, Within
from anabranch.predicates.columns import Named
from anabranch.predicates.sets import SetMeasure
from anabranch.predicates.terms import as_written
from anabranch.predicates.texts import TextMeasure

__all__ = ["Decisions", "accepted", "call_custom", "custom_of", "overlap_of"]

_CUSTOM_CELLS = 1 << 20

Decided = tuple[np.ndarray | None, np.ndarray]


class Decisions:
    """Decides conditions on pairs of rows for one correlation."""

    def __init__(self, correlation: Correlation) -> None:
        self.text = {s.name for s in correlation.left.slots if s.kind == "text"}
        self.limits = correlation.limits
        self._units = {s.name: 10.0**s.scale for s in correlation.left.slots if s.scale}

    def of(
        self, slot: str, term: Term, left: Block, right: Block, i: np.ndarray, j: np.ndarray
    ) -> Decided:
        """The value of a term for each pair (None if it has none), and whether it holds."""
        if term.plain is not term:
            value, good = self.of(slot, term.plain, left, right, i, j)
            return value, ~good
        if isinstance(term, Compared) and isinstance(term.measure, VectorMeasure):
            raw = measure(term.measure.kind, slot, left, right, i, j)
            value = term.measure.value(raw)
            return value, term.holds(value)
        if isinstance(term, Compared) and isinstance(term.measure, (TextMeasure, SetMeasure)):
            return _alike(slot, term, left, right, i, j)
        if isinstance(term, Within):
            words = left.columns[slot], right.columns[slot]
            a, b = in_one_word(left, right, slot) or words
            value = _distance(a[i], b[j])
            if value.ndim == 2:
                apart = magnitude(value) / self._units.get(slot, 1.0)
                return apart, at_most(value, int(self.limits[slot]))
            # Whole numbers are compared with a whole limit: as floats they might seem equal.
            score = value.astype(np.float64) / self._units.get(slot, 1.0)
            return score, value <= self.limits[slot]
        if isinstance(term, (Same, Differs)):
            if slot in self.text:
                texts = take(left.columns[slot], i), take(right.columns[slot], j)
                same = pc.equal(*texts).to_numpy(zero_copy_only=False)
            else:
                same = left.columns[slot][i] == right.columns[slot][j]
            return None, same if isinstance(term, Same) else ~same
        value = _cells(slot, term, left, right, i, j)
        return value, accepted(term, value)


def overlap_of(slot: str, term: Term) -> Overlap | None:
    """The filter of a term that asks for similar texts or sets."""
    if not isinstance(term, Compared) or not isinstance(term.measure, (TextMeasure, SetMeasure)):
        return None
    kind = term.measure.kind
    similar = term.upward != (kind == "edit")
    most = min(float(term.threshold), 2.0**31)  # no text is longer
    return Overlap(slot, kind, most) if similar else None


def _alike(
    slot: str, term: Compared, left: Block, right: Block, i: np.ndarray, j: np.ndarray
) -> Decided:
    """Texts or sets; only of pairs whose bags may do, where bags tell."""
    value, good = np.full(len(i), np.nan), np.zeros(len(i), bool)
    overlap = overlap_of(slot, term)
    if overlap is None:
        rows = np.arange(len(i))
    else:
        rows = np.flatnonzero(overlap.likely(left, right, i, j))
    if not len(rows):
        return value, good
    i, j = i[rows], j[rows]
    if isinstance(term.measure, SetMeasure):
        value[rows], good[rows] = _shares(slot, term, left, right, i, j)
    else:
        most = None if overlap is None else overlap.threshold
        value[rows] = text_measure(term.measure.kind, slot, left, right, i, j, most)  # type: ignore[attr-defined]
        good[rows] = term.holds(value[rows])
    return value, good


def _shares(
    slot: str, term: Compared, left: Block, right: Block, i: np.ndarray, j: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Common elements by all elements, compared with the threshold as whole numbers."""
    both = common(slot, left, right, i, j)
    sizes = [np.diff(elements_of(block, slot).begins) for block in (left, right)]
    every = sizes[0][i] + sizes[1][j] - both
    both, every = np.where(every == 0, 1, both), np.maximum(every, 1)  # empty sets are alike
    limit: Fraction = as_written(term.threshold)
    counts, which = np.unique(every, return_inverse=True)
    least = [-(-limit.numerator * int(count) // limit.denominator) for count in counts]
    most = [limit.numerator * int(count) // limit.denominator for count in counts]
    reaches, exceeds = both >= np.array(least)[which], both > np.array(most)[which]
    good = {">=": reaches, "<": ~reaches, ">": exceeds, "<=": ~exceeds}[term.op]
    return both / every, good


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|; of integers as unsigned ones, which cannot overflow."""
    if a.ndim == 2:
        return difference(a, b)
    if a.dtype != np.int64:
        with np.errstate(over="ignore"):  # infinitely far is beyond every limit
            distance: np.ndarray = np.abs(a - b)
        return distance
    high, low = np.maximum(a, b).view(np.uint64), np.minimum(a, b).view(np.uint64)
    unsigned: np.ndarray = high - low
    return unsigned


def custom_of(term: Term) -> Custom | None:
    """The user's function in a term, if there is one."""
    term = term.plain
    if isinstance(term, Custom):
        return term
    if isinstance(term, Compared) and isinstance(term.measure, Custom):
        return term.measure
    return None


def accepted(term: Term, value: np.ndarray) -> np.ndarray:
    """Where a term with a user's function holds, of what that returned."""
    if term.plain is not term:
        return ~value
    return term.holds(value) if isinstance(term, Compared) else value


def _cells(
    slot: str, term: Term, left: Block, right: Block, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """The user's function for single pairs, called on as few matrices as is sensible."""
    rows, at_i = np.unique(i, return_inverse=True)
    cols, at_j = np.unique(j, return_inverse=True)
    if len(rows) * len(cols) <= _CUSTOM_CELLS or len(i) == 1:
        return call_custom(slot, term, left, right, rows, cols)[at_i, at_j]
    order = np.lexsort((j, i))
    half = len(order) // 2
    result: np.ndarray | None = None
    for part in (order[:half], order[half:]):
        values = _cells(slot, term, left, right, i[part], j[part])
        if result is None:
            result = np.empty(len(i), values.dtype)
        result[part] = values
    assert result is not None
    return result


def call_custom(
    slot: str, term: Term, left: Block, right: Block, rows: np.ndarray, cols: np.ndarray
) -> np.ndarray:
    """The user's matrix for some rows of both blocks, checked."""
    user, term = custom_of(term), term.plain
    assert user is not None
    matrix = np.asarray(
        user.function(
            _arguments(slot, user.left, left, rows), _arguments(slot, user.right, right, cols)
        )
    )
    if matrix.shape != (len(rows), len(cols)):
        raise InvalidCall(
            repr(user),
            [
                f"the function returned shape {matrix.shape} for {len(rows)} left and {len(cols)} "
                f"right rows; return a matrix of shape {(len(rows), len(cols))}"
            ],
        )
    if isinstance(term, Custom) and matrix.dtype != bool:
        raise InvalidCall(
            repr(user),
            [f"the function returned {matrix.dtype}, not booleans: compare it, {user!r} >= 0.5"],
        )
    return matrix if isinstance(term, Custom) else matrix.astype(np.float64)


def _arguments(
    slot: str, names: tuple[Named, ...], block: Block, rows: np.ndarray
) -> Mapping[str, Any]:
    arrays = {}
    for place, name in enumerate(names):
        column = f"{slot}_{place}"
        whole = block.derive(("argument", column), lambda of, c=column: plain(of.columns[c]))  # type: ignore[misc]
        arrays[str(name)] = whole[rows]
    return arrays
