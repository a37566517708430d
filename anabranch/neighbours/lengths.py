"""How long the vectors of one `nearest` are, and who is named when one is not.

The call says it, or the fixed queries do; else it is what came first, and stays in the worker's
state.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.errors import BadRow, StateMismatch
from anabranch.flow.blocks import Block
from anabranch.flow.conversion import readable

__all__ = ["agreed", "check_ops", "check_width"]

_REMEDY = "repair the input, or fix the length with dim= and pass bad_rows='drop'"


def agreed(known: int | None, said: int | None, width: int) -> int:
    """The length that holds from now on, where the next to come has `width`.

    Examples
    --------
    >>> agreed(known=None, said=None, width=3), agreed(known=3, said=None, width=2)
    (3, 3)
    """
    expected = known or said or width
    if said is not None and said != expected:
        raise StateMismatch(
            f"this checkpoint was begun with vectors of length {expected}, and the call says "
            f"{said}: name the length that it was begun with, or begin a new checkpoint"
        )
    return expected


def check_width(block: Block, expected: int) -> None:
    """Stop at objects whose vectors are not as long as those of queries and earlier objects."""
    width = block.columns["v"].shape[1]
    if width != expected:
        ident = readable(pa.array(block.columns["id"][:1])[0])
        raise BadRow(
            f"object with id {ident!r} cannot be compared: its vector has length {width} where "
            f"queries and earlier objects have {expected}; {_REMEDY}"
        )


def check_ops(block: Block, expected: int) -> None:
    """Stop at queries that begin with vectors of another length than what came before."""
    width = block.columns["v"].shape[1]
    if width != expected:
        first = int(np.argmin(block.columns["cancel"]))
        ident = readable(pa.array(block.columns["id"][first : first + 1])[0])
        raise BadRow(
            f"query {ident!r} cannot be compared: its vector has length {width} where objects and "
            f"earlier queries have {expected}; {_REMEDY}"
        )
