"""Names of devices: parts of the broker's subjects, and names of files of the hub."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from anabranch.edge.ownership import CLOUD
from anabranch.errors import InvalidCall

__all__ = ["device_name", "is_device_name", "key_problems"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN = 3  # names in a message at most


def is_device_name(name: Any) -> bool:
    """Whether a device may be called so."""
    return isinstance(name, str) and name != CLOUD and bool(_NAME.fullmatch(name))


def device_name(name: Any) -> str:
    """A device's name, if it may be part of a subject of the broker.

    Examples
    --------
    >>> device_name("alice")
    'alice'
    >>> device_name("a.*")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: device cannot start: a device is named by 1 to 64 letters, \
digits, - or _, got 'a.*'
    """
    if name == CLOUD:
        raise InvalidCall("device", ["'cloud' is the name of the other side, not of a device"])
    if not is_device_name(name):
        problem = f"a device is named by 1 to 64 letters, digits, - or _, got {name!r}"
        raise InvalidCall("device", [problem])
    assert isinstance(name, str)
    return name


def key_problems(keys: Iterable[Any]) -> list[str]:
    """What is wrong with keys of a reference table: each is the name of a device.

    Examples
    --------
    >>> key_problems(["ann", "bob"])
    []
    >>> print(*key_problems(["bob.smith", "ann", "*"]))
    every key names a device, by 1 to 64 letters, digits, - or _, and not 'cloud'; got \
'bob.smith', '*'
    """
    strange = [key for key in dict.fromkeys(keys) if not is_device_name(key)]
    if not strange:
        return []
    more = f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else ""
    return [
        "every key names a device, by 1 to 64 letters, digits, - or _, and not 'cloud'; got "
        f"{', '.join(map(repr, strange[:_SHOWN]))}{more}"
    ]
