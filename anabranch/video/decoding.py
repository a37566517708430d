"""Decoded frames of one file, whatever is wrong with it.

What cannot be opened is a problem with a reason. A packet that cannot be decoded is counted, and
decoding continues with the next. A timestamp that is missing is that of the frame before it plus
its length, and so is one that no other bears out. One that jumps back, or far ahead, begins a new
stretch that continues in time. Errors of the moment are raised: the file may be whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import extra
from anabranch.video.clock import Probe
from anabranch.video.momentary import Source, momentary
from anabranch.video.segments import legible
from anabranch.video.stamps import Span, span_of, unborne

if TYPE_CHECKING:
    import av

__all__ = ["Faults", "Shown", "Unreadable", "decoded", "probe"]

_SECOND = 1_000_000
_AHEAD = 10  # seconds
_USUAL_RATE = Fraction(25)
_BUFFER = 1 << 17
_LONG = 256 << 20
"""Bytes from which on a film is too long to be read whole where it is planned, on the driver."""
_FEW, _MANY = 64, 4096  # packets at its ends


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
def _opened(path: str) -> Iterator[tuple[Any, Any, Source]]:
    """The container and its first video stream that is no attached picture."""
    with extra("video", "decoding films", "av"):
        import av

    # A film may be a list of others: of files, and of nothing on a network.
    only = {"protocol_whitelist": "file"}
    with ExitStack() as stack:
        try:
            source = Source(stack.enter_context(Path(path).open("rb")), legible(path))
        except OSError as error:
            if momentary(error):
                raise
            raise Unreadable(f"cannot be opened: {error.strerror}") from error
        try:
            container = av.open(
                source, options=only, metadata_errors="replace", buffer_size=_BUFFER
            )
        except Exception as error:  # of FFmpeg's and of PyAV's own, which expects whole files
            source.check()
            if momentary(error):
                raise
            raise Unreadable(f"cannot be opened: {error}") from error
        stack.enter_context(container)
        source.check()
        attached = int(av.stream.Disposition.attached_pic)
        films = [s for s in container.streams.video if not int(s.disposition) & attached]
        if not films or films[0].codec_context is None or films[0].time_base is None:
            what = "only an attached picture" if container.streams.video else "no video stream"
            raise Unreadable(f"has {'no decoder' if films else what}")
        # Parallel work is Spark's, and the exact paths are the same on every machine.
        films[0].codec_context.thread_count = 1
        films[0].codec_context.flags |= int(av.codec.context.Flags.bitexact)
        yield container, films[0], source


def probe(path: str) -> Probe:
    """Where a file begins and how long it is, as far as its packets say so; none is decoded.

    All are read of a segment, and the first and the last ones of a long film.
    """
    try:
        return _by_its_ends(path) or _by_its_packets(path)
    except Unreadable:
        return Probe()


def _by_its_ends(path: str) -> Probe | None:
    """What the head of a long film says, if the packets at both ends bear it out."""
    with suppress(OSError):  # of which opening says more
        if Path(path).stat().st_size < _LONG:
            return None
    with _opened(path) as (container, stream, source):
        unit, ends = stream.time_base, _claimed(container, stream)
        # A transport or program stream may have begun anew anywhere.
        if not ends or container.format.name.startswith("mpeg"):
            return None
        second = int(1 / unit)
        begin = _stamps(islice(_packets(container, stream, source, Faults()), _FEW))
        if not begin or max(begin) - min(begin) > _AHEAD * second:
            return None
        first = min(begin)
        try:
            container.seek(max(first, ends[0] - second), stream=stream)
        except Exception as error:  # as of opening
            source.check()
            if momentary(error):
                raise
            return None
        last = _stamps(islice(_packets(container, stream, source, Faults()), _MANY))
        end = max(last, default=first) + _usual(stream)
        if not last or min(abs(end - claimed) for claimed in ends) > second:
            return None
        created = _created(container.metadata.get("creation_time"))
        return Probe(_us(first, unit), _us(end - first, unit), created)


def _claimed(container: Any, stream: Any) -> list[int]:
    """Where a film ends by its head, the earliest first, in ticks; some say from 0 on."""
    first = stream.start_time or 0
    if stream.duration is not None:
        return [first + stream.duration]
    length = int(Fraction(container.duration or 0, _SECOND) / stream.time_base)
    return sorted({length, first + length}) if length else []


def _by_its_packets(path: str) -> Probe:
    """What all packets of a file say."""
    with _opened(path) as (container, stream, source):
        unit = stream.time_base
        faults = Faults()
        said = _span(container, stream, source, faults)
        created = _created(container.metadata.get("creation_time"))
        length = _us(said.length, unit)
        # A head may lie; but if it says more than there is, something may be missing.
        claimed = min(_claimed(container, stream), default=0)
        whole = claimed <= said.first + said.length + int(1 / unit) // 2
        sure = whole and bool(faults.packets) and not (said.wrong or faults.packets_bad)
        return Probe(_us(said.first, unit), length, created, sure, said.wrong)


def _span(container: Any, stream: Any, source: Source, faults: Faults) -> Span:
    """What the packets of a file say of its time; heads are not asked, since they may lie."""
    unit, usual = stream.time_base, _usual(stream)
    stamps = _stamps(_packets(container, stream, source, faults))
    if not stamps:  # as of a bare stream
        return Span(0, faults.packets * usual, False)
    return span_of(stamps, usual, int(1 / unit), int(_AHEAD / unit))


def _stamps(packets: Iterator[Any]) -> list[int]:
    found = ((p.dts if p.pts is None else p.pts) for p in packets if p.size)
    return [at for at in found if at is not None]


def _usual(stream: Any) -> int:
    """How long a frame is, in ticks, where it does not say so."""
    said = stream.average_rate or stream.guessed_rate or stream.base_rate or _USUAL_RATE
    rate = said if said * _AHEAD >= 1 else _USUAL_RATE  # a frame in more than 10 s is no rate
    ticks: int = round(1 / (rate * stream.time_base))
    return max(1, ticks)


def _wrong(path: str) -> tuple[frozenset[int], int]:
    """The timestamps of a file that no others bear out, and the first of the others."""
    with _opened(path) as (container, stream, source):
        stamps = _stamps(_packets(container, stream, source, Faults()))
        unit = stream.time_base
        alone = unborne(stamps, int(1 / unit), int(_AHEAD / unit)).tolist()
        held = (at for at, bad in zip(stamps, alone, strict=True) if not bad)
        first = next(held, 0)
        return frozenset(at for at, bad in zip(stamps, alone, strict=True) if bad), first


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


def decoded(path: str, faults: Faults, doubtful: bool = False) -> Iterator[Shown]:
    """The frames of a file in the order in which they are shown.

    Of a `doubtful` file, timestamps that no others bear out count as missing.

    Raises
    ------
    Unreadable
        If there is nothing to decode.
    """
    wrong, first = _wrong(path) if doubtful else (frozenset[int](), 0)
    with _opened(path) as (container, stream, source):
        unit, usual = stream.time_base, _usual(stream)
        ahead = int(_AHEAD / unit)
        last: int | None = None  # the timestamp before
        form: tuple[int, int, str] | None = None  # of the frame before
        at = stretch = shift = own = 0
        length = _us(usual, unit)
        for frame in _frames(container, stream, source, faults):
            ticks = frame.duration or usual
            ticks = ticks if ticks <= max(usual, ahead) else usual
            pts = frame.pts
            if pts is None or pts in wrong:
                faults.pts_missing += 1
                pts = first if last is None else last + ticks
            own += 1
            if last is not None and not last <= pts <= last + 2 * ticks + ahead:
                faults.jumps += 1
                stretch += 1
                shift = at + length - _us(pts, unit)
                own = pts
            # Frames may have the same timestamp; in ids each has its own.
            own = pts if last is None else max(own, pts)
            now = (frame.width, frame.height, frame.format.name)
            faults.changed += form not in (None, now)
            form = now
            before, at = at, _us(pts, unit) + shift
            if last is not None:
                at = max(at, before + 1)
            last, length = pts, max(1, _us(ticks, unit))
            yield Shown(frame, own, at, length, stretch)


def _frames(container: Any, stream: Any, source: Source, faults: Faults) -> Iterator[Any]:
    for packet in _packets(container, stream, source, faults):
        try:
            frames = packet.decode()
        except Exception as error:  # as of opening
            if momentary(error):
                raise
            faults.packets_bad += 1
            continue
        for frame in frames:
            faults.corrupt += bool(frame.is_corrupt)
            yield frame


def _packets(container: Any, stream: Any, source: Source, faults: Faults) -> Iterator[Any]:
    """Packets up to the end, or up to where the container cannot be read any further."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            source.check()
            return
        except Exception as error:  # as of opening
            source.check()
            if momentary(error):
                raise
            faults.packets += 1
            faults.packets_bad += 1
            return
        faults.packets += packet.size > 0  # the last one only flushes the decoder
        faults.corrupt += bool(packet.is_corrupt)
        yield packet
