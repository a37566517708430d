"""What a device is to look for: which rows it needs of a block, and what two of them must reach."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.line import line_columns
from anabranch.correlation.filters.exact import directed
from anabranch.correlation.filters.loops import in_float32, largest_of, manhattan_bound
from anabranch.correlation.filters.products import make_operand
from anabranch.flow.blocks import Block
from anabranch.flow.goals import Goal, Operand, Scale, goal_of, unit_scale
from anabranch.flow.gpu.device import UNIT, Device, How
from anabranch.flow.gpu.resident import Resident, uploaded
from anabranch.plans.routing import OTHER

__all__ = ["LineLook", "Look", "ManhattanLook", "ProductLook", "vector_look"]

# Ground distances beyond these are left to the CPU: float32 would not hold their sums.
_SMALLEST, _LARGEST = 1e-30, 1e30


class Look(Protocol):
    """One comparison, as a device makes it."""

    @property
    def how(self) -> How:
        """What is compared with the goal."""

    @property
    def key(self) -> Hashable:
        """The same for all looks that need the same rows."""

    def upload(self, device: Device, block: Block) -> Resident:
        """Send rows."""

    def goal(self, left: Scale, right: Scale) -> Goal:
        """What two rows must reach to be proposed."""

    def apart(self, scale: Scale) -> float:
        """How far apart the ranks of two such rows may be."""


@dataclass(frozen=True)
class ProductLook:
    """Cosine, dot product or Euclidean distance, as products of rounded rows."""

    slot: str
    kind: str
    upward: bool
    threshold: float

    @property
    def how(self) -> How:
        """Distances need the norms of rows."""
        return "distance" if self.kind == "euclidean" else "product"

    @property
    def key(self) -> Hashable:
        """Rows are divided by their lengths for cosines alone."""
        return self.slot, self.kind == "cosine"

    def upload(self, device: Device, block: Block) -> Resident:
        """Send rows, which the device rounds."""
        if self.kind != "cosine":
            return uploaded(device, make_operand(block, self.slot, self.kind), _stamps(block))
        vectors, norms = directed(block, self.slot)
        operand = Operand(vectors, unit_scale(1, vectors.shape[1]))
        return uploaded(device, operand, _stamps(block), norms)

    def goal(self, left: Scale, right: Scale) -> Goal:
        """The threshold less what rounding may lose."""
        return goal_of(self.kind, left, right, self.upward, self.threshold, UNIT)

    def apart(self, scale: Scale) -> float:
        """No ranks."""
        return np.inf


@dataclass(frozen=True)
class ManhattanLook:
    """Sums of absolute differences of the vectors themselves."""

    slot: str
    upward: bool
    threshold: float
    how: How = "area"

    @property
    def key(self) -> Hashable:
        """Whatever the threshold, the rows are the same."""
        return self.slot, "manhattan"

    def upload(self, device: Device, block: Block) -> Resident:
        """Send vectors in float32."""
        vectors = in_float32(block, self.slot)
        rows = device.upload_columns(vectors, None, _stamps(block))
        return Resident(_scale(vectors.shape[1], largest_of(block, self.slot)), rows)

    def goal(self, left: Scale, right: Scale) -> Goal:
        """The threshold, and what float32 may get wrong."""
        largest = max(left.largest, right.largest)
        bound = manhattan_bound(left.width, largest, self.upward, self.threshold)
        return _area_goal(bound, self.upward)

    def apart(self, scale: Scale) -> float:
        """No ranks."""
        return np.inf


@dataclass(frozen=True)
class LineLook:
    """Earth Mover's Distances of bins in a row: areas between cumulative histograms.

    The means of near histograms are near, so rows go in the order of their means.
    """

    slot: str
    ground: Ground
    op: str
    threshold: float
    how: How = "area"

    @property
    def key(self) -> Hashable:
        """Sums help to find near pairs alone."""
        return self.slot, "line", self.ground.digest, self._upward

    @property
    def _upward(self) -> bool:
        return self.op in (">=", ">")

    def upload(self, device: Device, block: Block) -> Resident:
        """Send cumulative histograms, and sums of their columns where these are fewer by half."""
        whole, sums, means = line_columns(block, self.slot, self.ground)
        scale, stamps = _scale(block.columns[self.slot].shape[1], 0.0), _stamps(block)
        if self._upward:
            return Resident(scale, device.upload_columns(whole, None, stamps))
        order = np.argsort(means, kind="stable").astype(np.int32)
        few = sums[order] if 2 * sums.shape[1] <= whole.shape[1] else None
        rows = device.upload_columns(whole[order], few, stamps[:, order])
        return Resident(scale, rows, means[order], order)

    def goal(self, left: Scale, right: Scale) -> Goal:
        """The threshold, and what float32 may get wrong: the bounds of the search on a CPU."""
        ground = self.ground.of(left.width)
        if not _SMALLEST < ground.largest < _LARGEST:
            return _area_goal(np.float32(-np.inf if self._upward else np.inf), self._upward)
        limit = Limit(self.op, self.threshold, ground.epsilon)
        margin = limit.margin(ground)
        bound = limit.far - margin if self._upward else limit.near + margin
        return _area_goal(np.float32(bound), self._upward)

    def apart(self, scale: Scale) -> float:
        """As far as on a CPU."""
        epsilon = self.ground.of(scale.width).epsilon
        return Limit(self.op, self.threshold, epsilon).near + epsilon


def vector_look(slot: str, kind: str, upward: bool, threshold: float) -> Look | None:
    """How a device compares vectors by a measure; None if it does not."""
    if kind in ("cosine", "dot", "euclidean"):
        return ProductLook(slot, kind, upward, threshold)
    return ManhattanLook(slot, upward, threshold) if kind == "manhattan" else None


def _area_goal(bound: np.float32, upward: bool) -> Goal:
    return Goal(1.0, bound) if upward else Goal(-1.0, -bound)


def _scale(width: int, largest: float) -> Scale:
    return Scale(0, np.ones(1), largest, width)


def _stamps(block: Block) -> np.ndarray:
    """Times, epochs, masks, and the masks of right rows."""
    return np.stack([block.t, block.epoch, block.mask, block.columns.get(OTHER, block.mask)])
