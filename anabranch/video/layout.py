"""Layout v3: 576 numbers that describe how a picture is laid out, bit for bit the same everywhere.

From planes of 128 by 72, with less weight where channels put captions (the lowest quarter) and
logos (the top right corner):

=========  =======  ====  ====================================================================
numbers    block    norm  what
=========  =======  ====  ====================================================================
0 - 63     L        <= 1  luma means of 8 x 8 cells, less the arch that fits them best
64 - 191   C        0.6   Cb, then Cr means of 8 x 8 cells, about grey
192 - 319  E1       0.7   edges at 128 x 72: 4 x 4 cells of 8 orientations
320 - 447  E2       0.7   edges at 64 x 36
448 - 575  E3       0.7   edges at 32 x 18
=========  =======  ====  ====================================================================

The arch is a constant, a slope and a curve in either direction, by weighted least squares. Pictures
of a bright thing on a dark ground are alike in that, whatever they show, and so were in version 1.
L is divided by the root of its square sum and a hundredth of the arch's: a soft picture, which is
nearly all arch, has a short L, and not what an encoder left of it blown up, as in version 2.
A cell of edges is divided by its sum and a quarter of the mean cell, its root is taken, and the
mean over cells is subtracted. The cosine of two layouts is a mean of the blocks' cosines, each
weighted by the block's norms in both. A block without any contrast is zero; so a black picture has
only zeros.

All sums up to the last division are of whole numbers; the floats after that are added in order.

Letters of the compiled part: r and c are the row and column of a pixel, i and j those of a cell, o
is an orientation.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from anabranch.flow.process import njit
from anabranch.video.planes import COLUMNS, ROWS, Planes, area_sums, from_rgb

__all__ = ["INNER", "SIZE", "VERSION", "features", "grey", "grey_centred", "inner", "phash"]

VERSION = "v3"
SIZE = 576
INNER = (84, 70)
"""Per cent of a picture's sides that its inner views have."""

# Weights in twentieths: 1, 0.35 and 0.6 of means, 1, 0.4 and 0.7 of edges.
_MEANS = np.full((8, 8), 20)
_MEANS[6:] = 7
_MEANS[:2, 6:] = 12
_FINE = 1 << 20
_OF_ARCH = 100
"""A hundredth of the arch makes L short where little else is there. Measured: between 1/2000 and
1/30 recall is as without it, and from 1/20 on it falls."""


def _without_arch(weights: np.ndarray) -> np.ndarray:
    """What takes the arch out of 64 cells: a matrix of whole numbers, in so many-ths.

    In fractions, for a linear algebra library gives other last bits on other machines.
    """
    places = [(2 * row - 7, 2 * column - 7) for row in range(8) for column in range(8)]
    shapes = [[1, y, x, y * y, x * x] for y, x in places]
    weight = [int(number) for number in weights.ravel()]
    cells = range(64)
    square = [
        [Fraction(sum(weight[k] * shapes[k][i] * shapes[k][j] for k in cells)) for j in range(5)]
        for i in range(5)
    ]
    rows = [square[i] + [Fraction(weight[k] * shapes[k][i]) for k in cells] for i in range(5)]
    for i in range(5):  # by Gauss and Jordan; no pivot is zero, for the shapes are independent
        rows[i] = [number / rows[i][i] for number in rows[i]]
        for j in range(5):
            if j != i:
                rows[j] = [b - rows[j][i] * a for a, b in zip(rows[i], rows[j], strict=True)]
    # From here on in whole numbers, which are fast.
    below = math.lcm(*(number.denominator for row in rows for number in row))
    fits = [[int(number * below) for number in row[5:]] for row in rows]
    found = np.zeros((64, 64), np.int64)
    for c in cells:
        for k in cells:
            fitted = sum(shapes[c][i] * fits[i][k] for i in range(5))
            found[c, k] = (2 * _FINE * (below * (c == k) - fitted) + below) // (2 * below)
    return found


_STEADY = _without_arch(_MEANS)
_EDGES = np.full((4, 4), 20)
_EDGES[3] = 8
_EDGES[0, 3] = 14


def features(planes: Planes) -> np.ndarray:
    """The 576 numbers of layout v3, as ``float32``.

    Examples
    --------
    >>> from anabranch.video.planes import from_rgb
    >>> picture = np.add.outer(np.arange(90), np.arange(160)).astype(np.uint8)
    >>> found = features(from_rgb(np.stack([picture] * 3, 2)))
    >>> found.shape, found.dtype, round(float((found**2).sum()), 4)
    ((576,), dtype('float32'), 1.47)
    """
    found = np.empty(SIZE, np.float64)
    luma = area_sums(planes.y, COLUMNS, 8, 8)
    # Means of cells as sums: 9216 pixels of luma and 2304 of colour count for one cell each.
    # Less their mean first: then a picture without contrast has zeros, to the last bit.
    about_mean = luma * int(_MEANS.sum()) - int((luma * _MEANS).sum())
    weights = _MEANS.ravel()
    left = _STEADY @ about_mean.ravel()
    arch = about_mean.ravel() * _FINE - left
    found[:64] = _scaled(left * weights, 1.0, _square_sum(arch * weights) / _OF_ARCH)
    colours = [area_sums(plane, COLUMNS // 2, 8, 8) for plane in (planes.u, planes.v)]
    grey_cell = 128 * (ROWS // 2) * (COLUMNS // 2)
    about = np.stack([(colour - grey_cell) * _MEANS for colour in colours])
    found[64:192] = _scaled(about, 0.6)
    plane, at = planes.y, 192
    for scale in range(3):
        if scale:
            plane = _halved(plane)
        found[at : at + 128] = _edges(plane, _EDGES)
        at += 128
    return found.astype(np.float32)


def inner(picture: np.ndarray) -> list[np.ndarray]:
    """The layouts of the inner views of a picture, for copies that are cropped or have borders.

    Examples
    --------
    >>> picture = np.add.outer(np.arange(90), np.arange(160)).astype(np.uint8)
    >>> [found.shape for found in inner(np.stack([picture] * 3, 2))]
    [(576,), (576,)]
    """
    high, wide = picture.shape[:2]
    found = []
    for share in INNER:
        y, x = ((side * (100 - share) + 100) // 200 for side in (high, wide))
        part = np.ascontiguousarray(picture[y : high - y, x : wide - x])
        found.append(features(from_rgb(part)))
    return found


@njit(nogil=True)
def _square_sum(numbers: np.ndarray) -> float:
    """The sum of squares of whole numbers, added in order."""
    total = 0.0
    for i in range(len(numbers)):
        total += float(numbers[i]) * float(numbers[i])
    return total


@njit(nogil=True)
def _scaled(numbers: np.ndarray, norm: float, beside: float = 0.0) -> np.ndarray:
    """Whole numbers or floats as a vector of this norm; zeros stay zeros.

    It is shorter by what `beside` adds to its sum of squares.
    """
    flat = numbers.ravel()
    found = np.zeros(len(flat), np.float64)
    total = 0.0
    for i in range(len(flat)):
        found[i] = float(flat[i])
        total += found[i] * found[i]
    if total > 0.0:
        root = np.sqrt(total + beside)
        for i in range(len(flat)):
            found[i] = found[i] / root * norm
    return found


@njit(nogil=True)
def _halved(plane: np.ndarray) -> np.ndarray:
    """Means of 2 by 2 pixels, rounded half up."""
    rows, columns = plane.shape[0] // 2, plane.shape[1] // 2
    found = np.empty((rows, columns), np.uint8)
    for i in range(rows):
        for j in range(columns):
            four = np.int64(plane[2 * i, 2 * j]) + np.int64(plane[2 * i, 2 * j + 1])
            four += np.int64(plane[2 * i + 1, 2 * j]) + np.int64(plane[2 * i + 1, 2 * j + 1])
            found[i, j] = (four + 2) >> 2
    return found


@njit(nogil=True)
def _energies(plane: np.ndarray) -> np.ndarray:
    """Edges of 4 by 4 cells by orientation, as whole numbers.

    A pixel's strength is the length of its Sobel gradient in sixteenths. It goes to the two nearest
    of 8 orientations, linear in the angle in 256 steps. Rows that two cells share count half.
    """
    height, width = plane.shape
    found = np.zeros((4, 4, 8), np.int64)
    for r in range(height):
        up, down = max(r - 1, 0), min(r + 1, height - 1)
        for c in range(width):
            left, right = max(c - 1, 0), min(c + 1, width - 1)
            falling = np.int64(plane[down, right]) - np.int64(plane[up, left])
            rising = np.int64(plane[up, right]) - np.int64(plane[down, left])
            gx = falling + rising + 2 * (np.int64(plane[r, right]) - np.int64(plane[r, left]))
            gy = falling - rising + 2 * (np.int64(plane[down, c]) - np.int64(plane[up, c]))
            if gx == 0 and gy == 0:
                continue
            strength = np.int64(np.sqrt(np.float64(gx * gx + gy * gy)) * 16.0 + 0.5)
            small, large = min(abs(gx), abs(gy)), max(abs(gx), abs(gy))
            ratio = (small << 16) // large
            # The arc tangent to a fifth of a degree, 512 steps for 45 degrees.
            angle = (ratio * (131072 + ((45560 * (65536 - ratio)) >> 16))) >> 24
            if abs(gy) > abs(gx):
                angle = 1024 - angle
            if (gx < 0) != (gy < 0):
                angle = (2048 - angle) & 2047
            bin_, part = (angle >> 8) & 7, angle & 255
            column = c * 4 // width
            for half in range(2):
                row = (2 * r + half) * 4 // (2 * height)
                found[row, column, bin_] += strength * (256 - part)
                found[row, column, (bin_ + 1) & 7] += strength * part
    return found


@njit(nogil=True)
def _edges(plane: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The block of edges at one scale."""
    energies = _energies(plane)
    whole = 0.0
    sums = np.zeros((4, 4), np.float64)
    for i in range(4):
        for j in range(4):
            for o in range(8):
                sums[i, j] += float(energies[i, j, o])
            whole += sums[i, j]
    cells = np.zeros((4, 4, 8), np.float64)
    if whole == 0.0:
        return cells.ravel()
    for o in range(8):
        total = 0.0
        for i in range(4):
            for j in range(4):
                cells[i, j, o] = np.sqrt(energies[i, j, o] / (sums[i, j] + whole / 64.0))
                total += cells[i, j, o]
        for i in range(4):
            for j in range(4):
                cells[i, j, o] = (cells[i, j, o] - total / 16.0) * weights[i, j]
    block: np.ndarray = _scaled(cells, 0.7)
    return block


def grey(planes: Planes) -> np.ndarray:
    """How many of the 9,216 pixels have each of 256 levels of grey, for `ab.emd`.

    Examples
    --------
    >>> from anabranch.video.planes import from_rgb
    >>> grey(from_rgb(np.full((72, 128, 3), 7, np.uint8)))[:9].tolist()
    [0, 0, 0, 0, 0, 0, 0, 9216, 0]
    """
    return np.bincount(planes.y.ravel(), minlength=256).astype(np.int32)


def grey_centred(levels: np.ndarray) -> np.ndarray:
    """The histogram moved so that its mean is 128, which takes brightness out.

    What would leave the range is counted at its ends.

    Examples
    --------
    >>> levels = np.zeros(256, np.int32)
    >>> levels[7] = 9216
    >>> int(grey_centred(levels).argmax())
    128
    """
    count = max(int(levels.sum()), 1)
    mean = (2 * int((levels * np.arange(256)).sum()) + count) // (2 * count)
    places = np.clip(np.arange(256) + 128 - mean, 0, 255)
    moved: np.ndarray = np.bincount(places, levels, 256).astype(np.int32)
    return moved


def _cosines(size: int) -> np.ndarray:
    """The eight lowest waves over so many samples, in 16,384ths."""
    waves = np.outer(np.arange(8), 2 * np.arange(size) + 1) * np.pi / (2 * size)
    whole: np.ndarray = np.rint(np.cos(waves) * 16384).astype(np.int64)
    return whole


_DOWN, _ACROSS = _cosines(ROWS // 4), _cosines(COLUMNS // 4)


def phash(planes: Planes) -> int:
    """Signs of the 63 lowest waves of the luma, as the bits of a number; for `ab.hamming`.

    Examples
    --------
    >>> from anabranch.video.planes import from_rgb
    >>> picture = np.add.outer(np.arange(90), np.arange(160)).astype(np.uint8)
    >>> phash(from_rgb(np.stack([picture] * 3, 2))).bit_length() <= 63
    True
    """
    small = _halved(_halved(planes.y)).astype(np.int64)
    waves = (_DOWN @ small @ _ACROSS.T).ravel()[1:]
    return int.from_bytes(np.packbits(waves > 0, bitorder="little").tobytes(), "little")
