"""Lines that a channel shows all the time, such as a ticker's: they are left out of what is told.

The key frames of a channel come in the order of their times, so there is no wait for a watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.calls import describe
from anabranch.flow.blocks import Block
from anabranch.flow.container import pack, unpack
from anabranch.flow.kernel import Packed, Task
from anabranch.flow.slices import Notes, Slices
from anabranch.video.channel_kernel import ChannelJob, ChannelKernel, by_channel, refuse_bad
from anabranch.video.spelling import grams, overlap

__all__ = ["LEAST", "TIME", "KeyPacking", "Shown", "TickerKernel", "TickersJob"]

TIME = "anabranch_time"
"""The column of times in microseconds; all others are the user's own, whatever their names."""

_USERS = "of_keys_"


def _inside(name: str) -> str:
    """A column's name in a cell, where ``reason``, which key frames have, marks rejected rows."""
    return name if name in ("channel", "text") else f"{_USERS}{name}"


LEAST = 10
"""A line is a ticker's only if so many key frames have shown it: a caption stays for some."""
_SHARE = 0.2  # of a channel's key frames


@dataclass
class Shown:
    """The lines on the key frames of a channel in the last `lasting` microseconds.

    Examples
    --------
    >>> channel = Shown(lasting=1000)
    >>> for t in range(12):
    ...     said = channel.said(t, [3 * chr(65 + t) + " STORY", "WATCH US LIVE ON AIR"])
    >>> said
    ['LLL STORY']
    """

    lasting: int
    frames: deque[tuple[int, list[str]]] = field(default_factory=deque)
    _grams: deque[list[frozenset[str]]] = field(default_factory=deque)

    def said(self, t: int, lines: Sequence[str]) -> list[str]:
        """The lines of the next key frame, but for those that are shown all the time."""
        while self.frames and self.frames[0][0] < t - self.lasting:
            self.frames.popleft()
            self._grams.popleft()
        self.add(t, lines)
        return [
            line for line, of in zip(lines, self._grams[-1], strict=True) if not self._steady(of)
        ]

    def add(self, t: int, lines: Sequence[str]) -> None:
        """Remember a key frame."""
        self.frames.append((t, list(lines)))
        self._grams.append([grams(line) for line in lines])

    def _steady(self, line: frozenset[str]) -> bool:
        found = sum(any(overlap(line, other) for other in lines) for lines in self._grams)
        return found > max(LEAST, _SHARE * len(self._grams))


@dataclass(frozen=True)
class KeyPacking:
    """Packs key frames with all their columns: those of a channel go to one of the workers."""

    workers: int

    def pack(self, batch: pa.RecordBatch, live: Any) -> Packed:
        """The cells of one batch of `TIME`, ``channel``, ``text`` and whatever else there is."""
        refuse_bad(batch, "key frame", TIME)
        t = batch.column(TIME).to_numpy()
        carried = {_inside(name): batch.column(name) for name in batch.schema.names if name != TIME}
        return Packed(by_channel(Block.of(t, carried), self.workers), int(t.max()))


@dataclass(frozen=True)
class TickersJob(ChannelJob):
    """For how many microseconds a line that is shown counts."""

    lasting: int
    verb: ClassVar[str] = "describe"

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for remembered lines to keep their meaning."""
        return {"ticker": describe(self.lasting)}

    def kernel(self, slices: Slices[Notes], task: Task) -> TickerKernel:
        """One worker."""
        return TickerKernel(self.lasting, slices, task.worker)


class TickerKernel(ChannelKernel):
    """One worker: what its channels have shown."""

    def __init__(self, lasting: int, slices: Slices[Notes], worker: int = 0) -> None:
        super().__init__(slices, worker)
        self.lasting = lasting
        self.channels: dict[str, Shown] = {}

    @property
    def nbytes(self) -> int:
        """About what remembered lines take."""
        frames = (lines for of in self.channels.values() for _, lines in of.frames)
        return sum(100 * (1 + len(lines)) for lines in frames)

    def _take_in(self, rows: Block) -> list[pa.RecordBatch]:
        """Key frames as they came, with what their lines say but for tickers."""
        whole = rows.in_time_order()
        columns = (whole.columns[name].to_pylist() for name in ("channel", "text"))
        words = [
            self._words(channel, t, lines)
            for t, channel, lines in zip(whole.t.tolist(), *columns, strict=True)
        ]
        made = {name.removeprefix(_USERS): column for name, column in whole.columns.items()}
        made["words"] = pa.array(words, pa.string())
        return [pa.RecordBatch.from_pydict(made)]

    def _rows(self) -> int:
        return sum(len(of.frames) for of in self.channels.values())

    def _packed(self) -> bytes:
        return pack({}, {"channels": {name: [*of.frames] for name, of in self.channels.items()}})

    def restore(self, data: Any) -> None:
        """Take up the channels of a snapshot."""
        for name, frames in unpack(data)[1]["channels"].items():
            of = self.channels[name] = Shown(self.lasting)
            for t, lines in frames:
                of.add(t, lines)

    def _words(self, channel: str, t: int, lines: Sequence[Mapping[str, Any]] | None) -> str | None:
        of = self.channels.setdefault(channel, Shown(self.lasting))
        return " ".join(of.said(t, [line["text"] for line in lines or ()])) or None
