"""Rows in which no compared column is null: alternatives see no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.sides import PRESENT

__all__ = ["Known", "Visible", "known_rows", "visible"]


class Known(NamedTuple):
    """Some rows of a block, their places in it, and its rows' places among them, else -1."""

    block: Block
    rows: np.ndarray
    places: np.ndarray


class Visible(NamedTuple):
    """Which of some pairs are left, in which blocks, and where in them."""

    rows: np.ndarray
    left: Block
    right: Block
    i: np.ndarray
    j: np.ndarray


def known_rows(block: Block, slots: Sequence[str]) -> Known | None:
    """The rows in which no column of these slots is null; None if they are all."""
    names = [name for slot in slots for name in _flags(block, slot)]

    def make(of: Block) -> Known | None:
        good = np.logical_and.reduce([np.ones(len(of), bool), *(of.columns[n] for n in names)])
        if good.all():
            return None
        rows, place = np.flatnonzero(good).astype(np.int32), np.cumsum(good, dtype=np.int32)
        return Known(of.take(rows), rows, np.where(good, place - 1, -1))

    return block.derive(("known", *names), make) if names else None


def visible(
    left: Block, right: Block, i: np.ndarray, j: np.ndarray, slots: Sequence[str]
) -> Visible:
    """Those of some pairs in which no column of these slots is null."""
    a, b = known_rows(left, slots), known_rows(right, slots)
    if a is None and b is None:
        return Visible(np.arange(len(i)), left, right, i, j)
    i, j = a.places[i] if a else i, b.places[j] if b else j
    rows = np.flatnonzero((i >= 0) & (j >= 0))
    return Visible(rows, a.block if a else left, b.block if b else right, i[rows], j[rows])


def _flags(block: Block, slot: str) -> list[str]:
    """The columns that say whether a term's columns are known."""
    return [
        name
        for name in block.columns
        if name.endswith(PRESENT) and name.removesuffix(PRESENT).partition("_")[0] == slot
    ]
