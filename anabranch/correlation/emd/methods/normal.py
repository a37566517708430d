"""``normal``: the area on either side of where two fitted normal distributions cross.

As Head-SJ does: the signed area between two cumulative histograms left of any place, less that to
the right of it, is no more than the whole area between them; where the fitted normals cross it is
likely to be large.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit

__all__ = ["crossing", "edges_of", "moments_of"]

# mypy: disable-error-code="no-untyped-def"


def edges_of(potential: np.ndarray) -> np.ndarray:
    """The distinct places of the bins along the key's axis."""
    return np.unique(potential)


def moments_of(masses: np.ndarray, potential: np.ndarray) -> np.ndarray:
    """Of each row the mean, the deviation, and the integral of the cumulative histogram."""
    order = np.argsort(potential, kind="stable")
    places, at = np.unique(potential[order], return_inverse=True)
    on_axis = np.zeros((len(masses), len(places)))
    for column, place in enumerate(at):
        on_axis[:, place] += masses[:, order[column]]
    mean = on_axis @ places
    spread = np.sqrt(np.maximum(on_axis @ places**2 - mean**2, 0.0))
    below = np.cumsum(on_axis, axis=1)[:, :-1] * np.diff(places)
    integral = np.concatenate([np.zeros((len(masses), 1)), np.cumsum(below, axis=1)], axis=1)
    return np.ascontiguousarray(np.concatenate([mean[:, None], spread[:, None], integral], axis=1))


@njit(nogil=True)
def crossing(u, v, edges):  # pragma: no cover
    """A lower bound by two rows of `moments_of`."""
    m, s, o, r = u[0], u[1], v[0], v[1]  # means and deviations
    last = len(edges) - 1
    whole = u[2 + last] - v[2 + last]
    best = abs(whole)
    if s != r and last > 0:
        cross = (m * r - o * s) / (r - s)
        if edges[0] < cross < edges[last]:
            k = min(max(np.searchsorted(edges, cross), 1), last)
            for e in (k - 1, k):
                best = max(best, abs(2 * (u[2 + e] - v[2 + e]) - whole))
    return best
