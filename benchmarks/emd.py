"""How fast are joins by Earth Mover's Distance? Seeded workloads, targets, a picture.

    python -m benchmarks.emd [--quick] [--only SECTION] [--tables] [--out FOLDER]

Sections: line, 8x8 and lab-64 on one core without Spark, the same two against every reading of the
paper's chain (8x8-readings, lab-64-readings), spark on two cores. A run writes ``emd.json``
and ``emd.svg``, a partial one only its sections of them; a quick one is a smoke test and writes
``emd-quick.*``.

Rates are pairs that the window lets join per second, however few of them had to be looked at; the
blocks of the left side are new each time, those of the right side are stored ones, whose sorted
forms exist, as in a stream whose window is many micro-batches long.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from anabranch.correlation.emd.filters import CHAINS, CLOSED
from benchmarks.emd_readings import readings
from benchmarks.emd_search import Search, quantiles
from benchmarks.emd_spark import on_spark
from benchmarks.measuring import Row, Screen, in_turns, machine, rate, ratio
from papers.emd.streams import Histograms, colour_position, film, grey, lab
from papers.style import in_both

_MILLION = 1e6


def line(screen: Screen, quick: bool) -> dict[str, Any]:
    """256 grey levels in a row."""
    n, m, rounds = (300, 3000, 3) if quick else (1000, 10_000, 7)
    a, b = grey(film(n, 1, shots=64)), grey(film(m, 2, again=1, shots=64))
    details: dict[str, Any] = {"rates": []}
    screen.step(f"line: {n:,} new rows, {m:,} stored ones, histograms of 256 bins")
    # Histograms whose means and block sums are equal, and which are still too far apart.
    random = np.random.default_rng(3)
    wobble = np.tile([3.0, -3.0, -3.0, 3.0], 64)
    blind = [
        (8 + wobble * (random.integers(0, 2, (rows, 64)).repeat(4, axis=1) * 2 - 1)).astype("f4")
        for rows in (n, m)
    ]
    blind_run = Search(blind[0], blind[1], "line", 1e-6, CLOSED)
    shares = (0.64, 0.12, 0.01, 0.001, 0.0002)
    runs = {
        f"{share:g}": Search(a.table, b.table, "line", threshold, CLOSED)
        for share, threshold in zip(shares, quantiles(a, b, shares, 100_000), strict=True)
    }
    some = 40 if quick else 150
    emd2 = {"film": Emd2(a.table, b.table, some), "blind": Emd2(blind[0], blind[1], some)}
    city = Cityblock(a.table[:300], b.table[:1000])
    others: dict[str, Callable[[], object]] = {
        "emd2 film": emd2["film"],
        "emd2 blind": emd2["blind"],
        "cityblock": city,
    }
    seconds = in_turns({"blind": blind_run, **runs, **others}, rounds)
    assert blind_run.matches == 0 or blind_run.share < 1e-3
    screen.add(
        Row(
            "line",
            "no filter helps",
            rate(blind_run.pairs, seconds["blind"]) / _MILLION,
            "million pairs/s",
            25,
            note="equal means and block sums, no match",
        )
    )
    for share, run in runs.items():
        reached = rate(run.pairs, seconds[share]) / _MILLION
        rare = run.share <= 0.0011
        screen.add(
            Row(
                "line",
                f"{run.share:.3%} of pairs match",
                reached,
                "million pairs/s",
                1000 if rare else None,
            )
        )
        details["rates"].append({"share": run.share, "million": reached})
    for name, ours, run in (("blind", "blind", blind_run), ("film", "0.01", runs["0.01"])):
        theirs = [s / some for s in seconds[f"emd2 {name}"]]
        mine = [s / run.pairs for s in seconds[ours]]
        words = "no filter helps" if name == "blind" else "1% match"
        screen.add(
            Row(
                "line",
                f"times POT's emd2 per pair, {words}",
                ratio(theirs, mine),
                "x",
                50_000,
                note=f"emd2 {1 / np.median(theirs):,.0f} pairs/s on the same histograms",
            )
        )
    full = [s / blind_run.pairs for s in seconds["blind"]]
    each = [s / city.pairs for s in seconds["cityblock"]]
    screen.add(Row("line", "times scipy's cdist, no filter helps", ratio(each, full), "x"))
    return details


class Emd2:
    """POT's own entry, pair by pair."""

    def __init__(self, left: np.ndarray, right: np.ndarray, pairs: int) -> None:
        random = np.random.default_rng(1)
        self.pairs = pairs
        p = left[random.integers(0, len(left), pairs)].astype(float)
        q = right[random.integers(0, len(right), pairs)].astype(float)
        self.p, self.q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
        self.costs = np.abs(np.arange(256.0)[:, None] - np.arange(256.0)[None])

    def __call__(self) -> None:
        import ot

        for p, q in zip(self.p, self.q, strict=True):
            ot.emd2(p, q, self.costs)


class Cityblock:
    """What one writes with scipy instead."""

    def __init__(self, left: np.ndarray, right: np.ndarray) -> None:
        self.pairs = len(left) * len(right)
        self.tables = [
            np.cumsum(t / t.sum(axis=1, keepdims=True, dtype=float), axis=1) for t in (left, right)
        ]

    def __call__(self) -> None:
        from scipy.spatial.distance import cdist

        np.nonzero(cdist(*self.tables, "cityblock") <= 1.0)


_SECTIONS = ("line", "8x8", "lab-64", "8x8-readings", "lab-64-readings", "spark")
_FASTER = {"8x8": 3.0, "lab-64": 1.5}


def general(
    screen: Screen, quick: bool, make: Callable[[np.ndarray], Histograms]
) -> dict[str, Any]:
    """Any metric: our chain against the paper's and Head-SJ's."""
    details: dict[str, Any] = {}
    for share, n in ((0.01, 600 if quick else 2000), (0.05, 300 if quick else 1000)):
        a, b = (make(film(n, s, again=t, shots=64)) for s, t in ((1, None), (2, 1)))
        (threshold,) = quantiles(a, b, (share,), 1500 if quick else 4000)
        screen.step(f"{a.name}: {n:,} x {n:,} histograms, {share:.0%} match")
        runs = {
            name: Search(a.table, b.table, a.ground, threshold, chain)
            for name, chain in CHAINS.items()
        }
        seconds = in_turns({name: runs[name] for name in ("default", "paper")}, 2 if quick else 3)
        # Head-SJ leaves so much to solve that a tenth of the left rows is enough to wait for.
        runs["head-sj"] = Search(
            a.table[: n // 10], b.table, a.ground, threshold, CHAINS["head-sj"]
        )
        seconds |= in_turns({"head-sj": runs["head-sj"]}, 1)
        assert runs["default"].matches == runs["paper"].matches, "chains disagree"
        ours, head = runs["default"], share == 0.01
        screen.add(
            Row(
                a.name,
                f"times the paper's chain, {share:.0%}",
                ratio(seconds["paper"], seconds["default"]),
                "x",
                _FASTER[a.name] if head else None,
                note=f"{ours.share:.2%} match, {rate(ours.pairs, seconds['default']):,.0f}/s",
            )
        )
        screen.add(
            Row(
                a.name,
                f"non-matches decided without a solution, {share:.0%}",
                100 * ours.spared,
                "%",
                97 if head else None,
            )
        )
        details[f"{share:.0%}"] = {
            name: {
                "pairs_per_second": rate(run.pairs, seconds[name]),
                "pairs": run.pairs,
                "matches": run.matches,
                "solved": run.search.tally.solved if run.search else 0,
                "lessons": run.search.tally.lessons if run.search else 0,
                "accepted": run.search.tally.accepted if run.search else 0,
                "pruned": dict(run.search.tally.pruned) if run.search else {},
            }
            for name, run in runs.items()
        }
    return details


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections asked for; 1 if a target is not met."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    parser = argparse.ArgumentParser(description="Benchmark of joins by Earth Mover's Distance")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", action="append", choices=_SECTIONS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--tables", action="store_true", help="print the last result as markdown")
    call = parser.parse_args(arguments)
    path = call.out / ("emd-quick.json" if call.quick else "emd.json")
    if call.tables:
        from benchmarks.emd_tables import tables

        print(tables(json.loads(path.read_text())))
        return 0
    names = call.only or list(_SECTIONS)
    screen, described, began = Screen(), machine(), time.time()
    details: dict[str, Any] = {}
    with threadpool_limits(1, "blas"):  # as in a Spark task: one core
        if "line" in names:
            details["line"] = line(screen, call.quick)
        for name, make in (("8x8", colour_position), ("lab-64", lab)):
            if name in names:
                details[name] = general(screen, call.quick, make)
            if f"{name}-readings" in names:
                found = readings(screen, call.quick, name, make, _FASTER[name])
                details[f"{name}-readings"] = found
    if "spark" in names:
        with tempfile.TemporaryDirectory(prefix="anabranch-emd-") as folder:
            details["spark"] = on_spark(screen, Path(folder), call.quick)
    screen.table("joins by Earth Mover's Distance" + (" (quick)" if call.quick else ""))
    before: dict[str, Any] = {}
    if call.only and path.exists():  # sections may be run one at a time
        before = json.loads(path.read_text())
    mine = {row.section for row in screen.rows}
    result = {
        "benchmark": "emd",
        "quick": call.quick,
        "machine": {**before.get("machine", {}), **dict.fromkeys(names, described)},
        "seconds": {**before.get("seconds", {}), "+".join(names): round(time.time() - began)},
        "rows": [row for row in before.get("rows", []) if row["section"] not in mine]
        + [row.to_dict() for row in screen.rows],
        "details": {**before.get("details", {}), **details},
    }
    call.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    from benchmarks.emd_picture import draw

    in_both(draw, path.with_suffix(""), result)
    screen.console.print(f"wrote {path.name} and its picture")
    return 0 if all(row.met is not False for row in screen.rows) or call.quick else 1


if __name__ == "__main__":
    sys.exit(main())
