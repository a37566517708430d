"""How fast is `correlate`, and where does the time go? Seeded workloads, targets, a picture.

Run it on a machine that does nothing else::

    python -m benchmarks.correlate [--quick] [--only SECTION] [--out FOLDER]

Sections: kernel, filters, chosen, bands and routing on one core without Spark; stream, join, fixed,
first, growth, ways, partners and rows on Spark with two. A full run takes a quarter of an hour and
writes ``correlate.json`` and ``correlate.svg``; with ``--only`` it replaces those sections there. A
quick one is a smoke test and writes ``correlate-quick.*``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    correlate_chosen,
    correlate_filters,
    correlate_kernel,
    correlate_small,
    correlate_starts,
    correlate_streams,
    correlate_ways,
)
from benchmarks.correlate_spark import Bench
from benchmarks.measuring import Screen, beside_earlier, by_section, machine, with_missed
from papers.style import in_both

_ON_ONE_CORE = {
    "kernel": correlate_kernel.kernel,
    "filters": correlate_filters.filters,
    "chosen": correlate_chosen.chosen,
    "bands": correlate_kernel.bands,
    "routing": correlate_kernel.routing,
}
_ON_SPARK = {
    "stream": correlate_streams.stream,
    "join": correlate_streams.join,
    "fixed": correlate_small.fixed,
    "first": correlate_starts.first,
    "growth": correlate_streams.growth,
    "ways": correlate_ways.ways,
    "partners": correlate_ways.partners,
    "rows": correlate_ways.rows,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections asked for; 1 if a target is not met."""
    # Spark must start its workers with this very Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    call = _parser().parse_args(arguments)
    names = call.only or [*_ON_ONE_CORE, *_ON_SPARK]
    screen = Screen()
    described = machine()
    screen.console.print(f"{described['cpu']}, {described['cores']} cores, {described['blas']}")
    if described["load_average_at_start"] > 0.5:
        load = described["load_average_at_start"]
        screen.console.print(
            f"[yellow]the machine is not idle (load {load}): rates suffer[/yellow]"
        )
    details: dict[str, Any] = {}
    for name, section in _ON_ONE_CORE.items():
        if name in names:
            details[name] = section(screen, call.quick)
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        bench = Bench(Path(folder), call.quick, screen.step)
        try:
            for name, on_spark in _ON_SPARK.items():
                if name in names:
                    details[name] = on_spark(screen, bench)
        finally:
            bench.stop()
    screen.table("correlate" + (" (quick: sizes too small for the targets)" if call.quick else ""))
    stem = "correlate-quick" if call.quick else "correlate"
    result = {
        "benchmark": "correlate",
        "quick": call.quick,
        "machine": described,
        "rows": [row.to_dict() for row in screen.rows],
        "details": details,
    }
    call.out.mkdir(parents=True, exist_ok=True)
    path = call.out / f"{stem}.json"
    result = with_missed(path, result, screen.missed)
    result = beside_earlier(path, result) if call.only else by_section(result)
    path.write_text(json.dumps(result, indent=1) + "\n")
    from benchmarks.correlate_picture import draw

    in_both(draw, call.out / stem, result)
    screen.console.print(f"wrote {stem}.json and {stem}.svg")
    return 0 if call.quick or all(row.met is not False for row in screen.rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Benchmark of anabranch.correlate")
    parser.add_argument("--quick", action="store_true", help="small sizes, under three minutes")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*_ON_ONE_CORE, *_ON_SPARK],
        metavar="SECTION",
        help=f"one of {', '.join([*_ON_ONE_CORE, *_ON_SPARK])}; may be given several times",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results",
        metavar="FOLDER",
        help="where results go (default: results beside this file)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
