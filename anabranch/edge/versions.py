"""Versions of what is kept: another one is refused by name, never misread."""

from __future__ import annotations

from typing import Any

from anabranch.errors import StateMismatch

__all__ = ["check_version"]


def check_version(what: str, version: Any, own: int, otherwise: str) -> None:
    """Raise unless a state has our version; `otherwise` is what can be done but to go back.

    Examples
    --------
    >>> check_version("the state of a relay", 3, 4, "begin anew")
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: the state of a relay has version 3, and this is 4: go on with \
the version that wrote it, or begin anew
    """
    if version != own:
        raise StateMismatch(
            f"{what} has version {version!r}, and this is {own}: go on with the version that "
            f"wrote it, or {otherwise}"
        )
