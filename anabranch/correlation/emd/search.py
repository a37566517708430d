"""One way to ask for matches, whatever the ground distance: closed form or chain of filters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anabranch.correlation.emd.chain import Chain
from anabranch.correlation.emd.circle import circle_distances, circle_matches
from anabranch.correlation.emd.filters import GENERAL
from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.line import line_distances, line_matches
from anabranch.correlation.emd.masses import keys_of
from anabranch.correlation.emd.measure import EmdMeasure
from anabranch.correlation.emd.potentials import Learning
from anabranch.correlation.emd.runs import Found
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.filters.tiles import Pair
from anabranch.flow.blocks import Block
from anabranch.flow.cache import CACHE
from anabranch.predicates import Compared

__all__ = ["EmdSearch", "forget"]

# Chains stay in the process by who owns them: kernels come and go with every micro-batch, and what
# they learn should not go with them. A chain is a few times the table of its ground distance.
_CHAIN = "emd chain "


def forget() -> None:
    """Unlearn everything that this process keeps, for measurements that begin afresh."""
    CACHE.forget_all(_CHAIN)


class EmdSearch:
    """Finds and decides pairs by their Earth Mover's Distance.

    `tally` counts what it did; whoever reads it may put a new one in its place. `owner` names the
    operator of a query and its worker that search here: the process keeps what is learnt for an
    owner, so that its next search goes on from there. Without an owner nothing is kept. `learning`
    overrides how duals are used.
    """

    def __init__(
        self,
        slot: str,
        ground: Ground,
        op: str,
        threshold: float,
        filters: tuple[str, ...],
        exact_scores: bool = False,
        learning: Learning | None = None,
    ) -> None:
        self.slot, self.tally = slot, Tally()
        self.owner: tuple[str, int] | None = None
        self._ground, self._op, self._threshold = ground, op, float(threshold)
        self._filters, self._exact_scores, self._learning = filters, exact_scores, learning
        self._closed = ground.kind in ("line", "circle") and not set(filters) & set(GENERAL)
        self._chain: Chain | None = None

    @classmethod
    def of(cls, slot: str, term: Compared, measure: EmdMeasure) -> EmdSearch:
        """What finds the pairs that satisfy a comparison."""
        how = (measure.filters, measure.exact_scores)
        return cls(slot, measure.ground, term.op, term.threshold, *how)

    def matches(self, pair: Pair) -> Iterator[Found]:
        """Every pair of the two blocks that joins here, with its distance."""
        if not len(pair.left) or not len(pair.right):
            return
        ground, limit = self._for(pair.left)
        if not self._closed:
            yield from self._chained(ground, limit).matches(pair, self.tally)
            return
        search = line_matches if ground.kind == "line" else circle_matches
        yield from search(pair, self.slot, ground, limit, self._filters, self.tally)

    @property
    def on_a_line(self) -> tuple[str, Ground, str, float] | None:
        """Slot, ground, comparison and threshold, if distances are areas between histograms."""
        if not self._closed or self._ground.kind != "line":
            return None
        return self.slot, self._ground, self._op, self._threshold

    def looked(self, pair: Pair) -> None:
        """Count the work of a device that compares all rows which may meet."""
        if self.tally.ranges is not None:
            begin, end = pair.reach
            self.tally.spend(keys_of(pair.left, self.slot, self._ground), end - begin)

    def decide(
        self, left: Block, right: Block, i: np.ndarray, j: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The distance of given pairs (NaN where it is not needed), and whether they match."""
        if not len(i):
            return np.empty(0), np.empty(0, bool)
        ground, limit = self._for(left)
        if not self._closed:
            return self._chained(ground, limit).decide(left, right, i, j, self.tally)
        measure = line_distances if ground.kind == "line" else circle_distances
        value = measure(left, right, self.slot, ground, i, j)
        return value, limit.holds(value)

    def _for(self, block: Block) -> tuple[Ground, Limit]:
        ground = self._ground.of(block.columns[self.slot].shape[1])
        return ground, Limit(self._op, self._threshold, ground.epsilon)

    def _chained(self, ground: Ground, limit: Limit) -> Chain:
        if self._chain is None:
            self._chain = self._kept(ground, limit)
        return self._chain

    def _kept(self, ground: Ground, limit: Limit) -> Chain:
        ground = ground.shared()
        how = (self.slot, ground, limit, self._filters, self._exact_scores, self._learning)
        if self.owner is None:
            return Chain(*how)
        token = f"{_CHAIN}{self.owner!r} {ground.digest} {how!r}"
        return CACHE.kept(token, self.owner[0], lambda: Chain(*how))
