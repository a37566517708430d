"""Which rows of two blocks satisfy a predicate: one term proposes pairs, every term decides them.

The proposing term is the one that costs least: an equality if there is one, else a band that is
narrow enough, else a vector measure, else texts or sets, else alternatives, each of which proposes
its own pairs, else the user's own function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from anabranch.correlation.call import Correlation
from anabranch.correlation.deciding import (
    Decisions,
    accepted,
    call_custom,
    custom_of,
    overlap_of,
)
from anabranch.correlation.emd.measure import EmdMeasure
from anabranch.correlation.emd.runs import Found
from anabranch.correlation.emd.search import EmdSearch
from anabranch.correlation.filters.apart import Apart, taken_apart
from anabranch.correlation.filters.bands import Band, band_candidates, band_size
from anabranch.correlation.filters.choosing import Habits, vector_candidates
from anabranch.correlation.filters.equality import all_alike, key_candidates, shared_groups
from anabranch.correlation.filters.loops import loop_candidates
from anabranch.correlation.filters.ties import kept_earlier
from anabranch.correlation.filters.tiles import Candidates, Pair, admitted, comparisons, tiles
from anabranch.correlation.gpu.looks import LineLook, vector_look
from anabranch.correlation.gpu.search import GpuSearch
from anabranch.correlation.known import known_rows, visible
from anabranch.flow.blocks import Block
from anabranch.flow.gpu.device import Device
from anabranch.flow.sides import BEFORE, slot_column
from anabranch.plans.routing import OTHER
from anabranch.predicates import (
    Compared,
    Differs,
    Either,
    Predicate,
    Same,
    Term,
    VectorMeasure,
    Within,
)

__all__ = ["Matcher", "Matches"]

_PRODUCTS = frozenset({"cosine", "dot", "euclidean"})
# From this many pairs of one key on, a matrix product beats deciding pair by pair.
_BIG_GROUP = 1 << 16
_TILE = 512


class Matches(NamedTuple):
    """Pairs that satisfy the predicate: positions in the two blocks, and scores."""

    left: np.ndarray
    right: np.ndarray
    score: np.ndarray


class Matcher:
    """Finds the matches of two blocks for one correlation, with a device if there is one."""

    def __init__(self, correlation: Correlation, device: Device | None = None) -> None:
        where = correlation.where
        self._whole = _Conjunction(where, count(), Decisions(correlation))
        self._scored = where.scored
        must = correlation.device == "gpu"
        self._search = None if device is None else self._whole.searching(device, must)

    def over(self, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, Matches]]:
        """The pairs of rows that join here, of many pairs of blocks."""
        if self._search is None:
            for pair in pairs:
                yield from ((pair, found) for found in self.matches(pair))
            return
        for pair, proposed in self._search.over(pairs, self._whole.is_for_device):
            candidates = self._whole.propose(pair) if proposed is None else iter((proposed,))
            yield from ((pair, found) for found in self._decided(pair, candidates))

    def matches(self, pair: Pair) -> Iterator[Matches]:
        """The pairs of the two blocks that join here."""
        return self._decided(pair, self._whole.propose(pair))

    def comparisons(self, pair: Pair) -> int:
        """How many pairs of the two blocks are compared; a device compares whole blocks."""
        return comparisons(pair) if self._search is not None else self._whole.comparisons(pair)

    def inherit(self, block: Block, start: int, part: Block) -> None:
        """Told that ``block[start:]`` begins with a part that is stored."""
        if self._search is not None:
            self._search.inherit(block, start, part)

    def _decided(self, pair: Pair, proposed: Iterator[Candidates | Found]) -> Iterator[Matches]:
        for candidates in proposed:
            if OTHER in pair.left.columns:
                candidates = type(candidates)(*kept_earlier(pair.left, pair.right, candidates))
            i, j = candidates[:2]
            known = candidates.value if isinstance(candidates, Found) else None
            rows, score = self._whole.decide(pair.left, pair.right, i, j, self._scored, known)
            if len(rows) == len(i) > 0:
                yield Matches(i, j, score)
            elif len(rows):
                yield Matches(i[rows], j[rows], score)

    @property
    def searches(self) -> list[EmdSearch]:
        """The searches by Earth Mover's Distance, which count what they do."""
        return self._whole.searches


class _Conjunction:
    """Terms that must all hold; those with columns that may be null see no row where one is."""

    def __init__(
        self, where: Predicate, numbers: Iterator[int], decisions: Decisions, inside: bool = False
    ) -> None:
        self._decisions = decisions
        self._terms: list[tuple[str, Term]] = []
        self._choices: list[list[_Conjunction]] = []
        for term in where.terms:
            if isinstance(term, Either):
                parts = [_Conjunction(part, numbers, decisions, True) for part in term.parts]
                self._choices.append(parts)
            else:
                self._terms.append((slot_column(next(numbers)), term))
        self._bands = [
            Band(slot, decisions.limits[slot])
            for slot, term in self._terms
            if isinstance(term, Within)
        ]
        self._emd: dict[str, EmdSearch] = {
            slot: EmdSearch.of(slot, term, term.measure)
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
        overlaps = (overlap_of(slot, term) for slot, term in self._terms)
        self._overlap = next((found for found in overlaps if found is not None), None)
        self._differing = [slot for slot, term in self._terms if isinstance(term, Differs)]
        self._key = next((slot for slot, term in self._terms if isinstance(term, Same)), None)
        self._nullable = [slot for slot, _ in self._terms] if inside else []
        self._last: tuple[Pair, Apart | None] | None = None

    @property
    def searches(self) -> list[EmdSearch]:
        """Those of its own terms and of all alternatives."""
        inner = [found for parts in self._choices for part in parts for found in part.searches]
        return [*self._emd.values(), *inner]

    def searching(self, device: Device, must: bool) -> GpuSearch | None:
        """What a device does for these terms: comparing vectors that no key keeps few."""
        if self._key is not None:
            return None
        if self._vector is not None:
            slot, term, what = self._vector
            threshold = what.reach(float(term.threshold), term.upward)
            look = vector_look(slot, what.kind, term.upward, threshold)
            return None if look is None else GpuSearch(device, look, must=must)
        for first in self._emd.values():
            if self._overlap is None and first.on_a_line is not None:
                return GpuSearch(device, LineLook(*first.on_a_line), first.looked, must)
            break
        return None

    def is_for_device(self, pair: Pair) -> bool:
        """Whether a device is to look at two blocks."""
        if BEFORE in pair.left.columns:  # it knows windows of time alone
            return False
        if any(all_alike(pair, slot) for slot in self._differing):
            return False
        # A pair that a band leaves costs as much as thousands of products on a device.
        return not self._bands or band_size(pair, self._bands[0]) * 20_000 > comparisons(pair)

    def propose(self, pair: Pair) -> Iterator[Candidates | Found]:
        """All pairs that may satisfy the terms, each once."""
        left, right = (known_rows(block, self._nullable) for block in (pair.left, pair.right))
        if left is None and right is None:
            yield from self._propose(pair)
            return
        blocks = left.block if left else pair.left, right.block if right else pair.right
        for found in self._propose(Pair(*blocks, pair.window, pair.ordered)):
            i, j = found[:2]
            yield Candidates(left.rows[i] if left else i, right.rows[j] if right else j)

    def decide(
        self,
        left: Block,
        right: Block,
        i: np.ndarray,
        j: np.ndarray,
        scored: Term | None = None,
        known: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which of some pairs satisfy all terms, and the values of the term that is the score.

        `known` are the distances that the first search found of them.
        """
        rows, left, right, i, j = visible(left, right, i, j, self._nullable)
        score: np.ndarray | None = None
        searched = next(iter(self._emd), None) if known is not None else None
        for slot, term in self._terms:
            if not len(rows):
                break
            if slot == searched and known is not None:
                value, good = known, np.ones(len(rows), bool)
            else:
                value, good = self._evaluate(slot, term, left, right, i, j)  # type: ignore[assignment]
            if term is scored:
                score = value
            if good.all():
                continue
            good = np.flatnonzero(good)  # places are taken several times as fast as by a mask
            rows, i, j = rows[good], i[good], j[good]
            known, score = (None if some is None else some[good] for some in (known, score))
        for parts in self._choices:
            good = np.zeros(len(rows), bool)
            for part in parts:
                open_ = np.flatnonzero(~good)
                good[open_[part.decide(left, right, i[open_], j[open_])[0]]] = True
            rows, i, j = rows[good], i[good], j[good]
            score = None if score is None else score[good]
        if scored is not None and all(term is not scored for _, term in self._terms):
            score = self._value(scored, left, right, i, j)
        return rows, np.full(len(rows), np.nan) if score is None else score

    def _value(
        self, scored: Term, left: Block, right: Block, i: np.ndarray, j: np.ndarray
    ) -> np.ndarray:
        """The value of a term of some alternative, where it holds; no other term has a say."""
        found = np.full(len(i), np.nan)
        for slot, term in self._terms:
            if term is scored:
                known = visible(left, right, i, j, [slot] if self._nullable else [])
                if len(rows := known.rows):
                    value, good = self._evaluate(slot, term, *known[1:])
                    assert value is not None
                    found[rows[good]] = value[good]
                return found
        for part in (part for parts in self._choices for part in parts):
            inner = part._value(scored, left, right, i, j)
            found = np.where(np.isnan(inner), found, inner)
        return found

    def _evaluate(
        self, slot: str, term: Term, left: Block, right: Block, i: np.ndarray, j: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray]:
        if slot in self._emd:
            return self._emd[slot].decide(left, right, i, j)
        return self._decisions.of(slot, term, left, right, i, j)

    def _propose(self, pair: Pair) -> Iterator[Candidates | Found]:
        if any(all_alike(pair, slot) for slot in self._differing):
            return
        apart = self._apart(pair)
        if self._key is not None:
            yield from self._by_key(pair)
        elif self._bands and self._prefer_band(pair):
            yield from band_candidates(pair, self._bands)
        elif apart is None:
            yield from self._search(pair)
        else:
            for part in apart.parts:
                for i, j, *known in self._search(part.pair):
                    rows = part.left[i], part.right[j]
                    yield Found(*rows, *known) if known else Candidates(*rows)

    def comparisons(self, pair: Pair) -> int:
        """How many pairs of the two blocks are compared."""
        if any(all_alike(pair, slot) for slot in self._differing):
            return 0
        apart = self._apart(pair)
        return comparisons(pair) if apart is None else apart.comparisons

    def _apart(self, pair: Pair) -> Apart | None:
        """The blocks by the value in which rows must differ, if that pays."""
        if not self._differing or self._key is not None:
            return None
        if self._last is None or self._last[0] is not pair:
            banded = bool(self._bands) and self._prefer_band(pair)
            slot, cell = self._differing[0], self._cell(pair)
            self._last = pair, None if banded else taken_apart(pair, slot, cell)
        return self._last[1]

    def _search(self, pair: Pair) -> Iterator[Candidates | Found]:
        """What the term proposes that costs least, of those that look at every two rows."""
        if self._vector is not None:
            yield from self._by_vector(pair)
        elif self._overlap is not None:
            yield from self._overlap.candidates(pair)
        elif self._emd:
            yield from next(iter(self._emd.values())).matches(pair)
        elif self._choices:
            yield from self._by_choice(pair)
        elif any(custom_of(term) is not None for _, term in self._terms):
            yield from self._by_custom(pair)
        else:
            yield from self._all(pair)

    def _cell(self, pair: Pair) -> float:
        """Nanoseconds on one core to look at two rows among many, at least; measured."""
        if self._vector is None:
            return 2.0
        slot, _, what = self._vector
        width: int = pair.left.columns[slot].shape[1]
        return (0.15 if what.kind in _PRODUCTS else 1.3) + 0.0045 * width

    def _by_choice(self, pair: Pair) -> Iterator[Candidates]:
        """What each alternative finds and no earlier one would have found."""
        for number, part in enumerate(self._choices[0]):
            for found in part.propose(pair):
                i, j = found[:2]
                rows, _ = part.decide(pair.left, pair.right, i, j)
                i, j = i[rows], j[rows]
                for earlier in self._choices[0][:number]:
                    others = np.ones(len(i), bool)
                    others[earlier.decide(pair.left, pair.right, i, j)[0]] = False
                    i, j = i[others], j[others]
                if len(i):
                    yield Candidates(i, j)

    def _prefer_band(self, pair: Pair) -> bool:
        size = band_size(pair, self._bands[0])
        if self._vector is None and self._overlap is not None:
            # In nanoseconds: two bags alone, and two among many.
            return size * 15 < comparisons(pair) * 2
        if self._vector is None:
            # A search by Earth Mover's Distance looks at few pairs, each costlier than a band's.
            sparse = size * 8 < comparisons(pair)
            return not self._emd or sparse
        width = pair.left.columns[self._vector[0]].shape[1]
        # In nanoseconds on one core: a cell of a product or a loop, and a pair decided alone.
        cell, single = 0.5 + 0.02 * width, 60 + 0.5 * width
        return bool(size * single < comparisons(pair) * cell)

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
        code = self._key + "_h" if self._key in self._decisions.text else self._key
        with_product = self._vector is not None and self._vector[2].kind in _PRODUCTS
        least = _BIG_GROUP if with_product else np.iinfo(np.int64).max
        groups, taken = shared_groups(pair, code, least)
        for group in groups:
            rows = pair.left.take(group.left), pair.right.take(group.right)
            part = Pair(*rows, pair.window, pair.ordered)
            for found in self._by_vector(part):
                yield Candidates(group.left[found.left], group.right[found.right])
        yield from key_candidates(pair, code, taken)

    def _by_custom(self, pair: Pair) -> Iterator[Candidates]:
        slot, term = next((slot, term) for slot, term in self._terms if custom_of(term) is not None)
        for top, bottom, start, stop in tiles(pair, _TILE, _TILE):
            rows, cols = np.arange(top, bottom), np.arange(start, stop)
            matrix = call_custom(slot, term, pair.left, pair.right, rows, cols)
            i, j = np.nonzero(accepted(term, matrix))
            yield from admitted(pair, rows[i], cols[j])

    def _all(self, pair: Pair) -> Iterator[Candidates]:
        """Every pair, where no term says where to look."""
        for top, bottom, start, stop in tiles(pair, _TILE, _TILE):
            i, j = np.divmod(np.arange((bottom - top) * (stop - start)), stop - start)
            yield from admitted(pair, top + i, start + j)
