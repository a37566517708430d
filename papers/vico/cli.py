"""The command ``python -m papers.vico``: figures of the ViCo paper, from a simulated cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from anabranch.errors import InvalidCall
from papers.screen import chosen, explained, progress, write_figure

if TYPE_CHECKING:
    from papers.vico.simulation import Figure, Recipe

__all__ = ["app"]

Low = Annotated[float | None, typer.Option(help="Lowest mean rate, frames per second.")]
app = typer.Typer(add_completion=False)

High = Annotated[float | None, typer.Option(help="Highest mean rate, frames per second.")]


@app.command()
def vico(
    figure: Annotated[
        str, typer.Option(help="9, 10, 11 or 12 of the ViCo paper, or growth.", show_default=False)
    ],
    quick: Annotated[bool, typer.Option("--quick", help="The shape in seconds.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs per point (default 5).")] = None,
    out: Annotated[Path, typer.Option(help="Directory for PNG and JSON.", file_okay=False)] = Path(
        "simulated"
    ),
    name: Annotated[
        str | None, typer.Option(help="Name of the files (default vico-FIGURE).")
    ] = None,
    picture: Annotated[bool, typer.Option(help="Write the PNG.")] = True,
    methods: Annotated[
        str | None, typer.Option(help="Methods to run, with commas between.")
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(help="Numbers of hosts, with commas between.")
    ] = None,
    operators: Annotated[int | None, typer.Option(help="Correlations that share them.")] = None,
    lowest_rate: Low = None,
    highest_rate: High = None,
    redraw: Annotated[
        int | None, typer.Option(help="Seconds until rates are drawn anew; 0: never.")
    ] = None,
    seconds: Annotated[int | None, typer.Option(help="Length of a run (default 5000).")] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Seconds left out at the beginning (default 500).")
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="Processor units per second and unit of capacity (5; 1 for 11, 12)."),
    ] = None,
    frame_kilobytes: Annotated[
        float | None, typer.Option(help="Size of a frame (default 10).")
    ] = None,
    queue: Annotated[
        int | None, typer.Option(help="Seconds of comparing that may wait (default 60).")
    ] = None,
    receive: Annotated[
        str | None, typer.Option(help="first: before comparing (default); shared: with it.")
    ] = None,
    segment: Annotated[
        int | None, typer.Option(help="Segment length T of CSP at first (default 10).")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(help="First master: left, right, faster (default; left for 11, 12)."),
    ] = None,
    shares: Annotated[
        str | None, typer.Option(help="Assign masters by speed (default) or equal.")
    ] = None,
    staleness: Annotated[
        int | None, typer.Option(help="Age that loads reach in LLF, seconds (default 1).")
    ] = None,
    report: Annotated[
        int | None, typer.Option(help="Seconds between load reports (default 5).")
    ] = None,
    ahead: Annotated[
        int | None, typer.Option(help="Reports until a change holds (default 2).")
    ] = None,
    segment_step: Annotated[
        float | None, typer.Option(help="Step of segment adaptation, a factor (default 1.5).")
    ] = None,
    delay: Annotated[
        int | None, typer.Option(help="Longest delay of frames, seconds (default 0).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="First seed (default 0).")] = None,
) -> None:
    """Figures 9 to 12 of the ViCo paper on a simulated cluster.

    Plans, router and controller are the library's own; hosts, links and processors are simulated.
    Throughput is comparisons per second, recall the pairs done of the pairs due.
    """
    choices: dict[str, Any] = {
        "redraw": redraw,
        "seconds": seconds,
        "warmup": warmup,
        "beta": beta,
        "frame_kilobytes": frame_kilobytes,
        "queue": queue,
        "receive": receive,
        "segment": segment,
        "master": master,
        "shares": shares,
        "staleness": staleness,
        "report": report,
        "ahead": ahead,
        "segment_step": segment_step,
        "delay": delay,
        "seed": seed,
    }
    console = Console()
    with explained():
        recipe = _recipe(figure, quick, methods, hosts, operators)
        low, high = recipe.settings.rates
        rates = (
            low if lowest_rate is None else lowest_rate,
            high if highest_rate is None else highest_rate,
        )
        given = {key: value for key, value in choices.items() if value is not None}
        recipe = replace(recipe, settings=replace(recipe.settings, rates=rates, **given))
        began = time.perf_counter()
        drawn = _watched(recipe, recipe.seeds if seeds is None else seeds)
        taken = time.perf_counter() - began
        console.print(_table(drawn))
        for line in _remarks(drawn):
            console.print(line)
        stem = name or f"vico-{figure}"
        files = write_figure(drawn.to_dict(), out, stem, partial(_draw, drawn) if picture else None)
    console.print(f"{taken:.0f} s. Wrote {', '.join(str(path) for path in files)}.")


def _recipe(
    figure: str, quick: bool, methods: str | None, hosts: str | None, operators: int | None
) -> Recipe:
    from papers.vico.simulation import RECIPES

    recipe = chosen(RECIPES, figure, quick)
    if methods is not None:
        names = tuple(part.strip() for part in methods.split(","))
        recipe = replace(recipe, methods=names)
    if hosts is not None:
        try:
            counts = [int(part) for part in hosts.split(",")]
        except ValueError:
            problem = f"hosts must be whole numbers with commas between, got {hosts!r}"
            raise InvalidCall("simulate", [problem]) from None
        recipe = replace(recipe, sizes=tuple((k, recipe.sizes[0][1]) for k in counts))
    if operators is not None:
        recipe = replace(recipe, sizes=tuple((k, operators) for k, _ in recipe.sizes))
    return recipe


def _watched(recipe: Recipe, seeds: int) -> Figure:
    """Compute the figure under a progress bar."""
    from papers.vico.simulation.figures import compute, work

    with progress(work(recipe, seeds)) as tick:
        return compute(recipe, seeds, tick)


def _table(figure: Figure) -> Table:
    recipe = figure.recipe
    title = f"ViCo {recipe.name}: {recipe.title}, beta {recipe.settings.beta:g}"
    table = Table(title=title, box=SIMPLE, pad_edge=False)
    table.add_column("method", no_wrap=True)
    headings = ["hosts", "compared/s", "±", "recall", "copies"]
    for heading in [*headings, "changes" if figure.series else "taken"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for point in sorted(figure.points, key=lambda p: (p.hosts, recipe.methods.index(p.method))):
        seeds = len(point.throughput)
        changes, taken_in = sum(point.changes) / seeds, sum(point.taken_in) / seeds
        table.add_row(
            point.method,
            str(point.hosts),
            f"{point.mean:,.1f}",
            f"{point.spread:,.1f}",
            f"{sum(point.recall) / seeds:.3%}",
            f"{sum(point.copies_per_frame) / seeds:.2f}",
            f"{changes:g}" if figure.series else f"{taken_in:.1%}",
        )
    return table


def _remarks(figure: Figure) -> list[str]:
    """What the means hide, for figures over time."""
    if not figure.series:
        return []
    first, *others = figure.recipe.methods
    return [
        f"{name}: at best {figure.best_sample(name, first):.2f} times {first} in a sample."
        for name in others
    ]


def _draw(figure: Figure, path: Path) -> Path:
    from papers.vico.simulation.drawing import draw

    return draw(figure, path)
