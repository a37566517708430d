"""What a search asks of a device.

It is little, so that the search can be tried with a stand-in made of numpy: rows are
uploaded once, and one launch looks at many pairs of blocks. A device rounds rows as it likes and
says by how much; it must list every pair whose product of rounded rows reaches a goal, as computed
with sums of at most `UNIT` of rounding, and that is in the window and owned. Rows for sums of
absolute differences stay float32, and so do the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from anabranch.flow.cache import Cache
from anabranch.flow.goals import Goal

__all__ = ["MOST_HITS", "UNIT", "Device", "Hits", "How", "Rows", "Work"]

UNIT = 2.0**-22
"""The rounding unit of a device's sums, of which there is one for each element.

Tensor cores add in float32 but do not round to nearest: each sum may be off by two units of its
last place, 2 * 2**-23 of the sum of the sizes.
"""

How = Literal["product", "distance", "area"]
"""What is compared with a goal: products of rows, these and the norms of rows, or areas between
rows, which are the sums of their absolute differences."""

MOST_HITS = 1 << 25
"""More candidates of one launch are left to the CPU, which looks at a tile at a time."""


class Rows(Protocol):
    """Rows of one block in the memory of a device."""

    @property
    def error(self) -> float:
        """The greatest norm of what a row lost when it was rounded; 0 for areas."""

    @property
    def nbytes(self) -> int:
        """Bytes of the device's memory."""


@dataclass(frozen=True)
class Work:
    """One pair of blocks to look at.

    `row` and `col` of the goal have one element, by which norms of rows are to be multiplied.
    `stretches` has for each run of ``Device.run`` left rows the right rows from the one position up
    to the other; the window lets them meet no others.
    """

    left: Rows
    right: Rows
    goal: Goal
    window: tuple[int, int]
    stretches: np.ndarray


class Hits(NamedTuple):
    """Candidates: the number of the pair in its launch, and the rows."""

    pair: np.ndarray
    left: np.ndarray
    right: np.ndarray


class Device(Protocol):
    """What proposes pairs; `failed` says why it no longer does, if it has failed."""

    memory: Cache
    failed: str

    @property
    def run(self) -> int:
        """How many left rows share a stretch."""

    def upload(self, matrix: np.ndarray, stamps: np.ndarray, norms: np.ndarray | None) -> Rows:
        """Keep rows, with times, epochs, masks and the masks of right rows (int64).

        Where there are squared norms, rows are divided by their roots before they are rounded.
        """

    def upload_columns(
        self, whole: np.ndarray, sums: np.ndarray | None, stamps: np.ndarray
    ) -> Rows:
        """Keep rows for areas, and sums of neighbouring elements of theirs, if these are fewer."""

    def bounded(self, rows: Rows, share: float, own: np.ndarray) -> Rows:
        """The same rows; their squared norms times a share, and a number of each, are their norms.

        So each row may have a goal of its own. Numbers (float64) may be infinite.
        """

    def part(self, rows: Rows, start: int, stop: int) -> Rows:
        """A copy of rows ``start:stop``."""

    def release(self) -> None:
        """Give back memory that nothing is in."""

    def start(self, work: Sequence[Work], how: How) -> Any:
        """Begin to look at pairs."""

    def finish(self, started: Any) -> Hits | None:
        """What was found, once it is; None if that are more than `MOST_HITS`."""
