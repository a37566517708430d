"""Two simulated news channels that share some stories: the data of the demo, with its truth.

Every row is a key frame: an id, an event time, a title and a feature vector. Ordinary frames point
in random directions. A *story* is a frame on either channel with nearly the same direction. Some
planted stories are traps that must not be found: told too far apart in time, or too unlike. Which
ones are due is computed from the very numbers that are sent, not from the intention.

Rows have an arrival time besides their event time; a share of them arrives out of order, and a few
stragglers come so late that a watermark will have passed them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidCall

__all__ = [
    "BEGIN",
    "CHANNELS",
    "SECOND",
    "Broadcast",
    "Frames",
    "Newsroom",
    "Story",
    "pairs_in_window",
]

CHANNELS = ("North", "South")
DIMENSIONS = 64
SECOND = 1_000_000
BEGIN = int(dt.datetime(2025, 1, 6, 6, tzinfo=dt.UTC).timestamp()) * SECOND
# Out of every five planted stories one is told too far apart and one is too unlike.
_TRAP_EVERY = 5
_STRAGGLERS = 0.001

# fmt: off
_WHAT = (
    "Dock strike", "Power cut", "Bridge shut", "Bank merger", "Big harvest", "Heat wave", "Flood",
    "Art theft", "Rail delays", "Recount", "Oil spill", "Budget vote", "Mill fire", "Cup final",
    "Airport row", "Snow alert",
)
_WHERE = (
    "Aarhus", "Bergen", "Cadiz", "Dresden", "Esbjerg", "Fano", "Ghent", "Haifa", "Izmir", "Jena",
    "Kaunas", "Lund", "Malaga", "Namur", "Odense", "Porto", "Quimper", "Riga", "Split", "Turku",
    "Utrecht", "Varna", "Worms", "Ypres", "Zadar",
)
# fmt: on
_ORDINARY = ("studio", "weather map", "interview", "street", "sport", "advert", "archive", "crowd")


@dataclass(frozen=True)
class Frames:
    """The rows of one channel in order of arrival; times are microseconds."""

    id: np.ndarray
    t: np.ndarray
    arrival: np.ndarray
    straggler: np.ndarray
    v: np.ndarray
    title: list[str]

    def __len__(self) -> int:
        return len(self.id)

    def table(self, rows: np.ndarray | slice) -> pa.Table:
        """Some rows as Arrow: ``id, ts, title, v``."""
        v = self.v[rows]
        offsets = np.arange(len(v) + 1, dtype=np.int32) * v.shape[1]
        positions = np.arange(len(self))[rows]
        return pa.table(
            {
                "id": self.id[rows],
                "ts": pa.array(self.t[rows], pa.timestamp("us", "UTC")),
                "title": pa.array([self.title[p] for p in positions], pa.string()),
                "v": pa.ListArray.from_arrays(offsets, pa.array(v.ravel())),
            }
        )

    @property
    def out_of_order(self) -> float:
        """The share of rows that arrive after a row with a later event time."""
        newest = np.maximum.accumulate(self.t)
        return float((self.t < newest).mean()) if len(self) else 0.0


@dataclass(frozen=True)
class Story:
    """One frame on either channel; `gap` is left minus right in microseconds."""

    left: int
    right: int
    gap: int
    cosine: float
    due: bool


@dataclass(frozen=True)
class Broadcast:
    """What both channels send, and the truth about it."""

    channels: tuple[Frames, Frames]
    stories: tuple[Story, ...]

    @property
    def rows(self) -> int:
        """Rows of both channels."""
        return sum(len(frames) for frames in self.channels)

    @property
    def stragglers(self) -> int:
        """Rows that come too late to count, if the watermark has moved on by then."""
        return sum(int(frames.straggler.sum()) for frames in self.channels)

    @property
    def due(self) -> set[tuple[int, int]]:
        """The pairs of ids that a correlation must find, and no others."""
        return {(story.left, story.right) for story in self.stories if story.due}

    def comparisons(self, window: float, stragglers: bool) -> int:
        """How many pairs are at most `window` seconds apart, with or without the stragglers."""
        times = [
            frames.t if stragglers else frames.t[~frames.straggler] for frames in self.channels
        ]
        return pairs_in_window(times[0], times[1], int(window * SECOND))

    def slice(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions of about `rows` rows a channel, in time order: all stories, others thinned."""
        kept = []
        for side, frames in enumerate(self.channels):
            told = [story.left if side == 0 else story.right for story in self.stories]
            step = max(1, len(frames) // max(rows - len(told), 1))
            some = (frames.id % step == 0) | np.isin(frames.id, told)
            positions = np.flatnonzero(some)
            kept.append(positions[np.argsort(frames.t[positions], kind="stable")])
        return kept[0], kept[1]


@dataclass(frozen=True)
class Newsroom:
    """How to make up two channels; the same settings give the same rows.

    Parameters
    ----------
    duration
        Seconds of event time.
    rates
        Rows per second of event time on either channel.
    stories
        How many stories to plant on both channels, traps included.
    window, threshold, late
        Of the correlation that is to find them: seconds, cosine, seconds.
    seed
        Of everything random.

    Examples
    --------
    >>> sent = Newsroom(duration=90, rates=(20, 10), stories=5, seed=1).broadcast()
    >>> len(sent.stories), len(sent.due)
    (5, 3)
    """

    duration: float = 200.0
    rates: tuple[float, float] = (300.0, 200.0)
    stories: int = 50
    window: float = 60.0
    threshold: float = 0.9
    late: float = 20.0
    seed: int = 7

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be above 0, got {value!r}"
            for name, value in (
                ("duration", self.duration),
                ("left rate", self.rates[0]),
                ("right rate", self.rates[1]),
                ("window", self.window),
                ("late", self.late),
            )
            if not value > 0
        ]
        if self.stories < 0:
            problems.append(f"stories must be at least 0, got {self.stories!r}")
        if not 0.5 <= self.threshold <= 0.95:
            problems.append(f"threshold must be in 0.5..0.95, got {self.threshold!r}")
        if problems:
            raise InvalidCall("newsroom", problems)

    def broadcast(self) -> Broadcast:
        """Make up everything that is sent."""
        random = np.random.default_rng(self.seed)
        told_t, told_v = self._plant(random)
        titles = _headlines(random, self.stories)
        channels, homes = [], []
        for side in (0, 1):
            ordinary = max(1, int(random.poisson(self.rates[side] * self.duration)))
            t = np.concatenate([told_t[side], random.uniform(0, self.duration, ordinary) * SECOND])
            t = t.astype(np.int64) + BEGIN
            v = np.concatenate([told_v[side], random.standard_normal((ordinary, DIMENSIONS))])
            # Directions are what cosine compares; lengths differ as those of real features do.
            v *= random.uniform(0.5, 2.0, (len(v), 1)) / np.linalg.norm(v, axis=1, keepdims=True)
            kinds = random.integers(0, len(_ORDINARY), ordinary)
            title = titles[side] + [_ORDINARY[kind] for kind in kinds]
            arrival, straggler = self._arrivals(random, t)
            by_time = np.argsort(t, kind="stable")
            ids = np.empty(len(t), np.int64)
            ids[by_time] = np.arange(len(t))
            order = np.lexsort((ids, arrival))
            channels.append(
                Frames(
                    ids[order],
                    t[order],
                    arrival[order],
                    straggler[order],
                    v[order].astype(np.float32),
                    [title[i] for i in order],
                )
            )
            # Where each story ended up: its position among the rows in order of arrival.
            place = np.empty(len(t), np.int64)
            place[order] = np.arange(len(t))
            homes.append(place[: self.stories])
        left, right = channels
        stories = tuple(
            self._judge(left, int(i), right, int(j)) for i, j in zip(*homes, strict=True)
        )
        return Broadcast((left, right), stories)

    def _plant(
        self, random: np.random.Generator
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Times (microseconds from the beginning) and vectors of the stories on both channels."""
        n = self.stories
        number = np.arange(n)
        window, whole = int(self.window * SECOND), int(self.duration * SECOND)
        gap = random.uniform(0, 0.95 * min(window, whole), n).astype(np.int64)
        room = min(whole, 2 * window) - window
        if room > 0:  # there is time enough for stories told too far apart
            apart = number % _TRAP_EVERY == 1
            gap[apart] = window + random.uniform(0.1, 0.9, int(apart.sum())) * room
            # The edges: exactly a window apart is in, a microsecond more is not.
            gap[number == 0] = window
            gap[number == 1] = window + 1
        first = (random.uniform(0, 1, n) * (whole - gap)).astype(np.int64)
        swap = random.random(n) < 0.5
        times = (np.where(swap, first + gap, first), np.where(swap, first, first + gap))
        unlike = number % _TRAP_EVERY == 2
        low = np.where(unlike, self.threshold - 0.2, self.threshold + 0.005)
        high = np.where(unlike, self.threshold - 0.1, 0.99)
        cosine = random.uniform(low, high)[:, None]
        story = _directions(random, n)
        other = _directions(random, n)
        other -= (other * story).sum(axis=1, keepdims=True) * story
        other /= np.linalg.norm(other, axis=1, keepdims=True)
        return times, (story, cosine * story + np.sqrt(1 - cosine**2) * other)

    def _arrivals(
        self, random: np.random.Generator, t: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """When rows arrive: most at once, a fifth a little later, a few stragglers far too late."""
        delayed = random.random(len(t)) < 0.2
        arrival = t + np.where(delayed, random.uniform(0, 0.25 * self.late, len(t)), 0) * SECOND
        much = t + int(4 * self.late * SECOND)
        straggler = random.random(len(t)) < _STRAGGLERS
        straggler &= much < BEGIN + int(self.duration * SECOND)
        straggler[: self.stories] = False
        return np.where(straggler, much, arrival).astype(np.int64), straggler

    def _judge(self, left: Frames, i: int, right: Frames, j: int) -> Story:
        a, b = left.v[i].astype(np.float64), right.v[j].astype(np.float64)
        cosine = float(a @ b / np.sqrt((a @ a) * (b @ b)))
        gap = int(left.t[i] - right.t[j])
        due = abs(gap) <= int(self.window * SECOND) and cosine >= self.threshold
        return Story(int(left.id[i]), int(right.id[j]), gap, cosine, due)


def pairs_in_window(left: np.ndarray, right: np.ndarray, window: int) -> int:
    """How many pairs of times are at most `window` apart.

    Examples
    --------
    >>> pairs_in_window(np.array([10, 20]), np.array([12, 15, 40]), window=5)
    3
    """
    ordered = np.sort(right)
    first = np.searchsorted(ordered, left - window, side="left")
    last = np.searchsorted(ordered, left + window, side="right")
    return int((last - first).sum())


def _directions(random: np.random.Generator, n: int) -> np.ndarray:
    v = random.standard_normal((n, DIMENSIONS))
    found: np.ndarray = v / np.linalg.norm(v, axis=1, keepdims=True)
    return found


def _headlines(random: np.random.Generator, n: int) -> tuple[list[str], list[str]]:
    """What each channel calls each story; no two stories are called the same while words last."""
    mixed: Sequence[int] = random.permutation(len(_WHAT) * len(_WHERE)).tolist()
    left, right = [], []
    for number in range(n):
        pick = mixed[number % len(mixed)]
        what, where = _WHAT[pick % len(_WHAT)], _WHERE[pick // len(_WHAT)]
        left.append(f"{what} in {where}")
        right.append(f"{where}: {what.lower()}")
    return left, right
