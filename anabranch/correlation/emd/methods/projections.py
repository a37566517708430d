"""``projections``: one-dimensional distances along some directions, for bins with places."""

from __future__ import annotations

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.potentials import directions
from anabranch.flow.process import njit

__all__ = ["beyond_shadow", "shadows_of"]

# mypy: disable-error-code="no-untyped-def"

_DIRECTIONS = 8


def shadows_of(masses: np.ndarray, ground: Ground) -> np.ndarray:
    """Cumulative histograms along some directions, times the gaps; directions one after another.

    Axes come first if the ground distance is Manhattan's, which is at least the sum over them.
    """
    assert ground.points is not None
    d = ground.points.shape[1]
    if ground.metric == "manhattan" or d == 1:
        vectors = np.eye(d)
    else:
        vectors = directions(ground, _DIRECTIONS)
    tables = []
    for u in vectors:
        line = ground.points @ u
        order = np.argsort(line, kind="stable")
        gaps = np.diff(line[order])
        tables.append(np.cumsum(masses[:, order], axis=1)[:, :-1] * gaps)
    return np.ascontiguousarray(np.concatenate(tables, axis=1).astype(np.float32))


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def beyond_shadow(u, v, directions, manhattan, near):  # pragma: no cover
    """Whether the distance along one direction (Manhattan: all axes together) is too great."""
    width = len(u) // directions
    total = np.float32(0)
    for k in range(directions):
        part = np.float32(0)
        for c in range(k * width, (k + 1) * width):
            part += abs(u[c] - v[c])
        total += part
        if part > near or (manhattan and total > near):
            return True
    return False
