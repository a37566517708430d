"""Planes, signatures and layouts in plain numpy and Python, in words too plain to be wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

Floats = Iterable[float]


def weights(size: int, parts: int) -> np.ndarray:
    """How many ``parts``-ths of each sample are inside each part."""
    return np.array(
        [
            [
                max(0, min((x + 1) * parts, (j + 1) * size) - max(x * parts, j * size))
                for x in range(size)
            ]
            for j in range(parts)
        ]
    )


def sums(plane: np.ndarray, rows: int, columns: int) -> np.ndarray:
    height, width = plane.shape
    return weights(height, rows) @ plane.astype(np.int64) @ weights(width, columns).T


def area(plane: np.ndarray, rows: int, columns: int, bits: int = 8) -> np.ndarray:
    pixels = plane.size << (bits - 8)
    return np.minimum((2 * sums(plane, rows, columns) + pixels) // (2 * pixels), 255)


def rgb(y: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Full-range planes as red, green and blue; colour is that of the nearest sample."""
    height, width = y.shape
    down = [i * u.shape[0] // height for i in range(height)]
    across = [j * u.shape[1] // width for j in range(width)]
    blue, red = (plane[np.ix_(down, across)].astype(int) - 128 for plane in (u, v))
    parts = (91881 * red, -22554 * blue - 46802 * red, 116130 * blue)
    whole = [y + (65536 // 2 + part) // 65536 for part in parts]
    return np.stack([np.clip(one, 0, 255) for one in whole], axis=2)


def in_order(numbers: Floats) -> float:
    """A sum from left to right, as no function of numpy promises it."""
    total = 0.0
    for number in numbers:
        total += float(number)
    return total


def scaled(numbers: Any, norm: float, beside: float = 0) -> list[float]:
    flat = [float(number) for number in np.asarray(numbers).ravel()]
    root = math.sqrt(in_order(number * number for number in flat) + beside)
    return [number / root * norm if root else 0.0 for number in flat]


def halved(plane: np.ndarray) -> np.ndarray:
    four = plane.astype(int).reshape(plane.shape[0] // 2, 2, plane.shape[1] // 2, 2).sum((1, 3))
    return (four + 2) // 4


def energies(plane: np.ndarray) -> np.ndarray:
    """Sobel gradients by cell and orientation."""
    height, width = plane.shape
    padded = np.pad(plane.astype(np.int64), 1, mode="edge")
    part = {
        (i, j): padded[1 + i : 1 + i + height, 1 + j : 1 + j + width]
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
    }
    gx = sum((2 - abs(i)) * (part[i, 1] - part[i, -1]) for i in (-1, 0, 1))
    gy = sum((2 - abs(j)) * (part[1, j] - part[-1, j]) for j in (-1, 0, 1))
    found = np.zeros((4, 4, 8), np.int64)
    for r, c in zip(*np.nonzero((gx != 0) | (gy != 0)), strict=True):
        x, y = int(gx[r, c]), int(gy[r, c])
        strength = int(math.sqrt(x * x + y * y) * 16 + 0.5)
        low, high = sorted((abs(x), abs(y)))
        ratio = low * 65536 // high
        angle = ratio * (131072 + 45560 * (65536 - ratio) // 65536) // 2**24
        angle = 1024 - angle if abs(y) > abs(x) else angle
        angle = (2048 - angle) % 2048 if (x < 0) != (y < 0) else angle
        near, part_ = angle // 256 % 8, angle % 256
        for half in (0, 1):
            cell = found[(2 * r + half) * 4 // (2 * height), c * 4 // width]
            cell[near] += strength * (256 - part_)
            cell[(near + 1) % 8] += strength * part_
    return found


def edges(plane: np.ndarray) -> list[float]:
    energy = energies(plane)
    whole = [[in_order(energy[i, j]) for j in range(4)] for i in range(4)]
    total = in_order(number for row in whole for number in row)
    if total == 0:
        return [0.0] * 128
    weight = [[14 if (i, j) == (0, 3) else 8 if i == 3 else 20 for j in range(4)] for i in range(4)]
    places = [(i, j) for i in range(4) for j in range(4)]
    cells = np.zeros((4, 4, 8))
    for o in range(8):
        roots = [math.sqrt(int(energy[i, j, o]) / (whole[i][j] + total / 64)) for i, j in places]
        mean = in_order(roots) / 16
        for (i, j), root in zip(places, roots, strict=True):
            cells[i, j, o] = (root - mean) * weight[i][j]
    return scaled(cells, 0.7)


def steady(weight: np.ndarray) -> list[list[int]]:
    """Cells without constant, slopes and curves, in 2^20ths: each made orthogonal to the others."""
    cells = [(r, c) for r in range(8) for c in range(8)]
    w = [int(weight[r, c]) for r, c in cells]

    def product(a: list[Any], b: list[Any]) -> Fraction:
        return Fraction(sum(one * other * of for one, other, of in zip(a, b, w, strict=True)))

    shapes: list[list[Fraction]] = []
    for power in ((0, 0), (1, 0), (0, 1), (2, 0), (0, 2)):
        shape = [Fraction((2 * r - 7) ** power[0] * (2 * c - 7) ** power[1]) for r, c in cells]
        for other in shapes:
            share = product(shape, other) / product(other, other)
            shape = [a - share * b for a, b in zip(shape, other, strict=True)]
        shapes.append(shape)
    norms = [product(shape, shape) for shape in shapes]
    return [
        [
            round(
                ((i == k) - sum(s[i] * s[k] * w[k] / n for s, n in zip(shapes, norms, strict=True)))
                * 2**20
            )
            for k in range(64)
        ]
        for i in range(64)
    ]


WEIGHT = np.full((8, 8), 20)
WEIGHT[6:, :] = 7
WEIGHT[:2, 6:] = 12
STEADY = steady(WEIGHT)


def features(y: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    weight = WEIGHT
    luma = sums(y, 8, 8)
    mean_off = luma * weight.sum() - (luma * weight).sum()
    plain = [int(number) for number in mean_off.ravel()]
    left = [sum(a * b for a, b in zip(row, plain, strict=True)) for row in STEADY]
    arch_off = np.array(left).reshape(8, 8) * weight
    arch = (mean_off * 2**20 - np.array(left).reshape(8, 8)) * weight
    arch_squares = in_order(float(number) * float(number) for number in arch.ravel())
    colour = np.stack([(sums(plane, 8, 8) - 128 * 36 * 64) * weight for plane in (u, v)])
    scales = [y, halved(y), halved(halved(y))]
    blocks = [scaled(arch_off, 1.0, arch_squares / 100), scaled(colour, 0.6), *map(edges, scales)]
    return np.array([number for block in blocks for number in block]).astype(np.float32)


def signature(y: np.ndarray, u: np.ndarray, v: np.ndarray) -> bytes:
    found = b""
    for plane, bins in ((y, 32), (u, 16), (v, 16)):
        levels = [int((plane < (b + 1) * (256 // bins)).sum()) for b in range(bins)]
        found += np.array(levels, "<u2").tobytes()
    for plane in (y, u, v):
        found += area(plane, 8, 8).astype(np.uint8).tobytes()
    return found


def distance(one: bytes, other: bytes) -> float:
    pixels = np.array([9216] * 32 + [2304] * 32)
    histograms = [np.frombuffer(each[:128], "<u2") / pixels for each in (one, other)]
    cells = [np.frombuffer(each[128:], np.uint8).astype(float) for each in (one, other)]
    moved = np.abs(histograms[0] - histograms[1]).sum() / 16
    return float(moved + np.abs(cells[0] - cells[1]).mean() / 255)
