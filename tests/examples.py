"""How often a law is tried: the same few examples in the gate, many at random in `make laws`."""

from __future__ import annotations

import os

from hypothesis import settings

__all__ = ["PROFILE", "examples"]

PROFILE = os.environ.get("ANABRANCH_PROFILE", "gate")
_PROFILES = ("gate", "laws")
if PROFILE not in _PROFILES:
    raise ValueError(f"ANABRANCH_PROFILE is {PROFILE!r}; it may be {' or '.join(_PROFILES)}")

_USUAL = 50
_FEW = 12


def examples(count: int) -> int:
    """Half of `count` in the gate, but a dozen where it is as many; ten times `count` in
    `make laws`: for `@settings(max_examples=...)`.

    A test without it runs the usual number.

    Examples
    --------
    >>> examples(30) in (15, 300) and examples(14) in (12, 140) and examples(5) in (5, 50)
    True
    """
    return 10 * count if PROFILE == "laws" else max(count // 2, min(count, _FEW))


# No deadline: compiling a kernel or a busy machine may take seconds; what is proved does not depend
# on it. The gate draws the same examples every time, from no database, so that it is green or red.
settings.register_profile(
    "gate", deadline=None, derandomize=True, database=None, max_examples=examples(_USUAL)
)
settings.register_profile("laws", deadline=None, print_blob=True, max_examples=examples(_USUAL))
