"""What the shot step sees of a frame: 320 bytes, and how far apart two of them are.

A signature holds cumulated histograms (32 bins of Y, 16 of Cb, 16 of Cr, as ``uint16``) and the
means of 8 by 8 cells of each plane (``uint8``).
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit
from anabranch.video.planes import Planes, area

__all__ = ["BYTES", "LOW", "distance", "distances", "signature"]

BYTES = 320
LOW = 0.06
"""Frames further apart than this may begin a shot; the reader attaches a picture to them."""
_BINS = (32, 16, 16)


def signature(planes: Planes) -> bytes:
    """The 320 bytes of a frame.

    Examples
    --------
    >>> from anabranch.video.planes import from_rgb
    >>> black, white = (from_rgb(np.full((72, 128, 3), n, np.uint8)) for n in (0, 255))
    >>> len(signature(black)), distance(signature(black), signature(white))
    (320, 2.2708333333333335)
    """
    three = (planes.y, planes.u, planes.v)
    counted = [
        np.cumsum(np.bincount((plane // (256 // bins)).ravel(), minlength=bins)).astype("<u2")
        for plane, bins in zip(three, _BINS, strict=True)
    ]
    cells = [area(plane, 8, 8) for plane in three]
    return b"".join(part.tobytes() for part in (*counted, *cells))


@njit(nogil=True)
def distances(some: np.ndarray, i: int, others: np.ndarray, j: int) -> float:
    """How far row `i` of some signatures is from row `j` of others.

    The Earth Mover's Distance of the histograms, in sixteenths of the range of values, and the mean
    difference of the cells. Both are sums of whole numbers.
    """
    moved = np.int64(0)
    for b in range(64):
        one = np.int64(some[i, 2 * b]) + (np.int64(some[i, 2 * b + 1]) << 8)
        two = np.int64(others[j, 2 * b]) + (np.int64(others[j, 2 * b + 1]) << 8)
        # Planes of colour have a quarter of the pixels.
        moved += abs(one - two) * (1 if b < 32 else 4)
    cells = np.int64(0)
    for b in range(128, 320):
        cells += abs(np.int64(some[i, b]) - np.int64(others[j, b]))
    return moved / (16.0 * 9216.0) + cells / (192.0 * 255.0)


def distance(one: bytes, other: bytes) -> float:
    """How far two signatures are apart: 0 if they are equal, about 2 of black and white.

    Examples
    --------
    >>> distance(bytes(320), bytes(320))
    0.0
    """
    both = np.frombuffer(one + other, np.uint8).reshape(2, BYTES)
    return float(distances(both, 0, both, 1))
