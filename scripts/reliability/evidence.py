"""Where a run works and where its report goes: of a run that fails everything is kept.

A report says when its run began, of which code, and how busy the machine was.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.origin import origin

__all__ = ["Place", "circumstances", "load", "said", "workplace", "write"]


@dataclass
class Place:
    """A folder to work in, and whether the work has failed."""

    folder: Path
    failed: bool = False

    def report(self, given: Path | None, shown: Path) -> Path:
        """Where the report goes: those that the documentation shows are of runs that passed."""
        if given is not None:
            return given
        return self.folder / shown.name if self.failed else shown


@contextmanager
def workplace(name: str) -> Iterator[Place]:
    """A folder for a run, which goes with it; one of a run that has failed stays."""
    place = Place(Path(tempfile.mkdtemp(prefix=f"anabranch-{name}-")))
    try:
        yield place
    except BaseException:
        place.failed = True
        raise
    finally:
        if place.failed:
            print(f"what the run has left is kept: {place.folder}", flush=True)
        else:
            shutil.rmtree(place.folder, ignore_errors=True)


def circumstances() -> dict[str, Any]:
    """When, of which code and on what machine a run begins."""
    return {**origin(), "cores": os.cpu_count(), "load": load()}


def load() -> float:
    """How many processes of the machine wanted a core, over the last minute."""
    return round(os.getloadavg()[0], 2)


def said(error: BaseException) -> str:
    """An error for a report."""
    return f"{type(error).__name__}: {error}"


def write(report: Mapping[str, Any], path: Path) -> None:
    """A report into its file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"report: {path}", flush=True)
