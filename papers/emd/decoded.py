"""S and M out of real clips, encoded as films of their own and decoded again.

As in the made-up films a sequence cuts to and fro between a few shots, and each goes on where it
was left. A shot is a stretch of a real clip, played forward and back, under a camera that moves
slowly. Then the film is encoded, so that no two frames that are compared are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from typing import Any

import av
import numpy as np

from anabranch.video.channels import SCENES
from anabranch.video.clips import CLIPS, MEASURED, fetch
from papers.emd.streams import HEIGHT, WIDTH

__all__ = ["decoded_film", "shots"]

FILMS = {
    "S": ("bunny", "fence", "taxi", "astronaut", "coffee", "flower"),
    "M": ("night", "tower", "street", "phone", "temple", "cat"),
}
"""Scenes of either film."""
_SIZE = (WIDTH * 6, HEIGHT * 6)  # of what is read, of which the camera sees two thirds


def shots(names: Sequence[str]) -> list[np.ndarray]:
    """The frames of scenes; of a still there is one."""
    clips = {**CLIPS, **MEASURED}
    paths = fetch(sorted({SCENES[name].clip for name in names}))
    found = []
    for name in names:
        scene, frames = SCENES[name], []
        with av.open(str(paths[scene.clip])) as container:
            for frame in container.decode(video=0):
                time = 0.0 if clips[scene.clip].still else float(frame.time or 0.0)
                if scene.begin <= time < scene.end:
                    small = frame.reformat(*_SIZE, format="rgb24", interpolation="AREA")
                    frames.append(small.to_ndarray())
        found.append(np.stack(frames))
    return found


def decoded_film(frames: int, name: str, scene: int = 60, cuts: int = 120) -> np.ndarray:
    """So many decoded frames (height x width x 3 bytes) of S, or of M, which shows shots of S."""
    own = shots(FILMS[name])
    again = shots(FILMS["S"]) if name == "M" else []
    return _through_codec(_played(frames, own, again, scene, seed=len(again), cuts=cuts))


def _played(
    frames: int,
    own: Sequence[np.ndarray],
    again: Sequence[np.ndarray],
    scene: int,
    seed: int,
    cuts: int,
) -> Iterator[np.ndarray]:
    """Frames as a camera sees them; after so many cuts it sees another part of each shot."""
    random = np.random.default_rng(seed)
    reached: dict[tuple[bool, int], int] = {}
    number = total = 0
    while total < frames:
        length = int(random.integers(scene // 2, scene * 3 // 2))
        other = bool(again) and random.random() < 0.3
        of = again if other else own
        shot = int(random.integers(len(of)))
        begin = reached.get((other, shot), 0)
        for n in range(begin, begin + min(length, frames - total)):
            yield _seen(of[shot], n, 0 if other else number // cuts)
        reached[other, shot] = begin + length
        total += length
        number += 1


def _seen(shot: np.ndarray, n: int, part: int) -> np.ndarray:
    """Two thirds of the n-th frame of a shot played to and fro, panning slowly."""
    there = n % max(2 * len(shot) - 2, 1)
    picture = shot[there if there < len(shot) else 2 * len(shot) - 2 - there]
    high, wide = HEIGHT * 4, WIDTH * 4
    phase = n / 150 + part
    y = int((picture.shape[0] - high) * (0.5 + 0.5 * np.sin(1.3 * phase)))
    x = int((picture.shape[1] - wide) * (0.5 + 0.5 * np.sin(phase)))
    return np.ascontiguousarray(picture[y : y + high, x : x + wide])


def _through_codec(pictures: Iterator[np.ndarray]) -> np.ndarray:
    """Encoded by FFmpeg's own encoder, and decoded again, at the size of the made-up films."""
    file = BytesIO()
    with av.open(file, "w", format="matroska") as out:
        stream: Any = out.add_stream("mpeg4", rate=25, bit_rate=1_000_000)
        stream.width, stream.height, stream.pix_fmt = WIDTH * 4, HEIGHT * 4, "yuv420p"
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    file.seek(0)
    with av.open(file, "r") as container:
        found = [
            frame.reformat(WIDTH, HEIGHT, format="rgb24", interpolation="AREA").to_ndarray()
            for frame in container.decode(video=0)
        ]
    return np.stack(found)
