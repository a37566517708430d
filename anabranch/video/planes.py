"""Small planes of a frame, the same to the last bit on every machine.

Features are made from area means of the decoder's own Y, U and V planes, by whole numbers alone.
Scalers that use what a processor offers need not agree between two of them, and one bit can decide
about a pair at the threshold when a task is repeated elsewhere.

Letters of the compiled part: i and j are the row and column of an area, r and x those of a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch.flow.process import njit

if TYPE_CHECKING:
    import av

__all__ = ["COLUMNS", "ROWS", "Planes", "area", "area_sums", "from_rgb", "planes_of", "to_rgb"]

ROWS, COLUMNS = 72, 128
"""Of the luma plane; those of colour have half of both."""

# Planar formats whose planes are taken as they are; bits of a sample.
_PLANAR = {
    **{f"yuv{of}p": 8 for of in ("420", "422", "444", "440", "411", "410")},
    **{f"yuvj{of}p": 8 for of in ("420", "422", "444", "440", "411")},
    **{f"yuv{of}p{bits}le": bits for of in ("420", "422", "444") for bits in (9, 10, 12)},
    "gray": 8,
    "gray10le": 10,
    "gray12le": 12,
}
_FULL = 2  # the colour range of JPEG; all others, and none, are limited


@dataclass(frozen=True, eq=False)
class Planes:
    """Luma of 72 by 128 and colour of 36 by 64, in the full range of a byte."""

    y: np.ndarray
    u: np.ndarray
    v: np.ndarray


@njit(nogil=True)
def area_sums(plane: np.ndarray, width: int, rows: int, columns: int) -> np.ndarray:
    """Sums over equal areas of a plane's first `width` columns, as whole numbers.

    Pixels on a border count for the part that is inside; all weights of an area together are the
    number of pixels of the whole plane.
    """
    height = plane.shape[0]
    found = np.zeros((rows, columns), np.int64)
    line = np.empty(width, np.uint32)
    # The first and the last pixel of each column of areas, and the weights of these two.
    ends = np.empty((columns, 4), np.int64)
    for j in range(columns):
        left, right = j * width, (j + 1) * width
        first, last = left // columns, (right - 1) // columns
        ends[j, 0], ends[j, 1] = first, last
        ends[j, 2] = min((first + 1) * columns, right) - left
        ends[j, 3] = right - max(last * columns, left) if last > first else 0
    for i in range(rows):
        line[:] = 0
        low, high = i * height, (i + 1) * height
        r = low // rows
        while r * rows < high:
            weight = np.uint32(min((r + 1) * rows, high) - max(r * rows, low))
            for x in range(width):
                line[x] += weight * plane[r, x]
            r += 1
        for j in range(columns):
            first, last = ends[j, 0], ends[j, 1]
            inner = np.int64(0)
            for x in range(first + 1, last):
                inner += np.int64(line[x])
            found[i, j] = (
                ends[j, 2] * np.int64(line[first])
                + columns * inner
                + ends[j, 3] * np.int64(line[last])
            )
    return found


def area(plane: np.ndarray, rows: int, columns: int, bits: int = 8) -> np.ndarray:
    """Means of equal areas, rounded half up to a byte, of a plane with so many bits a sample.

    Examples
    --------
    >>> area(np.array([[0, 10, 20], [30, 40, 50]], np.uint8), 1, 2).tolist()
    [[18, 32]]
    """
    return _area(np.ascontiguousarray(plane), plane.shape[1], (rows, columns), bits)


def _area(plane: np.ndarray, width: int, shape: tuple[int, int], bits: int) -> np.ndarray:
    plane = plane.view()
    plane.flags.writeable = False  # a decoder's planes are, and one kernel is enough
    pixels = (plane.shape[0] * width) << (bits - 8)
    means: np.ndarray = _means(area_sums(plane, width, *shape), pixels)
    return means


@njit(nogil=True)
def _means(sums: np.ndarray, pixels: int) -> np.ndarray:
    """Quotients rounded half up, at most 255."""
    found = np.empty(sums.shape, np.uint8)
    whole = 2 * pixels
    share = 1.0 / whole
    for i in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            number = 2 * sums[i, j] + pixels
            mean = np.int64(number * share)  # a division takes ten times as long
            if (mean + 1) * whole <= number:
                mean += 1
            elif mean * whole > number:
                mean -= 1
            found[i, j] = 255 if mean > 255 else mean
    return found


def planes_of(frame: av.VideoFrame, rows: int = ROWS, columns: int = COLUMNS) -> Planes:
    """The planes of a decoded frame at this size, an even one.

    Other than planar formats are converted first, by the scaler's exact paths.
    """
    half = (rows // 2, columns // 2)
    return _whole_range(_planar(frame), ((rows, columns), half, half))


def _whole_range(frame: av.VideoFrame, shapes: Sequence[tuple[int, int]]) -> Planes:
    """The planes of a planar frame at these sizes, in the full range of a byte."""
    name = frame.format.name
    bits = _PLANAR[name]
    planes = [
        _area(_buffer(plane, bits), plane.width, shape, bits)
        for plane, shape in zip(frame.planes, shapes, strict=False)
    ]
    if len(planes) == 1:
        planes += [np.full(shapes[1], 128, np.uint8)] * 2
    if "j" in name or name.startswith("gray") or int(frame.color_range) == _FULL:
        return Planes(*planes)
    return Planes(_LUMA[planes[0]], _COLOUR[planes[1]], _COLOUR[planes[2]])


def to_rgb(frame: av.VideoFrame) -> np.ndarray:
    """Red, green and blue bytes of a frame, (height, width, 3), by BT.601 in whole numbers.

    FFmpeg's conversion differs between processors. Colour is taken from the nearest sample.

    Examples
    --------
    >>> import av
    >>> planes = np.array([[90, 90], [90, 90], [128, 255]], np.uint8)  # luma, and two of colour
    >>> to_rgb(av.VideoFrame.from_ndarray(planes, format="yuvj420p"))[0, 0].tolist()
    [255, 0, 90]
    """
    frame = _planar(frame)
    shapes = [(plane.height, plane.width) for plane in frame.planes]
    planes = _whole_range(frame, shapes if len(shapes) == 3 else shapes * 3)
    found: np.ndarray = _rgb(planes.y, planes.u, planes.v)
    return found


@njit(nogil=True)
def _rgb(y: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    height, width = y.shape
    found = np.empty((height, width, 3), np.uint8)
    for i in range(height):
        r = i * u.shape[0] // height
        for j in range(width):
            c = j * u.shape[1] // width
            blue, red = np.int64(u[r, c]) - 128, np.int64(v[r, c]) - 128
            light = (np.int64(y[i, j]) << 16) + 32768
            parts = (91881 * red, -22554 * blue - 46802 * red, 116130 * blue)
            for k, part in enumerate(parts):
                level = (light + part) >> 16
                found[i, j, k] = 0 if level < 0 else 255 if level > 255 else level
    return found


def _planar(frame: av.VideoFrame) -> av.VideoFrame:
    if frame.format.name in _PLANAR:
        return frame
    from av.video.reformatter import Interpolation

    exact = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.BITEXACT
    try:
        # Several threads leave other pixels at their borders from one time to the next.
        return frame.reformat(format="yuv444p", interpolation=exact, threads=1)
    except TypeError:  # a version of PyAV that never uses several
        return frame.reformat(format="yuv444p", interpolation=exact)


def _buffer(plane: Any, bits: int) -> np.ndarray:
    """All lines of a decoder's plane, with what each has behind its pixels."""
    kind = np.dtype(np.uint8 if bits == 8 else "<u2")
    flat = np.frombuffer(plane, kind)
    return flat.reshape(-1, plane.line_size // kind.itemsize)[: plane.height]


def _widened(zero: int, middle: int, span: int) -> np.ndarray:
    """Limited range to full, by rounding whole numbers."""
    of = np.arange(256) - zero
    return np.clip((510 * of + span) // (2 * span) + middle, 0, 255).astype(np.uint8)


_LUMA, _COLOUR = _widened(16, 0, 219), _widened(128, 128, 224)


def from_rgb(picture: np.ndarray) -> Planes:
    """The small planes of a picture of red, green and blue bytes, by BT.601 in whole numbers.

    Examples
    --------
    >>> planes = from_rgb(np.full((90, 160, 3), 200, np.uint8))
    >>> int(planes.y[0, 0]), int(planes.u[0, 0]), int(planes.v[0, 0])
    (200, 128, 128)
    """
    red, green, blue = (picture[..., k].astype(np.int32) for k in range(3))
    y = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    u = ((-11059 * red - 21709 * green + 32768 * blue + 32768) >> 16) + 128
    v = ((32768 * red - 27439 * green - 5329 * blue + 32768) >> 16) + 128
    whole = [np.clip(plane, 0, 255).astype(np.uint8) for plane in (y, u, v)]
    half = (ROWS // 2, COLUMNS // 2)
    return Planes(area(whole[0], ROWS, COLUMNS), area(whole[1], *half), area(whole[2], *half))
