"""``python -m scripts.reliability.fuzz``: random calls and rows against the twins.

A case is a function of its number: one that fails prints it, and ``--only correlate --first N
--cases 1`` runs it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.reliability import RESULTS, fuzz_assemble, fuzz_calls, fuzz_correlate, fuzz_nearest
from scripts.reliability.evidence import circumstances, write

__all__ = ["main"]

VERBS: dict[str, Callable[[int], str]] = {
    "correlate": fuzz_correlate.check,
    "nearest": fuzz_nearest.check,
    "assemble": fuzz_assemble.check,
    "calls": fuzz_calls.check,
}


MIX = {"correlate": 0.15, "nearest": 0.05, "assemble": 0.05, "calls": 0.75}
"""What share of all cases each has, in process; those on Spark come on top."""


def run(check: Callable[[int], str], verb: str, seeds: range) -> dict[str, Any]:
    """What became of these cases, and which failed."""
    outcomes: Counter[str] = Counter()
    failed = []
    began = time.perf_counter()
    for seed in seeds:
        try:
            outcomes[check(seed)] += 1
        except Exception:
            failed.append(seed)
            print(f"--- {verb} case {seed}", file=sys.stderr)
            traceback.print_exc(limit=-6)
    seconds = round(time.perf_counter() - began, 1)
    found = {"cases": len(seeds), **outcomes, "failed": failed, "seconds": seconds}
    print(json.dumps({verb: found}), flush=True)
    return found


def on_spark(seeds: range) -> dict[str, Any]:
    """Cases over tables on a session of their own."""
    from scripts.reliability.fuzz_spark import WORKERS, check
    from tests.spark.sessions import new_session

    with tempfile.TemporaryDirectory(prefix="anabranch-fuzz-") as folder:
        spark = new_session(Path(folder), "local[2]", WORKERS)
        spark.sparkContext.setLogLevel("OFF")
        found = run(lambda seed: check(spark, seed), "spark", seeds)
        spark.stop()
    return found


def main() -> None:
    """Run, write what became of the cases, and fail if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="in process")
    parser.add_argument("--spark", type=int, default=200, help="on Spark, over tables")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", choices=[*VERBS, "spark"])
    parser.add_argument("--report", type=Path, help="by default the one that is shown, if "
                        "nothing failed; with --only none")  # fmt: skip
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    report: dict[str, Any] = {}
    begun = circumstances()
    for verb, check in VERBS.items():
        if options.only in (None, verb):
            share = 1.0 if options.only else MIX[verb]
            seeds = range(options.first, options.first + round(options.cases * share))
            report[verb] = run(check, verb, seeds)
    if options.only in (None, "spark") and options.spark:
        report["spark"] = on_spark(range(options.first, options.first + options.spark))
    failed = any(found["failed"] for found in report.values())
    # What the documentation shows is replaced by a whole run that passed.
    kept = options.report or (None if options.only or failed else RESULTS / "fuzz.json")
    if kept is not None:
        write({"begun": begun, **report}, kept)
    sys.exit(failed)


if __name__ == "__main__":
    main()
