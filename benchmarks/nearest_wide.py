"""Saved searches over vectors: `nearest` in many dimensions, beside a scan and a bare product."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from anabranch.flow.process import single_threaded
from anabranch.neighbours.methods import ListWithRepair, Queries
from benchmarks.measuring import Row, Screen, in_turns, rate, ratio

__all__ = ["wide"]

_WINDOW, _K, _BATCH = 20_000, 9, 1_000


class _Wide:
    """1,000 queries or more over an endless stream without any preferred direction."""

    def __init__(self, dim: int, queries: int, index: str) -> None:
        random = np.random.default_rng([dim, queries])
        self.points = random.standard_normal((2 * _WINDOW, dim))
        self.queries = Queries.of(random.standard_normal((queries, dim)), _K, _WINDOW, counted=True)
        self.lists = ListWithRepair(self.queries, index=index)
        self.at = 0

    def feed(self, objects: int) -> None:
        """Take in so many objects, batch by batch."""
        for _ in range(0, objects, _BATCH):
            begin = self.at % (len(self.points) - _BATCH)
            seq = np.arange(self.at, self.at + _BATCH)
            self.lists.advance(seq, seq, self.points[begin : begin + _BATCH], int(seq[-1]))
            self.at += _BATCH


def _bare(centres: np.ndarray, points: np.ndarray, batches: int) -> None:
    for _ in range(batches):
        np.matmul(centres, points)


def wide(screen: Screen) -> dict[str, Any]:
    """k = 9, batches of 1,000, on one core: objects a second by matrix products and by a scan."""
    details: dict[str, Any] = {}
    with single_threaded():
        for dim, queries in ((8, 1_000), (16, 1_000), (64, 1_000), (64, 10_000), (256, 1_000)):
            screen.step(f"wide, {dim} elements, {queries:,} queries")
            runs = {index: _Wide(dim, queries, index) for index in ("auto", "scan")}
            for run in runs.values():
                run.feed(_WINDOW + 4 * _BATCH)
            batches = max(1, round(3e9 / (queries * dim * _BATCH)))
            sizes = {"auto": 4 * batches * _BATCH, "scan": batches * _BATCH}
            centres = runs["auto"].queries.points.astype(np.float32)
            points = np.ascontiguousarray(runs["auto"].points[:_BATCH].astype(np.float32)).T
            steps: dict[str, Any] = {
                name: functools.partial(run.feed, sizes[name]) for name, run in runs.items()
            }
            steps["bare"] = functools.partial(_bare, centres, points, 4 * batches)
            seconds = in_turns(steps, rounds=5)
            name = f"{dim} elements, {queries:,} queries"
            ours = rate(sizes["auto"], seconds["auto"])
            screen.add(Row("wide", name, ours, "objects/s"))
            over = ratio([4 * s for s in seconds["scan"]], seconds["auto"])
            screen.add(Row("wide", f"{name}, over a scan", over, "times"))
            share = ratio(seconds["bare"], seconds["auto"])
            screen.add(Row("wide", f"{name}, of a bare float32 product", share, "share"))
            details[name] = {"seconds": seconds, "objects": sizes}
    return details
