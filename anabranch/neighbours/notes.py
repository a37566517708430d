"""What a worker of `nearest` remembers beside objects and lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch.flow.instants import BEGINNING
from anabranch.flow.slices import Notes

__all__ = ["NearestNotes"]


@dataclass
class NearestNotes(Notes):
    """What a worker remembers beside objects and lists.

    Attributes
    ----------
    dim
        How long vectors are, once that is known.
    newest
        The newest time of all objects so far, whoever got them.
    tenures, bounds
        The live plans by number: how many workers, and their weights; and of those that another
        has replaced, the bound after which queries change hands.
    looks, published, mergers
        Of an owner under selective routing: when each home next looks at something, up to where the
        last merger spoke, and the files of its mergers.
    """

    dim: int | None = None
    newest: int = BEGINNING
    tenures: dict[str, list[Any]] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    published: int | None = None
    mergers: list[str] = field(default_factory=list)
