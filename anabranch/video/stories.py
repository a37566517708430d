"""Topics: what pairs of key frames on different channels are about, as they open, grow and close.

Two pairs belong together if they share a key frame, or if they are of the same two channels and
both their times are near: a story has several shots. A topic is what is connected so. A key frame
that its own channel repeats, as an ident, a studio or part of an advert, connects nothing. Topics
are groups of pairs with one more kind of link, so they stand on the kernel of `groups`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from anabranch.calls import describe
from anabranch.correlation.grouping import Group, Grouping, Groups, GroupsJob, Vertex
from anabranch.video.repetition import Repetitions
from anabranch.video.spelling import agree, caption

__all__ = ["BETWEEN", "MOST", "TopicCall", "Topics", "TopicsJob", "heat"]

MOST = 3
"""How many concepts a key frame votes for, and a topic has at most."""
BETWEEN = "\x1f"
"""What is between the concepts of a key frame, the most likely first."""


@dataclass(frozen=True)
class TopicCall(Grouping):
    """A checked call of `topics`; times are microseconds.

    `alone` is the score at which one pair is a topic, None if it never is. `repeating` is how long
    a repetition of a key frame counts; an advert is at most `span` long, and what is `equal` in it
    differs by at most that.
    """

    near: int = 0
    longest: int = 0
    repeating: int = 0
    equal: int = 0
    span: int = 0
    channels: int = 2
    alone: float | None = None


@dataclass
class _Facts:
    """What is known of an open topic."""

    channels: set[str] = field(default_factory=set)
    best: tuple[float, Any, Any] = (-math.inf, None, None)
    words: Counter[str] = field(default_factory=Counter)
    concepts: Counter[str] = field(default_factory=Counter)  # votes
    agreed: bool = False
    told: bool = False
    repeated: set[Any] = field(default_factory=set)  # shots that their channel has shown again

    def add(self, other: _Facts) -> None:
        self.channels |= other.channels
        self.best = max(self.best, other.best, key=lambda best: best[0])
        self.words += other.words
        self.concepts += other.concepts
        self.agreed = self.agreed or other.agreed
        self.repeated |= other.repeated


@dataclass
class Topics(Groups):
    """Open topics, to which pairs are dealt in order; what happens is in `events`.

    Examples
    --------
    >>> topics = Topics(100, True, 1000, call=TopicCall(100, True, near=10))
    >>> for t, left, right in [(1, "n1", "s1"), (5, "n2", "s2"), (300, "n9", "s9")]:
    ...     topics.take_in((t, 1, left, right, "north", "south", t, t, 0.8, *4 * [""]))
    >>> for event in topics.events:
    ...     print(event["topic"], event["event"], event["shots"])
    1970-01-01T00:00:00.000001Z|n1|s1 opened 4
    1970-01-01T00:00:00.000001Z|n1|s1 closed 4
    """

    call: TopicCall = field(kw_only=True)
    facts: dict[str, _Facts] = field(default_factory=dict)
    # Of the same two channels: time, times on either, and the left row of each pair not too old.
    _recent: dict[tuple[str, str], deque[tuple[int, int, int, Any]]] = field(default_factory=dict)
    _pair: _Facts = field(default_factory=_Facts)

    def __post_init__(self) -> None:
        call = self.call
        self.repetitions = Repetitions(call.repeating, call.equal, call.span)

    def take_in(self, pair: tuple[Any, ...]) -> None:
        """Take in the next pair, or the next repetition of a key frame on its own channel."""
        t, counts, left, right = pair[:4]
        self.close(t - 1)  # first: the rows of a topic that closes now are beside nothing
        if not counts:
            for row in self.repetitions.take_in(left, right, pair[4], *pair[6:8]):
                if (0, row) in self.of:
                    self.facts[self.of[0, row].group].repeated.add(row)
            return
        self.repetitions.forget(t)
        kinds = {self.repetitions.kind(left), self.repetitions.kind(right)} - {""}
        if kinds:
            self.dropped[max(kinds)] += 1
            return
        channels, times, score, words = pair[4:6], pair[6:8], pair[8], pair[9:11]
        self._pair = _Facts(set(channels), (score, left, right))
        for row, line, concepts in zip((left, right), words, pair[11:13], strict=True):
            if (0, row) not in self.of:  # each key frame votes once in its topic
                self._pair.words.update(filter(None, [line]))
                for n, concept in enumerate(filter(None, concepts.split(BETWEEN))):
                    self._pair.concepts[concept] += MOST - n
        self._pair.agreed = agree(*words)
        self.deal(t, left, right, [*self._beside(t, left, channels, times)])

    def form(self) -> dict[str, Any]:
        """Open topics in the types of JSON."""
        facts = [
            [
                *(name, sorted(of.channels), of.best, dict(of.words), of.agreed, of.told),
                *(sorted(of.repeated), dict(of.concepts)),
            ]
            for name, of in self.facts.items()
        ]
        recent = [[*of, *pair] for of, pairs in self._recent.items() for pair in pairs]
        repeats = self.repetitions.form()
        return {**super().form(), "facts": facts, "recent": recent, "repeats": repeats}

    def take_up(self, form: Mapping[str, Any]) -> None:
        """Continue with the topics of `form`."""
        super().take_up(form)
        for name, channels, best, words, agreed, told, repeated, concepts in form["facts"]:
            votes = Counter(words), Counter(concepts)
            self.facts[name] = _Facts(
                set(channels), tuple(best), *votes, agreed, told, set(repeated)
            )
        for one, other, *pair in form["recent"]:
            self._recent.setdefault((one, other), deque()).append(tuple(pair))
        self.repetitions.take_up(form["repeats"])

    def _beside(
        self, t: int, left: Any, channels: tuple[str, str], times: tuple[int, int]
    ) -> Iterator[Vertex]:
        """One row of each pair that is near this one; this one is remembered."""
        here = min(channels), max(channels)
        first, second = times if channels == here else times[::-1]
        recent = self._recent.setdefault(here, deque())
        while recent and recent[0][0] < t - self.call.near:
            recent.popleft()
        for _, one, other, row in recent:
            if max(abs(one - first), abs(other - second)) <= self.call.near:
                yield (0, row)
        recent.append((t, first, second, left))

    def _emit(self, group: Group, event: str, t: int, pair: Any, into: str | None = None) -> None:
        """Keep what is known of a topic, and tell what happens to it if it is one for users."""
        if event in ("merged", "closed"):
            facts = self.facts.pop(group.name)
            if into is not None:
                self.facts.setdefault(into, _Facts()).add(facts)
            else:
                self._leave({row for _, row in group.rows})
            if facts.told:
                self.events.append(self._event(group, facts, event, t, pair, into))
            return
        facts = self.facts.setdefault(group.name, _Facts())
        facts.add(self._pair)
        call = self.call
        alone = call.alone is not None and facts.best[0] >= call.alone
        sure = group.pairs > 1 or alone or facts.agreed
        if facts.told or (sure and len(facts.channels) >= call.channels):
            event = "grew" if facts.told else "opened"
            facts.told = True
            self.events.append(self._event(group, facts, event, t, pair, None))

    def _leave(self, rows: set[Any]) -> None:
        """A topic has closed, early perhaps: nothing is near its pairs any more."""
        for channels, recent in self._recent.items():
            self._recent[channels] = deque(pair for pair in recent if pair[3] not in rows)

    def _event(
        self, group: Group, facts: _Facts, event: str, t: int, pair: Any, into: str | None
    ) -> dict[str, Any]:
        shots, (score, *best) = len(group.rows), facts.best
        warmth = heat(len(facts.channels), shots, (t - group.last) / self.gap)
        _, left, right = pair or (t, None, None)
        return {
            "topic": group.name,
            "revision": group.revision,
            "event": event,
            "t": t,
            "into": into,
            "began": group.first[0],
            "last": group.last,
            "channels": sorted(facts.channels),
            "shots": shots,
            "pairs": group.pairs,
            "repeated": len(facts.repeated),
            "best_left_id": best[0],
            "best_right_id": best[1],
            "score": score,
            "words": caption(facts.words),
            "concepts": _most(facts.concepts),
            "heat": warmth,
            "left_id": left,
            "right_id": right,
            "members": sorted(row for _, row in group.rows) if event == "closed" else None,
            "provisional": False,
        }


@dataclass(frozen=True)
class TopicsJob(GroupsJob):
    """A call of `topics` as its one worker runs it."""

    grouping: TopicCall
    verb: ClassVar[str] = "topics"
    # Repetitions come before pairs of the same time: both say what is so at that time.
    order: ClassVar[tuple[str, ...]] = ("counts", "left", "right")
    facts: ClassVar[tuple[str, ...]] = (
        *("left_channel", "right_channel", "left_t", "right_t"),
        *("score", "left_words", "right_words", "left_concepts", "right_concepts"),
    )
    named: ClassVar[str] = "topic"
    best: ClassVar[str] = "score"  # several views of two key frames may match

    def groups(self) -> Topics:
        """What pairs are dealt to, before the first one."""
        call = self.grouping
        return Topics(call.gap, True, call.longest, call=call)

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for open topics to keep their meaning."""
        call = self.grouping
        durations = {"near": call.near, "longest": call.longest, "repeating": call.repeating}
        durations |= {"equal": call.equal, "span": call.span}
        told = {"channels": str(call.channels), "alone": str(call.alone)}
        return {**super().settings, **{k: describe(us) for k, us in durations.items()}, **told}


def _most(votes: Mapping[str, int]) -> list[str] | None:
    """The concepts with most votes; None if there are none."""
    return sorted(votes, key=lambda concept: (-votes[concept], concept))[:MOST] or None


def heat(channels: int, shots: int, age: float) -> float:
    """How hot a topic is: by channels, then shots; half as hot after an `age` of one.

    Examples
    --------
    >>> heat(2, 3, 0), heat(3, 3, 0), heat(3, 3, 1)
    (2.0, 4.0, 2.0)
    """
    return float((channels - 1) * math.log2(1 + shots) * 2.0**-age)
