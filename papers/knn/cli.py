"""The command ``python -m papers.knn``: figures of the D-ZaLaPS paper, from simulated peers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from anabranch.errors import AnabranchError, InvalidCall
from benchmarks.origin import origin
from papers.screen import chosen, explained, progress, write_figure

if TYPE_CHECKING:
    from papers.knn.peers.figures import Memory, PeerFigure, PeerRecipe
    from papers.knn.peers.settings import PeerSettings

    Origins = dict[PeerSettings, Any]

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def knn(
    figure: Annotated[
        str,
        typer.Option(
            help="8 to 16 of the D-ZaLaPS paper, or slack, churn, error.", show_default=False
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="The shape in seconds.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs per point (default 3).")] = None,
    out: Annotated[Path, typer.Option(help="Directory for PNG and JSON.", file_okay=False)] = Path(
        "simulated"
    ),
    name: Annotated[
        str | None, typer.Option(help="Name of the files (default knn-FIGURE).")
    ] = None,
    picture: Annotated[bool, typer.Option(help="Write the PNG.")] = True,
    buffer: Annotated[
        str | None,
        typer.Option(help="Recent objects of RAPF: a number (default 2000), or half the window."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="uniform, clustered, sensors; with commas between.")
    ] = None,
    lines: Annotated[
        str | None, typer.Option(help="PA, PA-starving, RAPF, RAPF b=w/2; with commas between.")
    ] = None,
    sensors: Annotated[
        Path | None,
        typer.Option(help="File of sensor readings, numbers with commas between; may be .gz."),
    ] = None,
    objects: Annotated[int | None, typer.Option(help="Objects counted (default 1000000).")] = None,
    warmup: Annotated[int | None, typer.Option(help="Objects before (default 100000).")] = None,
    k: Annotated[
        int | None, typer.Option(help="Neighbours, where they are not varied (default 9).")
    ] = None,
    window: Annotated[int | None, typer.Option(help="Objects per window (default 40000).")] = None,
    queries: Annotated[int | None, typer.Option(help="Queries (default 400).")] = None,
    peers: Annotated[int | None, typer.Option(help="Peers (default 256).")] = None,
    spread: Annotated[
        float | None, typer.Option(help="Standard deviation of clusters (default 0.1).")
    ] = None,
    merger: Annotated[
        str | None, typer.Option(help="What peers ask for: a box (default), or exactly the cells.")
    ] = None,
    slack: Annotated[
        float | None, typer.Option(help="Share by which cells of interest reach further (0).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="First seed (default 0).")] = None,
) -> None:
    """Figures 8 to 16 of the D-ZaLaPS paper on simulated peers.

    Peers hold zones of a grid, answer k-NN queries with PA or RAPF, and every message between them
    is counted. Runs are kept in OUT/knn-runs.json and not repeated: figures 8 to 12 show the same
    ones.
    """
    choices: dict[str, Any] = {
        "objects": objects,
        "warmup": warmup,
        "k": k,
        "window": window,
        "queries": queries,
        "peers": peers,
        "spread": spread,
        "merger": merger,
        "slack": slack,
        "seed": seed,
    }
    console = Console()
    with explained():
        recipe = _recipe(figure, quick, data, lines, buffer, choices)
        recipe = _sensed(recipe, sensors, console)
        memory, origins, path = _remembered(out)
        began = time.perf_counter()
        drawn = _watched(recipe, recipe.seeds if seeds is None else seeds, memory, origins, path)
        taken = time.perf_counter() - began
        for table in _tables(drawn):
            console.print(table)
        stem = name or f"knn-{figure}"
        files = write_figure(drawn.to_dict(), out, stem, partial(_draw, drawn) if picture else None)
    console.print(f"{taken:.0f} s. Wrote {', '.join(str(path) for path in files)}.")


def _recipe(
    figure: str,
    quick: bool,
    data: str | None,
    lines: str | None,
    buffer: str | None,
    choices: dict[str, Any],
) -> PeerRecipe:
    from papers.knn.peers.figures import LINES, RECIPES
    from papers.knn.peers.settings import DATA

    recipe = chosen(RECIPES, figure, quick)
    given = {key: value for key, value in choices.items() if value is not None}
    if recipe.axis in given:
        raise InvalidCall(
            "simulate", [f"figure {figure} varies {recipe.axis} itself; leave out --{recipe.axis}"]
        )
    if buffer is not None:
        if buffer != "half" and not buffer.isdigit():
            raise InvalidCall(
                "simulate", [f"buffer must be a number of objects or half, got {buffer!r}"]
            )
        given["buffer"] = None if buffer == "half" else int(buffer)
    recipe = replace(recipe, settings=replace(recipe.settings, **given))
    if data is not None:
        recipe = replace(recipe, data=_names("data", data, DATA))
    if lines is not None:
        recipe = replace(recipe, lines=_names("lines", lines, tuple(LINES)))
    return recipe


def _names(option: str, asked: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(part.strip() for part in asked.split(","))
    unknown = [part for part in names if part not in known]
    if unknown:
        raise InvalidCall("simulate", [f"unknown {option} {unknown}; known are {', '.join(known)}"])
    return names


def _sensed(recipe: PeerRecipe, sensors: Path | None, console: Console) -> PeerRecipe:
    """Read the sensor data, or go on without them and say so."""
    from papers.knn.peers.data import read_sensors
    from papers.knn.peers.runs import use_sensors

    if "sensors" not in recipe.data:
        return recipe
    if sensors is not None:
        if not sensors.exists():
            raise AnabranchError(f"there is no file {sensors}; --sensors names one of readings")
        use_sensors(read_sensors(sensors))
        return recipe
    rest = tuple(data for data in recipe.data if data != "sensors")
    if not rest:
        raise AnabranchError("sensor data need --sensors FILE, numbers with commas between")
    console.print("Without --sensors FILE the sensor data are left out.")
    return replace(recipe, data=rest)


def _remembered(out: Path) -> tuple[Memory, Origins, Path]:
    """Runs that are kept, and from which code each of them comes."""
    from papers.knn.peers.runs import Outcome

    path = out / "knn-runs.json"
    if not path.exists():
        return {}, {}, path
    try:
        rows = json.loads(path.read_text())
        said = [row.pop("origin", "unknown") for row in rows]
        outcomes = [Outcome.from_dict(row) for row in rows]
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise AnabranchError(
            f"{path} holds no runs of this release: remove it, or choose another --out"
        ) from error
    settings = [outcome.settings for outcome in outcomes]
    memory = dict(zip(settings, outcomes, strict=True))
    return memory, dict(zip(settings, said, strict=True)), path


def _watched(
    recipe: PeerRecipe, seeds: int, memory: Memory, origins: Origins, path: Path
) -> PeerFigure:
    """Compute the figure under a progress bar, keeping every run."""
    from papers.knn.peers.figures import compute, work

    here = origin()

    def keep() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {**outcome.to_dict(), "origin": origins.setdefault(settings, here)}
            for settings, outcome in memory.items()
        ]
        fresh = path.with_suffix(".tmp")
        fresh.write_text(json.dumps(rows) + "\n")
        fresh.replace(path)

    with progress(work(recipe, seeds)) as tick:
        return compute(recipe, seeds, tick, memory, keep)


def _tables(figure: PeerFigure) -> list[Table]:
    from papers.knn.peers.figures import MEASURES
    from papers.knn.peers.figures import spread as deviation

    recipe = figure.recipe
    tables = []
    for measure in recipe.measures:
        what = MEASURES.get(measure, (measure,))[0]
        table = Table(title=f"D-ZaLaPS {recipe.name}: {what}", box=SIMPLE, pad_edge=False)
        for heading in ("data", recipe.axis):
            table.add_column(heading, no_wrap=True)
        for line in recipe.lines:
            table.add_column(line, justify="right", no_wrap=True)
        for data in recipe.data:
            for place, value in enumerate(recipe.values):
                cells = []
                for line in recipe.lines:
                    runs = figure.values[data, line, measure][place]
                    cells.append(f"{np.mean(runs):.4g} ± {deviation(runs):.2g}")
                table.add_row(data, f"{value:g}", *cells)
        tables.append(table)
    return tables


def _draw(figure: PeerFigure, path: Path) -> Path:
    from papers.knn.peers.drawing import draw

    return draw(figure, path)
