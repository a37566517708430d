"""The brute-force twin of k-NN queries over sliding windows: every instant, everything anew.

An *object* is (t, seq, point), a *query* a mapping with ``point``, ``k``, ``window`` and perhaps
``since``, ``until`` and ``among``, the numbers of the objects that may be its neighbours. A
*report* is (query, seq, entered_t, distance, rank).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Object = tuple[int, int, Sequence[float]]
Query = Mapping[str, Any]
Report = tuple[int, int, int, float, int]


def added(terms: Sequence[float]) -> float:
    """The sum in the library's order: eight lanes, then a tree, so that ties are the same ties."""
    lanes = [0.0] * 8
    whole = len(terms) - len(terms) % 8
    for n, term in enumerate(terms):
        lanes[n % 8 if n < whole else n - whole] += term
    while len(lanes) > 1:
        lanes = [a + b for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
    return lanes[0]


def distance(metric: str, u: Sequence[float], v: Sequence[float]) -> float:
    """Euclidean, Manhattan or cosine distance.

    Examples
    --------
    >>> distance("euclidean", [0, 0], [3, 4]), distance("manhattan", [0, 0], [3, 4])
    (5.0, 7.0)
    >>> distance("cosine", [3, 4], [4, 3])
    0.040000000000000036
    """
    if metric == "euclidean":
        apart = [a - b for a, b in zip(u, v, strict=True)]
        square = added([a * a for a in apart])
        if 2.0**-960 < square < math.inf:
            return math.sqrt(square)
        near, exponent = near_one(apart)
        return math.ldexp(math.sqrt(added([a * a for a in near])), exponent)
    if metric == "manhattan":
        return added([abs(a - b) for a, b in zip(u, v, strict=True)])
    u, v = (
        x if 2.0**-450 <= added([a * a for a in x]) <= 2.0**450 else near_one(x)[0] for x in (u, v)
    )
    dot, uu, vv = (
        added([a * b for a, b in zip(x, y, strict=True)]) for x, y in ((u, v), (u, u), (v, v))
    )
    return 1.0 - min(1.0, max(-1.0, dot / math.sqrt(uu * vv)))


def near_one(x: Sequence[float]) -> tuple[list[float], int]:
    """A vector divided by a power of two, so that its squares stay in range; and which power."""
    exponent = math.frexp(max(abs(a) for a in x))[1]
    return [math.ldexp(a, -exponent) for a in x], exponent


def reports(
    objects: Sequence[Object],
    queries: Sequence[Query],
    counted: bool = False,
    metric: str = "euclidean",
    upto: float = math.inf,
) -> list[Report]:
    """What every query must be given, instant after instant up to `upto`.

    An object is in the window just after instant e iff ``clock <= e < clock + window``, the clock
    being its time, or its number if windows are counted. With counted windows an instant has the
    time of the object that arrives at it.

    Examples
    --------
    k = 1: the nearer object comes first; the farther enters when it expires, at 0 + 10.

    >>> near, far = (0, 0, [1.0]), (4, 1, [2.0])
    >>> reports([near, far], [{"point": [0.0], "k": 1, "window": 10}])
    [(0, 0, 0, 1.0, 1), (0, 1, 10, 2.0, 1)]
    """
    found: list[Report] = []
    for q, query in enumerate(queries):
        window, since = query["window"], query.get("since", -math.inf)
        until = query.get("until", math.inf)
        valid = [o for o in objects if since < o[0] <= until]
        if "among" in query:
            valid = [o for o in valid if o[1] in query["among"]]
        clocks = {o[1]: o[1] if counted else o[0] for o in valid}
        times = {o[1]: o[0] for o in objects}  # counted: an instant is an arrival's number
        instants = set(clocks.values()) | {clock + window for clock in clocks.values()}
        scores = {o[1]: distance(metric, query["point"], o[2]) for o in valid}
        told: set[int] = set()
        for e in sorted(instants):
            if counted and e not in times:  # nothing arrives, so nothing leaves
                continue
            time = times[e] if counted else e
            if time > min(until, upto):
                break
            inside = [s for s, clock in clocks.items() if clock <= e < clock + window]
            top = sorted(inside, key=lambda s: (scores[s], s))[: query["k"]]
            for rank, s in enumerate(top, 1):
                if s not in told:
                    told.add(s)
                    found.append((q, s, time, scores[s], rank))
    return found
