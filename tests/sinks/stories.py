"""One story for every sink: killed at each step, restarted, compared with the batch answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.feeds import Feed, scripted
from tests.spark.processes import ROOT, Driver, driver

BATCHES = 4
SCRIPT = "../sinks/driver.py"


def needed(make: Callable[[], Any]) -> Any:
    """What `make` returns; without the component the test is skipped, and fails in CI."""
    from scripts.services.jars import Absent

    try:
        return make()
    except Absent as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have it: {missing}")
        pytest.skip(str(missing), allow_module_level=True)


def installed(*names: str, extra: str = "sinks,kafka") -> None:
    """Skip, or fail in CI, if a package is not there; of a test, or of a module."""
    from importlib.util import find_spec

    from scripts.services.jars import Absent

    def look() -> None:
        missing = [name for name in names if find_spec(name) is None]
        if missing:
            raise Absent(f"{', '.join(missing)} not installed: pip install 'anabranch[{extra}]'")

    needed(look)


def killed_everywhere(
    folder: Path,
    sink: str,
    call: dict[str, Any],
    steps: Sequence[str],
    *options: str,
    python: str = sys.executable,
) -> list[dict[str, Any]]:
    """Kill the driver of a query once at every step, each in a later batch, then let it finish.

    Gives the batch answer. The last kill is after the sink's commit and before Spark's.
    """
    kills = [*steps, "written"]
    feed = Feed(folder).add(scripted(max(BATCHES, len(kills)), rows=(8, 8), seed=21))
    given = (json.dumps(call), "--sink", sink, *options)
    for number, step in enumerate(kills):
        kill = f"{step}@{number}"
        with driver(folder, *given, "--kill", kill, script=SCRIPT, python=python) as run:
            was_killed(run)
    with driver(folder, *given, "--batch", script=SCRIPT, python=python) as run:
        run.finish()
        assert "was there already" in run.log.read_text()
    assert feed.written >= BATCHES
    want: list[dict[str, Any]] = pq.read_table(folder / "batch").to_pylist()
    assert len(want) > 20
    return want


def replayed_through_kills(
    folder: Path, sink: str, call: dict[str, Any], steps: Sequence[str]
) -> list[dict[str, Any]]:
    """Kill a replay once at every step, each in a later batch, then let it finish; all its rows."""
    from tests.sinks import replay

    def play(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.sinks.replay", str(folder), sink, json.dumps(call)]
        return subprocess.run(
            [*command, *options], cwd=ROOT, capture_output=True, text=True, start_new_session=True
        )

    kills = [*steps, "written"]
    for number, step in enumerate(kills):
        run = play("--kill", f"{step}@{number}")
        assert run.returncode == -signal.SIGKILL, (step, run.stderr[-3000:])
    last = play()
    assert last.returncode == 0, last.stderr[-3000:]
    assert "was there already" in last.stderr
    assert len(kills) < replay.BATCHES
    return [row for number in range(replay.BATCHES) for row in replay.rows(number)]


def was_killed(run: Driver) -> None:
    """Wait for the end, which must be the kill."""
    assert run.process.wait(600) == -signal.SIGKILL, run.tail()


def same(got: Sequence[dict[str, Any]], want: Sequence[dict[str, Any]], *names: str) -> None:
    """Fail unless both hold the same rows, as often; of all columns, or of these."""
    first, second = (
        sorted(repr([row[name] for name in names or sorted(row)]) for row in in_utc(rows))
        for rows in (got, want)
    )
    assert first == second


def in_utc(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Instants as every library gives them back."""

    def instant(value: Any) -> Any:
        if isinstance(value, datetime):
            if hasattr(value, "to_pydatetime"):  # nanoseconds, as in Spark's old files
                value = value.to_pydatetime()
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        if isinstance(value, dict):
            return {name: instant(inner) for name, inner in value.items()}
        return [instant(inner) for inner in value] if isinstance(value, list) else value

    return [instant(row) for row in rows]
