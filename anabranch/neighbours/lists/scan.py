"""Candidates by a blocked scan: every object against every query, in float32, sixteen at a time.

The filter may propose pairs that are too far apart but never misses one: the threshold is widened
by the worst rounding of float32 at the size of the numbers at hand. The candidates are scored again
in float64.

Letters: q a query, j an object of the block, a an axis.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.lists.candidates import rescore

__all__ = ["scan_limits", "within"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_BLOCK = 128
_ROUNDING = 2.0**-24
_LARGEST = 1e18  # squares beyond it overflow float32
_AT_ONCE = 1 << 23  # pairs; all may be proposed where float32 cannot tell objects apart


def scan_limits(measure: int, radii: np.ndarray, largest: float, dim: int) -> np.ndarray | None:
    """What a float32 sum must not exceed for a pair within `radii`; None if it could overflow.

    `largest` is the greatest absolute coordinate of queries and objects. Sums are of squares,
    under the Manhattan distance of absolute values.

    Examples
    --------
    >>> limit = scan_limits(0, np.array([1.0]), largest=1.0, dim=4)[0]
    >>> bool(1 < limit < 1.00001)
    True
    """
    if largest > _LARGEST:
        return None
    lost = 2.02 * _ROUNDING * largest
    wider = 1.0 + 2.0 * (dim + 10) * _ROUNDING
    with np.errstate(over="ignore"):
        if measure == 1:
            limits = (radii + dim * lost) * wider
        else:
            limits = (radii + np.sqrt(dim) * lost) ** 2 * wider
        found: np.ndarray = (limits + 1e-37).astype(np.float32)
    return found


def within(
    measure: int,
    centres: np.ndarray,
    points: np.ndarray,
    compared: tuple[np.ndarray, np.ndarray],
    which: np.ndarray,
    limits: np.ndarray | None,
    tau: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries `which` and objects that are closer than `tau`, with their exact scores.

    `compared` are the centres and points as filters see them. Without limits all pairs are scored.
    """
    asked, ids = compared[0][which].astype(np.float32), which.astype(np.int32)
    step, found = max(_BLOCK, _AT_ONCE // max(len(ids), 1)), []
    for first in range(0, len(points), step):
        units = compared[1][first : first + step]
        if limits is None:
            i, q = np.divmod(np.arange(len(units) * len(ids), dtype=np.int32), len(ids))
            q = ids[q]
        else:
            columns = np.ascontiguousarray(units.T, np.float32)
            q, i = scan(measure, columns, asked, ids, limits, max(1024, 2 * len(units)))
        i = i + np.int32(first)
        s = rescore(measure, centres, points, q, i)
        near = s < tau[q]
        found.append((q[near], i[near], s[near]))
    q, i, s = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return q, i, s


@njit(fastmath={"reassoc", "nsz"}, boundscheck=False)
def scan(measure, columns, queries, ids, limits, room):  # pragma: no cover
    """Pairs (query, object) within the limits, object block by object block.

    `columns` is a d x n float32 matrix, `queries` a matrix of one row for each of `ids`.
    """
    dim, n = columns.shape
    out_q = np.empty(room, np.int32)
    out_i = np.empty(room, np.int32)
    found = 0
    sums = np.empty(_BLOCK, np.float32)
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        if found + size * len(ids) > len(out_q):
            more = max(2 * len(out_q), found + size * len(ids))
            wide_q = np.empty(more, np.int32)
            wide_i = np.empty(more, np.int32)
            wide_q[:found] = out_q[:found]
            wide_i[:found] = out_i[:found]
            out_q, out_i = wide_q, wide_i
        for q in range(len(ids)):
            for j in range(size):
                sums[j] = 0
            for a in range(dim):
                at = queries[q, a]
                if measure == 1:
                    for j in range(size):
                        sums[j] += abs(columns[a, start + j] - at)
                else:
                    for j in range(size):
                        gap = columns[a, start + j] - at
                        sums[j] += gap * gap
            least = sums[0]
            for j in range(1, size):
                least = min(least, sums[j])
            if least <= limits[q]:
                for j in range(size):
                    if sums[j] <= limits[q]:
                        out_q[found] = ids[q]
                        out_i[found] = start + j
                        found += 1
    return out_q[:found], out_i[:found]
