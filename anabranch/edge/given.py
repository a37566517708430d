"""What an application gives an agent, looked at before any of it is used."""

from __future__ import annotations

import os
from typing import Any

from anabranch.errors import InvalidCall

__all__ = ["check_handler", "place_problems", "stream_name"]


def place_problems(broker: Any, credentials: Any, folder: Any) -> list[str]:
    """What is wrong with where an agent is to connect, and where it is to keep its rows.

    Examples
    --------
    >>> place_problems("tls://hub:4222", "alice/", "rows/"), place_problems(4222, None, "rows/")
    ([], ["broker must be the address of the hub, such as 'tls://hub:4222', got 4222"])
    """
    found = []
    if not isinstance(broker, str) or not broker:
        problem = "broker must be the address of the hub, such as 'tls://hub:4222'"
        found.append(f"{problem}, got {broker!r}")
    if credentials is not None and not isinstance(credentials, (str, os.PathLike)):
        problem = "credentials must be the folder that `anabranch edge enrol` made, or None"
        found.append(f"{problem}, got {credentials!r}")
    if not isinstance(folder, (str, os.PathLike)):
        found.append(f"folder must be a folder to keep rows in, got {folder!r}")
    return found


def stream_name(feed: Any, device: str) -> str:
    """The name of a device's stream of a feed; that of a stream as it is.

    Examples
    --------
    >>> stream_name("gps", "ann"), stream_name("gps[ann]", "ann")
    ('gps[ann]', 'gps[ann]')
    """
    if not isinstance(feed, str) or not feed:
        problem = "stream must be the name of a feed, such as 'gps'"
        raise InvalidCall("put", [f"{problem}, got {feed!r}"])
    return feed if "[" in feed else f"{feed}[{device}]"


def check_handler(view: Any, function: Any) -> None:
    """Raise unless a function can be called with results of a view."""
    problems = []
    if not isinstance(view, str) or not view:
        problems.append(f"view must be the name of a view, such as 'nearby', got {view!r}")
    if not callable(function):
        problems.append(f"function must take one result, as print does, got {function!r}")
    if problems:
        raise InvalidCall("on", problems)
