"""Figures 9 to 12 of the ViCo paper (section 4.3), and how cost grows past it, as plain data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.plans.story import story
from papers.vico.simulation.methods import METHODS
from papers.vico.simulation.runs import Outcome, simulate
from papers.vico.simulation.settings import Settings

__all__ = ["RECIPES", "Figure", "Point", "Recipe", "compute"]


@dataclass(frozen=True)
class Recipe:
    """How a figure is made: settings, methods, and cluster sizes as (hosts, operators).

    Where `sample` is given, the figure is over time, by means of so many seconds.
    """

    name: str
    title: str
    settings: Settings
    methods: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    sample: int = 0
    seeds: int = 5

    @property
    def quick(self) -> Recipe:
        """The same in miniature: the shape, not the figures."""
        seconds = 2000 if self.sample else min(self.settings.seconds, 600)
        settings = replace(self.settings, seconds=seconds, warmup=min(seconds // 4, 250))
        sizes = [size for size in self.sizes if size[0] <= 300]
        sizes = sizes[:: max(len(sizes) // 3, 1)]
        return replace(self, settings=settings, sizes=tuple(sizes), seeds=min(self.seeds, 2))


@dataclass(frozen=True)
class Point:
    """One method on one size of cluster: figures by seed."""

    method: str
    hosts: int
    operators: int
    throughput: tuple[float, ...]
    recall: tuple[float, ...]
    copies_per_frame: tuple[float, ...]
    taken_in: tuple[float, ...]
    changes: tuple[int, ...]
    run_seconds: float

    @property
    def mean(self) -> float:
        """Mean throughput."""
        return float(np.mean(self.throughput))

    @property
    def spread(self) -> float:
        """Standard deviation of the throughput over seeds."""
        return float(np.std(self.throughput, ddof=1)) if len(self.throughput) > 1 else 0.0


@dataclass(frozen=True)
class Figure:
    """A figure as data.

    `series` holds throughput over time, by method, seed and sample, for figures over time;
    `stories` the plan changes of the first seed as sentences.
    """

    recipe: Recipe
    points: tuple[Point, ...]
    series: Mapping[str, list[list[float]]] = field(default_factory=dict)
    stories: Mapping[str, list[str]] = field(default_factory=dict)

    def curve(self, method: str) -> list[Point]:
        """The points of one method, small clusters first."""
        return [point for point in self.points if point.method == method]

    def best_sample(self, method: str, against: str) -> float:
        """How many times the throughput of another method this one reaches at best, in means."""
        ours, theirs = (np.mean(self.series[name], axis=0) for name in (method, against))
        return float((ours[1:] / theirs[1:]).max())

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> Figure:
        """The figure that a form for JSON was made of."""
        known = {of.name for of in fields(Point)}
        points = tuple(
            Point(**{name: value for name, value in point.items() if name in known})
            for point in form["points"]
        )
        recipe = replace(
            RECIPES[form["figure"]],
            title=form["title"],
            settings=Settings(**form["settings"]),
            methods=tuple(dict.fromkeys(point.method for point in points)),
            sample=form["sample"],
        )
        return cls(recipe, points, form["series"], form["stories"])

    def to_dict(self) -> dict[str, Any]:
        """A form for JSON."""
        return {
            "figure": self.recipe.name,
            "title": self.recipe.title,
            "settings": asdict(self.recipe.settings),
            "sample": self.recipe.sample,
            "points": [
                {**asdict(point), "mean": point.mean, "spread": point.spread}
                for point in self.points
            ],
            "series": {name: rows for name, rows in self.series.items()},
            "stories": dict(self.stories),
        }


_SCALING = ("SSP", "CSP", "grid", "LLF-Distribution", "LLF-Diffusion")
_TWENTY = tuple((hosts, 20) for hosts in range(10, 101, 10))
_ONE = ((10, 1),)
_CHANGING = Settings(rates=(1.0, 60.0), redraw=500, rate_seed=0, beta=1.0)

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "9",
            "20 operators, slow streams",
            Settings(rates=(1.0, 5.0), master="faster"),
            _SCALING,
            _TWENTY,
        ),
        Recipe(
            "10",
            "20 operators, fast streams",
            Settings(rates=(10.0, 30.0), master="faster"),
            _SCALING,
            _TWENTY,
        ),
        Recipe(
            "11",
            "SSP while rates change",
            _CHANGING,
            ("SSP", "SSP-roleAdapt", "SSP-shapeAdapt"),
            _ONE,
            sample=50,
        ),
        Recipe(
            "12",
            "CSP while rates change",
            _CHANGING,
            ("CSP", "CSP-segmentAdapt", "CSP-roleAdapt", "CSP-fullAdapt", "CSP-anyPlan"),
            _ONE,
            sample=50,
        ),
        Recipe(
            "growth",
            "five hosts for each operator",
            Settings(rates=(1.0, 5.0), master="faster", seconds=1000, warmup=200),
            _SCALING,
            ((10, 2), (30, 6), (100, 20), (300, 60), (1000, 200)),
            seeds=1,
        ),
    )
}


def compute(
    recipe: Recipe,
    seeds: int | None = None,
    tick: Callable[[str, int], None] | None = None,
) -> Figure:
    """Run everything a figure needs.

    Parameters
    ----------
    recipe
        One of `RECIPES`, perhaps with other settings, or `recipe.quick`.
    seeds
        How many runs each point is the mean of.
    tick
        Told what runs, and the simulated seconds that have passed.

    Examples
    --------
    >>> tiny = replace(RECIPES["9"].quick, sizes=((4, 2),), methods=("SSP", "grid"))
    >>> [point.method for point in compute(tiny, seeds=1).points]
    ['SSP', 'grid']
    """
    seeds = recipe.seeds if seeds is None else seeds
    if seeds < 1:
        raise InvalidCall("simulate", [f"seeds must be at least 1, got {seeds}"])
    unknown = [name for name in recipe.methods if name not in METHODS]
    if unknown:
        raise InvalidCall(
            "simulate", [f"unknown methods {unknown}; known are {', '.join(METHODS)}"]
        )
    points, series, stories = [], {}, {}
    for hosts, operators in recipe.sizes:
        for method in recipe.methods:
            began = time.perf_counter()
            outcomes: list[Outcome] = []
            for seed in range(recipe.settings.seed, recipe.settings.seed + seeds):
                settings = replace(recipe.settings, hosts=hosts, operators=operators, seed=seed)
                report = _reporter(tick, f"{method}, {hosts} hosts, seed {seed}")
                outcomes.append(simulate(settings, method, report))
            taken = time.perf_counter() - began
            points.append(_point(method, hosts, operators, outcomes, taken))
            if recipe.sample:
                series[method] = [run.sampled(recipe.sample).tolist() for run in outcomes]
                stories[method] = story(outcomes[0].entries[0])
    return Figure(recipe, tuple(points), series, stories)


def work(recipe: Recipe, seeds: int) -> int:
    """Simulated seconds that a figure takes, all runs together."""
    return len(recipe.sizes) * len(recipe.methods) * seeds * recipe.settings.seconds


def _point(method: str, hosts: int, operators: int, outcomes: list[Outcome], taken: float) -> Point:
    return Point(
        method,
        hosts,
        operators,
        tuple(run.throughput for run in outcomes),
        tuple(run.recall for run in outcomes),
        tuple(run.copies_per_frame for run in outcomes),
        tuple(run.taken_in for run in outcomes),
        tuple(len(run.changes) for run in outcomes),
        taken,
    )


def _reporter(tick: Callable[[str, int], None] | None, label: str) -> Callable[[int], None] | None:
    return None if tick is None else lambda seconds: tick(label, seconds)
