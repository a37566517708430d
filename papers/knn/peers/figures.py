"""Figures 8 to 16 of the D-ZaLaPS paper, and three more, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anabranch.errors import InvalidCall
from papers.knn.peers.runs import Outcome, errors, run
from papers.knn.peers.settings import DATA, PeerSettings

__all__ = ["LINES", "MEASURES", "RECIPES", "PeerFigure", "PeerRecipe", "compute", "work"]

LINES: Mapping[str, dict[str, Any]] = {
    "PA": {"method": "PA"},
    "PA-starving": {"method": "PA-starving"},
    "RAPF": {"method": "RAPF"},
    "RAPF b=w/2": {"method": "RAPF", "buffer": None},
}
"""What is compared; RAPF has the paper's buffer unless it says otherwise."""

MEASURES: Mapping[str, tuple[str, Callable[[Outcome], float]]] = {
    "owner": ("notify owner peer, per object", lambda o: o.per_object("notify owner peer")),
    "interested": (
        "notify interested peer, per object",
        lambda o: o.per_object("notify interested peer"),
    ),
    "merger": ("merger update, per object", lambda o: o.per_object("merger update")),
    "total": ("all messages, per object", lambda o: o.total),
    "increase": ("more messages than centralised, %", lambda o: o.increase),
    "membership": (
        "join, departure, handover and inform, per change",
        lambda o: (
            sum(
                o.messages[kind]
                for kind in ("join", "departure", "query handover", "neighbour inform")
            )
            / max(2 * o.settings.churn, 1)
        ),
    ),
}
_ALL = tuple(LINES)


@dataclass(frozen=True)
class PeerRecipe:
    """How a figure is made: one setting is varied over some values, for some data and lines."""

    name: str
    title: str
    axis: str
    values: tuple[float, ...]
    measures: tuple[str, ...]
    settings: PeerSettings = field(default_factory=PeerSettings)
    data: tuple[str, ...] = DATA
    lines: tuple[str, ...] = _ALL
    seeds: int = 3

    @property
    def quick(self) -> PeerRecipe:
        """The same in miniature: the shape, not the figures."""
        small = replace(
            self.settings,
            peers=64,
            queries=100,
            window=4_000,
            buffer=200,
            objects=10_000,
            warmup=8_000,
        )
        values = self.values
        if self.axis == "window":
            values = (2_000, 4_000, 8_000)
        elif self.axis in ("queries", "peers"):
            values = tuple(value for value in values if value <= 256)
        elif self.axis == "k":
            values = (1, 9, 27)
        return replace(self, settings=small, values=values, seeds=1)

    def at(self, data: str, line: str, value: float, seed: int) -> PeerSettings:
        """The settings of one run."""
        changed: dict[str, Any] = {self.axis: type(getattr(self.settings, self.axis))(value)}
        if self.axis == "dimension":  # as many cells whatever the dimension
            changed["resolution"] = {2: 256, 4: 16, 8: 4}[int(value)]
        return replace(self.settings, data=data, seed=seed, **LINES[line], **changed)


@dataclass(frozen=True)
class PeerFigure:
    """A figure as data: ``values[data, line, measure][i]`` are those at axis value i, by seed."""

    recipe: PeerRecipe
    values: Mapping[tuple[str, str, str], list[list[float]]]
    outcomes: tuple[Outcome, ...] = ()

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> PeerFigure:
        """The figure that a form for JSON was made of, without its runs."""
        recipe, curves = RECIPES[form["figure"]], form["curves"]
        told: dict[str, Any] = {
            name: tuple(dict.fromkeys(curve[key] for curve in curves))
            for name, key in (("data", "data"), ("lines", "line"), ("measures", "measure"))
        }
        values = tuple(curves[0][recipe.axis])
        runs = {(c["data"], c["line"], c["measure"]): c["by seed"] for c in curves}
        return cls(replace(recipe, title=form["title"], values=values, **told), runs)

    def to_dict(self) -> dict[str, Any]:
        """A form for JSON."""
        recipe = self.recipe
        curves = [
            {
                "data": data,
                "line": line,
                "measure": measure,
                recipe.axis: list(recipe.values),
                "mean": [float(np.mean(runs)) for runs in rows],
                "spread": [spread(runs) for runs in rows],
                "by seed": rows,
            }
            for (data, line, measure), rows in self.values.items()
        ]
        settings = {**vars(recipe.settings)}
        for varied in (recipe.axis, "data", "seed", "method"):
            settings.pop(varied)
        return {
            "figure": recipe.name,
            "title": recipe.title,
            "settings": settings,
            "seeds": len(next(iter(self.values.values()))[0]),
            "curves": curves,
            "runs": [outcome.to_dict() for outcome in self.outcomes],
        }


def spread(runs: list[float]) -> float:
    """Standard deviation over seeds."""
    return float(np.std(runs, ddof=1)) if len(runs) > 1 else 0.0


_K = (1, 3, 9, 27, 81)
_LATER = PeerSettings(k=9)
_SHORT = replace(_LATER, objects=200_000)

RECIPES: Mapping[str, PeerRecipe] = {
    recipe.name: recipe
    for recipe in (
        PeerRecipe("8", "notify owner peer messages", "k", _K, ("owner",)),
        PeerRecipe("9", "notify interested peer messages", "k", _K, ("interested",)),
        PeerRecipe("10", "merger update messages", "k", _K, ("merger",)),
        PeerRecipe("11", "all messages", "k", _K, ("total",)),
        PeerRecipe("12", "increase over one central processor", "k", _K, ("increase",)),
        PeerRecipe(
            "13",
            "all messages by window",
            "window",
            (10_000, 20_000, 40_000, 80_000),
            ("total",),
            replace(_LATER, warmup=200_000),
        ),
        PeerRecipe(
            "14",
            "all messages by dimension, 65536 cells",
            "dimension",
            (2, 4, 8),
            ("total",),
            replace(_LATER, resolution=16),
            data=("uniform", "clustered"),
        ),
        PeerRecipe(
            "15",
            "messages by number of queries",
            "queries",
            (100, 200, 400, 800, 1600),
            ("total", "interested", "merger"),
            _LATER,
            data=("uniform",),
        ),
        PeerRecipe(
            "16",
            "messages by number of peers",
            "peers",
            (16, 64, 256, 1024),
            ("total", "interested", "merger"),
            _LATER,
            data=("uniform",),
        ),
        PeerRecipe(
            "slack",
            "cells of interest a little larger than needed",
            "slack",
            (0.0, 0.02, 0.05, 0.1, 0.2),
            ("total", "interested", "merger"),
            replace(_SHORT, k=81),
            data=("uniform",),
            lines=("PA", "RAPF", "RAPF b=w/2"),
        ),
        PeerRecipe(
            "churn",
            "peers that join and depart",
            "churn",
            (10, 100, 1000),
            ("membership", "merger", "interested"),
            _SHORT,
            data=("uniform",),
            lines=("PA", "RAPF b=w/2"),
        ),
        PeerRecipe(
            "error",
            "results missed and false results of PA, shares",
            "k",
            _K,
            ("missed", "false"),
            replace(_SHORT, objects=400_000),
            lines=("PA", "PA-starving", "PA-open"),
        ),
    )
}

Tick = Callable[[str, int], None]
Memory = dict[PeerSettings, Outcome]


def compute(
    recipe: PeerRecipe,
    seeds: int | None = None,
    tick: Tick | None = None,
    memory: Memory | None = None,
    keep: Callable[[], None] | None = None,
) -> PeerFigure:
    """Run everything a figure needs.

    Parameters
    ----------
    recipe
        One of `RECIPES`, perhaps with other settings, or `recipe.quick`.
    seeds
        How many runs each point is the mean of.
    tick
        Told what runs, and the objects that have passed.
    memory
        Runs done before; they are not repeated, and new ones are added.
    keep
        Called after each new run, to store `memory`.

    Examples
    --------
    >>> few = replace(RECIPES["8"].quick, data=("uniform",), values=(3,), lines=("PA", "RAPF"))
    >>> figure = compute(few)
    >>> sorted(figure.values)
    [('uniform', 'PA', 'owner'), ('uniform', 'RAPF', 'owner')]
    """
    seeds = recipe.seeds if seeds is None else seeds
    if seeds < 1:
        raise InvalidCall("simulate", [f"seeds must be at least 1, got {seeds}"])
    memory = {} if memory is None else memory
    if recipe.name == "error":
        return _errors(recipe, seeds, tick)
    points = [
        (data, value, line, seed)
        for seed in range(recipe.settings.seed, recipe.settings.seed + seeds)
        for data in recipe.data
        for value in recipe.values
        for line in recipe.lines
    ]
    wanted = {point: recipe.at(point[0], point[2], point[1], point[3]) for point in points}
    for (data, value, line, seed), settings in wanted.items():
        if settings in memory:
            if tick is not None:
                tick(line, settings.warmup + settings.objects)
            continue
        label = f"{line}, {data}, {recipe.axis} {value:g}, seed {seed}"
        memory[settings], _ = run(settings, _reporter(tick, label))
        if keep is not None:
            keep()
    values: dict[tuple[str, str, str], list[list[float]]] = {}
    for measure in recipe.measures:
        amount = MEASURES[measure][1]
        for data, value, line, seed in sorted(points, key=lambda p: p[3]):
            rows = values.setdefault((data, line, measure), [[] for _ in recipe.values])
            rows[recipe.values.index(value)].append(amount(memory[wanted[data, value, line, seed]]))
    outcomes = tuple(memory[settings] for settings in dict.fromkeys(wanted.values()))
    return PeerFigure(recipe, values, outcomes)


def _errors(recipe: PeerRecipe, seeds: int, tick: Tick | None) -> PeerFigure:
    values: dict[tuple[str, str, str], list[list[float]]] = {}
    for data in recipe.data:
        for place, k in enumerate(recipe.values):
            for seed in range(recipe.settings.seed, recipe.settings.seed + seeds):
                settings = replace(recipe.settings, data=data, k=int(k), seed=seed)
                shares = errors(settings, _reporter(tick, f"{data}, k {k:g}, seed {seed}"))
                for line in recipe.lines:
                    for measure, share in zip(("missed", "false"), shares[line], strict=True):
                        rows = values.setdefault((data, line, measure), [[] for _ in recipe.values])
                        rows[place].append(share)
    return PeerFigure(recipe, values)


def work(recipe: PeerRecipe, seeds: int) -> int:
    """Objects that pass in all runs of a figure together."""
    lines = 2 if recipe.name == "error" else len(recipe.lines)
    runs = len(recipe.data) * len(recipe.values) * lines * seeds
    return runs * (recipe.settings.objects + recipe.settings.warmup)


def _reporter(tick: Tick | None, label: str) -> Callable[[int], None] | None:
    return None if tick is None else lambda objects: tick(label, objects)
