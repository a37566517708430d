"""When traces are over: what was learned against the fixed wait of a tail sampler.

::

    python -m benchmarks.traces [--seconds 180] [--out FOLDER]

The comparison of ``examples/trace_policies.py``, on the spans that the SDK of OpenTelemetry exports
of two services under load. Writes ``traces.json``, which docs/traces.md quotes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

import anabranch as ab
from benchmarks.measuring import Row, Screen, by_section, machine

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
trace_policies = import_module("trace_policies")  # the examples are no package

RESULTS = Path(__file__).parent / "results"
SECTION = "closing policies"
FIGURES = {
    "complete": ("complete", ""),
    "median": ("median wait after the last span", "s"),
    "p95": ("95 % wait after the last span", "s"),
    "open": ("mean time open", "s"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the shop, compare the policies and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--out", type=Path, default=RESULTS)
    call = parser.parse_args(arguments)
    screen, described = Screen(), machine()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder.getOrCreate(), workers=2)
    with tempfile.TemporaryDirectory() as folder:
        found, equal = trace_policies.compared(spark, Path(folder), call.seconds)
    spark.stop()
    ours = found[trace_policies.OURS]
    screen.add(Row(SECTION, "traces", ours["traces"]))
    screen.add(Row(SECTION, "longest trace", ours["longest"], "s"))
    screen.add(Row(SECTION, "fixed wait that is as complete as ours", equal, "s"))
    for name, of in found.items():
        policy = "as complete as ours" if name == trace_policies.FIXED else name
        for figure, (what, unit) in FIGURES.items():
            screen.add(Row(SECTION, f"{policy}: {what}", of[figure], unit))
    print(trace_policies.shown(found, equal))
    rows = [row.to_dict() for row in screen.rows]
    result = {"benchmark": "traces", "machine": described, "seconds": call.seconds, "rows": rows}
    call.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(by_section({**result, "details": {}}), indent=1)
    (call.out / "traces.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
