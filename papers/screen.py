"""What commands that simulate a paper's figure share: recipes, a progress bar, files, pictures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from anabranch.errors import AnabranchError, InvalidCall
from benchmarks.origin import origin

__all__ = ["chosen", "progress", "write_figure"]

R = TypeVar("R")


def chosen(recipes: Mapping[str, R], figure: str, quick: bool) -> R:
    """The recipe of a figure, or its quick form.

    Examples
    --------
    >>> chosen({"9": "recipe"}, "9", quick=False)
    'recipe'
    """
    if figure not in recipes:
        known = ", ".join(recipes)
        raise InvalidCall("simulate", [f"there is no figure {figure!r}; known are {known}"])
    recipe: Any = recipes[figure]
    return recipe.quick if quick else recipe  # type: ignore[no-any-return]


@contextmanager
def explained() -> Iterator[None]:
    """What is wrong with a call is said in its own words, without a trace."""
    try:
        yield
    except AnabranchError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error


@contextmanager
def progress(total: float) -> Iterator[Callable[[str, float], None]]:
    """A bar on a terminal's standard error; yields what moves it on, under a label."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    hidden = not sys.stderr.isatty()
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=hidden)
    with bar:
        task = bar.add_task("simulating", total=total)
        yield lambda label, passed: bar.update(task, advance=passed, description=label)


def write_figure(
    form: Mapping[str, Any], out: Path, stem: str, draw: Callable[[Path], Path] | None
) -> list[Path]:
    """The figure's numbers and their origin as JSON and, if `draw` is given, its picture.

    It returns which files they are.

    Examples
    --------
    >>> import tempfile
    >>> [path.name for path in write_figure({"a": 1}, Path(tempfile.mkdtemp()), "figure", None)]
    ['figure.json']
    """
    out.mkdir(parents=True, exist_ok=True)
    data = out / f"{stem}.json"
    data.write_text(json.dumps({**form, "origin": origin()}, indent=1) + "\n")
    return [data] if draw is None else [data, draw(out / f"{stem}.png")]
