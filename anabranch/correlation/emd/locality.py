"""Where a plan by key finds the key of a histogram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.masses import KEY_SLACK, keys_of
from anabranch.flow.blocks import Block
from anabranch.plans.ranges import Ranges

__all__ = ["Locality"]


@dataclass(frozen=True)
class Locality:
    """Where keys come from: a slot of histograms, their ground distance, how far matches are."""

    slot: str
    ground: Ground
    threshold: float

    @property
    def reach(self) -> float:
        """Rows whose keys are further apart cannot match, whatever rounding did to them."""
        return self.threshold + self.ground.epsilon + 2 * KEY_SLACK * self.ground.largest

    def keys(self, block: Block) -> np.ndarray:
        """The key of each row."""
        return keys_of(block, self.slot, self.ground)

    def bind(self, plan: Ranges) -> Ranges:
        """The plan for the keys of this predicate."""
        return plan.bind(self.slot, self.ground.key_range, self.reach)
