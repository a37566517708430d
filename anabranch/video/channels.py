"""What three made-up channels show and when: real pictures in house styles, and the truth about it.

A timetable is drawn from a seed. Stories of several shots are on two or three channels within the
window; between them every channel shows pictures of its own, and its ident. Some things are traps:
footage that another channel shows too long after, other moments of the same film, a mirrored
picture, black, a test card, a damaged segment, one that is missing, and a channel that stops.
One picture is on two channels farther apart than the window, in every timetable that is long
enough; and one shot is ruined: nothing need find what it was, and whoever does is counted apart.
An advert is on the first channel twice and then on the second one: those are the same pictures, and
no topic. Which pairs and topics are due follows from the timetable alone.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from anabranch.video.repetition import Repetitions
from anabranch.video.scenes import (
    ADVERT,
    ADVERT_SHOT,
    FAR,
    OWN,
    SCENES,
    STORIES,
    STYLES,
    Scene,
    Style,
)
from anabranch.video.stories import TopicCall, TopicsJob

__all__ = [
    "ADVERT",
    "AGAIN",
    "BEGIN",
    "Due",
    "FAR",
    "SECOND",
    "SEGMENT",
    "STYLES",
    "SCENES",
    "Programme",
    "Scene",
    "Shot",
    "Style",
    "programme",
]

SECOND = 1_000_000
SEGMENT = 2 * SECOND
BEGIN = int(dt.datetime(2025, 1, 6, 6, tzinfo=dt.UTC).timestamp()) * SECOND
_TRAIL = 16  # seconds without stories at the end, so that the watermark passes all of them
_DOUBT = SECOND  # about a limit: a key frame may come that much later than its shot
_ATTEMPTS = 40
AGAIN = 40 * SECOND
"""How much later a channel may show something for that to count as repeated."""


@dataclass(frozen=True)
class Shot:
    """One shot of a channel, from `begin` to `end` in microseconds of event time.

    `scene` is a scene, or what is no footage: ``ident``, ``black`` or ``card``. `lead` is how many
    seconds into the scene it begins.
    """

    channel: str
    begin: int
    end: int
    scene: str
    lead: float = 0.0
    caption: str = ""
    mirrored: bool = False
    fade: bool = False
    ruined: bool = False


Due = tuple[Shot, Shot]  # of two channels, in their order


@dataclass(frozen=True)
class Programme:
    """The timetable of all channels, and what follows from it; times are microseconds.

    `damaged` and `missing` are segments by channel and number; what they hold is out of the score.
    """

    shots: tuple[Shot, ...]
    window: int
    near: int
    gap: int
    damaged: tuple[str, int] = ("", 0)
    missing: tuple[str, int] = ("", 0)

    @property
    def clips(self) -> list[str]:
        """The clips that it shows."""
        return sorted({SCENES[shot.scene].clip for shot in self.shots if shot.scene in SCENES})

    def of(self, channel: str) -> list[Shot]:
        """The shots of a channel, in order."""
        return [shot for shot in self.shots if shot.channel == channel]

    def at(self, channel: str, t: int) -> Shot | None:
        """What a channel shows at a time, to within a frame."""
        found = (s for s in self.of(channel) if s.begin - SECOND // 50 <= t < s.end)
        return max(found, key=lambda shot: shot.begin, default=None)

    def spoilt(self, shot: Shot) -> bool:
        """Whether a shot lies in a segment that is damaged or missing, or next to one."""
        first = self.of(shot.channel)[0].begin
        for channel, number in (self.damaged, self.missing):
            begin = first + number * SEGMENT
            near = shot.begin < begin + SEGMENT + SECOND and shot.end > begin - SECOND
            if channel == shot.channel and near:
                return True
        return False

    @cached_property
    def same_footage(self) -> list[Due]:
        """Shots of the same scene on two channels, however far apart; adverts are none."""
        scenes = [s for s in self.shots if s.scene in SCENES and s.scene not in ADVERT]
        return [
            (one, other)
            for one in scenes
            for other in scenes
            if one.channel < other.channel and one.scene == other.scene
        ]

    @cached_property
    def pairs(self) -> set[Due]:
        """The shots that must be found to match: the same footage within the window."""
        return {
            (one, other)
            for one, other in self.same_footage
            if abs(one.begin - other.begin) <= self.window
            and not (one.mirrored or other.mirrored or self.spoilt(one) or self.spoilt(other))
            and not (one.ruined or other.ruined)
        }

    @cached_property
    def far(self) -> set[Due]:
        """The same footage, whole on both channels, and farther apart than the window."""
        return {
            pair
            for pair in self.same_footage
            if abs(pair[0].begin - pair[1].begin) > self.window
            and not any(s.mirrored or s.ruined or self.spoilt(s) for s in pair)
        }

    @cached_property
    def ruined(self) -> set[Due]:
        """The same footage within the window, one of them ruined: found or not, it is no fault."""
        return {
            pair
            for pair in self.same_footage
            if abs(pair[0].begin - pair[1].begin) <= self.window and any(s.ruined for s in pair)
        }

    @cached_property
    def topics(self) -> list[frozenset[Due]]:
        """The topics of all pairs that are due, as `ab.video.topics` defines them."""
        call = TopicCall(self.gap, True, near=self.near, longest=1 << 60, alone=0.0)
        topics = TopicsJob(call).groups()
        ordered = sorted(self.pairs, key=lambda pair: max(shot.begin for shot in pair))
        for one, other in ordered:
            ids = (f"{shot.channel}/{shot.begin}" for shot in (one, other))
            t = max(one.begin, other.begin)
            places = (one.channel, other.channel, one.begin, other.begin)
            topics.take_in((t, 1, *ids, *places, 1.0, *4 * [""]))
        topics.close(1 << 62)
        members = [set(e["members"]) for e in topics.events if e["event"] == "closed"]
        return [
            frozenset(p for p in self.pairs if f"{p[0].channel}/{p[0].begin}" in rows)
            for rows in members
        ]


def programme(
    seed: int = 7, seconds: float = 96.0, *, window: float = 60.0, near: float = 8.0
) -> Programme:
    """A timetable of about so many seconds in which nothing that counts hangs on a second.

    Examples
    --------
    >>> plan = programme(seed=7)
    >>> len(plan.pairs) > 10, len(plan.topics) > 2, plan == programme(seed=7)
    (True, True, True)
    """
    draw = random.Random(seed)
    empty = Programme((), int(window * SECOND), int(near * SECOND), 60 * SECOND)
    plan = empty
    for number in range(len(STYLES)):
        plan = _with_channel(plan, draw, number, seconds)
    return _spoilt(_ruined(_far(_mirrored(plan))), draw)


def _with_channel(plan: Programme, draw: random.Random, number: int, seconds: float) -> Programme:
    """The timetable with one more channel, item by item; an item that leaves doubt is redrawn."""
    t = BEGIN + STYLES[number].begin * SECOND
    # The last channel stops before the others do.
    end = BEGIN + int((seconds - (12 if number == len(STYLES) - 1 else 0)) * SECOND)
    stories: list[int] = []
    turn = 0
    while t < end:
        stories = stories or draw.sample(range(len(STORIES)), len(STORIES))
        told = None if t > end - _TRAIL * SECOND else stories.pop()
        spots = _advert(plan, number, t, turn) if t <= end - _TRAIL * SECOND else []
        after = spots[-1].end if spots else t
        for attempt in range(_ATTEMPTS):
            story = None if attempt > _ATTEMPTS // 2 else told
            item = spots + list(_item(draw, number, after, turn, story))
            longer = replace(plan, shots=(*plan.shots, *item))
            if _decided(longer):
                break
        plan, t, turn = longer, item[-1].end, turn + 1
    return plan


def _advert(plan: Programme, number: int, t: int, turn: int) -> list[Shot]:
    """An advert, if it is time for it: twice on the first channel, and then on the second."""
    shown = [shot for shot in plan.shots if shot.scene == ADVERT[-1]]
    if not (number == 0 and turn in (1, 2)) and not (
        number == 1 and len(shown) == 2 and t > shown[-1].end + 2 * _DOUBT
    ):
        return []
    times = [t + n * ADVERT_SHOT for n in range(len(ADVERT) + 1)]
    channel = STYLES[number].channel
    return [
        Shot(channel, begin, end, scene)
        for scene, begin, end in zip(ADVERT, times, times[1:], strict=False)
    ]


def _item(draw: random.Random, number: int, t: int, turn: int, story: int | None) -> Iterator[Shot]:
    """An ident, or something empty; a story; and a picture of the channel's own."""
    headline, scenes = ("", ()) if story is None else STORIES[story]
    own = OWN[number][turn % len(OWN[number])]
    pause = "black" if turn % 4 == 1 else "card" if number == 0 and turn % 5 == 3 else "ident"
    for scene in (pause, *scenes, own):
        known = SCENES.get(scene)
        lead = round(draw.uniform(0, 0.25), 2) if known else 0.0
        length = draw.uniform(2.0, 4.5)
        if known:
            length = min(length, known.end - known.begin - lead)
        end = t + int(length * 10) * SECOND // 10
        caption = headline if scene in scenes else ""
        fade = scene == own and draw.random() < 0.3
        yield Shot(STYLES[number].channel, t, end, scene, lead, caption, fade=fade)
        t = end


def _mirrored(plan: Programme) -> Programme:
    """The same, with one shot of a story mirrored: the same footage, and yet not due."""
    turned = next(
        (s for s in plan.shots if s.channel == STYLES[1].channel and s.scene == "rocket"), None
    )
    return replace(plan, shots=tuple(replace(s, mirrored=s is turned) for s in plan.shots))


def _own_stills(plan: Programme, number: int) -> list[Shot]:
    """What a channel shows of its own that may be as long as one likes."""
    stills = [name for name in OWN[number] if SCENES[name] == Scene(name)]
    return [shot for shot in plan.of(STYLES[number].channel) if shot.scene in stills]


def _with(plan: Programme, shot: Shot, now: Shot) -> Programme:
    """The same with one shot in the place of another."""
    return replace(plan, shots=tuple(now if s is shot else s for s in plan.shots))


def _far(plan: Programme) -> Programme:
    """The same with one picture on two channels, farther apart than the window; if it is so long.

    It takes the place of what these channels show of their own.
    """
    first = _own_stills(plan, 0)[0]
    late = [
        shot
        for number in (1, 2)
        for shot in _own_stills(plan, number)
        if shot.begin > first.begin + plan.window + 2 * _DOUBT
    ]
    if not late:
        return plan
    for shot in (first, late[-1]):
        plan = _with(plan, shot, replace(shot, scene=FAR))
    return plan


def _ruined(plan: Programme) -> Programme:
    """The same with one shot of the last channel that is a story's still, and ruined."""
    number = len(STYLES) - 1
    own = _own_stills(plan, number)
    stills = {scene for _, scenes in STORIES for scene in scenes if SCENES[scene] == Scene(scene)}
    told = [s for s in plan.shots if s.scene in stills and s.channel != STYLES[number].channel]
    near = (
        (shot, story.scene)
        for shot in own
        for story in told
        if abs(shot.begin - story.begin) <= plan.window - _DOUBT
    )
    shot, scene = next(near)
    return _with(plan, shot, replace(shot, scene=scene, ruined=True))


def _decided(plan: Programme) -> bool:
    """Whether no pair, no link of two pairs and no repetition is within doubt of its limit."""
    for one, other in plan.same_footage:
        if abs(abs(one.begin - other.begin) - plan.window) < _DOUBT:
            return False
    pairs = list(plan.pairs)
    for n, (a, b) in enumerate(pairs):
        for c, d in pairs[n + 1 :]:
            if (a.channel, b.channel) == (c.channel, d.channel):
                apart = max(abs(a.begin - c.begin), abs(b.begin - d.begin))
                if abs(apart - plan.near) < _DOUBT:
                    return False
    stories = {scene for _, scenes in STORIES for scene in scenes}
    return not any(shot.scene in stories for shot in _repeated(plan.of(plan.shots[-1].channel)))


def _repeated(shots: list[Shot]) -> set[Shot]:
    """Of the last shots of a channel, what could be taken for furniture or part of an advert."""
    found: set[Shot] = set()
    seen = Repetitions(1 << 60, equal=3 * _DOUBT, span=60 * SECOND)
    recent = [shot for shot in shots if shot.begin > shots[-1].begin - AGAIN - 60 * SECOND]
    for n, again in enumerate(recent):
        for first in recent[:n]:
            apart = again.begin - first.begin
            if first.scene == again.scene and apart <= AGAIN + _DOUBT:
                found |= seen.take_in(first, again, first.channel, first.begin, again.begin)
    return found


def _spoilt(plan: Programme, draw: random.Random) -> Programme:
    """The same with a damaged and a missing segment, where they spoil as little as can be."""

    def cost(channel: str, number: int) -> int:
        trial = replace(plan, damaged=(channel, number))
        adverts = (shot for shot in plan.shots if shot.scene in ADVERT)
        told = (shot for pair in (*plan.pairs, *plan.far, *plan.ruined) for shot in pair)
        return sum(trial.spoilt(shot) for shot in (*told, *adverts))

    chosen = []
    for style in STYLES[:2]:
        own = plan.of(style.channel)
        last = int((own[-1].end - own[0].begin - _TRAIL * SECOND) // SEGMENT)
        numbers = list(range(3, last))
        draw.shuffle(numbers)
        chosen.append((style.channel, min(numbers, key=lambda n: cost(style.channel, n))))
    return replace(plan, damaged=chosen[0], missing=chosen[1])
