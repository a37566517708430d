"""``anabranch news``: three channels of real video, correlated while they are on air."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import AnabranchError

__all__ = ["register"]

_CHECK_SECONDS = 40.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(news)


def news(
    seconds: Annotated[
        float, typer.Option(min=60, help="How long the channels are, in stream time.")
    ] = 96,
    speed: Annotated[
        float, typer.Option(min=0.1, help="Seconds of stream time per second of the wall clock.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="The same seed and length show the same.")] = 7,
    workers: Annotated[int, typer.Option(min=1, help="Workers, and cores that Spark uses.")] = 2,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Without opening a page, and as fast as fits into 40 seconds."
        ),
    ] = False,
    within: Annotated[
        float | None,
        typer.Option(
            min=0, help="Run `anabranch demo` instead if this takes longer to set up, in seconds."
        ),
    ] = None,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave tables, checkpoints and Spark's log behind.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write the verdict here, as JSON.")
    ] = None,
) -> None:
    """Watch three channels of real video, and the topics that they have in common.

    Clips that published packages bring are fetched once, cut into three channels in house styles,
    and encoded. Their segments appear as they would on air. Queries decode them, find shots,
    correlate key frames and make topics, which the live page shows side by side. In the end all of
    it is compared with the timetable.

    Exit code: 0 if every topic, 95 % of all pairs and 98 % of all shots were found, no pair, topic
    or shot is false, and no pair or topic is there twice; 1 if not, 130 after Ctrl-C.
    """
    # Spark would otherwise start its workers with the system's python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if within is not None:
        problem = _not_ready(seconds, seed, within)
        if problem:
            typer.echo(f"Made-up channels in place of real video: {problem}.")
            demo = [sys.executable, "-m", "anabranch.cli.main", "demo"]
            raise typer.Exit(subprocess.run(demo).returncode)
        typer.echo("Three channels of real video; `anabranch demo` has two that are made up.")
    # Here, not above: Spark takes a second to import, and --help does without.
    from anabranch.spark.demo.news import NewsSettings, run_news

    pace = max(speed, seconds / _CHECK_SECONDS) if check else speed
    try:
        code = run_news(NewsSettings(seconds, pace, seed, workers, not check, keep_files, out))
    except AnabranchError as error:
        typer.echo(str(error), err=True)
        code = 2
    raise typer.Exit(code)


def _not_ready(seconds: float, seed: int, within: float) -> str:
    """Fetch clips and record channels in so many seconds; what was in the way, if something was.

    In a process of its own: what has not come after that time can be ended, with its pip.
    """
    code = (
        "from anabranch.video.channels import programme; "
        "from anabranch.video.studio import recorded; "
        f"recorded(programme({seed}, {seconds}))"
    )
    work = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = work.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        os.killpg(work.pid, signal.SIGINT)
        work.communicate()
        return f"it could not be set up in {within:g} s; `anabranch news` takes the time it needs"
    return said.strip().splitlines()[-1].rstrip(".") if work.returncode else ""
