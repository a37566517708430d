"""The shots of channels as one worker finds them: rows in, key frames out, and what is kept.

The source gives out segments in the order of their names, so there is no wait for a watermark. The
rows of a micro-batch are sorted; whatever the batches, decisions are those of one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from anabranch.calls import describe
from anabranch.flow.blocks import Block, concat
from anabranch.flow.container import pack, unpack
from anabranch.flow.kernel import Packed, Task
from anabranch.flow.slices import Notes, Slices
from anabranch.video.channel_kernel import ChannelJob, ChannelKernel, by_channel, refuse_bad
from anabranch.video.cutting import Chosen, Cutter
from anabranch.video.layout import VERSION
from anabranch.video.signature import BYTES

__all__ = ["CARRIED", "FramePacking", "ShotKernel", "ShotsJob"]

CARRIED = ("id", "segment", "pts", "features", "grey", "grey_centred", "phash", "picture")
"""Columns of a frame that its key frame has too, beside channel and time."""
_RULES = "2"  # those of `cutting`; others would go on differently from what is stored
_ARRAYS = ("sigs", "steps", "times", "anchors")
_FIGURES = ("run", "last", "black", "how", "waits", "latest")


@dataclass(frozen=True)
class FramePacking:
    """Packs frames: all of a channel go to one of the workers."""

    workers: int

    def pack(self, batch: pa.RecordBatch, live: Any) -> Packed:
        """The cells of one batch of ``t, channel, run, anchor, sig`` and what is carried."""
        refuse_bad(batch, "frame")
        t = batch.column("t").to_numpy()
        whole = Block.of(
            t,
            {
                "channel": batch.column("channel"),
                "run": batch.column("run").to_numpy(),
                "anchor": batch.column("anchor").to_numpy(zero_copy_only=False),
                "sig": _matrix(batch.column("sig")),
                **{name: batch.column(name) for name in CARRIED},
            },
        )
        return Packed(by_channel(whole, self.workers), int(t.max()))


def _matrix(sigs: pa.Array) -> np.ndarray:
    joined = b"".join(sigs.to_pylist())
    return np.frombuffer(joined, np.uint8).reshape(len(sigs), BYTES)


@dataclass(frozen=True)
class ShotsJob(ChannelJob):
    """A call of `shots`: the longest time without a key frame, in microseconds."""

    longest: int
    verb: ClassVar[str] = "shots"

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for stored frames to keep their meaning."""
        return {"longest": describe(self.longest), "layout": VERSION, "rules": _RULES}

    def kernel(self, slices: Slices[Notes], task: Task) -> ShotKernel:
        """One worker."""
        return ShotKernel(self.longest, slices, task.worker)


@dataclass
class _Channel:
    """The shots of a channel, and what is carried of its undecided frames."""

    cutter: Cutter
    rest: Block | None = None


class ShotKernel(ChannelKernel):
    """One worker: its channels, each with the frames that later decisions need."""

    def __init__(self, longest: int, slices: Slices[Notes], worker: int = 0) -> None:
        super().__init__(slices, worker)
        self.longest = longest
        self.channels: dict[str, _Channel] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the frames that are kept."""
        return sum(
            of.cutter.sigs.nbytes + (of.rest.nbytes if of.rest is not None else 0)
            for of in self.channels.values()
        )

    def _take_in(self, rows: Block) -> list[pa.RecordBatch]:
        names = rows.columns["channel"].dictionary_encode()
        places = names.indices.to_numpy()
        return [
            one
            for number, name in enumerate(names.dictionary.to_pylist())
            for one in self._cut(name, _in_order(rows.take(np.flatnonzero(places == number))))
        ]

    def _finish(self) -> list[pa.RecordBatch]:
        return [one for name in self.channels for one in self._cut(name, None)]

    def _rows(self) -> int:
        return sum(len(of.cutter.times) for of in self.channels.values())

    def _packed(self) -> bytes:
        parts: dict[str, Any] = {}
        figures = []
        for number, (name, of) in enumerate(self.channels.items()):
            for array in _ARRAYS:
                parts[f"{number}.{array}"] = getattr(of.cutter, array)
            if of.rest is not None:
                parts[f"{number}.rest"] = of.rest.encode()
            figures.append([name, *(getattr(of.cutter, figure) for figure in _FIGURES)])
        return pack(parts, {"channels": figures})

    def restore(self, data: Any) -> None:
        """Take up the channels of a snapshot."""
        parts, meta = unpack(data)
        for number, (name, *figures) in enumerate(meta["channels"]):
            cutter = Cutter(self.longest)
            for array in _ARRAYS:
                setattr(cutter, array, parts[f"{number}.{array}"])
            for figure, value in zip(_FIGURES, figures, strict=True):
                setattr(cutter, figure, tuple(value) if isinstance(value, list) else value)
            rest = parts.get(f"{number}.rest")
            kept = None if rest is None else Block.decode(bytes(rest))
            cutter.rows = list(range(0 if kept is None else len(kept)))
            self.channels[name] = _Channel(cutter, kept)

    def _cut(self, name: str, new: Block | None) -> list[pa.RecordBatch]:
        """The key frames of a channel that its next frames decide, or that there are no more."""
        of = self.channels.setdefault(name, _Channel(Cutter(self.longest)))
        parts = [part for part in (of.rest, new) if part is not None]
        if not parts:
            return []
        carried = concat(parts)
        begin = len(carried) - (0 if new is None else len(new))
        added = carried.slice(begin, len(carried))
        chosen = of.cutter.take(
            added.columns["sig"],
            added.t,
            added.columns["run"],
            added.columns["anchor"],
            list(range(begin, len(carried))),
            final=new is None,
        )
        undecided = np.array(of.cutter.rows, np.int64)
        of.rest = carried.take(undecided) if len(undecided) else None
        of.cutter.rows = list(range(len(undecided)))
        return [_result(name, carried, chosen)] if chosen else []


def _in_order(rows: Block) -> Block:
    """Frames as they are shown: by segment, by run, by time."""
    segments = rows.columns["segment"].dictionary_encode()
    rank = np.argsort(np.argsort(np.array(segments.dictionary.to_pylist(), object)))
    places = rank[segments.indices.to_numpy()]
    return rows.take(np.lexsort((rows.t, rows.columns["run"], places)))


def _result(channel: str, rows: Block, chosen: Sequence[Chosen]) -> pa.RecordBatch:
    found = rows.take(np.array([one.row for one in chosen]))
    moment = pa.timestamp("us", "UTC")
    return pa.RecordBatch.from_pydict(
        {
            "channel": pa.array([channel] * len(chosen)),
            "ts": pa.array(found.t, moment),
            "began": pa.array([one.began for one in chosen], moment),
            "reason": pa.array([one.reason for one in chosen]),
            **{name: found.columns[name] for name in CARRIED},
        }
    )
