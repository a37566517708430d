"""The rows of one segment: a row per frame, and a report of what was wrong with it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.video import layout, pictures
from anabranch.video.decoding import Faults, Shown, Unreadable, decoded
from anabranch.video.momentary import momentary
from anabranch.video.planes import planes_of
from anabranch.video.sampling import anchored, taken
from anabranch.video.segments import Segment
from anabranch.video.signature import LOW, distance, signature

__all__ = ["COUNTS", "GAP", "ROWS", "Planned", "Reading", "rows_of"]

GAP = 1_000_000
"""After so many microseconds without a frame nothing is known of what comes."""
_MOST_STRETCHES = 1000
_ROWS_AT_ONCE = 256

ROWS = pa.schema(
    {
        "id": pa.string(),
        "channel": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
        "segment": pa.string(),
        "run": pa.int64(),
        "pts": pa.int64(),
        "key": pa.bool_(),
        "anchor": pa.bool_(),
        "sig": pa.binary(),
        "features": pa.list_(pa.float32()),
        "grey": pa.list_(pa.int32()),
        "grey_centred": pa.list_(pa.int32()),
        "phash": pa.int64(),
        "picture": pa.binary(),
        "report": pa.string(),
    }
)
"""The last row of a segment has a report, and nothing else."""

COUNTS = (
    *("segments", "late", "bad", "frames", "pictured", "packets", "packets_bad"),
    *("corrupt", "pts_missing", "jumps", "wraps", "changed"),
)
"""What a report counts, beside ``decode_seconds`` and ``problems``."""


@dataclass(frozen=True)
class Reading:
    """What is asked of every segment; times in microseconds."""

    every: int | None = None
    anchors: int = 1_000_000
    picture: tuple[int, int] | None = (640, 360)
    fail: bool = False


@dataclass(frozen=True)
class Planned:
    """A segment on its channel's time line. `late` segments came behind it and are left out.

    In a `doubtful` one some timestamps are wrong.
    """

    segment: Segment
    base: int
    run: int
    jump: str = ""
    late: int = 0
    doubtful: bool = False


@dataclass
class _Rows:
    """Columns that grow frame by frame."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in ROWS.names})

    def add(self, **row: Any) -> None:
        for name, values in self.columns.items():
            values.append(row.get(name))

    def batch(self) -> pa.RecordBatch:
        arrays = [pa.array(self.columns[of.name], of.type) for of in ROWS]
        return pa.RecordBatch.from_arrays(arrays, schema=ROWS)

    def __len__(self) -> int:
        return len(self.columns["id"])


def rows_of(planned: Planned, reading: Reading) -> Iterator[pa.RecordBatch]:
    """The frames of a segment that are taken, and its report."""
    began = time.process_time()
    segment, faults = planned.segment, Faults()
    if not segment.is_as_planned():
        raise AnabranchError(_changed(segment))
    rows, frames, pictured = _Rows(), 0, 0
    try:
        frames_of = decoded(segment.path, faults, planned.doubtful)
        for row in _described(planned, reading, frames_of, faults):
            rows.add(**row)
            frames, pictured = frames + 1, pictured + (row["features"] is not None)
            if len(rows) == _ROWS_AT_ONCE:
                yield rows.batch()
                rows = _Rows()
    except Unreadable as error:
        faults.problems.append(f"{segment.channel}/{segment.name}: {error}")
    if faults.bad and not faults.problems:
        bad = f"{faults.packets_bad} of {faults.packets} packets cannot be decoded"
        faults.problems.append(f"{segment.channel}/{segment.name}: {bad}")
    if not segment.is_as_planned():
        raise AnabranchError(_changed(segment))
    if faults.bad and reading.fail:
        raise AnabranchError(f"segment {faults.problems[0]}, and the query has bad_rows='fail'")
    counted = {
        "segments": 1,
        "late": planned.late,
        "bad": int(faults.bad),
        "frames": frames,
        "pictured": pictured,
        "packets": faults.packets,
        "packets_bad": faults.packets_bad,
        "corrupt": faults.corrupt,
        "pts_missing": faults.pts_missing,
        "jumps": faults.jumps + (planned.jump == "jump"),
        "wraps": int(planned.jump == "wrap"),
        "changed": faults.changed,
        "decode_seconds": time.process_time() - began,
        "problems": faults.problems,
    }
    rows.add(report=json.dumps(counted))
    yield rows.batch()


def _changed(segment: Segment) -> str:
    return (
        f"segment {segment.channel}/{segment.name} changed after it was planned: a recorder must "
        "not touch a segment that it has closed. If it has no list, let it write to a name with a "
        "leading dot and rename it. Then begin a new checkpoint"
    )


def _described(
    planned: Planned, reading: Reading, frames: Iterator[Shown], faults: Faults
) -> Iterator[dict[str, Any]]:
    """The rows of the frames that are taken.

    A picture is attached wherever the shot step could choose one: to anchors, to frames unlike
    the one before, and where that one is not known.
    """
    before: tuple[int, int, bytes] | None = None  # stretch, time and signature
    for shown in frames:
        ts = planned.base + shown.at
        if reading.every is not None and not taken(ts, shown.length, reading.every):
            continue
        known = before is not None and before[0] == shown.stretch and ts - before[1] <= GAP
        try:
            row = _row(planned, reading, shown, before[2] if known and before else None)
        except Exception as error:  # a frame that was decoded, and is none that can be used
            if momentary(error):
                raise
            faults.packets_bad += 1
            continue
        before = (shown.stretch, ts, row["sig"])
        yield row


def _row(planned: Planned, reading: Reading, shown: Shown, before: bytes | None) -> dict[str, Any]:
    """The row of a frame; `before` is the signature of the one before it, if that is known."""
    segment, ts = planned.segment, planned.base + shown.at
    planes = planes_of(shown.frame)
    sig = signature(planes)
    anchor = bool(anchored(ts, shown.length, reading.every, reading.anchors))
    later = f"+{shown.stretch}" if shown.stretch else ""
    row: dict[str, Any] = {
        "id": f"{segment.channel}/{segment.name}/{shown.pts}{later}",
        "channel": segment.channel,
        "ts": ts,
        "segment": segment.name,
        "run": planned.run * _MOST_STRETCHES + min(shown.stretch, _MOST_STRETCHES - 1),
        "pts": shown.pts,
        "key": bool(shown.frame.key_frame),
        "anchor": anchor,
        "sig": sig,
        "features": None,
    }
    if anchor or before is None or distance(before, sig) > LOW:
        levels = layout.grey(planes)
        row["features"] = layout.features(planes)
        row["grey"], row["grey_centred"] = levels, layout.grey_centred(levels)
        row["phash"] = layout.phash(planes)
        if reading.picture is not None:
            row["picture"] = pictures.encode(shown.frame, reading.picture)
    return row
