"""What is wrong with an argument of a plan, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeGuard

from anabranch.calls import is_whole
from anabranch.errors import InvalidCall
from anabranch.flow.hashing import MODULUS
from anabranch.plans.plan import SIDES

__all__ = [
    "NO_MASTER",
    "is_finite",
    "is_list",
    "is_positive",
    "other_side",
    "refuse",
    "share_problems",
    "shares",
    "side_problems",
    "worker_problems",
]

NO_MASTER = "side= names the side that goes everywhere, so side='right' for master='left'"
"""What to say of an argument that the papers' plans have and ours have not."""


def worker_problems(name: str, value: Any) -> list[str]:
    """Of a number of workers; Spark's tasks can be told apart for no more than `MODULUS`."""
    if not is_whole(value):
        return [f"{name} must be a whole number of at least 1, got {value!r}"]
    if int(value) > MODULUS:
        return [f"{name} must be a whole number of at most {MODULUS:,}, got {int(value):,}"]
    return []


def side_problems(value: Any, name: str = "side") -> list[str]:
    """Of the name of a side."""
    known = isinstance(value, str) and value in SIDES
    return [] if known else [f"{name} must be 'left' or 'right', got {value!r}"]


def other_side(side: str) -> str:
    """The one that is not this one.

    Examples
    --------
    >>> other_side("left")
    'right'
    """
    return SIDES[1 - SIDES.index(side)]


def share_problems(name: str, weights: Any, count: Any, optional: bool = True) -> list[str]:
    """Of the shares of `count` workers."""
    if weights is None and optional:
        return []
    if not is_list(weights):
        return [f"{name} must be a list of numbers, one for each of {count}, got {weights!r}"]
    if len(weights) != count:
        return [f"{name} must hold one share for each of {count}, got {len(weights)}"]
    if not all(is_finite(w) and w >= 0 for w in weights) or not any(w > 0 for w in weights):
        return [f"{name} must be numbers of at least 0, one of them above 0, got {list(weights)!r}"]
    return []


def shares(weights: Sequence[float]) -> tuple[float, ...]:
    """Weights as a plan holds them."""
    return tuple(float(weight) for weight in weights)


def is_list(value: Any) -> bool:
    """Whether a value is a sequence of things, and not a text.

    Examples
    --------
    >>> is_list([1]), is_list((1,)), is_list("ab"), is_list(5), is_list(None)
    (True, True, False, False, False)
    """
    sized = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return sized and not isinstance(value, (str, bytes, dict)) and getattr(value, "ndim", 1) > 0


def is_finite(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_positive(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number above 0."""
    return is_finite(value) and value > 0


def refuse(verb: str, problems: Sequence[str]) -> None:
    """Raise if there are problems."""
    if problems:
        raise InvalidCall(verb, problems)
