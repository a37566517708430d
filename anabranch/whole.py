"""What counts as a whole number in a call: Python's and numpy's, and no boolean."""

from __future__ import annotations

from numbers import Integral
from typing import Any

__all__ = ["is_whole"]


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether `value` is a whole number of at least `least`.

    Keep ``int(value)`` of it: plans are written as JSON and calls are told apart by their text.

    Examples
    --------
    >>> import numpy as np
    >>> is_whole(3), is_whole(np.int64(3)), is_whole(0), is_whole(3.0), is_whole(True)
    (True, True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
