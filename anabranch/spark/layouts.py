"""Versions of what numbers in a vector mean, and that those of two versions are not compared."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from anabranch.flow.sides import Side

__all__ = ["LAYOUT", "NAMES", "UNPICTURED", "layout_problems"]

LAYOUT = "anabranch.layout"
"""Metadata of a column of vectors: the version of their layout. Parquet files keep it."""
NAMES = "anabranch.concepts"
"""Metadata of the column ``concepts``: what its numbers are called."""
UNPICTURED = "anabranch.unpictured"
"""Metadata of a column of pictures: True where all are null, for none were asked for."""


def layout_problems(frames: Sequence[DataFrame], sides: Sequence[Side]) -> list[str]:
    """What to say where one input has vectors of one version and the other those of another."""
    found = []
    for frame, side in zip(frames, sides, strict=False):
        of = {field.name: field.metadata.get(LAYOUT) for field in frame.schema}
        found += [(version, slot.column) for slot in side.slots if (version := of.get(slot.column))]
    if len({version for version, _ in found}) < 2:
        return []
    said = " and ".join(
        f"{column!r} of layout {version}" for version, column in dict(found).items()
    )
    return [f"where: {said} do not compare: describe the older films again"]
