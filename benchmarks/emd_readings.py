"""The default chain against every reading of EMD-DDSJ's own chain, over seeds and sizes.

Section 3.3 of the paper puts the *new feasible solution* filter before the other bounds and refines
whatever passes the whole chain, so a dual acts on the query objects that follow; how many duals are
kept it does not say. One might also use a dual at once, on the other candidates of the same query
object. Going by groups of left rows instead of one by one is no reading but our own way to run a
chain fast; it is here so that nobody can say the paper's chain was held back by ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.correlation.emd.filters import CHAINS
from anabranch.correlation.emd.potentials import Learning
from benchmarks.emd_search import Search, quantiles
from benchmarks.measuring import Row, Screen, in_turns
from papers.emd.streams import Histograms, film

__all__ = ["READINGS", "readings"]


def _reading(room: int, at_once: bool, rows: int = 1) -> Learning:
    return Learning(room=room, rows=rows, at_once=at_once, lessons=512, invests=False)


READINGS = {
    "next row, newest dual": _reading(1, at_once=False),
    "next row, newest 8": _reading(8, at_once=False),
    "next row, newest 64": _reading(64, at_once=False),
    "at once, newest dual": _reading(1, at_once=True),
    "at once, newest 8": _reading(8, at_once=True),
    "at once, newest 64": _reading(64, at_once=True),
    "at once, newest 8, by groups": _reading(8, at_once=True, rows=256),
    "at once, newest 64, by groups": _reading(64, at_once=True, rows=256),
}


def readings(
    screen: Screen, quick: bool, name: str, make: Callable[[np.ndarray], Histograms], target: float
) -> dict[str, Any]:
    """How many times as fast the default chain is as each reading; the least and the greatest."""
    sizes: Sequence[int] = (300, 600) if quick else (1000, 2000)
    seeds: Sequence[int] = (1,) if quick else (1, 3, 5)
    times: dict[str, list[float]] = {reading: [] for reading in READINGS}
    details: list[dict[str, Any]] = []
    for size in sizes:
        for seed in seeds:
            a = make(film(size, seed, shots=64))
            b = make(film(size, seed + 1, again=seed, shots=64))
            (threshold,) = quantiles(a, b, (0.01,), 1500 if quick else 4000)
            screen.step(f"readings: {name}, {size:,} x {size:,} histograms, film {seed}")
            runs = {
                reading: Search(a.table, b.table, a.ground, threshold, CHAINS["paper"], how)
                for reading, how in READINGS.items()
            }
            ours = Search(a.table, b.table, a.ground, threshold, CHAINS["default"])
            seconds = in_turns({"default": ours, **runs}, 2 if quick else 3)
            assert {run.matches for run in runs.values()} == {ours.matches}, "chains disagree"
            base = statistics.median(seconds["default"])
            for reading in READINGS:
                times[reading].append(statistics.median(seconds[reading]) / base)
            details.append(
                {
                    "size": size,
                    "film": seed,
                    "share": ours.share,
                    "default_pairs_per_second": ours.pairs / base,
                    "solved": {
                        label: run.solved for label, run in {"default": ours, **runs}.items()
                    },
                    "times": {reading: times[reading][-1] for reading in READINGS},
                }
            )
    for reading, found in times.items():
        screen.add(
            Row(
                f"{name} readings",
                f"times the paper's chain: {reading}",
                statistics.median(found),
                "x",
                target,
                note=f"{min(found):.2f} to {max(found):.2f} over {len(found)} films and sizes",
            )
        )
    return {"runs": details, "times": times}
