"""How long compared vectors and byte strings are: all rows of a query must agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch.correlation.call import Correlation, Slot
from anabranch.errors import BadRow, StateMismatch
from anabranch.flow.blocks import Block
from anabranch.flow.conversion import readable
from anabranch.flow.slices import Notes
from anabranch.plans.plan import SIDES

__all__ = ["Lengths"]


@dataclass
class Lengths(Notes):
    """Notes of a worker that holds rows to be compared.

    Attributes
    ----------
    lengths, bytes
        How long compared vectors are, and byte strings, by slot.
    """

    lengths: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)

    def check_rows(self, correlation: Correlation, side: int, block: Block) -> None:
        """Vectors must be as long as those before; within a block they already are."""
        for slot in correlation.sides[side].slots:
            if slot.kind not in ("vector", "bits"):
                continue
            name, width = slot.compared_name, block.columns[slot.name].shape[1]
            expected: Any = self.lengths.setdefault(name, width)
            size = block.meta.get("bytes", {}).get(slot.name)
            if size is not None:  # words alone would take a short value for a padded one
                same = width == expected
                sizes = self.bytes
                expected = sizes.setdefault(name, size) if same else _in_units(slot, expected)
                width = size
            if width == expected:
                continue
            ident = readable(pa.array(block.columns["id"][:1])[0])
            one = correlation.one_stream
            raise BadRow(
                f"{'row' if one else f'{SIDES[side]} row'} with id {ident!r} cannot be compared: "
                f"{slot.column!r} has length {width} where earlier rows"
                f"{'' if one else ', of either side,'} have {expected}; repair the "
                "input, or fix the length with dim= and pass bad_rows='drop'"
            )

    def check_call(self, correlation: Correlation) -> None:
        """Refuse a call that names another length than stored rows have."""
        for slot in correlation.left.slots:
            known, size = (of.get(slot.compared_name) for of in (self.lengths, self.bytes))
            if known is not None and (
                _width(slot) not in (None, known) or (size and slot.dim not in (None, size))
            ):
                held = f"{size} bytes" if size is not None else _in_units(slot, known)
                raise StateMismatch(
                    f"this checkpoint holds {slot.column!r} of {held}, and the "
                    f"call says dim={slot.dim}: name the length that it was begun with, or begin "
                    "a new checkpoint"
                )


def _width(slot: Slot) -> int | None:
    """How many elements, or words of bits, a value has by `dim`; None if it does not say."""
    if slot.dim is None or slot.kind == "vector":
        return slot.dim
    return -(-slot.dim // 8) if slot.kind == "bits" and slot.type == "binary" else None


def _in_units(slot: Slot, width: int) -> str:
    return f"length {width}" if slot.kind == "vector" else f"{8 * width - 7} to {8 * width} bytes"
