"""Frames as JPEG pictures and back, by whole numbers and so the same everywhere."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from anabranch.errors import extra
from anabranch.video.planes import planes_of, to_rgb

if TYPE_CHECKING:
    import av

__all__ = ["decode", "encode"]

_QUALITY = "5"  # of 2 (best) to 31


def encode(frame: av.VideoFrame, within: tuple[int, int]) -> bytes:
    """A JPEG of a frame, as large as fits `within` a width and a height, and never enlarged.

    Examples
    --------
    >>> import av
    >>> frame = av.VideoFrame.from_ndarray(np.full((90, 160, 3), 99, np.uint8), format="rgb24")
    >>> decode(encode(frame, (64, 64))).shape
    (36, 64, 3)
    """
    import av

    scale = min(Fraction(within[0], frame.width), Fraction(within[1], frame.height), Fraction(1))
    # Planes of colour have half of both sides.
    width, height = (max(2, int(side * scale) // 2 * 2) for side in (frame.width, frame.height))
    planes = planes_of(frame, height, width)
    stacked = np.concatenate([plane.ravel() for plane in (planes.y, planes.u, planes.v)])
    whole = av.VideoFrame.from_ndarray(stacked.reshape(-1, width), format="yuvj420p")
    whole.pts = 0
    coder = av.CodecContext.create("mjpeg", "w")
    coder.width, coder.height, coder.pix_fmt = width, height, "yuvj420p"
    coder.time_base = Fraction(1, 25)
    coder.thread_count = 1
    coder.options = {"qmin": _QUALITY, "qmax": _QUALITY, "huffman": "default", "flags": "bitexact"}
    return b"".join(bytes(packet) for packet in [*coder.encode(whole), *coder.encode(None)])


def decode(picture: bytes) -> np.ndarray:
    """Red, green and blue bytes of a JPEG, of shape (height, width, 3), to the last bit."""
    with extra("video", "reading pictures", "av"):
        import av

    coder = av.CodecContext.create("mjpeg", "r")
    coder.thread_count = 1
    coder.flags |= int(av.codec.context.Flags.bitexact)
    frames = [*coder.decode(av.Packet(picture)), *coder.decode(None)]
    return to_rgb(frames[0])
