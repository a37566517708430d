"""How many objects beyond the k best a list needs so that it rarely runs short.

With objects in random order an arrival of rank r ever comes among the k nearest with probability
about ``2 Φ(-√2 (√r - √k))``, whatever the window; `reserve` puts that at the error allowed. That
counts on as many arriving in an object's life as in the window before it: where the rate falls by a
factor within a window, those that are nearer leave so much faster than others come, and an object
at place r gets as far as one at r divided by that factor would. No reserve is enough for any rate,
since the future is not known: if arrivals cease, the whole k-skyband enters.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from anabranch.errors import InvalidCall

__all__ = ["reserve"]


def reserve(k: Any, error: float) -> np.ndarray:
    """How many objects beyond k must be kept for a given probability of error.

    Examples
    --------
    >>> reserve([1, 9, 81], 0.001).tolist(), reserve(9, 0.1).tolist()
    ([11, 20, 48], 9)
    """
    if not 0 < error < 1:
        raise InvalidCall(
            "nearest", [f"error must lie between 0 and 1, got {error}; 0.001 is usual"]
        )
    z = NormalDist().inv_cdf(1 - error / 2)
    beyond: np.ndarray = np.ceil(z * np.sqrt(2 * np.asarray(k)) + z * z / 2).astype(np.int64)
    return beyond
