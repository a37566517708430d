"""What a condition compares, as whole numbers: marks of objects, and bounds of queries.

Of equalities only those values matter that some query has. They get *codes*; all others are one
code that no query has. A code may stand for another value once no query has the first: a query
sees only objects that come after it, and these are marked by what codes mean then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.flow.blocks import Block, decode_batch, encode_batch
from anabranch.flow.sides import UNKNOWN
from anabranch.flow.words import around
from anabranch.neighbours.lists.queries import Queries
from anabranch.neighbours.where import Condition

__all__ = ["Codes", "Marking"]

_OTHER = -1
_MOST = int(np.iinfo(np.int64).max)


class Codes:
    """Small whole numbers for the texts that queries have.

    Examples
    --------
    >>> codes = Codes()
    >>> codes.learn(pa.array(["a", "b", None, "a"]))
    >>> codes.of(pa.array(["b", "x", None])).tolist() == [1, -1, UNKNOWN]
    True
    >>> codes.keep(np.array([1]))  # nobody has "a" any more
    >>> codes.learn(pa.array(["c"]))
    >>> codes.of(pa.array(["a", "b", "c"])).tolist()
    [-1, 1, 0]
    """

    def __init__(self, values: Any = None) -> None:
        self.values = pa.array([], pa.string()) if values is None else values  # null where free

    def of(self, texts: Any) -> np.ndarray:
        """The code of each text: -1 if no query has it, `UNKNOWN` if it is null."""
        known = self.values.cast(texts.type)  # texts of one step may have a wide type
        found = pc.index_in(texts, known, skip_nulls=True).cast(pa.int64())
        codes: np.ndarray = found.fill_null(_OTHER).to_numpy(zero_copy_only=False).copy()
        codes[np.asarray(texts.is_null())] = UNKNOWN
        return codes

    def learn(self, texts: Any) -> None:
        """Give codes to texts that have none."""
        new = pc.unique(texts.filter(pa.array(self.of(texts) == _OTHER)))
        if not len(new):
            return
        free = np.flatnonzero(np.asarray(self.values.is_null()))[: len(new)]
        places = np.full(len(self.values), -1)
        places[free] = np.arange(len(free))
        filled = new.take(pa.array(places, mask=places < 0))
        self.values = pa.concat_arrays([pc.coalesce(self.values, filled), new[len(free) :]])

    def keep(self, codes: np.ndarray) -> None:
        """Let all codes be free but these."""
        used = np.zeros(len(self.values), bool)
        used[codes] = True
        self.values = self.values.take(pa.array(np.arange(len(used)), mask=~used))


class Marking:
    """The marks of objects and the bounds of queries, for the tests of a condition.

    Examples
    --------
    >>> from anabranch.calls import Check
    >>> from anabranch.neighbours.where import read_where
    >>> from anabranch.predicates import same, within
    >>> types = {"kind": "string", "price": "bigint"}
    >>> tests = read_where(Check(objects=types, queries=types), same("kind") & within("price", 5))
    >>> marking = Marking(tests)
    >>> asked = Block.of([0], {"where0": pa.array(["car"]), "where1": np.array([20])})
    >>> queries = marking.bound(Queries.of([[0.0]], k=1, window=10), asked)
    >>> queries.low.tolist(), queries.high.tolist(), queries.parted
    ([[0, 15]], [[0, 25]], True)
    >>> marking.of(Block.of([1], {"where0": pa.array(["bus"]), "where1": np.array([7])})).tolist()
    [[-1, 7]]
    """

    def __init__(self, tests: Sequence[Condition]) -> None:
        self.tests = tuple(tests)
        self.codes = {test.name: Codes() for test in self.tests if test.has_codes}
        ends = np.cumsum([0, *(test.objects[0].words for test in self.tests)]).tolist()
        self._placed = [*zip(map(slice, ends, ends[1:]), self.tests, strict=False)]
        self.further = np.ones(ends[-1], bool)
        self.further[ends[:-1]] = False

    def of(self, objects: Block) -> np.ndarray:
        """Marks, a row for each object and a column for each word of what tests compare."""
        marks = np.empty((len(objects), len(self.further)), np.int64)
        for n, test in self._placed if len(objects) else ():
            marks[:, n] = _matrix(self._values(test, objects.columns[test.name]))
        return marks

    def bound(self, queries: Queries, block: Block) -> Queries:
        """Queries with the bounds that their rows in a block say."""
        if not self.tests:
            return queries
        low, high = np.empty((2, len(queries), len(self.further)), np.int64)
        inverted = np.zeros(len(self.further), bool)
        for n, test in self._placed:
            low[:, n], high[:, n] = map(_matrix, self._bounds(test, block))
            inverted[n] = test.kind == "differs"
        of = replace(queries, low=low, high=high, inverted=inverted, further=self.further)
        return replace(of, parted=self.tests[0].kind == "same")

    def forget(self, queries: Sequence[Queries]) -> None:
        """Free the codes that none of these queries has."""
        for place, test in self._placed:
            if test.has_codes:
                n = place.start
                # Bounds that differ are those of a query without a value.
                used = [of.low[of.low[:, n] == of.high[:, n], n] for of in queries]
                self.codes[test.name].keep(np.concatenate(used))

    def encode(self) -> dict[str, Any]:
        """What codes mean, as parts of a snapshot."""
        return {
            f"codes {name}": encode_batch(pa.RecordBatch.from_arrays([codes.values], ["text"]))
            for name, codes in self.codes.items()
        }

    def take_up(self, parts: dict[str, Any]) -> None:
        """Go on with what `encode` wrote."""
        for name in self.codes:
            self.codes[name] = Codes(decode_batch(parts[f"codes {name}"]).column(0))

    def _values(self, test: Condition, column: Any) -> np.ndarray:
        if test.has_codes:
            return self.codes[test.name].of(column)
        return _ordered(column)

    def _bounds(self, test: Condition, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """The bounds of each query; where something is missing, those that nothing passes."""
        given = {slot.name: block.columns[slot.name] for slot in test.queries}
        if test.has_codes:
            self.codes[test.name].learn(given[test.name])
        if test.kind == "within":
            low, high = _around(given[test.name], test.limit)
            known = _known(low)
        else:
            values = {name: self._values(test, column) for name, column in given.items()}
            known = np.logical_and.reduce([_known(of) for of in values.values()])
            low = high = next(iter(values.values()))
            if test.kind == "between":
                low = values.get(f"{test.name}_low", np.full_like(low, UNKNOWN + 1))
                high = values.get(f"{test.name}_high", np.full_like(high, _MOST))
        nothing, everything = (_MOST, UNKNOWN), (UNKNOWN, _MOST)
        never = everything if test.kind == "differs" else nothing
        known = known.reshape(-1, *[1] * (low.ndim - 1))
        return np.where(known, low, never[0]), np.where(known, high, never[1])


def _matrix(values: np.ndarray) -> np.ndarray:
    return values if values.ndim == 2 else values[:, None]


def _known(marks: np.ndarray) -> np.ndarray:
    """Where there is a value: its first word tells."""
    known: np.ndarray = _matrix(marks)[:, 0] != UNKNOWN
    return known


def _ordered(values: np.ndarray) -> np.ndarray:
    """Whole numbers in the same order; `UNKNOWN` for what is no number.

    Examples
    --------
    >>> marks = _ordered(np.array([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf]))
    >>> np.diff(marks).tolist()[2], bool((np.diff(marks) >= 0).all()), (marks > UNKNOWN).all()
    (0, True, np.True_)
    """
    if values.dtype != np.float64:
        return values
    bits = (values + 0.0).view(np.int64)
    marks: np.ndarray = np.where(bits < 0, bits ^ _MOST, bits)
    marks[np.isnan(values)] = UNKNOWN
    return marks


def _number(marks: np.ndarray) -> np.ndarray:
    """The floats that `_ordered` made marks of."""
    found: np.ndarray = np.where(marks < 0, marks ^ _MOST, marks).view(np.float64)
    return found


def _around(centres: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest mark of what lies within a limit; `UNKNOWN` where there is none.

    Examples
    --------
    >>> low, high = _around(np.array([7, 2**63 - 2, UNKNOWN]), 3)
    >>> low.tolist() == [4, 2**63 - 5, UNKNOWN], high.tolist()[:2] == [10, 2**63 - 1]
    (True, True)
    >>> low, high = _around(np.array([0.3]), 0.1)
    >>> _number(low), _number(high), abs(0.2 - 0.3) <= 0.1
    (array([0.2]), array([0.4]), True)
    """
    if centres.dtype != np.float64:
        low, high = around(centres, int(limit))
        # What is known is not `UNKNOWN`, however far its bound lies.
        first = low if low.ndim == 1 else low[:, 0]
        first[:] = np.where(_known(centres), np.maximum(first, UNKNOWN + 1), UNKNOWN)
        return low, high
    usable = np.isfinite(centres)
    centres = np.where(usable, centres, 0.0)
    # The rounded difference never falls as a value goes away from the centre, so the last one
    # that is within the limit can be found by halving.
    ends = []
    for direction in (-np.inf, np.inf):
        inside = _ordered(centres)
        outside = _ordered(np.full(len(centres), direction))
        for _ in range(64):
            middle = (inside >> 1) + (outside >> 1) + (inside & outside & 1)
            with np.errstate(over="ignore"):  # infinitely far is beyond every limit
                near = np.abs(_number(middle) - centres) <= limit
            inside, outside = np.where(near, middle, inside), np.where(near, outside, middle)
        ends.append(inside)
    return np.where(usable, ends[0], UNKNOWN), ends[1]
