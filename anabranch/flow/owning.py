"""Which worker compares a pair of copies: the one place where the rule is written.

A copy has an epoch, the newest plan its router knew, and a mask, whose bits ``2 * i`` and
``2 * i + 1`` say that plan ``epoch - i`` sent it here. A pair belongs to the older epoch of its two
rows, and a worker compares it iff both copies share a bit of that plan (`plans.routing`).

The function has nothing but operators, so that numpy, numba and Triton all take it as it is.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit

__all__ = ["owned", "owns"]


def owned(
    left_epoch: np.ndarray, left_mask: np.ndarray, right_epoch: np.ndarray, right_mask: np.ndarray
) -> np.ndarray:
    """Whether this worker compares each pair of copies.

    `owns` is the same function for one pair inside compiled code, and `flow.gpu.join` has it for
    the kernels of a GPU.

    Examples
    --------
    >>> one = np.array([1])
    >>> owned(np.array([4]), np.array([0b100]), np.array([3]), one).tolist()
    [True]
    """
    newer = left_epoch - right_epoch
    left, right = newer * (newer > 0), -newer * (newer < 0)
    # Two bits for each epoch, in two steps: no compiler knows what a shift by 64 or more leaves.
    # Fewer plans are live at a time than one step may be long (`plans.routing.MAX_LIVE`).
    shared = (left_mask >> left >> left) & (right_mask >> right >> right)
    return (shared & 3) != 0  # type: ignore[no-any-return]


owns = njit(inline="always")(owned)
