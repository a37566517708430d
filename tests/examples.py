"""How often a law is tried: the same few examples in the gate, many at random in `make laws`."""

from __future__ import annotations

import os

from hypothesis import settings

__all__ = ["PROFILE", "examples"]

PROFILE = os.environ.get("ANABRANCH_PROFILE", "gate")
_TIMES = {"gate": 1, "laws": 10}
if PROFILE not in _TIMES:
    raise ValueError(f"ANABRANCH_PROFILE is {PROFILE!r}; it may be {' or '.join(_TIMES)}")

_USUAL = 50


def examples(count: int) -> int:
    """`count` in the gate, ten times as many in `make laws`: for `@settings(max_examples=...)`.

    A test without it runs the usual number.

    Examples
    --------
    >>> examples(30) in (30, 300)
    True
    """
    return count * _TIMES[PROFILE]


# No deadline: compiling a kernel or a busy machine may take seconds; what is proved does not depend
# on it. The gate draws the same examples every time, from no database, so that it is green or red.
settings.register_profile(
    "gate", deadline=None, derandomize=True, database=None, max_examples=examples(_USUAL)
)
settings.register_profile("laws", deadline=None, print_blob=True, max_examples=examples(_USUAL))
