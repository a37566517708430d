"""Rows of one block on a device, and what bounds need to know of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.goals import Operand, Scale
from anabranch.flow.gpu.device import Device, Rows

__all__ = ["Resident", "uploaded"]


class Resident(NamedTuple):
    """A block's rows on the device, and what bounds need to know of them.

    Rows that are not in the order of their times are in that of `ranks`; `order` says which they
    are.
    """

    scale: Scale
    rows: Rows
    ranks: np.ndarray | None = None
    order: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.rows.nbytes


def uploaded(
    device: Device, operand: Operand, stamps: np.ndarray, norms: np.ndarray | None = None
) -> Resident:
    """Rows to be multiplied, sent with what `Device.upload` wants."""
    rows = device.upload(operand.matrix, stamps, norms)
    # The device has the norms; of one row of norm 1 a goal has their shares.
    return Resident(operand.scale._replace(norms=np.ones(1), error=rows.error), rows)
