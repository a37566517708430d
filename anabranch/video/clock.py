"""Event time: where each segment of a channel lies on its time line, by whole microseconds.

The time of a frame is the *base* of its run plus its timestamp. In a *run* timestamps rise. Those
of a transport stream run on from one segment to the next; those of other files begin again with
each, and then a segment begins where the one before it ended. A name tells seconds only, so it
decides nothing as long as it agrees within a segment, but for where the segment before cannot be
read: then nobody knows where that one ended. Where a name does not agree, or where timestamps wrap
or jump back, a new run begins at the time that the name tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.errors import AnabranchError

__all__ = ["TIMESTAMPS", "Place", "Probe", "Said", "follow"]

TIMESTAMPS = ("auto", "running", "restart")
"""Whether timestamps run on through segments, or begin again with each."""

_SECOND = 1_000_000
# Timestamps of transport streams have 33 bits of 90,000 a second: half of them is 13 hours.
_HALF_A_WRAP = (1 << 32) * _SECOND // 90_000
_AHEAD = 3600 * _SECOND
_MOST_SLACK = 10 * _SECOND


@dataclass(frozen=True)
class Probe:
    """What a segment says, in microseconds; `first` is None if it cannot be opened.

    It is `sure` of its length if all of it can be read, and `doubtful` if timestamps are wrong.
    """

    first: int | None = None
    length: int = 0
    created: int | None = None
    sure: bool = True
    doubtful: bool = False


@dataclass(frozen=True)
class Said:
    """What is known from outside: the channel's start, and when this segment begins."""

    start: int | None = None
    begins: int | None = None


@dataclass(frozen=True)
class Place:
    """Where the time line of a channel stands after a segment; it is part of the offset.

    `began` is false while no segment could be opened. `jump` says how this segment began a run.
    Where a segment cannot be read it may have lasted beyond `end`, which is then `open`.
    """

    segment: str
    run: int = 0
    base: int = 0
    first: int = 0
    end: int = 0
    began: bool = False
    jump: str = ""
    open: bool = False

    def to_offset(self) -> dict[str, Any]:
        """As Spark writes it into its log."""
        return asdict(self)

    @classmethod
    def from_offset(cls, stored: Mapping[str, Any] | None) -> Place | None:
        """What `to_offset` gave, with or without the files beside it."""
        if stored is None:
            return None
        return cls(**{name: value for name, value in stored.items() if name != "files"})


def follow(
    before: Place | None, segment: str, probe: Probe, said: Said, timestamps: str = "auto"
) -> Place:
    """The place of a segment that follows another.

    Examples
    --------
    >>> one = follow(None, "a", Probe(80, 2_000_000), Said(start=1000))
    >>> two = follow(one, "b", Probe(2_000_080, 2_000_000), Said())
    >>> two.base, two.run, two.end
    (1000, 0, 4001080)
    >>> follow(two, "c", Probe(80, 2_000_000), Said()).jump  # neither on, nor as the one before
    'jump'
    """
    if probe.first is None:
        if before is None:
            return Place(segment)
        return Place(**{**asdict(before), "segment": segment, "jump": "", "open": True})
    if before is None or not before.began:
        base = _first_base(segment, probe, said, timestamps)
        return _placed(segment, 0, base, probe)
    on, again = _readings(before, probe, timestamps)
    # Names tell whole seconds, and a transport stream begins at up to 1.4 of them.
    length = before.end - before.base - before.first
    slack = min(probe.length, length, _MOST_SLACK) + 2 * _SECOND
    if on and _agrees(before.base + probe.first, said, slack):
        return _placed(segment, before.run, before.base, probe)
    known = not before.open or said.begins is None
    if again and known and _agrees(before.end, said, slack):
        return _placed(segment, before.run, before.end - probe.first, probe)
    begins = before.end if said.begins is None else said.begins
    if before.open and abs(begins - before.end) <= slack:  # seconds, which may be cut
        begins = max(begins, before.end)
    if again and begins >= before.end:  # a gap, and not a jump
        return _placed(segment, before.run, begins - probe.first, probe)
    jump = "wrap" if before.first - probe.first > _HALF_A_WRAP else "jump"
    return _placed(segment, before.run + 1, begins - probe.first, probe, jump)


def _readings(before: Place, probe: Probe, timestamps: str) -> tuple[bool, bool]:
    """Whether timestamps may run on from the segment before, and whether they may begin again."""
    assert probe.first is not None
    if timestamps == "restart":
        return False, True
    step = probe.first - before.first
    length = before.end - before.base - before.first
    on = step >= 0 and probe.first <= before.end - before.base + _AHEAD
    if timestamps == "running":
        return on, False
    again = step == 0 or 2 * abs(step) < length
    return on and not again, again


def _agrees(begins: int, said: Said, slack: int) -> bool:
    return said.begins is None or abs(begins - said.begins) <= slack


def _placed(segment: str, run: int, base: int, probe: Probe, jump: str = "") -> Place:
    assert probe.first is not None
    end = base + probe.first + probe.length
    return Place(segment, run, base, probe.first, end, True, jump, not probe.sure)


def _first_base(segment: str, probe: Probe, said: Said, timestamps: str) -> int:
    assert probe.first is not None
    if said.start is not None:
        return said.start - (probe.first if timestamps == "restart" else 0)
    begins = said.begins if said.begins is not None else probe.created
    if begins is None:
        raise AnabranchError(
            f"segment {segment} does not say when it was recorded: give start=, for all channels "
            "or by channel; or name segments by their time, %Y%m%dT%H%M%S; or write creation_time "
            "into the container"
        )
    return begins - probe.first
