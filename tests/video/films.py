"""Films made up in a test: real, encoded, with known cuts; and the ways in which files go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

RATE = 25


def scene(number: int, count: int, height: int = 90, width: int = 160) -> list[np.ndarray]:
    """Frames of one shot: a coloured pattern of its own that drifts slowly."""
    random = np.random.default_rng(number)
    coarse = random.integers(20, 236, (6, 9, 3))
    whole = np.kron(coarse, np.ones((height // 5 + 1, width // 8 + 1, 1)))
    moved = [whole[k // 8 : k // 8 + height, k // 4 : k // 4 + width] for k in range(count)]
    return [np.ascontiguousarray(each).astype(np.uint8) for each in moved]


def film(lengths: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    """Shots of these lengths, one behind the other."""
    return [frame for n, count in enumerate(lengths) for frame in scene(100 * seed + n, count)]


def write(
    path: Path,
    frames: Iterable[np.ndarray],
    *,
    codec: str = "mpeg4",
    first: int = 0,
    rate: int = RATE,
    form: str = "yuv420p",
    times: Sequence[int] | None = None,
    options: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    gop: int = 25,
    container_options: dict[str, str] | None = None,
    container_format: str | None = None,
) -> Path:
    """Encode frames; `first` is the number of the first, `times` those of all, in 1 / rate."""
    import av

    with av.open(str(path), "w", format=container_format, options=container_options or {}) as out:
        out.metadata.update(metadata or {})
        stream: Any = None
        for number, picture in enumerate(frames):
            if stream is None:
                stream = out.add_stream(codec, rate=rate, options=options or {})
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt, stream.gop_size = form, gop
                stream.codec_context.time_base = Fraction(1, rate)
                stream.codec_context.thread_count = 1
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = first + number if times is None else times[number]
            frame.time_base = Fraction(1, rate)
            out.mux(stream.encode(frame))
        if stream is not None:
            out.mux(stream.encode(None))
    return path


def segmented(folder: Path, frames: Sequence[np.ndarray], cuts: Sequence[int] = ()) -> None:
    """One encoding, cut before these frames into transport streams whose timestamps run on.

    Packets are the same whatever the cuts, so that decoded frames are too: every frame is coded
    by itself.
    """
    import av

    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / ".whole.mkv"
    # A writer moves all times by what lies before zero: begin well behind it.
    quality = {"qmin": "2", "qmax": "2"}
    write(whole, frames, codec="mpeg2video", gop=1, options=quality, first=RATE)
    edges = [0, *cuts, len(frames)]
    with av.open(str(whole)) as source:
        packets = [p for p in source.demux(video=0) if p.pts is not None]
        template = source.streams.video[0]
        for number, (begin, end) in enumerate(pairwise(edges)):
            with av.open(str(folder / f"{number:04d}.ts"), "w", format="mpegts") as out:
                stream = out.add_stream_from_template(template)
                for packet in packets[begin:end]:
                    packet.stream = stream
                    out.mux(packet)
    whole.unlink()
