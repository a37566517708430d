"""Points of the experiments: uniform, in two clusters, or rows of a file of sensor readings."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.errors import AnabranchError
from papers.knn.peers.settings import PeerSettings

__all__ = ["Source", "cells_of", "read_sensors"]


class Source:
    """Draws points in the unit cube, queries and objects alike.

    Examples
    --------
    >>> Source(PeerSettings(), np.random.default_rng(0)).draw(3).shape
    (3, 4)
    """

    def __init__(
        self, settings: PeerSettings, rng: np.random.Generator, sensors: np.ndarray | None = None
    ) -> None:
        self.settings = settings
        self.rng = rng
        if settings.data == "clustered":
            self.centres = rng.random((2, settings.dimension))
        if settings.data == "sensors":
            if sensors is None:
                raise AnabranchError(
                    "the sensor data are not here: name a file of comma-separated numbers "
                    "(may be .gz) with --sensors, or leave out sensors from --data"
                )
            self.rows = sensors[:, : settings.dimension]

    def draw(self, n: int) -> np.ndarray:
        """So many points, independent of each other."""
        d = self.settings.dimension
        if self.settings.data == "uniform":
            return self.rng.random((n, d))
        if self.settings.data == "sensors":
            return np.ascontiguousarray(self.rows[self.rng.integers(0, len(self.rows), n)])
        points = np.empty((n, d))
        missing = np.arange(n)
        while len(missing):  # what falls outside the cube is drawn again
            centre = self.centres[self.rng.integers(0, 2, len(missing))]
            drawn = self.rng.normal(centre, self.settings.spread)
            inside = ((drawn >= 0) & (drawn <= 1)).all(axis=1)
            points[missing[inside]] = drawn[inside]
            missing = missing[~inside]
        return points


def read_sensors(path: Path) -> np.ndarray:
    """Rows of a file of numbers, each column stretched to the unit interval."""
    rows = np.loadtxt(path, delimiter=",", ndmin=2)[:, :5]
    low, high = rows.min(axis=0), rows.max(axis=0)
    scaled: np.ndarray = (rows - low) / np.where(high > low, high - low, 1)
    return scaled


def cells_of(points: np.ndarray, resolution: int) -> np.ndarray:
    """The number of the cell that each point lies in.

    Examples
    --------
    >>> cells_of(np.array([[0.1, 0.9], [1.0, 1.0]]), 2).tolist()
    [1, 3]
    """
    places = np.minimum((points * resolution).astype(np.int64), resolution - 1)
    shape = (resolution,) * points.shape[1]
    cells: np.ndarray = np.ravel_multi_index(tuple(places.T), shape)
    return cells
