"""What `method="probabilistic"` misses where the rate of a stream in random order varies."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.neighbours.methods import ListWithRepair, Probabilistic, Queries
from benchmarks.measuring import Row, Screen

__all__ = ["misses"]

HOUR = 3600
ERROR = 1e-3
QUERIES = 16
SEEDS = {1: 20, 9: 4, 81: 1}  # so that each figure rests on some 10,000 results


def misses(screen: Screen) -> dict[str, Any]:
    """Results missed, in percent: independent points, the rate a sine over a day, three days."""
    details = {}
    for swing, hours in ((0, 1), (0, 6), (0.5, 1), (0.5, 6), (0.9, 1), (0.9, 3), (0.9, 6)):
        for k, seeds in SEEDS.items():
            what = f"rate ± {swing:.0%}, windows of {hours} h, k = {k}"
            screen.step(f"misses, {what}")
            missed = due = 0
            for seed in range(seeds):
                some, all_ = _missed(swing, hours, k, np.random.default_rng(100 + seed))
                missed, due = missed + some, due + all_
            screen.add(Row("misses", what, 100 * missed / due, "%", note=f"{missed} of {due:,}"))
            details[f"{swing}/{hours}/{k}"] = {"missed": missed, "due": due}
    return details


def _missed(swing: float, hours: int, k: int, random: np.random.Generator) -> tuple[int, int]:
    """How many results of a stream PA misses, and how many there are."""
    t = np.sort(random.integers(0, 72 * HOUR, 60_000))
    likely = (1 + swing * np.sin(2 * np.pi * t / (24 * HOUR))) / (1 + swing)
    t = t[random.random(len(t)) < likely]
    seq, points = np.arange(len(t)), random.random((len(t), 2))
    queries = Queries.of(random.random((QUERIES, 2)), k, hours * HOUR)
    exact, guessed = (
        {row[:2] for row in algorithm.advance(t, seq, points, int(t[-1])).rows()}
        for algorithm in (ListWithRepair(queries), Probabilistic(queries, ERROR))
    )
    return len(exact - guessed), len(exact)
