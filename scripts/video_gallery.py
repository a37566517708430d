"""The gallery of docs/video.md: pairs of key frames that were found on three made-up channels.

The channels are recorded, decoded and cut into shots, and key frames of different channels compared
as `anabranch news` does it. Of the timetable only the credits are taken: whose clips they show.

    python -m scripts.video_gallery
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pyarrow as pa

from anabranch.flow.blocks import Block
from anabranch.testing.workers import Workers
from anabranch.video.channels import SCENES, Programme, programme
from anabranch.video.clips import CLIPS
from anabranch.video.pictures import decode, encode
from anabranch.video.planning import Folder, Planner
from anabranch.video.rows import Reading, rows_of
from anabranch.video.shot_kernel import FramePacking, ShotsJob
from anabranch.video.studio import recorded
from benchmarks.marked import put

DOCS = Path(__file__).parent.parent / "docs"
PLACE, PAGE = DOCS / "images" / "video-gallery.jpg", DOCS / "video.md"
WIDE, HIGH = 166, 94  # five of them are as wide as a page
ACROSS, DOWN = 5, 2
THRESHOLD, WINDOW = 0.6, 60_000_000


class Key(NamedTuple):
    """A key frame: where and when it was, its unit vector, and its picture."""

    channel: str
    t: int
    vector: np.ndarray
    picture: bytes


def keys_of(folder: Path) -> Iterator[Key]:
    """The key frames of all channels, segment by segment."""
    planner = Planner(Folder(str(folder), closed="all"))
    workers, packing = Workers(ShotsJob(10_000_000)), FramePacking(1)
    for planned in planner.between({}, planner.latest({})):
        for batch in rows_of(planned, Reading(picture=(256, 144))):
            rows = batch.filter(batch.column("id").is_valid())
            t = rows.column("ts").cast(pa.int64())
            named = pa.RecordBatch.from_arrays([t, *rows.columns], ["t", *rows.schema.names])
            blocks = [Block.decode(cell) for cell in packing.pack(named, None).cells.values()]
            for found in workers.step(0, blocks, 0):
                yield from map(key_of, found.to_pylist())


def key_of(row: dict[str, Any]) -> Key:
    """A row of a key frame."""
    vector = np.array(row["features"])
    unit = vector / (np.linalg.norm(vector) or 1.0)
    return Key(row["channel"], int(row["ts"].timestamp() * 1e6), unit, row["picture"])


def pairs_of(keys: list[Key]) -> list[tuple[Key, Key]]:
    """Pairs of different channels in a window, one of each picture, in the order of their times."""
    ordered = sorted(keys, key=lambda key: key.t)
    chosen: list[tuple[Key, Key]] = []
    for n, later in enumerate(ordered):
        for key in ordered[:n]:
            apart = key.channel != later.channel and later.t - key.t <= WINDOW
            if not apart or key.vector @ later.vector < THRESHOLD:
                continue
            if all(key.vector @ other[0].vector < THRESHOLD for other in chosen):
                chosen.append((key, later))
    return chosen


def credits(plan: Programme, chosen: list[tuple[Key, Key]]) -> str:
    """Whose clips these pairs show, and under which licences."""
    shots = (plan.at(key.channel, key.t) for pair in chosen for key in pair)
    names = {SCENES[shot.scene].clip for shot in shots if shot is not None}
    told = "; ".join(
        f"`{clip.name}` ({clip.licence}, {clip.by})"
        for clip in map(CLIPS.get, sorted(names))
        if clip
    )
    return f"Frames, cut and scaled, of {told}."


def main() -> None:
    """Put the first pairs side by side, the earlier picture above the later; and the credits."""
    plan = programme()
    folder = next(iter(recorded(plan).values()))[0].parent.parent
    chosen = pairs_of(list(keys_of(folder)))[: ACROSS * DOWN]
    sheet = np.full((DOWN * (2 * HIGH + 6), ACROSS * WIDE, 3), 255, np.uint8)
    for n, pair in enumerate(chosen):
        top, left = n // ACROSS * (2 * HIGH + 6), n % ACROSS * WIDE
        for k, key in enumerate(pair):
            at = np.s_[top + k * HIGH : top + (k + 1) * HIGH, left : left + WIDE - 4]
            sheet[at] = small(key.picture)
    PLACE.write_bytes(encode(av.VideoFrame.from_ndarray(sheet, format="rgb24"), sheet.shape[1::-1]))
    PAGE.write_text(put(PAGE.read_text(), "gallery", credits(plan, chosen)))
    print(*(f"{a.channel} and {b.channel}: {a.vector @ b.vector:.2f}" for a, b in chosen), sep="\n")


def small(picture: bytes) -> np.ndarray:
    """A JPEG in the size of the sheet."""
    frame = av.VideoFrame.from_ndarray(decode(picture), format="rgb24")
    found: np.ndarray = frame.reformat(WIDE - 4, HIGH, interpolation="AREA").to_ndarray()
    return found


if __name__ == "__main__":
    main()
