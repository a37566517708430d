"""Topics of the news as the live page takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.video.pictures import decode, encode
from anabranch.video.scoring import Present

__all__ = ["THUMB", "as_shown", "thumb"]

THUMB = (256, 144)
"""The pictures of the page fit in it."""


def thumb(picture: bytes | None) -> bytes | None:
    """A JPEG that is as small as the page's pictures.

    Examples
    --------
    >>> import av, numpy as np
    >>> frame = av.VideoFrame.from_ndarray(np.full((360, 640, 3), 99, np.uint8), format="rgb24")
    >>> decode(thumb(encode(frame, (640, 360)))).shape
    (144, 256, 3)
    >>> small = encode(frame, THUMB)
    >>> thumb(small) is small, thumb(None)
    (True, None)
    """
    if picture is None:
        return None
    import av

    shown = decode(picture)
    if shown.shape[1] <= THUMB[0] and shown.shape[0] <= THUMB[1]:
        return picture
    return encode(av.VideoFrame.from_ndarray(shown, format="rgb24"), THUMB)


def as_shown(
    present: Present, keys: dict[str, Any], ages: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Topics as the page has them, hottest first: a row of pictures for each channel.

    `keys` are key frames by id; `ages`, how old topics were when they were first shown, in seconds.
    """
    found = []
    for name, event in present.latest.items():
        rows = sorted(
            (keys[row] for row in present.rows[name] if row in keys), key=lambda row: row["ts"]
        )
        found.append(
            {
                "topic": name,
                "heat": event["heat"],
                "event": event["event"],
                "words": event["words"],
                "concepts": event["concepts"],
                "began": event["began"].timestamp(),
                "last": event["last"].timestamp(),
                "score": event["score"],
                "age": ages.get(name),
                "repeated": 2 * event["repeated"] >= event["shots"],
                "rows": [(row["channel"], row["ts"].timestamp(), row["picture"]) for row in rows],
            }
        )
    return sorted(found, key=lambda one: (one["event"] == "closed", -one["heat"]))
