"""``python -m scripts.reliability.worlds``: worlds in a box by the thousand, added up over runs.

A world is a function of its seed: one that fails prints it. What was lived is kept as long as the
code is the same, so a range that was is not lived again, and a run may end at any time.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scripts.reliability import RESULTS, ROOT
from scripts.reliability.evidence import circumstances, load, write
from tests.edge.world import World

__all__ = ["code_hash", "lived", "main", "missing", "run"]

_CODE = (
    "anabranch/edge/*.py",
    "anabranch/predicates/conditions.py",
    "tests/edge/world.py",
    "tests/edge/twin.py",
)
_AT_ONCE = 250  # worlds that are lived between two looks at the report

Range = tuple[int, int]  # seeds, without the last


def code_hash() -> str:
    """What the files come to that decide how a world ends."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in _CODE for path in ROOT.glob(pattern)):
        found.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:12]


def lived(seeds: Range) -> dict[str, Any]:
    """What became of a range of worlds."""
    counts: Counter[str] = Counter(worlds=seeds[1] - seeds[0])
    failed, began = [], time.process_time()
    gc.freeze()  # what was imported stays; a world's own waste is looked for seldom
    gc.set_threshold(50_000, 50, 1000)
    for seed in range(*seeds):
        try:
            world = World(seed).run()
        except Exception:
            failed.append(seed)
            print(f"--- world {seed}", file=sys.stderr)
            traceback.print_exc(limit=-4)
            continue
        counts["results"] += world.found
        counts["moves"] += sum(len(entry.moves) for entry in world.log)
        counts["views that began anew"] += world.again
        counts["devices that left"] += world.byes
        counts["devices that had to stop"] += len(world.stops)
        counts["brokers that lost messages"] += world.recoveries
    cpu = round(time.process_time() - began, 1)
    return {"range": list(seeds), "counts": dict(counts), "failed": failed, "cpu seconds": cpu}


def missing(wanted: Range, done: Iterable[Range]) -> list[Range]:
    """What of a range is not done yet, in parts.

    Examples
    --------
    >>> missing((0, 700), [(100, 200), (600, 900)])
    [(0, 100), (200, 450), (450, 600)]
    """
    found, begin = [], wanted[0]
    for first, last in [*sorted(done), (wanted[1], wanted[1])]:
        end = min(first, wanted[1])
        while begin < end:
            found.append((begin, min(begin + _AT_ONCE, end)))
            begin = found[-1][1]
        begin = max(begin, last)
    return found


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges, of which none touches another.

    Examples
    --------
    >>> joined([(5, 8), (0, 2), (2, 5), (9, 10)])
    [(0, 8), (9, 10)]
    """
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def added(report: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A report with another part."""
    ranges = joined([*map(tuple, report["ranges"]), tuple(part["range"])])
    return {
        **report,
        "ranges": [list(one) for one in ranges],
        "counts": dict(Counter(report["counts"]) + Counter(part["counts"])),
        "failed": sorted({*report["failed"], *part["failed"]}),
        "cpu seconds": round(report["cpu seconds"] + part["cpu seconds"], 1),
        "load": load(),
    }


def run(wanted: Range, processes: int, path: Path) -> dict[str, Any]:
    """Live what is missing of a range; the report, which is written after every part."""
    code, begun = code_hash(), circumstances()
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if report.get("code") != code:
        report = {"code": code, "ranges": [], "counts": {}, "failed": [], "cpu seconds": 0.0}
    report["begun"] = [*report.get("begun", []), {**begun, "seeds": list(wanted)}]
    todo = missing(wanted, map(tuple, report["ranges"]))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(lived, todo):
            if code_hash() != code:
                raise SystemExit("the code was changed while worlds were lived: run it again")
            report = added(report, part)
            path.write_text(json.dumps(report) + "\n")
    write(report, path)
    return report


def _range(text: str) -> Range:
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise argparse.ArgumentTypeError(f"seeds are two numbers, as 0:20000; got {text!r}")
    return int(first), int(last)


def main() -> None:
    """Live them; fails if one has failed, now or before with the same code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=_range, default=(0, 20_000), help="as 0:20000, which it is")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", type=Path, default=RESULTS / "edge-worlds.json")
    options = parser.parse_args()
    report = run(options.seeds, options.processes, options.report)
    print(json.dumps({name: report[name] for name in ("ranges", "counts", "failed")}))
    if report["failed"]:
        sys.exit(f"{len(report['failed'])} worlds failed, of these seeds: {report['failed']}")


if __name__ == "__main__":
    main()
