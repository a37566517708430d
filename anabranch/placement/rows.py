"""A view graph as compiled code takes it, and what changes in one by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["Links", "Pinned", "RateChanges", "Rows"]


class Rows(NamedTuple):
    """What views read: see `ViewGraph`."""

    offsets: np.ndarray
    inputs: np.ndarray
    rates: np.ndarray


class Links(NamedTuple):
    """The device of each source, and what a link costs: see `ViewGraph`."""

    home: np.ndarray
    up: np.ndarray
    down: np.ndarray


@dataclass(frozen=True, eq=False)
class RateChanges:
    """Rows of a graph, each once, and their new rates."""

    rows: np.ndarray
    rates: np.ndarray


@dataclass(frozen=True, eq=False)
class Pinned:
    """Views of a graph, each once, and the devices where they stay, or ``CLOUD``."""

    views: np.ndarray
    places: np.ndarray

    def is_as(self, other: Pinned) -> bool:
        """Whether these are the same views at the same places."""
        return np.array_equal(self.views, other.views) and np.array_equal(self.places, other.places)
