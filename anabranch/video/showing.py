"""Topics of the news as the live page takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.video.scoring import Present

__all__ = ["as_shown"]


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
                "began": event["began"].timestamp(),
                "last": event["last"].timestamp(),
                "score": event["score"],
                "age": ages.get(name),
                "repeated": 2 * event["repeated"] >= event["shots"],
                "rows": [(row["channel"], row["ts"].timestamp(), row["picture"]) for row in rows],
            }
        )
    return sorted(found, key=lambda one: (one["event"] == "closed", -one["heat"]))
