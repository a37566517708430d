"""What is chosen for vectors, product, bytes or balls, against each of them forced, on one core.

Every way decides the same stream: batches of new rows, each against the stored rows that a window
holds, all of them blocks that have not been seen before the run. So making bytes and balls counts,
and so does trying what does not pay. The value is the time of a forced way divided by that of what
is chosen: above 1, the choice is faster. Each finds the same pairs.

The data: without any preferred direction; rows of 300 scenes with little and with much noise; rows
that all lie about the threshold, which is the worst of data; and such rows among others, so that
one part of a stored block is for bytes and another for the product: at its beginning, or where what
comes first says nothing of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

import anabranch as ab
from anabranch.correlation.filters import choosing
from anabranch.correlation.filters.balls import ball_search
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.products import product_candidates
from anabranch.correlation.filters.quantised import byte_candidates
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block
from benchmarks.correlate_filters import crowded, scenes
from benchmarks.correlate_kernel import directions, one_core, specification
from benchmarks.measuring import Row, Screen, in_turns, ratio

__all__ = ["chosen"]

_THRESHOLD = 0.9
_SEED = 40
_SECOND = 1_000_000
_WAYS = ("product", "bytes", "balls")
_NEVER_SLOWER = 0.95


def chosen(screen: Screen, quick: bool) -> dict[str, Any]:
    """Each kind of data at 64 and 576 dimensions; the choice costs no more than the product."""
    found: dict[str, Any] = {}
    if not available():
        for what in _DATA:
            screen.miss("chosen", what, "this processor has no instructions for bytes")
        return found
    with one_core():
        for name, make in _DATA.items():
            for width in (64, 576):
                screen.step(f"chosen: {name}, d={width}")
                found[f"{name}, d={width}"] = _measure(screen, name, make, width, quick)
    return found


def _measure(
    screen: Screen, name: str, make: Callable[[int, int], np.ndarray], width: int, quick: bool
) -> dict[str, Any]:
    batches, new, held, rounds = (6, 300, 3000, 3) if quick else (20, 1000, 18_000, 3)
    vectors = make(held + batches * new, width)
    used: dict[str, Counter[str]] = {}
    pairs: dict[str, set[tuple[int, int, int]]] = {}

    def run(way: str) -> None:
        with _forced(way) as used[way]:
            pairs[way] = _stream(vectors, held, new)

    ways = ("chosen", *_WAYS)
    seconds = in_turns({way: lambda way=way: run(way) for way in ways}, rounds)  # type: ignore[misc]
    assert all(pairs[way] == pairs["product"] for way in ways), "the ways differ in what they find"
    looks = ", ".join(f"{count} {way}" for way, count in sorted(used["chosen"].items()))
    details: dict[str, Any] = {"looks": dict(used["chosen"]), "pairs": len(pairs["product"])}
    for way in _WAYS:
        details[way] = ratio(seconds[way], seconds["chosen"])
        goal = _NEVER_SLOWER if way == "product" else None
        what = f"{name}, d={width}: {way} / chosen"
        screen.add(Row("chosen", what, details[way], "times", goal, note=f"looked by: {looks}"))
    return details


def _stream(vectors: np.ndarray, held: int, new: int) -> set[tuple[int, int, int]]:
    """The pairs that new rows find among the stored ones, batch by batch."""
    matcher = Matcher(specification({"v": "array<float>"}, ab.cosine("v") >= _THRESHOLD))
    stored = [_block(part, 0) for part in np.array_split(vectors[:held], 2)]
    found: set[tuple[int, int, int]] = set()
    for batch, top in enumerate(range(held, len(vectors), new)):
        fresh = _block(vectors[top : top + new], batch + 1)
        for place, block in enumerate(stored):
            for part in matcher.matches(Pair(fresh, block, (60 * _SECOND, 60 * _SECOND))):
                many = len(part.left), int(part.left.sum()), int(part.right.sum())
                found.add((batch * len(stored) + place, *many[:1], many[1] + many[2] * new))
    return _summed(found)


def _summed(found: set[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    """By pair of blocks how many pairs there are, and a sum that tells which: parts may differ."""
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for place, count, total in found:
        counts[place] += count
        sums[place] += total
    return {(place, counts[place], sums[place]) for place in counts}


def _block(vectors: np.ndarray, second: int) -> Block:
    t = second * _SECOND + np.linspace(0, _SECOND - 1, len(vectors)).astype(np.int64)
    return Block.of(t, {"id": np.arange(len(t)), "s0": vectors})


@contextmanager
def _forced(way: str) -> Iterator[Counter[str]]:
    """One way for every pair of blocks, or what is chosen; counts who looks at blocks and parts."""
    used: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def look(*call: Any) -> Any:
            used[name] += 1
            return function(*call)

        return look

    changes: dict[str, Any] = {
        "product_candidates": counted("product", product_candidates),
        "byte_candidates": counted("bytes", byte_candidates),
        "ball_search": counted("balls", ball_search),
    }
    if way == "product":
        changes["available"] = tuple
    if way in ("bytes", "balls"):
        changes["may_pay"] = lambda *call: True
        changes["most_proposed"] = lambda width, pairs, by: pairs
        changes["_SEEN_FIRST"] = 0 if way == "balls" else 1 << 60
        changes["balls_pay"] = lambda width, share, by: True
        changes["_ENOUGH_ROWS"] = 1
    with ExitStack() as stack:
        for name, value in changes.items():
            stack.enter_context(mock.patch.object(choosing, name, value))
        yield used


def _isotropic(rows: int, width: int) -> np.ndarray:
    return directions(rows, width, _SEED)


def _scenes(noise: float, rows: int, width: int) -> np.ndarray:
    data = scenes(noise)((rows, 0), width)
    assert data is not None
    return data[0]


def _mixed(rows: int, width: int, first: int = 0) -> np.ndarray:
    """Stretches of rows lie about the threshold, from the first of a block on or from a later one.

    Those between them do not.
    """
    vectors = directions(rows, width, _SEED)
    near = crowded(rows, width, 0.01)
    third = (np.arange(rows) - first) % 9000 < 3000
    vectors[third] = near[third]
    return vectors


_DATA: dict[str, Callable[[int, int], np.ndarray]] = {
    "isotropic": _isotropic,
    "scenes, noise .25": lambda rows, width: _scenes(0.25, rows, width),
    "scenes, noise .45": lambda rows, width: _scenes(0.45, rows, width),
    "about the threshold": lambda rows, width: crowded(rows, width, 0.01),
    "a third about the threshold": _mixed,
    "a third about the threshold, behind others": lambda rows, width: _mixed(rows, width, 1300),
}
