"""Frames: what a device and the cloud say to each other, as msgpack with delta-coded columns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import msgpack
import numpy as np

from anabranch.edge.codec import deltas, read_column, read_deltas, write_column
from anabranch.edge.directives import Directive, read_directive, write_directive
from anabranch.edge.ownership import EARLIEST
from anabranch.edge.sections import Results, Section
from anabranch.errors import AnabranchError

__all__ = [
    "NOTHING",
    "Down",
    "FrameError",
    "Output",
    "Up",
    "decode_down",
    "decode_output",
    "decode_up",
    "encode_down",
    "encode_output",
    "encode_up",
    "own_down",
]

VERSION = 3
_MOST = 1 << 62
_T = TypeVar("_T")


class FrameError(AnabranchError, ValueError):
    """A frame of another version, or bytes that are no frame at all."""

    def __init__(self, text: str, other_version: bool = False) -> None:
        super().__init__(text)
        self.other_version = other_version


@dataclass(frozen=True)
class Up:
    """From a device, subject ``u.<device>``. `number` is -1 for a hello, which is not kept."""

    incarnation: int  # 0 until the cloud has given one
    number: int  # contiguous
    epoch: int  # newest adopted, -1 if none
    seen: int  # number of the newest mailbox frame processed
    sections: tuple[Section, ...] = ()
    results: tuple[Results, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)
    # hello: next frame number; new: asks for an incarnation, by a number of its own choice;
    # fresh: whether it has heard nothing of the cloud in its incarnation;
    # adopted: [[epoch, newest t stamped below it], ...];
    # rates: {stream: rows a second}; bye: it leaves, False if it is back;
    # clock: seconds ahead; at: when a hello was said;
    # again: [generation, the first frame that is sent again in it, checksum of the one before]
    before: int = 0  # checksum of the frame before it, 0 for the first
    check: int = 0  # its own, found by `decode_up`


@dataclass(frozen=True)
class Down:
    """To a device's mailbox, subject ``m.<device>``, or to a bucket, ``in.<bucket>``."""

    number: int  # contiguous per subject
    position: int  # of UP: all up to it is covered for this subject
    acked: int  # frames of the device up to this one are in the cloud; -1 for buckets
    steps: tuple[Section | Directive, ...] = ()  # to be taken in this order
    results: tuple[Results, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)
    # rewind: the frame that is expected next;
    # stop: [incarnation, why, only who has seen no more than this of its mailbox];
    # begin: [incarnation, where its mailbox begins, None for this frame];
    # given: {number of whoever asked: incarnation};
    # clock: [when a hello was said, when it came];
    # origins: of results: [[who found them, in which frame, how many in a row are of it], ...];
    # after: of a generation's first frame, the last one of those before that there is;
    # again: [generation, frames of the device that there were, checksum of the last of them]
    check: int = 0  # checksum of the frame that is acknowledged

    def follows(self, last: int) -> bool:
        """Whether it is the next one for who has had all up to `last`.

        Examples
        --------
        >>> Down(7, 40, -1).follows(6), Down(7, 40, -1).follows(5)
        (True, False)
        >>> Down(1 << 40, 40, -1, extras={"after": 6}).follows(9)   # the broker lost 7 to 9
        True
        """
        return (
            self.number == last + 1 or self.extras.get("after", self.number) <= last < self.number
        )


@dataclass(frozen=True)
class Output:
    """Results of a bucket for devices, subject ``c.<bucket>``, up to a part of them."""

    batch: int  # ascending
    results: tuple[Results, ...]
    numbers: tuple[int, ...] = ()  # of the part that each is of; all of `batch` if not given

    def parts(self) -> Iterator[tuple[int, Results]]:
        """Results, each with the number of its part."""
        numbers = self.numbers or (self.batch,) * len(self.results)
        return zip(numbers, self.results, strict=True)


def encode_up(up: Up) -> bytes:
    """A frame as bytes; row numbers are counted from the incarnation's first."""
    base = up.incarnation << 32
    sections = [_write_section(section, base) for section in up.sections]
    results = [_write_results(found) for found in up.results]
    head = [VERSION, up.incarnation, up.number, up.epoch, up.seen, up.before]
    return _pack([*head, sections, results, up.extras])


def decode_up(content: bytes) -> Up:
    """The frame of `encode_up`; raises `FrameError` for anything else.

    Examples
    --------
    >>> decode_up(encode_up(Up(5, 0, -1, -1, extras={"bye": True}))).extras
    {'bye': True}
    >>> decode_up(bytes([0x91, 9]))
    Traceback (most recent call last):
        ...
    anabranch.edge.frames.FrameError: a frame of version 9, and this is version 3: upgrade the \
older side
    >>> decode_up(b"...")
    Traceback (most recent call last):
        ...
    anabranch.edge.frames.FrameError: a frame of 3 bytes is damaged (ExtraData: unpack(b) received \
extra data.)
    """

    def read(form: list[Any]) -> Up:
        incarnation, number, epoch, seen, before, sections, results, extras = form
        _demand_whole(incarnation, number, epoch, seen, before)
        _demand_within(0, incarnation, 1 << 31)
        for one in (number, epoch, seen):
            _demand_within(-1, one, _MOST)
        for report in extras.get("adopted", ()):
            adopted, newest = report
            _demand_whole(adopted, newest)
            _demand_within(EARLIEST, newest, _MOST)
        base = incarnation << 32
        rows = tuple(_pass_on(section, base) for section in sections)
        found = tuple(map(_read_results, results))
        head = incarnation, number, epoch, seen
        return Up(*head, rows, found, dict(extras), before, zlib.crc32(content))

    return _decoded(content, read)


def encode_down(down: Down) -> bytes:
    """A frame as bytes: sections and results that came in a frame are passed on as they came."""
    head = [VERSION, down.number, down.position, down.acked, down.check]
    steps, results = list(map(_packed_step, down.steps)), list(map(_packed_results, down.results))
    begin = _array(len(head) + 3) + _pack(head)[1:]  # of which the first says how many these are
    parts = [begin, _array(len(steps)), *steps, _array(len(results))]
    return b"".join([*parts, *results, _pack(down.extras)])


def decode_down(content: bytes) -> Down:
    """The frame of `encode_down`; raises `FrameError` for anything else."""

    def read(form: list[Any]) -> Down:
        number, position, acked, check, steps, results, extras = form
        _demand_whole(number, position, acked, check)
        read_steps = tuple(
            read_directive(step[0]) if isinstance(step, dict) else _read_section(step, 0)
            for step in steps
        )
        found = tuple(map(_read_results, results))
        return Down(number, position, acked, read_steps, found, dict(extras), check)

    return _decoded(content, read)


def own_down(content: bytes) -> Down | None:
    """A frame of a mailbox or a bucket; None for what nobody of ours wrote.

    Leaving it out is safe: numbers are contiguous, so a frame of ours would be missed.
    """
    try:
        return decode_down(content)
    except FrameError as error:
        if error.other_version:
            raise
        return None


def encode_output(output: Output) -> bytes:
    """Results for devices as bytes."""
    results = list(map(_packed_results, output.results))
    head = [_array(4), _pack(VERSION), _pack(output.batch), _array(len(results))]
    return b"".join([*head, *results, _pack(output.numbers)])


def decode_output(content: bytes) -> Output:
    """The results of `encode_output`; raises `FrameError` for anything else."""

    def read(form: list[Any]) -> Output:
        batch, results, numbers = form
        _demand_whole(batch, *numbers)
        if len(numbers) not in (0, len(results)):
            raise ValueError(f"{len(numbers)} numbers of {len(results)} results")
        return Output(batch, tuple(map(_read_results, results)), tuple(numbers))

    return _decoded(content, read)


def _pack(form: Any) -> bytes:
    packed: bytes = msgpack.packb(form)
    return packed


@lru_cache(100)
def _array(length: int) -> bytes:
    """How a list of so many begins."""
    begin: bytes = msgpack.Packer().pack_array_header(length)
    return begin


def _packed_step(step: Section | Directive) -> bytes:
    if isinstance(step, Directive):
        return _pack({0: write_directive(step)})
    return _pack(_write_section(step, 0)) if step.packed is None else step.packed


def _packed_results(found: Results) -> bytes:
    return _pack(_write_results(found)) if found.packed is None else found.packed


def _decoded(content: bytes, read: Callable[[list[Any]], _T]) -> _T:
    try:
        form = msgpack.unpackb(content, strict_map_key=False)
        version, rest = form[0], form[1:]
        if version == VERSION:
            return read(rest)
    except Exception as error:  # whatever bytes may lead to
        what = f"{type(error).__name__}: {error}"
        raise FrameError(f"a frame of {len(content)} bytes is damaged ({what})") from error
    raise FrameError(
        f"a frame of version {version!r}, and this is version {VERSION}: upgrade the older side",
        other_version=True,
    )


def _demand_whole(*values: Any) -> None:
    """Raise unless all are whole numbers: whoever uses them may rely on it."""
    for value in values:
        if type(value) is not int:
            raise ValueError(f"whole numbers are expected, got {values!r}")


def _demand_within(least: int, value: int, end: int) -> None:
    if not least <= value < end:
        raise ValueError(f"a number from {least} to below {end} is expected, got {value}")


def _write_section(section: Section, base: int) -> list[Any]:
    columns = [write_column(column) for column in section.columns]
    # A band begins at 0 nearly always, which is one byte as a whole number.
    band = section.band or 0
    numbers, times = deltas(section.n - base), deltas(section.t)
    return [section.stream, section.stamp, numbers, times, section.watermark, band, *columns]


def _read_section(form: list[Any], base: int, packed: bytes | None = None) -> Section:
    stream, stamp, numbers, times, watermark, band, *columns = form
    _demand_whole(stream, stamp, watermark)
    n, t = read_deltas(numbers), read_deltas(times)
    if len(n) != len(t):
        raise ValueError(f"{len(n)} numbers and {len(t)} times")
    read = tuple(read_column(column, len(n)) for column in columns)
    return Section(stream, stamp, n + base if base else n, t, read, watermark, float(band), packed)


def _pass_on(form: list[Any], base: int) -> Section:
    """A section of a device, with the bytes that it is passed on as."""
    numbers = form[2]
    if numbers:
        numbers[0] += base
        _demand_whole(numbers[0])
    return _read_section(form, 0, _pack(form))


def _write_results(found: Results) -> list[Any]:
    sides = [deltas(side) for side in (*found.n, *found.t)]
    columns = [write_column(column) for column in (found.score, *found.columns)]
    return [found.view, sides, deltas(found.stamp), columns]


def _read_results(form: list[Any]) -> Results:
    view, sides, stamp, columns = form
    _demand_whole(view)
    read = [read_deltas(side) for side in sides]
    half, rows = len(read) // 2, len(read[0])
    score, *kept = (read_column(column, rows) for column in columns)
    n, t = tuple(read[:half]), tuple(read[half:])
    return Results(view, n, t, read_deltas(stamp), score, tuple(kept), _pack(form))


NOTHING = np.empty(0, np.int64)
"""The numbers and times of a section that is a watermark alone."""
