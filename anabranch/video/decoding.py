"""Decoded frames of one file, whatever is wrong with it.

What cannot be opened is a problem with a reason. A packet that cannot be decoded is counted, and
decoding continues with the next. A timestamp that is missing is that of the frame before it plus
its length. One that jumps back, or far ahead, begins a new stretch that continues in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from anabranch.errors import extra
from anabranch.video.clock import Probe

if TYPE_CHECKING:
    import av

__all__ = ["Faults", "Shown", "Unreadable", "decoded", "probe"]

_SECOND = 1_000_000
_AHEAD = 10  # seconds
_USUAL_RATE = Fraction(25)


class Unreadable(Exception):
    """A file that has no frames to decode, and why."""


@dataclass
class Faults:
    """What was wrong with one file.

    `corrupt` are packets that the container flags, and frames that the decoder flags: a decoder
    that conceals what is missing need not say so. `changed` says how often the size or the form of
    the pixels changed.
    """

    packets: int = 0
    packets_bad: int = 0
    corrupt: int = 0
    pts_missing: int = 0
    jumps: int = 0
    changed: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        """Whether the file as a whole is bad."""
        return bool(self.problems) or 2 * self.packets_bad > self.packets


@dataclass(frozen=True, eq=False)
class Shown:
    """A frame when it is shown; `at` and `length` are microseconds of the file's own time.

    `stretch` rises where timestamps jump.
    """

    frame: av.VideoFrame
    pts: int
    at: int
    length: int
    stretch: int


@contextmanager
def _opened(path: str) -> Iterator[tuple[Any, Any]]:
    """The container and its first video stream that is no attached picture."""
    with extra("video", "decoding films", "av"):
        import av

    try:
        # A film may be a list of others: of files, and of nothing on a network.
        only = {"protocol_whitelist": "file"}
        container = av.open(f"file:{path}", options=only, metadata_errors="replace")
    except Exception as error:  # of FFmpeg's and of PyAV's own, which expects whole files
        raise Unreadable(f"cannot be opened: {error}") from error
    with container:
        attached = int(av.stream.Disposition.attached_pic)
        films = [s for s in container.streams.video if not int(s.disposition) & attached]
        if not films or films[0].codec_context is None or films[0].time_base is None:
            what = "only an attached picture" if container.streams.video else "no video stream"
            raise Unreadable(f"has {'no decoder' if films else what}")
        # Parallel work is Spark's, and the exact paths are the same on every machine.
        films[0].codec_context.thread_count = 1
        films[0].codec_context.flags |= int(av.codec.context.Flags.bitexact)
        yield container, films[0]


def probe(path: str) -> Probe:
    """Where a file begins and how long it is; no frame is decoded."""
    try:
        with _opened(path) as (container, stream):
            unit = stream.time_base
            first, length = stream.start_time, stream.duration
            if first is None or length is None:
                first, length = _scanned(container, stream)
            created = _created(container.metadata.get("creation_time"))
            return Probe(_us(first, unit), _us(length, unit), created)
    except Unreadable:
        return Probe()


def _scanned(container: Any, stream: Any) -> tuple[int, int]:
    """First timestamp and length by the packets, where the head does not say."""
    packets = [p for p in _packets(container, stream, Faults()) if p.pts is not None]
    first = min((packet.pts for packet in packets), default=0)
    return first, max((p.pts + (p.duration or 0) for p in packets), default=first) - first


def _created(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = int(moment.timestamp()) * _SECOND + moment.microsecond
    return since if since > 0 else None  # writers without a clock say 1904 or 1970


def _us(ticks: int, unit: Fraction) -> int:
    """Microseconds of a timestamp, rounded down."""
    return ticks * unit.numerator * _SECOND // unit.denominator


def decoded(path: str, faults: Faults) -> Iterator[Shown]:
    """The frames of a file in the order in which they are shown.

    Raises
    ------
    Unreadable
        If there is nothing to decode.
    """
    with _opened(path) as (container, stream):
        unit = stream.time_base
        rate = stream.average_rate or stream.guessed_rate or stream.base_rate or _USUAL_RATE
        usual = max(1, round(1 / (rate * unit)))
        ahead = int(_AHEAD / unit)
        last: int | None = None  # the timestamp before
        form: tuple[int, int, str] | None = None  # of the frame before
        at = stretch = shift = 0
        length = _us(usual, unit)
        for frame in _frames(container, stream, faults):
            ticks = frame.duration or usual
            pts = frame.pts
            if pts is None:
                faults.pts_missing += 1
                pts = 0 if last is None else last + ticks
            if last is not None and not last <= pts <= last + 2 * ticks + ahead:
                faults.jumps += 1
                stretch += 1
                shift = at + length - _us(pts, unit)
            elif last is not None and pts == last:
                pts += 1
            now = (frame.width, frame.height, frame.format.name)
            faults.changed += form not in (None, now)
            form = now
            before, at = at, _us(pts, unit) + shift
            if last is not None:
                at = max(at, before + 1)
            last, length = pts, max(1, _us(ticks, unit))
            yield Shown(frame, pts, at, length, stretch)


def _frames(container: Any, stream: Any, faults: Faults) -> Iterator[Any]:
    for packet in _packets(container, stream, faults):
        try:
            frames = packet.decode()
        except Exception:  # as of opening
            faults.packets_bad += 1
            continue
        for frame in frames:
            faults.corrupt += bool(frame.is_corrupt)
            yield frame


def _packets(container: Any, stream: Any, faults: Faults) -> Iterator[Any]:
    """Packets up to the end, or up to where the container cannot be read any further."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except Exception:  # as of opening
            faults.packets += 1
            faults.packets_bad += 1
            return
        faults.packets += packet.size > 0  # the last one only flushes the decoder
        faults.corrupt += bool(packet.is_corrupt)
        yield packet
