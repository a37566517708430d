"""What topics are, in lines too plain to be wrong: connected components of a graph of pairs."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from anabranch.video.repetition import REPEATS, RUN
from anabranch.video.stories import TopicCall


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


def repeated(row: Row, t: int, repeats: list[Match], call: TopicCall) -> str:
    """What a key frame is at a time by what its channel has shown again until then."""
    counted = [r for r in repeats if t - call.repeating <= r.t <= t]
    own = [r for r in counted if row.id in (r.left.id, r.right.id)]
    if len(own) > REPEATS:
        return "furniture"
    return "advert" if any(in_run(r, counted, call) for r in own) else ""


def in_run(one: Match, counted: list[Match], call: TopicCall) -> bool:
    """Whether others of its channel came again near it and as long after."""
    run = [
        (first.id, again.id)
        for r in counted
        for first, again in [sorted((r.left, r.right), key=lambda row: row.t)]
        if r.left.channel == one.left.channel
        and abs(distance(r) - distance(one)) <= call.equal
        and abs(r.t - one.t) <= call.span
        and (r == one or abs(r.t - one.t) < distance(one))
    ]
    return all(len({pair[side] for pair in run}) >= RUN for side in (0, 1))


def distance(r: Match) -> int:
    return abs(r.left.t - r.right.t)


def told(topic: frozenset[Match], call: TopicCall) -> bool:
    channels = {row.channel for pair in topic for row in (pair.left, pair.right)}
    best = max(pair.score for pair in topic)
    sure = len(topic) > 1 or (call.alone is not None and best >= call.alone)
    return sure and len(channels) >= call.channels


def twin(
    pairs: list[Match], repeats: list[Match], call: TopicCall
) -> tuple[Counter[frozenset[Match]], Counter[str]]:
    """The topics that users see when all have closed, and how many pairs connect nothing."""
    kinds = {p: max(repeated(row, p.t, repeats, call) for row in (p.left, p.right)) for p in pairs}
    plain = [p for p in pairs if not kinds[p]]
    live: list[Match] = []
    closed: list[frozenset[Match]] = []
    for pair in sorted(plain, key=lambda p: p.place):
        for topic in components(live, call.near):
            if end(topic, call) < pair.t:
                closed.append(topic)
                live = [p for p in live if p not in topic]
        live.append(pair)
    closed += components(live, call.near)
    dropped = Counter(kind for kind in kinds.values() if kind)
    return Counter(topic for topic in closed if told(topic, call)), dropped


def end(topic: frozenset[Match], call: TopicCall) -> int:
    times = [p.t for p in topic]
    return min(max(times) + call.gap, min(times) + call.longest)


def shown_again(topic: frozenset[Match], repeats: list[Match], call: TopicCall) -> set[str]:
    """The key frames of a topic that their channel showed again while it was open."""
    rows = {row: min(p.t for p in topic if row in p[:2]) for p in topic for row in p[:2]}
    moments = [r.t for r in repeats if r.t <= end(topic, call)]
    return {
        row.id
        for row, since in rows.items()
        if any(repeated(row, t, repeats, call) for t in moments if t >= since)
    }
