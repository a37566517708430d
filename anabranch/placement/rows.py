"""A view graph as compiled code takes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Links", "Rows"]


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
