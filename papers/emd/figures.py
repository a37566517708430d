"""Figures 4 and 6 to 14 of the EMD-DDSJ paper, ours beside ShuffleJ, Head-SJ and EMD-DDSJ.

    python -m papers.emd.figures [--quick] [--decoded] [--rate R] [--fresh] [--again METHOD]
    python -m papers.emd.figures [--decoded] --tables

Workers are simulated (see `papers.emd.cluster`); films are made up (see `papers.emd.streams`), or
with ``--decoded`` of real clips (see `papers.emd.decoded`; results of their own, and fewer rows a
second): S with SS, its darkened copy, and S with M, another film. Thresholds are given as the share
of pairs in the window that they let match, since the paper's 0.1 to 0.9 have no stated scale. Every
point is written to ``emd-figures.json`` as soon as it is known, and one that is there is not run
again: what was interrupted goes on where it was. ``--fresh`` starts over, ``--again`` only one
method; ``--tables`` prints the file as markdown and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from anabranch.correlation.emd.ground import read_ground
from anabranch.correlation.emd.solve import solve
from benchmarks.measuring import machine
from papers.emd.clips import real_clips
from papers.emd.cluster import METHODS, Setting, simulate
from papers.emd.streams import Histograms, colour_position, darkened, film, grey, lab

JOINS = ("S-SS", "S-M")
SHARES = (0.001, 0.003, 0.01, 0.03, 0.06)
WINDOWS = (1.0, 3.0, 5.0, 7.0, 9.0, 11.0)
WORKERS = (2, 5, 8, 11, 14, 17)
PERIODS = (0.5, 1.0, 1.5, 2.5, 4.0, 5.0)
COUNTS = (17, 34, 68, 136, 272)
STREAMS = {"grey-256": grey, "8x8": colour_position, "lab-64": lab}

RATE, PAPER_RATE, DECODED_RATE = 150, 1000, 25
BEGINS, MEASURED = 27.0, 10.0


@dataclass(frozen=True)
class Point:
    """One run of one method; what is not named is as in the paper's defaults."""

    join: str
    method: str
    rate: int
    stream: str = "grey-256"
    share: float = 0.01
    window: float = 5.0
    workers: int = 5
    period: float = 2.5
    ranges: int = 68


def points(rate: int, quick: bool, decoded: bool = False) -> Iterator[Point]:
    """Everything that the figures show; many figures share the paper's default point."""
    every, cut = list(METHODS), ["EMD-DDSJ", "ours"]
    step = 2 if quick or decoded else 1
    for join in JOINS:
        for stream in STREAMS:
            yield from (Point(join, method, rate, stream) for method in every)
        # Of every second one figure 4 would lack its own, 0.03.
        for share in sorted({*SHARES[::step], 0.03}):
            yield from (Point(join, method, rate, share=share) for method in every)
        for period in PERIODS[::step]:
            yield from (Point(join, method, rate, period=period) for method in cut)
        for ranges in COUNTS[::step]:
            yield from (Point(join, method, rate, ranges=ranges) for method in cut)
        for workers in WORKERS[::step]:
            yield from (Point(join, method, rate, workers=workers) for method in every)
        for window in WINDOWS[::step]:
            yield from (Point(join, method, rate, window=window) for method in every)
        # Ours alone at the paper's own rate, which the others would not finish.
        for workers in WORKERS[::step]:
            own = rate if quick or decoded else PAPER_RATE
            yield Point(join, "ours", own, workers=workers)


class Films:
    """Histograms of S, SS and M at one rate, and thresholds by share of matches.

    A shot lasts a tenth of a second of the stream whatever the rate: at the paper's 1000 frames a
    second that is 4 s of a film of 25, and a feedback period sees 25 cuts.
    """

    def __init__(self, rate: int, decoded: bool = False) -> None:
        self.rate, self.decoded = rate, decoded
        self._thresholds: dict[tuple[str, str, float], float] = {}
        self._tables: dict[tuple[str, str], Histograms] = {}

    @cached_property
    def _frames(self) -> dict[str, np.ndarray]:
        frames, scene = int(self.rate * (BEGINS + MEASURED)), max(self.rate // 10, 4)
        if self.decoded:
            from papers.emd.decoded import decoded_film

            one, other = (decoded_film(frames, name, scene) for name in ("S", "M"))
        else:
            one, other = film(frames, 1, scene=scene), film(frames, 2, scene=scene, again=1)
        return {"S": one, "SS": darkened(one), "M": other}

    def table(self, stream: str, which: str) -> Histograms:
        """One film as histograms."""
        key = stream, which
        if key not in self._tables:
            self._tables[key] = STREAMS[stream](self._frames[which])
        return self._tables[key]

    def sides(self, point: Point) -> tuple[Histograms, Histograms]:
        """The two films of a point."""
        left, right = point.join.split("-")
        return self.table(point.stream, left), self.table(point.stream, right)

    def threshold(self, point: Point) -> float:
        """The distance that this share of the pairs of the measured rows is below."""
        key = point.stream, point.join, point.share
        if key not in self._thresholds:
            self._thresholds[key] = self._quantile(*self.sides(point), point.share)
        return self._thresholds[key]

    def _quantile(self, left: Histograms, right: Histograms, share: float) -> float:
        line = isinstance(left.ground, str)
        random = np.random.default_rng(3)
        i = random.integers(int(BEGINS * self.rate), len(left.table), 40_000 if line else 6000)
        reach = int(5 * self.rate)
        j = np.minimum(i + random.integers(-reach, reach + 1, len(i)), len(left.table) - 1)
        p, q = left.table[i].astype(float), right.table[j].astype(float)
        p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
        if line:
            values = np.abs(np.cumsum(p - q, axis=1)).sum(axis=1)
        else:
            ground, _ = read_ground(left.ground)
            values = np.array([solve(u, v, ground.costs).value for u, v in zip(p, q, strict=True)])
        return float(np.quantile(values, share))

    def setting(self, point: Point) -> Setting:
        """What the simulation is given."""
        left, right = self.sides(point)
        return Setting(
            left.table, right.table, self.threshold(point), left.ground, point.window,
            point.workers, point.rate, point.period, point.ranges, BEGINS, MEASURED,
        )  # fmt: skip


def run(wanted: Sequence[Point], result: dict[str, Any], path: Path) -> None:
    """Run every point that the result lacks, and write it down."""
    films: dict[int, Films] = {}
    done = {_point(row): row for row in result["points"]}
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("points", total=len(wanted))
        for point in wanted:
            if point not in done:
                of = films.setdefault(point.rate, Films(point.rate, result.get("decoded", False)))
                setting = of.setting(point)
                outcome = simulate(METHODS[point.method], setting)
                row = {**asdict(point), "threshold": setting.threshold, **asdict(outcome)}
                _agree(row, list(done.values()))
                done[point] = row
                result["points"].append(row)
                write(result, path)
                progress.console.print(
                    f"{point.stream} {point.join} {point.method}: share {point.share:g}, window "
                    f"{point.window:g}, workers {point.workers}, period {point.period:g}, ranges "
                    f"{point.ranges}: {outcome.throughput:,.0f} rows/s, {outcome.solved:,} solved, "
                    f"imbalance {outcome.imbalance:.2f}"
                )
            progress.advance(task)


def _point(row: dict[str, Any]) -> Point:
    return Point(**{name: row[name] for name in Point.__dataclass_fields__})


def _agree(row: dict[str, Any], others: Sequence[dict[str, Any]]) -> None:
    """Methods, workers, periods and ranges change the cost, never the pairs."""
    same = ("join", "rate", "stream", "share", "window", "threshold")
    for other in others:
        if all(other[name] == row[name] for name in same) and other["pairs"] != row["pairs"]:
            raise AssertionError(f"{row} found other pairs than {other}")


def write(result: dict[str, Any], path: Path) -> None:
    """Replace the file at once, so that an interruption leaves the old or the new one."""
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(result, indent=1) + "\n")
    fresh.replace(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the figures."""
    parser = argparse.ArgumentParser(description="Figures of the EMD-DDSJ paper")
    parser.add_argument("--quick", action="store_true", help="fewer rows and points")
    parser.add_argument("--decoded", action="store_true", help="frames of real clips")
    parser.add_argument("--rate", type=int, help=f"rows per second and side ({RATE})")
    parser.add_argument("--fresh", action="store_true", help="run points again that are known")
    parser.add_argument("--again", action="append", choices=list(METHODS), help="and these methods")
    parser.add_argument("--tables", action="store_true", help="print the file as markdown")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    call = parser.parse_args(arguments)
    kind = ("-decoded" if call.decoded else "") + ("-quick" if call.quick else "")
    path = call.out / f"emd-figures{kind}.json"
    if call.tables:
        from papers.emd.tables import tables

        print(tables(json.loads(path.read_text())))
        return
    rate = call.rate or (25 if call.quick else DECODED_RATE if call.decoded else RATE)
    result: dict[str, Any] = {
        **{"machine": machine(), "rate": rate, "decoded": call.decoded},
        **{"seconds": 0, "points": []},
    }
    if path.exists() and not call.fresh:
        before = json.loads(path.read_text())
        if before.get("rate") == rate and "points" in before:
            result = before
    call.out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    wanted = list(dict.fromkeys(points(rate, call.quick, call.decoded)))
    stale = set(call.again or ())
    result["points"] = [
        row for row in result["points"] if _point(row) in set(wanted) and row["method"] not in stale
    ]
    try:
        with threadpool_limits(1, "blas"):  # as in a Spark task: one core
            run(wanted, result, path)
            if "clips" not in result and not call.decoded:
                result["clips"] = real_clips()
    finally:
        result["seconds"] += round(time.time() - began)
        write(result, path)
    print(f"wrote {path.name}; python -m papers.pictures draws it")


if __name__ == "__main__":
    main()
