"""What topics are, in lines too plain to be wrong: connected components of a graph of pairs."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from anabranch.video.stories import REPEATS, TopicCall


class Row(NamedTuple):
    id: str
    channel: str
    t: int


class Match(NamedTuple):
    left: Row
    right: Row
    score: float = 0.5

    @property
    def t(self) -> int:
        return max(self.left.t, self.right.t)

    @property
    def place(self) -> tuple[Any, ...]:
        return self.t, self.left.id, self.right.id


def linked(a: Match, b: Match, near: int) -> bool:
    if {a.left.id, a.right.id} & {b.left.id, b.right.id}:
        return True
    one, other = ({row.channel: row.t for row in (p.left, p.right)} for p in (a, b))
    return one.keys() == other.keys() and all(abs(one[c] - other[c]) <= near for c in one)


def components(pairs: list[Match], near: int) -> list[frozenset[Match]]:
    graph = csr_array(np.array([[linked(a, b, near) for b in pairs] for a in pairs]))
    count, label = connected_components(graph, directed=False) if pairs else (0, [])
    return [
        frozenset(p for p, n in zip(pairs, label, strict=True) if n == one) for one in range(count)
    ]


def furniture(pair: Match, repeats: list[Match], repeating: int) -> bool:
    """Whether one of its key frames has been like too many others of its channel."""
    counted = [r for r in repeats if pair.t - repeating <= r.t <= pair.t]
    ids = Counter(row.id for r in counted for row in (r.left, r.right))
    return max(ids[pair.left.id], ids[pair.right.id]) > REPEATS


def told(topic: frozenset[Match], call: TopicCall) -> bool:
    channels = {row.channel for pair in topic for row in (pair.left, pair.right)}
    best = max(pair.score for pair in topic)
    sure = len(topic) > 1 or (call.alone is not None and best >= call.alone)
    return sure and len(channels) >= call.channels


def twin(
    pairs: list[Match], repeats: list[Match], call: TopicCall
) -> tuple[Counter[frozenset[Match]], int]:
    """The topics that users see when all have closed, and how many pairs were furniture."""
    plain = [p for p in pairs if not furniture(p, repeats, call.repeating)]
    live: list[Match] = []
    closed: list[frozenset[Match]] = []
    for pair in sorted(plain, key=lambda p: p.place):
        for topic in components(live, call.near):
            times = [p.t for p in topic]
            if max(times) + call.gap < pair.t or min(times) + call.longest < pair.t:
                closed.append(topic)
                live = [p for p in live if p not in topic]
        live.append(pair)
    closed += components(live, call.near)
    return Counter(topic for topic in closed if told(topic, call)), len(pairs) - len(plain)
