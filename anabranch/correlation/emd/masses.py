"""Histograms of a block as masses that sum to 1, and their keys; each computed once per block.

Everything here is computed row by row in one fixed order, so that a row has the same masses and the
same key to the last bit in whatever block it travels.
"""

from __future__ import annotations

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["KEY_SLACK", "LANES", "cumulated", "fixed_point", "keys_of", "masses"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

# Keys are sums of n products that add up to at most the largest distance; this share of it is far
# above their rounding error.
KEY_SLACK = 1e-9
LANES = 8


def masses(block: Block, slot: str) -> np.ndarray:
    """The histograms in float64, each divided by its sum."""

    def make(of: Block) -> np.ndarray:
        raw = of.columns[slot]
        out = np.empty(raw.shape)
        _normalise(raw, out)
        return out

    return block.derive(("masses", slot), make)


def keys_of(block: Block, slot: str, ground: Ground) -> np.ndarray:
    """The key of each histogram."""

    def make(of: Block) -> np.ndarray:
        out = np.empty(len(of))
        if len(of):
            raw = of.columns[slot]
            _keys(raw, ground.of(raw.shape[1]).potential, out)
        return out

    return block.derive(("emd keys", slot, ground.digest), make)


def fixed_point(ground: Ground) -> float:
    """The power of two that turns distances of this ground into whole numbers below 2**61.

    Sums of whole numbers are the same in any order, so they may be added in whatever way is fast;
    the step is far below what float64 keeps of a sum.
    """
    return float(2.0 ** (60 - int(np.frexp(max(ground.largest, 1e-200))[1])))


def cumulated(block: Block, slot: str, ground: Ground) -> np.ndarray:
    """Cumulative histograms times the gap to the next bin, as multiples of the fixed point.

    Bins come in the order of the line or circle, with zeros up to whole vectors. Whole counts are
    added before the division, so that equal shares come out equal.
    """

    def make(of: Block) -> np.ndarray:
        raw = of.columns[slot]
        known = ground.of(raw.shape[1])
        order = known.order if known.kind == "line" else np.arange(raw.shape[1])
        out = np.zeros((len(raw), -(-max(len(known.gaps), 1) // LANES) * LANES), np.int64)
        _cumulate(raw, order, known.gaps * fixed_point(known), out)
        return out

    return block.derive(("emd cumulated", slot, ground.digest), make)


@njit(nogil=True)
def _normalise(raw, out):  # pragma: no cover
    n = raw.shape[1]
    for r in range(len(raw)):
        total = 0.0
        for c in range(n):
            total += np.float64(raw[r, c])
        for c in range(n):
            out[r, c] = np.float64(raw[r, c]) / total


@njit(nogil=True)
def _keys(raw, potential, out):  # pragma: no cover
    n = raw.shape[1]
    for r in range(len(raw)):
        total = 0.0
        moment = 0.0
        for c in range(n):
            total += np.float64(raw[r, c])
            moment += np.float64(raw[r, c]) * potential[c]
        out[r] = moment / total


@njit(nogil=True)
def _cumulate(raw, order, gaps, out):  # pragma: no cover
    n = raw.shape[1]
    for r in range(len(raw)):
        total = 0.0
        for c in range(n):
            total += np.float64(raw[r, order[c]])
        running = 0.0
        for c in range(len(gaps)):
            running += np.float64(raw[r, order[c]])
            out[r, c] = np.int64(np.rint(running / total * gaps[c]))
