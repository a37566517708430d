"""What commands that simulate a paper's figure share: a progress bar, and the files they write."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["progress", "write_figure"]


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
    """The figure's numbers as JSON and, if `draw` is given, its picture; which files they are.

    Examples
    --------
    >>> import tempfile
    >>> [path.name for path in write_figure({"a": 1}, Path(tempfile.mkdtemp()), "figure", None)]
    ['figure.json']
    """
    out.mkdir(parents=True, exist_ok=True)
    data = out / f"{stem}.json"
    data.write_text(json.dumps(form, indent=1) + "\n")
    return [data] if draw is None else [data, draw(out / f"{stem}.png")]
