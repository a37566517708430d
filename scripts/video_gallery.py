"""The gallery of docs/video.md: the same footage as three made-up channels show it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import av
import numpy as np

from anabranch.video.channels import SECOND, STYLES, Programme, Shot, programme
from anabranch.video.clips import fetch
from anabranch.video.pictures import encode
from anabranch.video.studio import record

PLACE = Path(__file__).parent.parent / "docs" / "images" / "video-gallery.jpg"
WIDE, HIGH = 166, 94  # five of them are as wide as a page
SCENES = ("fence", "night", "rocket", "phone", "bunny")


def main() -> None:
    """Record a channel's showing of each scene, and put all side by side."""
    plan = programme()
    sheet = np.zeros((len(STYLES) * HIGH, len(SCENES) * WIDE, 3), np.uint8)
    for row, style in enumerate(STYLES):
        shots = {shot.scene: shot for shot in plan.of(style.channel) if not shot.mirrored}
        for column, scene in enumerate(SCENES):
            if scene in shots:
                at = np.s_[row * HIGH : (row + 1) * HIGH, column * WIDE : (column + 1) * WIDE]
                sheet[at] = shown(shots[scene])
    PLACE.write_bytes(encode(av.VideoFrame.from_ndarray(sheet, format="rgb24"), sheet.shape[1::-1]))


def shown(shot: Shot) -> np.ndarray:
    """What a channel shows a second into a shot."""
    alone = Programme((shot,), 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        (path, *_) = record(alone, fetch(), Path(folder))[shot.channel]
        with av.open(str(path)) as film:
            frames = [f for f in film.decode(video=0) if (f.time or 0) * SECOND < SECOND]
    found: np.ndarray = frames[-1].reformat(WIDE, HIGH, "rgb24", interpolation="AREA").to_ndarray()
    return found


if __name__ == "__main__":
    main()
