"""The brute-force twin: what `correlate` must answer, in lines too plain to be wrong.

A *row* is a mapping with ``id`` and ``t`` (microseconds). A *score* is a function of a left and a
right row that gives the pair's score, or None if the two do not match. A *batch* is what one
micro-batch brings: a list of left rows and a list of right rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]
Rows = Iterable[Row]
Score = Callable[[Row, Row], Any]
Batch = tuple[Sequence[Row], Sequence[Row]]
Pairs = dict[tuple[Any, Any], Any]


def rows_of(table: pa.Table, time: str = "ts") -> list[dict[str, Any]]:
    """The rows of an Arrow table, with `t` in microseconds.

    Examples
    --------
    >>> rows_of(pa.table({"id": [7], "ts": pa.array([5], pa.timestamp("us", "UTC"))}))[0]["t"]
    5
    """
    times = table[time].cast(pa.int64()).to_pylist()
    return [{**row, "t": t} for row, t in zip(table.to_pylist(), times, strict=True)]


def pairs(left: Rows, right: Rows, window: tuple[int, int], score: Score) -> Pairs:
    """Every pair that the window lets join and that has a score.

    Examples
    --------
    >>> left, right = [{"id": 1, "t": 10}], [{"id": 2, "t": 15}, {"id": 3, "t": 16}]
    >>> pairs(left, right, (5, 0), lambda l, r: 1.0)
    {(1, 2): 1.0}
    """
    w_left, w_right = window
    right = list(right)
    found = {}
    for a in left:
        for b in right:
            if -w_left <= a["t"] - b["t"] <= w_right:
                value = score(a, b)
                if value is not None:
                    found[a["id"], b["id"]] = value
    return found


def pairs_by_rows(left: Rows, right: Rows, window: tuple[int, int], score: Score) -> Pairs:
    """Every pair with a score whose earlier row is among the newest so many of its side.

    Examples
    --------
    >>> left, right = [{"id": n, "t": n} for n in (1, 2, 3)], [{"id": 9, "t": 3}]
    >>> sorted(pairs_by_rows(left, right, (2, 1), lambda l, r: 1.0))
    [(2, 9), (3, 9)]
    """
    ordered = sorted(
        (row["t"], n, row["id"], row) for n, rows in enumerate((left, right)) for row in rows
    )
    seen: tuple[list[Row], list[Row]] = ([], [])
    found = {}
    for _, side, _, row in ordered:
        others = seen[1 - side][::-1][: window[1 - side]]
        for other in others:
            a, b = (row, other) if side == 0 else (other, row)
            value = score(a, b)
            if value is not None:
                found[a["id"], b["id"]] = value
        seen[side].append(row)
    return found


def watermarks(batches: Iterable[Batch], late: int) -> Iterator[int]:
    """The watermark of each batch: newest whole millisecond of earlier ones, less `late`.

    Examples
    --------
    >>> list(watermarks([([{"t": 90_500}], []), ([], []), ([], [{"t": 80_000}])], late=10_000))
    [0, 80000, 80000]
    """
    watermark = 0
    for left, right in batches:
        yield watermark
        newest = max((row["t"] for row in (*left, *right)), default=0)
        watermark = max(watermark, newest // 1000 * 1000 - late)


def watermarks_of_sides(
    batches: Iterable[Batch], late: tuple[int, int], policy: str = "min"
) -> Iterator[int]:
    """The same if each side has a watermark of its own: the lower of the two counts.

    Examples
    --------
    >>> two = [([{"t": 90_000}], []), ([], [{"t": 50_000}]), ([], [])]
    >>> list(watermarks_of_sides(two, late=(0, 10_000)))
    [0, 0, 40000]
    """
    sides = [0, 0]
    for batch in batches:
        yield {"min": min, "max": max}[policy](sides)
        for n in (0, 1):
            newest = max((row["t"] for row in batch[n]), default=0)
            sides[n] = max(sides[n], newest // 1000 * 1000 - late[n])


def in_time(batches: Sequence[Batch], marks: Iterable[int]) -> tuple[list[Row], list[Row], int]:
    """Left and right rows that are later than their batch's watermark; how many are not.

    Examples
    --------
    >>> in_time([([{"t": 5}], [{"t": 6}])], [5])
    ([], [{'t': 6}], 1)
    """
    left: list[Row] = []
    right: list[Row] = []
    late = 0
    for (lefts, rights), mark in zip(batches, marks, strict=True):
        left += [row for row in lefts if row["t"] > mark]
        right += [row for row in rights if row["t"] > mark]
        late += sum(row["t"] <= mark for row in (*lefts, *rights))
    return left, right, late


def pairs_in_time(
    batches: Sequence[Batch], window: tuple[int, int], score: Score, late: int
) -> Pairs:
    """The pairs of the rows that are not late under one watermark for both sides."""
    left, right, _ = in_time(batches, watermarks(batches, late))
    return pairs(left, right, window, score)


def when(measure: Callable[[Row, Row], Any], holds: Callable[[Any], bool]) -> Score:
    """The score `measure`, where it `holds`.

    Examples
    --------
    >>> near = when(lambda l, r: abs(l["x"] - r["x"]), lambda d: d <= 2)
    >>> near({"x": 1}, {"x": 3}), near({"x": 1}, {"x": 4})
    (2, None)
    """

    def score(left: Row, right: Row) -> Any:
        value = measure(left, right)
        return value if holds(value) else None

    return score


def alike(least: float) -> Score:
    """The twin of ``cosine("v") >= least``."""
    return when(lambda a, b: cosine(a["v"], b["v"]), lambda s: s >= least)


def dot(u: Sequence[float], v: Sequence[float]) -> float:
    """Sum of products; exact, in any order, for small integers."""
    return float(sum(x * y for x, y in zip(u, v, strict=True)))


def cosine(u: Sequence[float], v: Sequence[float]) -> float:
    """Cosine of the angle.

    Examples
    --------
    >>> cosine([3, 4], [5, 0])
    0.6
    """
    return dot(u, v) / math.sqrt(dot(u, u) * dot(v, v))


def euclidean(u: Sequence[float], v: Sequence[float]) -> float:
    """Length of the difference.

    Examples
    --------
    >>> euclidean([0, 0], [3, 4])
    5.0
    """
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(u, v, strict=True)))


def manhattan(u: Sequence[float], v: Sequence[float]) -> float:
    """Sum of absolute differences.

    Examples
    --------
    >>> manhattan([0, 0], [3, -4])
    7.0
    """
    return float(sum(abs(x - y) for x, y in zip(u, v, strict=True)))


def hamming(u: Sequence[float] | int, v: Sequence[float] | int) -> float:
    """Differing bits of two integers, differing elements of two lists.

    Examples
    --------
    >>> hamming(0b1011, 0b1001), hamming([1, 2], [1, 3])
    (1.0, 1.0)
    """
    if isinstance(u, int) and isinstance(v, int):
        return float(((u ^ v) & (2**64 - 1)).bit_count())
    assert not isinstance(u, int) and not isinstance(v, int)
    return float(sum(x != y for x, y in zip(u, v, strict=True)))
