"""Is this code as fast as an earlier one? Both run the same tasks in turns, in new processes.

::

    python -m benchmarks.before REVISION [--rounds 3] [--only TASK ...] [--out FOLDER]

An earlier state of the repository is checked out into a temporary folder, and runs with the
packages that are installed. A ratio is earlier seconds over ours: above 1 this code is the faster.
Revisions from 1c1f841 on have the public names that the tasks use. Run it on a machine that does
nothing else; a run without ``--only`` takes about a quarter of an hour and writes ``before.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Row, Screen, by_section, machine, ratio

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]
TASKS = {
    "full": "correlate, a micro-batch with full windows",
    "small": "correlate, a micro-batch of 800 rows",
    "tables": "correlate of two tables, mostly the kernel",
    "nearest": "nearest, a micro-batch of 20,000 objects",
    "assemble": "assemble, a micro-batch of 40,000 events",
}
_TARGET = 0.97
_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_FILES = 24


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both in turns; 1 if ours is slower in any task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="a commit to compare with, e.g. HEAD~20")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    screen = Screen()
    took: dict[str, dict[str, list[float]]] = {
        which: {task: [] for task in given.only} for which in ("earlier", "ours")
    }
    with tempfile.TemporaryDirectory(prefix="anabranch-before-") as place:
        feeds = Path(place) / "feeds"
        _write_feeds(feeds)
        with checked_out(given.revision, Path(place) / "earlier") as earlier:
            trees = {"earlier": earlier, "ours": ROOT}
            for turn in range(given.rounds + 1):  # the first compiles
                for which, tree in trees.items():
                    screen.step(f"round {turn} of {given.rounds}, {which}")
                    found = _run(tree, feeds, given.only)
                    for task, seconds in found.items():
                        took[which][task] += [median(seconds)] * (turn > 0)
    for task in given.only:
        reached = ratio(took["earlier"][task], took["ours"][task])
        note = f"{median(took['ours'][task]):.3f} s, before {median(took['earlier'][task]):.3f} s"
        screen.add(Row("before", TASKS[task], reached, "times", _TARGET, note=note))
    screen.table(f"beside {given.revision}")
    rows = [row.to_dict() for row in screen.rows]
    details = {"revision": given.revision, "seconds": took}
    result = by_section({"machine": machine(), "rows": rows, "details": details})
    if given.only == list(TASKS):
        (given.out / "before.json").write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row.met is False for row in screen.rows))


@contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[Path]:
    """The files of a revision, in a folder."""
    git = ("git", "-C", str(ROOT), "worktree")
    subprocess.run([*git, "add", "--quiet", "--detach", folder, revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", folder], check=True)


def _run(tree: Path, feeds: Path, tasks: Sequence[str]) -> dict[str, list[float]]:
    script = Path(__file__).with_name("before_tasks.py")
    given = {**os.environ, "PYTHONPATH": str(tree)}
    given |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    done = subprocess.run(
        [sys.executable, script, feeds, *tasks],
        cwd=feeds, env=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{tree.name} failed:\n{done.stderr[-3000:]}")
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---------------------------------------------------------------- what is read


def _write_feeds(folder: Path) -> None:
    random = np.random.default_rng(7)
    for name, rows in (("full", 10_000), ("small", 400)):
        for side in ("left", "right"):
            for number in range(_FILES):
                _write(folder / name / side, number, _vectors(random, number, rows, 64, np.float32))
    for side in ("left", "right"):
        _write(folder / "tables" / side, 0, _vectors(random, 0, 40_000, 64, np.float32))
    for number in range(_FILES):
        _write(folder / "objects", number, _vectors(random, number, 20_000, 4, np.float64))
        _write(folder / "events", number, _events(random, number, 40_000))
    points = random.random((400, 4))
    queries = {"query_id": pa.array(np.arange(400)), "v": _lists(points)}
    queries |= {"k": pa.array([9] * 400), "window": pa.array(["2 seconds"] * 400)}
    _write(folder / "queries", 0, pa.table(queries))


def _write(folder: Path, number: int, table: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05d}.parquet"
    pq.write_table(table, path)
    # Spark takes files by age, and knows milliseconds only.
    os.utime(path, (_START / _SECOND + number,) * 2)


def _times(random: np.random.Generator, number: int, rows: int) -> pa.Array:
    t = _START + number * _SECOND + np.sort(random.integers(0, _SECOND, rows))
    return pa.array(t, pa.timestamp("us", "UTC"))


def _lists(vectors: np.ndarray) -> pa.Array:
    flat = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
    return flat.cast(pa.list_(flat.type.value_type))


def _vectors(
    random: np.random.Generator, number: int, rows: int, width: int, kind: type
) -> pa.Table:
    vectors = random.standard_normal((rows, width)) if width > 4 else random.random((rows, width))
    ids = pa.array(np.arange(rows) + number * rows)
    times = _times(random, number, rows)
    return pa.table({"id": ids, "ts": times, "v": _lists(vectors.astype(kind))})


def _events(random: np.random.Generator, number: int, rows: int) -> pa.Table:
    """A new instance for every twelve events or so, spread over two files."""
    instance = random.integers(0, rows // 12, rows) + (number // 2) * (rows // 12)
    services = np.array([f"service {k}" for k in range(20)])[random.integers(0, 20, rows)]
    kinds = np.array([f"page {k}" for k in range(50)])[instance % 50]
    columns = {"kind": pa.array(kinds), "client": pa.array(instance), "service": services}
    return pa.table({"ts": _times(random, number, rows), **columns})


if __name__ == "__main__":
    sys.exit(main())
