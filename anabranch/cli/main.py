"""The command ``anabranch``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from anabranch import __version__
from anabranch.cli import doctor, edge, news, place, warm
from anabranch.errors import AnabranchError, InvalidCall

__all__ = ["main"]

app = typer.Typer(
    help="Anabranch correlates distributed data streams over sliding windows, on PySpark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"anabranch {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    seconds: Annotated[
        float, typer.Option(min=1, help="How long the channels are on air, by the wall clock.")
    ] = 25,
    speed: Annotated[
        float, typer.Option(min=0.1, help="Seconds of stream time per second of the wall clock.")
    ] = 8,
    left_rate: Annotated[
        float, typer.Option(min=1, help="Rows per second of stream time on the left channel.")
    ] = 500,
    right_rate: Annotated[
        float, typer.Option(min=1, help="Rows per second of stream time on the right channel.")
    ] = 300,
    stories: Annotated[
        int, typer.Option(min=0, help="Stories on both channels; two in five are traps.")
    ] = 50,
    seed: Annotated[int, typer.Option(help="The same seed and knobs broadcast the same rows.")] = 7,
    workers: Annotated[int, typer.Option(min=1, help="Workers, and cores that Spark uses.")] = 2,
    skip_comparison: Annotated[
        bool,
        typer.Option("--skip-comparison", help="Do not run plain Spark's join afterwards (12 s)."),
    ] = False,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave rows, checkpoints and Spark's log behind.")
    ] = False,
) -> None:
    """Watch two simulated news channels being correlated while they are on air.

    Rows of 64 features are written as live parquet files; a streaming query finds the stories that
    both channels tell within a minute. At the end every pair found is checked against what was
    planted, and speed is compared with the join that Spark users write today.

    Exit code: 0 if exactly the due stories were found, 1 if not, 130 after Ctrl-C.
    """
    # Spark would otherwise start its workers with the system's python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Here, not above: Spark takes a second to import, and --help and --version do without.
    from anabranch.spark.demo.show import DemoSettings, run_demo

    try:
        code = run_demo(
            DemoSettings(
                seconds=seconds,
                speed=speed,
                left_rate=left_rate,
                right_rate=right_rate,
                stories=stories,
                seed=seed,
                workers=workers,
                compare=not skip_comparison,
                keep_files=keep_files,
            )
        )
    except AnabranchError as error:
        typer.echo(str(error), err=True)
        code = 2
    raise typer.Exit(code)


@app.command("story")
def tell_story(
    path: Annotated[str, typer.Argument(help="The control directory of a query.")],
    plot: Annotated[
        str | None, typer.Option(help="Draw the plans over time here (.svg, .png or .pdf).")
    ] = None,
) -> None:
    """Print the history of a log of plans or placements: what changed, when, and why."""
    try:
        _tell_story(path, plot)
    except AnabranchError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _tell_story(path: str, plot: str | None) -> None:
    from anabranch.flow.folders import Folder, path_problems
    from anabranch.plans.log import PlanLog
    from anabranch.plans.story import story

    if problems := path_problems("path", path):
        raise InvalidCall("story", problems)
    first = Folder(path).read("00000000.json")
    if first is not None and b'"moves"' in first:
        from anabranch.placement.log import PlacementLog

        for line in PlacementLog(path).story():
            typer.echo(line)
        return
    log = PlanLog(path)
    entries, refused = log.entries(), log.refused()
    if not entries and not refused:
        if _is_of_a_hub(path):
            typer.echo("the log of placements is empty: views come when a query of ab.follow runs")
            return
        raise InvalidCall(
            "story", [f"there is no plan log in {path}: give the directory named by control="]
        )
    for line in story(entries, refused):
        typer.echo(line)
    if plot is not None:
        log.draw(plot)


def _is_of_a_hub(path: str) -> bool:
    from anabranch.edge.hub import Hub

    folder = Path(path).absolute()
    try:
        return Hub(folder.parent).control == folder
    except AnabranchError:
        return False


news.register(app)
place.register(app)
doctor.register(app)
warm.register(app)
edge.register(app)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
