"""Topics on the page: for each of its channels, pictures on a common line of time."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["MOST_TOPICS", "topic_form"]

MOST_TOPICS = 12
_MOST_PICTURES = 24  # of a topic
_IMAGE = 32 << 10  # bytes
_FIGURES = ("event", "heat", "score", "began", "last", "repeated", "age")


def topic_form(topic: Mapping[str, Any], show: Sequence[str] | None = None) -> dict[str, Any]:
    """A topic as the page is told of it; a picture that is none, or too large, is left out.

    With `show`, of ``topic``, ``words``, ``channel`` and ``jpeg`` only those that it names; how hot
    a topic is and when it was is no content.

    Examples
    --------
    >>> rows = [("south", 5.0, b"?"), ("north", 1.0, bytes.fromhex("FFD8FF"))]
    >>> form = topic_form({"topic": "a|b", "heat": 2.0, "words": None, "rows": rows})
    >>> form["channels"]
    [{'channel': 'north', 'pictures': [[1.0, 'data:image/jpeg;base64,/9j/']]}, \
{'channel': 'south', 'pictures': [[5.0, None]]}]
    """
    rows = sorted(topic["rows"], key=lambda row: row[1])[:_MOST_PICTURES]
    if show is not None:
        names = sorted({channel for channel, _, _ in rows})
        numbered = {name: f"channel {number}" for number, name in enumerate(names, 1)}
        rows = [
            (
                channel if "channel" in show else numbered[channel],
                t,
                jpeg if "jpeg" in show else None,
            )
            for channel, t, jpeg in rows
        ]
        kept = {*_FIGURES, *show}
        topic = {name: value for name, value in topic.items() if name in kept}
        topic = {"topic": "", "words": None, **topic}
    channels = sorted({channel for channel, _, _ in rows})
    return {
        **{name: value for name, value in topic.items() if name != "rows"},
        "channels": [
            {
                "channel": channel,
                "pictures": [[t, _address(jpeg)] for of, t, jpeg in rows if of == channel],
            }
            for channel in channels
        ],
    }


def _address(jpeg: bytes | None) -> str | None:
    if not jpeg or not jpeg.startswith(b"\xff\xd8\xff") or len(jpeg) > _IMAGE:
        return None
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
