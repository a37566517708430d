"""What was found on made-up channels, compared with what is due there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from anabranch.video.channels import Due, Programme, Shot

__all__ = [
    *("Present", "Seen", "Tally", "Verdict"),
    *("percentile", "score_pairs", "score_shots", "score_topics", "so_far"),
]

LEAST_RECALL = 0.95
"""What share of the pairs that are due must be found."""
LEAST_SHOTS = 0.98
"""Of shots. A second key frame of one that moves is told, and does no harm."""


class Seen(NamedTuple):
    """A key frame: its id, its channel, and its time in microseconds."""

    id: str
    channel: str
    t: int


@dataclass
class Tally:
    """How many were found, missed, false and twice."""

    found: int = 0
    missed: int = 0
    false: int = 0
    twice: int = 0
    apart: int = 0  # of ruined footage: neither found nor false
    wrong: list[str] = field(default_factory=list)  # what was false or missed, in words

    @property
    def good(self) -> bool:
        """Whether nothing is false and nothing is there twice."""
        return not (self.false or self.twice)

    @property
    def recall(self) -> float:
        """What share of all that is due was found."""
        due = self.found + self.missed
        return self.found / due if due else 1.0


@dataclass(frozen=True)
class Verdict:
    """Shots, pairs and topics, and how many seconds it took until each pair was on the page.

    That is after its last segment had closed, and after its last frame was on air.
    """

    shots: Tally
    pairs: Tally
    topics: Tally
    waited: Sequence[float] = ()
    aired: Sequence[float] = ()

    @property
    def problems(self) -> list[str]:
        """Why this is not good enough, in words; nothing if it is."""
        found = [
            f"{tally.false} {what} false, {tally.twice} there twice"
            for what, tally in (("pairs", self.pairs), ("topics", self.topics))
            if not tally.good
        ]
        if self.shots.false or self.shots.recall < LEAST_SHOTS:
            found.append(f"{self.shots.recall:.2f} of the shots found, {self.shots.false} false")
        if self.topics.missed:
            found.append(f"{self.topics.missed} of the topics that are due were missed")
        if self.pairs.recall < LEAST_RECALL:
            found.append(f"{self.pairs.recall:.2f} of the pairs found, not {LEAST_RECALL}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """All of it in the types of JSON."""
        tallies = {"shots": self.shots, "pairs": self.pairs, "topics": self.topics}
        return {
            **{name: asdict(tally) for name, tally in tallies.items()},
            "latency_seconds": _summary(self.waited),
            "latency_from_frame_seconds": _summary(self.aired),
            "problems": self.problems,
        }


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    of = {"median": 50, "p95": 95, "most": 100} if seconds else {}
    return {
        "count": len(seconds),
        **{name: round(percentile(seconds, share), 3) for name, share in of.items()},
    }


def percentile(values: Iterable[float], share: float) -> float:
    """The least of these values that so many per cent of them do not exceed.

    Examples
    --------
    >>> percentile(range(1, 41), 95), percentile([3.0, 1.0], 50)
    (38, 1.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


class Present:
    """Topics as they are now, out of their events; the key frames of each by id.

    Examples
    --------
    >>> now = Present()
    >>> event = {"topic": "a|b", "event": "opened", "left_id": "a", "right_id": "b", "heat": 1.6}
    >>> now.take_in({**event, "best_left_id": "a", "best_right_id": "b", "into": None})
    >>> sorted(now.rows["a|b"]), now.latest["a|b"]["heat"]
    (['a', 'b'], 1.6)
    """

    def __init__(self) -> None:
        self.latest: dict[str, Mapping[str, Any]] = {}
        self.rows: dict[str, set[str]] = {}

    def take_in(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        name = event["topic"]
        rows = self.rows.setdefault(name, set())
        names = ("left_id", "right_id", "best_left_id", "best_right_id")
        rows |= {event[key] for key in names if event[key] is not None}
        rows |= set(event.get("members") or ())
        self.latest[name] = event
        if event["into"] is not None:
            self.rows.setdefault(event["into"], set()).update(self.rows.pop(name))
            del self.latest[name]

    def foreseen(self, provisional: Iterable[Mapping[str, Any]]) -> Present:
        """The same with what these provisional events say, in the order in which they came.

        Final events have decided all up to the newest of them. What shares a key frame with a final
        topic is shown there; of two provisional ones that do, the later one stays.

        Examples
        --------
        >>> event = {"topic": "a|b", "ts": 7, "members": ["a", "b"], "into": None}
        >>> more = {**event, "ts": 8, "members": ["a", "b", "c"]}
        >>> shown = Present().foreseen([event, more])
        >>> [sorted(rows) for rows in shown.rows.values()]
        [['a', 'b', 'c']]
        """
        shown = Present()
        shown.latest = dict(self.latest)
        shown.rows = {name: set(rows) for name, rows in self.rows.items()}
        decided = max((event["ts"] for event in self.latest.values()), default=None)
        for event in provisional:
            if decided is not None and event["ts"] <= decided:
                continue
            rows = set(event["members"])
            beside = [name for name, others in shown.rows.items() if rows & others]
            final = [name for name in beside if name in self.rows]
            for name in beside:
                if name not in self.rows:
                    del shown.rows[name], shown.latest[name]
            for name in final:
                shown.rows[name] |= rows
            if not final:
                shown.rows[event["topic"]], shown.latest[event["topic"]] = rows, event
        return shown


def score_shots(plan: Programme, found: Iterable[Seen]) -> Tally:
    """Key frames, by the shots of the timetable: one for each but black is due.

    One where its channel shows nothing is false; others than the first of a shot are there twice.
    A shot in a damaged or missing segment counts for nothing.
    """
    hit = Counter(plan.at(seen.channel, seen.t) for seen in found)
    # Black belongs to the change from one shot to the next.
    due = [shot for shot in plan.shots if shot.scene != "black" and not plan.spoilt(shot)]
    tally = Tally(false=hit[None])
    for shot in due:
        tally.found += hit[shot] > 0
        tally.missed += not hit[shot]
        tally.twice += max(0, hit[shot] - 1)
        if hit[shot] != 1:
            what = "missed" if not hit[shot] else f"{hit[shot]} key frames"
            tally.wrong.append(f"{what}: {shot.channel} {shot.scene}")
    return tally


def score_pairs(plan: Programme, found: Sequence[tuple[Seen, Seen]]) -> Tally:
    """Pairs of key frames, by the pairs of shots that are due.

    A pair with a shot in a damaged or missing segment counts for nothing; one of footage that is
    ruined is counted apart.
    """
    tally = Tally(twice=_repeated(frozenset((a.id, b.id)) for a, b in found))
    hit: set[Due] = set()
    for pair in found:
        shots = _shots(plan, pair)
        if shots in plan.pairs:
            hit.add(shots)
        elif shots in plan.ruined:
            tally.apart += 1
        elif shots is None or not any(plan.spoilt(shot) for shot in shots):
            tally.false += 1
            tally.wrong.append("false: " + " and ".join(_told(plan, one) for one in pair))
    tally.found, tally.missed = len(hit), len(plan.pairs - hit)
    for shots in sorted(plan.pairs - hit, key=lambda pair: pair[0].begin):
        tally.wrong.append("missed: " + " and ".join(f"{s.channel} {s.scene}" for s in shots))
    return tally


def so_far(plan: Programme, found: Sequence[tuple[Seen, Seen]], now: int) -> str:
    """How good pairs are of what has been on air up to a time, in a line for the page.

    Examples
    --------
    >>> from anabranch.video.channels import programme
    >>> so_far(programme(7), [], 0)
    'pairs so far: 0 found of 0 that are due, recall 1.00, precision 1.00'
    """
    due = {pair for pair in plan.pairs if max(shot.begin for shot in pair) <= now}
    tally = score_pairs(plan, found)
    hit = tally.found - sum(pair not in due for pair in _hit(plan, found))
    told = tally.found + tally.false
    recall, precision = hit / len(due) if due else 1.0, tally.found / told if told else 1.0
    return (
        f"pairs so far: {hit} found of {len(due)} that are due, recall {recall:.2f}, "
        f"precision {precision:.2f}"
    )


def _hit(plan: Programme, found: Sequence[tuple[Seen, Seen]]) -> set[Due]:
    """The pairs of shots that are due, of those that these pairs of key frames are of."""
    shots = {_shots(plan, pair) for pair in found}
    return {pair for pair in plan.pairs if pair in shots}


def score_topics(plan: Programme, found: Iterable[set[str]], keys: Mapping[str, Seen]) -> Tally:
    """Topics, by the key frames of each; one that mixes two that are due is false."""
    tally = Tally()
    hit: Counter[int] = Counter()
    for rows in found:
        shots = {plan.at(keys[row].channel, keys[row].t) for row in rows}
        due = {n for n, topic in enumerate(plan.topics) for pair in topic if set(pair) <= shots}
        hit.update(due)
        if not due and any(set(pair) <= shots for pair in plan.ruined):
            tally.apart += 1
            continue
        if len(due) != 1 and not all(shot and plan.spoilt(shot) for shot in shots):
            tally.false += 1
            scenes = sorted({shot.scene for shot in shots if shot})
            tally.wrong.append(f"false topic of {len(due)} that are due: {', '.join(scenes)}")
    tally.found, tally.missed = len(hit), len(plan.topics) - len(hit)
    tally.twice = sum(count - 1 for count in hit.values())
    return tally


def _shots(plan: Programme, pair: tuple[Seen, Seen]) -> tuple[Shot, Shot] | None:
    """The shots of a pair of key frames, in the order of channels."""
    one, other = (plan.at(seen.channel, seen.t) for seen in sorted(pair, key=lambda s: s.channel))
    return None if one is None or other is None else (one, other)


def _told(plan: Programme, seen: Seen) -> str:
    shot = plan.at(seen.channel, seen.t)
    return f"{seen.channel} {shot.scene if shot else 'nothing'}"


def _repeated(names: Iterable[Any]) -> int:
    return sum(count - 1 for count in Counter(names).values())
