"""Which rows of two blocks satisfy a predicate: one term proposes pairs, every term decides them.

The proposing term is the one that costs least: an equality if there is one, else a band that is
narrow enough, else a vector measure, else the user's own function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from anabranch.correlation.call import Correlation
from anabranch.correlation.emd.measure import EmdMeasure
from anabranch.correlation.emd.runs import Found
from anabranch.correlation.emd.search import EmdSearch
from anabranch.correlation.filters.bands import Band, band_candidates, band_size
from anabranch.correlation.filters.choosing import Habits, vector_candidates
from anabranch.correlation.filters.equality import key_candidates, shared_groups
from anabranch.correlation.filters.exact import measure
from anabranch.correlation.filters.loops import loop_candidates
from anabranch.correlation.filters.tiles import Candidates, Pair, comparisons, tiles
from anabranch.errors import InvalidCall
from anabranch.flow.arguments import plain
from anabranch.flow.blocks import Block, take
from anabranch.plans.routing import OTHER, owned
from anabranch.predicates import (
    Compared,
    Custom,
    Differs,
    Same,
    Term,
    VectorMeasure,
    Within,
)
from anabranch.predicates.columns import Named

__all__ = ["Matcher", "Matches"]

_PRODUCTS = frozenset({"cosine", "dot", "euclidean"})
# From this many pairs of one key on, a matrix product beats deciding pair by pair.
_BIG_GROUP = 1 << 16
_CUSTOM_CELLS = 1 << 20
_CUSTOM_TILE = 512


class Matches(NamedTuple):
    """Pairs that satisfy the predicate: positions in the two blocks, and scores."""

    left: np.ndarray
    right: np.ndarray
    score: np.ndarray


class Matcher:
    """Finds the matches of two blocks for one correlation."""

    def __init__(self, correlation: Correlation) -> None:
        terms = correlation.where.terms
        self._terms = [(f"s{number}", term) for number, term in enumerate(terms)]
        self._scored = correlation.where.scored
        self._text = {s.name for s in correlation.left.slots if s.kind == "text"}
        self._limits = correlation.limits
        self._units = {s.name: 10.0**s.scale for s in correlation.left.slots if s.scale}
        self._bands = [
            Band(slot, self._limits[slot]) for slot, term in self._terms if isinstance(term, Within)
        ]
        self._emd: dict[str, EmdSearch] = {
            slot: _search(slot, term, term.measure)
            for slot, term in self._terms
            if isinstance(term, Compared) and isinstance(term.measure, EmdMeasure)
        }
        vectors = [
            (slot, term, term.measure)
            for slot, term in self._terms
            if isinstance(term, Compared)
            and isinstance(term.measure, VectorMeasure)
            and slot not in self._emd
        ]
        # A matrix product is the cheapest look at a pair of vectors, so it goes first.
        vectors.sort(key=lambda found: found[2].kind not in _PRODUCTS)
        self._vector = vectors[0] if vectors else None
        self._habits = Habits()
        self._differing = [slot for slot, term in self._terms if isinstance(term, Differs)]
        self._key = next((slot for slot, term in self._terms if isinstance(term, Same)), None)

    def matches(self, pair: Pair) -> Iterator[Matches]:
        """The pairs of the two blocks that join here."""
        for candidates in self._propose(pair):
            if OTHER in pair.left.columns:
                candidates = _in_order(pair, candidates)
            if isinstance(candidates, Found):
                found = self._decide(pair.left, pair.right, candidates[:2], candidates.value)
            else:
                found = self._decide(pair.left, pair.right, candidates)
            if len(found.left):
                yield found

    @property
    def searches(self) -> list[EmdSearch]:
        """The searches by Earth Mover's Distance, which count what they do."""
        return list(self._emd.values())

    def _propose(self, pair: Pair) -> Iterator[Candidates | Found]:
        if any(_all_alike(pair, slot) for slot in self._differing):
            return
        if self._key is not None:
            yield from self._by_key(pair)
        elif self._bands and self._prefer_band(pair):
            yield from band_candidates(pair, self._bands)
        elif self._vector is not None:
            yield from self._by_vector(pair)
        elif self._emd:
            yield from next(iter(self._emd.values())).matches(pair)
        elif any(_custom_of(term) is not None for _, term in self._terms):
            yield from self._by_custom(pair)
        else:
            yield from self._all(pair)

    def _prefer_band(self, pair: Pair) -> bool:
        if self._vector is None:
            # A search by Earth Mover's Distance looks at few pairs, each costlier than a band's.
            sparse = band_size(pair, self._bands[0]) * 8 < comparisons(pair)
            return not self._emd or sparse
        width = pair.left.columns[self._vector[0]].shape[1]
        # In nanoseconds on one core: a cell of a product or a loop, and a pair decided alone.
        cell, single = 0.5 + 0.02 * width, 60 + 0.5 * width
        return bool(band_size(pair, self._bands[0]) * single < comparisons(pair) * cell)

    def _by_vector(self, pair: Pair) -> Iterator[Candidates]:
        assert self._vector is not None
        slot, term, what = self._vector
        threshold = what.reach(float(term.threshold), term.upward)
        call = (pair, slot, what.kind, term.upward, threshold)
        if what.kind in _PRODUCTS:
            return vector_candidates(*call, self._habits)
        return loop_candidates(*call)

    def _by_key(self, pair: Pair) -> Iterator[Candidates]:
        assert self._key is not None
        code = self._key + "_h" if self._key in self._text else self._key
        with_product = self._vector is not None and self._vector[2].kind in _PRODUCTS
        least = _BIG_GROUP if with_product else np.iinfo(np.int64).max
        groups, taken = shared_groups(pair, code, least)
        for group in groups:
            part = Pair(pair.left.take(group.left), pair.right.take(group.right), pair.window)
            for found in self._by_vector(part):
                yield Candidates(group.left[found.left], group.right[found.right])
        yield from key_candidates(pair, code, taken)

    def _by_custom(self, pair: Pair) -> Iterator[Candidates]:
        slot, term = next(
            (slot, term) for slot, term in self._terms if _custom_of(term) is not None
        )
        for top, bottom, start, stop in tiles(pair, _CUSTOM_TILE, _CUSTOM_TILE):
            rows, cols = np.arange(top, bottom), np.arange(start, stop)
            matrix = _call(slot, term, pair.left, pair.right, rows, cols)
            i, j = np.nonzero(_accepted(term, matrix))
            yield from _admitted(pair, rows[i], cols[j])

    def _all(self, pair: Pair) -> Iterator[Candidates]:
        """Every pair, where no term says where to look."""
        for top, bottom, start, stop in tiles(pair, _CUSTOM_TILE, _CUSTOM_TILE):
            i, j = np.divmod(np.arange((bottom - top) * (stop - start)), stop - start)
            yield from _admitted(pair, top + i, start + j)

    def _decide(
        self,
        left: Block,
        right: Block,
        candidates: tuple[np.ndarray, np.ndarray],
        known: np.ndarray | None = None,
    ) -> Matches:
        """Decide candidates; `known` are the distances that the first search found of them."""
        i, j = candidates
        score: np.ndarray | None = None
        searched = next(iter(self._emd), None) if known is not None else None
        for slot, term in self._terms:
            if slot == searched and known is not None:
                value, good = known, np.ones(len(i), bool)
            else:
                value, good = self._evaluate(slot, term, left, right, i, j)  # type: ignore[assignment]
            known = known[good] if known is not None else None
            i, j = i[good], j[good]
            score = None if score is None else score[good]
            if term is self._scored:
                assert value is not None
                score = value[good]
            if len(i) == 0:
                break
        return Matches(i, j, np.full(len(i), np.nan) if score is None else score)

    def _evaluate(
        self, slot: str, term: Term, left: Block, right: Block, i: np.ndarray, j: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """The value of one term for each pair (None if it has none), and whether it holds."""
        if slot in self._emd:
            return self._emd[slot].decide(left, right, i, j)
        if isinstance(term, Compared) and isinstance(term.measure, VectorMeasure):
            raw = measure(term.measure.kind, slot, left, right, i, j)
            value = term.measure.value(raw)
            return value, term.holds(value)
        if isinstance(term, Within):
            value = _distance(left.columns[slot][i], right.columns[slot][j])
            # Whole numbers are compared with a whole limit: as floats they might seem equal.
            score = value.astype(np.float64) / self._units.get(slot, 1.0)
            return score, value <= self._limits[slot]
        if isinstance(term, (Same, Differs)):
            if slot in self._text:
                texts = take(left.columns[slot], i), take(right.columns[slot], j)
                same = pc.equal(*texts).to_numpy(zero_copy_only=False)
            else:
                same = left.columns[slot][i] == right.columns[slot][j]
            return None, same if isinstance(term, Same) else ~same
        value = _cells(slot, term, left, right, i, j)
        return value, _accepted(term, value)


def _admitted(pair: Pair, i: np.ndarray, j: np.ndarray) -> Iterator[Candidates]:
    """Those of some pairs that the window lets join and this worker owns."""
    stamps = pair.stamps
    good = owned(
        stamps.left_epoch[i], stamps.left_mask[i], stamps.right_epoch[j], stamps.right_mask[j]
    )
    good &= (stamps.times[j] >= stamps.earliest[i]) & (stamps.times[j] <= stamps.latest[i])
    if good.any():
        yield Candidates(i[good], j[good])


def _all_alike(pair: Pair, slot: str) -> bool:
    """Whether all rows of both blocks have one and the same value."""

    def only_value(of: Block) -> Any:
        column = of.columns[slot]
        if isinstance(column, np.ndarray):
            values = np.unique(column)
            return values[0] if len(values) == 1 else None
        texts = pc.unique(column)
        return texts[0].as_py() if len(texts) == 1 else None

    left, right = (
        block.derive(("only value", slot), only_value) for block in (pair.left, pair.right)
    )
    return left is not None and bool(left == right)


def _in_order(pair: Pair, candidates: Candidates | Found) -> Candidates | Found:
    """Of rows of one stream, those pairs whose left row is the earlier one, by time and id."""
    i, j = candidates[:2]
    later = pair.left.t[i] < pair.right.t[j]
    tied = np.flatnonzero(~later)  # the window lets no left row be later
    if len(tied):
        ids = take(pair.left.columns["id"], i[tied]), take(pair.right.columns["id"], j[tied])
        less = ids[0] < ids[1] if isinstance(ids[0], np.ndarray) else pc.less(*ids).to_numpy(False)
        later[tied[less]] = True
    return type(candidates)(*(column[later] for column in candidates))


def _search(slot: str, term: Compared, measure: EmdMeasure) -> EmdSearch:
    """What finds the pairs of blocks that satisfy a comparison by Earth Mover's Distance."""
    return EmdSearch(
        slot, measure.ground, term.op, term.threshold, measure.filters, measure.exact_scores
    )


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|; of integers as unsigned ones, which cannot overflow."""
    if a.dtype != np.int64:
        distance: np.ndarray = np.abs(a - b)
        return distance
    high, low = np.maximum(a, b).view(np.uint64), np.minimum(a, b).view(np.uint64)
    unsigned: np.ndarray = high - low
    return unsigned


def _custom_of(term: Term) -> Custom | None:
    if isinstance(term, Custom):
        return term
    if isinstance(term, Compared) and isinstance(term.measure, Custom):
        return term.measure
    return None


def _accepted(term: Term, value: np.ndarray) -> np.ndarray:
    return term.holds(value) if isinstance(term, Compared) else value


def _cells(
    slot: str, term: Term, left: Block, right: Block, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """The user's function for single pairs, called on as few matrices as is sensible."""
    rows, at_i = np.unique(i, return_inverse=True)
    cols, at_j = np.unique(j, return_inverse=True)
    if len(rows) * len(cols) <= _CUSTOM_CELLS or len(i) == 1:
        return _call(slot, term, left, right, rows, cols)[at_i, at_j]
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


def _call(
    slot: str, term: Term, left: Block, right: Block, rows: np.ndarray, cols: np.ndarray
) -> np.ndarray:
    """The user's matrix for some rows of both blocks, checked."""
    user = _custom_of(term)
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
