"""What every benchmark here shares: fair timing, rows of a result, and the machine's description.

Rates of one machine say little about another, so targets are ratios of things timed in turns in
one run: each round times every variant once, and a ratio is the median over rounds of the ratio
within a round. A slow spell of the machine then hits both sides of a ratio alike.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.origin import origin, processor

__all__ = [
    "Row",
    "Screen",
    "beside_earlier",
    "by_section",
    "in_turns",
    "machine",
    "rate",
    "ratio",
    "with_missed",
]

_PACKAGES = ("anabranch", "pyspark", "numpy", "numba", "pyarrow", "pandas")


@dataclass(frozen=True)
class Row:
    """One line of the result; without a `target` it is there for information."""

    section: str
    what: str
    reached: float
    unit: str = ""
    target: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        if self.target is None:
            return None
        return self.reached <= self.target if self.at_most else self.reached >= self.target

    def to_dict(self) -> dict[str, Any]:
        """A JSON form."""
        return {**asdict(self), "met": self.met}


@dataclass
class Screen:
    """Shows what is being measured, each row as soon as it is known, and the table at the end."""

    console: Console = field(default_factory=lambda: _console())
    rows: list[Row] = field(default_factory=list)
    missed: dict[tuple[str, str], str] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)

    def step(self, text: str) -> None:
        """Say what is going on now."""
        elapsed = time.perf_counter() - self._began
        self.console.print(f"[dim]{elapsed:6.0f} s  {escape(text)}[/dim]")

    def add(self, row: Row) -> Row:
        """Record a row and show it."""
        self.rows.append(row)
        self.console.print(f"           {escape(row.what)}: {_number(row)}  {_verdict(row)}")
        return row

    def miss(self, section: str, what: str, why: str) -> None:
        """Say that a row of a section cannot be measured here, and why."""
        self.missed[section, what] = why
        self.console.print(f"[yellow]           {escape(what)}: NOT MEASURED, {why}[/yellow]")

    def table(self, title: str) -> None:
        """Everything recorded: target, reached, met or not."""
        table = Table(title=title, title_justify="left")
        for name in ("section", "what", "target", "reached", "", "note"):
            table.add_column(name, justify="right" if name in ("target", "reached") else "left")
        before = ""
        for row in self.rows:
            if before and row.section != before:
                table.add_section()
            table.add_row(
                row.section if row.section != before else "",
                escape(row.what),
                _goal(row),
                _number(row),
                _verdict(row),
                escape(row.note),
            )
            before = row.section
        self.console.print(table)
        targets = [row for row in self.rows if row.target is not None]
        missed = [row for row in targets if not row.met]
        self.console.print(f"{len(targets) - len(missed)} of {len(targets)} targets met")


def by_section(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result whose ``machine`` is told of every section that it has rows of.

    Examples
    --------
    >>> by_section({"machine": {"cpu": "mine"}, "rows": [{"section": "a"}], "details": {}})
    {'sections': {'a': {'cpu': 'mine'}}, 'rows': [{'section': 'a'}], 'details': {}}
    """
    rest = {name: value for name, value in result.items() if name != "machine"}
    sections = {row["section"]: result["machine"] for row in result["rows"]}
    return {"sections": sections, **rest}


def beside_earlier(path: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """The result by sections, with those of an earlier run that were not run again.

    Every section times both sides of its ratios itself, so sections may come from different runs.
    Each keeps its own machine, date and commit; "unknown" where an earlier file does not tell. What
    a section had and has no more is named, for a package or a rival may have been missing.
    """
    found = by_section(result)
    if not path.exists():
        return found
    before = json.loads(path.read_text())
    kept = [row for row in before["rows"] if row["section"] not in found["sections"]]
    names = {(row["section"], row["what"]) for row in [*kept, *result["rows"]]}
    for row in before["rows"]:
        if (row["section"], row["what"]) not in names:
            print(f"no more in {path.name}: {row['section']}, {row['what']}", file=sys.stderr)
    told = before.get("sections", {})
    about = {row["section"]: told.get(row["section"], "unknown") for row in kept}
    details = {**before.get("details", {}), **result["details"]}
    sections = {**about, **found["sections"]}
    return {**found, "sections": sections, "rows": [*kept, *result["rows"]], "details": details}


def with_missed(
    path: Path, result: Mapping[str, Any], missed: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    """The result, and of an earlier run the rows that could not be measured in this one.

    Such a row says so, and keeps the machine, date and commit of its own run.
    """
    if not missed or not path.exists():
        return dict(result)
    before = json.loads(path.read_text())
    kept = []
    for row in before["rows"]:
        why = missed.get((row["section"], row["what"]))
        if why is not None:
            about = row.get("from", before.get("sections", {}).get(row["section"], "unknown"))
            kept.append({**row, "from": about, "kept": f"not measured again: {why}"})
    return {**result, "rows": [*result["rows"], *kept]}


def in_turns(
    variants: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Seconds of every variant in every round; a first, unrecorded call of each warms up.

    Seconds are those of the processor, all threads together: on one core with nobody else they
    are the clock's, a second thread cannot flatter, and other programs cannot take part. Variants
    that may use several cores need another `clock`, that on the wall.
    """
    for run in variants.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            began = clock()
            run()
            seconds[name].append(clock() - began)
    return seconds


def rate(count: float, seconds: Sequence[float]) -> float:
    """Things per second in the median round."""
    return count / statistics.median(seconds)


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """The median over rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


def machine() -> dict[str, Any]:
    """What the numbers were taken on; nothing that names the machine or its user."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": _java(),
        "blas": _blas(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        # Others at work on the machine make rates, and to a lesser extent ratios, worse.
        "load_average_at_start": round(os.getloadavg()[0], 2),
        **origin(),
    }


def _java() -> str:
    try:
        home = os.environ.get("JAVA_HOME")
        program = str(Path(home, "bin", "java")) if home else "java"
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stderr.splitlines()[0] if said.stderr else "unknown"


def _blas() -> str:
    import numpy  # noqa: F401  (loads the library that is asked about)
    from threadpoolctl import threadpool_info

    found = [i for i in threadpool_info() if i.get("user_api") == "blas"]
    return ", ".join(
        f"{i['internal_api']} {i['version']} {i.get('architecture', '')}" for i in found
    )


def _number(row: Row) -> str:
    return f"{_short(row.reached)} {row.unit}".strip()


def _goal(row: Row) -> str:
    if row.target is None:
        return ""
    return ("at most " if row.at_most else "at least ") + _short(row.target)


def _short(value: float) -> str:
    return f"{value:.2e}" if abs(value) >= 1e5 or 0 < abs(value) < 1e-3 else f"{value:.3g}"


def _verdict(row: Row) -> str:
    return {True: "[green]met[/green]", False: "[bold red]NOT MET[/bold red]", None: ""}[row.met]


def _console() -> Console:
    # Output that goes to a file is read later, in a window wide enough for the table.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=150)
