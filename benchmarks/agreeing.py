"""Whether two engines found the same pairs: the sets, not their sizes.

Ours decides in float64. A rival that decides in float32 may differ on pairs whose cosine is within
its rounding of the threshold, and on no others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["agreed", "band_of", "codes", "float64_cosines"]

_EXACT = 1e-12  # what two float64 cosines of the same rows may differ by
_AT_ONCE = 1 << 17


def band_of(width: int) -> float:
    """How far a float32 product of two unit vectors may be off, summed in any order.

    Examples
    --------
    >>> f"{band_of(64):.1e}"
    '8.1e-06'
    """
    return 2 * (width + 4) * 2.0**-24


def codes(left: np.ndarray, right: np.ndarray, wide: int) -> np.ndarray:
    """Pairs of row numbers, sorted, each as one number; `wide` is the number of right rows."""
    found = np.sort(np.asarray(left, np.int64) * wide + np.asarray(right, np.int64))
    assert (np.diff(found) > 0).all(), "a pair came twice"
    return found


def agreed(
    ours: np.ndarray,
    theirs: np.ndarray,
    vectors: tuple[np.ndarray, np.ndarray],
    threshold: float,
    band: float,
    least: int = 1,
    value: Callable[[np.ndarray, tuple[np.ndarray, np.ndarray]], np.ndarray] | None = None,
) -> int:
    """How many pairs of ours theirs confirms; fails where a difference is no rounding of theirs.

    Parameters
    ----------
    ours, theirs
        `codes` of the pairs that either found.
    threshold, band
        Pairs have at least this cosine: of ours exactly, of theirs within the band.
    vectors
        The rows of either side.
    least
        How many pairs there must be for the comparison to mean something.
    value
        What is compared in place of the cosine, in float64.
    """
    assert len(ours) >= least, f"{len(ours)} pairs: too few to compare, {least} are wanted"
    both = np.union1d(ours, theirs)
    cosine = (value or float64_cosines)(both, vectors)
    mine, other = np.isin(both, ours), np.isin(both, theirs)
    wrong = (mine & (cosine < threshold - _EXACT)) | (~mine & (cosine >= threshold + _EXACT))
    assert not wrong.any(), f"{wrong.sum()} of {len(both)} pairs of ours are wrong or missing"
    far = (mine != other) & (np.abs(cosine - threshold) > band)
    assert not far.any(), f"{far.sum()} of {len(both)} pairs differ by more than rounding"
    return int((mine & other).sum())


def float64_cosines(pairs: np.ndarray, vectors: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The cosines of pairs given by their codes."""
    found = np.empty(len(pairs))
    for start in range(0, len(pairs), _AT_ONCE):
        rows = np.divmod(pairs[start : start + _AT_ONCE], len(vectors[1]))
        a, b = (of[at].astype(np.float64) for of, at in zip(vectors, rows, strict=True))
        lengths = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
        found[start : start + _AT_ONCE] = (a * b).sum(axis=1) / lengths
    return found
