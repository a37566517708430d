"""Where filters look for candidates: points in a space in which a score bounds a distance.

For the Euclidean and the Manhattan distance these are the points themselves. For the cosine they
are directions on the unit sphere, whose Euclidean distance is a function of the angle.
"""

from __future__ import annotations

import numpy as np

__all__ = ["directions", "radii"]

_COSINE = 2


def directions(metric: int, points: np.ndarray) -> np.ndarray:
    """The points that filters compare.

    Examples
    --------
    >>> directions(2, np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    if metric != _COSINE:
        return points
    # Dividing by the largest number first keeps squares from overflowing or vanishing.
    scaled = points / np.abs(points).max(axis=1, initial=0, keepdims=True)
    found: np.ndarray = scaled / np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return found


def radii(metric: int, scores: np.ndarray) -> np.ndarray:
    """How far apart filter points can be whose score is below these; 0 where none can be.

    Examples
    --------
    >>> radii(0, np.array([2.0, 0.0])).tolist()
    [2.0, 0.0]
    >>> radii(2, np.array([1.0])).round(6).tolist()  # a right angle
    [1.414214]
    """
    found: np.ndarray = np.maximum(scores, 0.0)
    if metric != _COSINE:
        return found
    # The addend covers the rounding of scores and directions.
    found = np.where(scores > 0, np.sqrt(2 * (np.maximum(scores, 0) + 1e-12)), 0.0)
    return found
