"""From 4 to 1,000 workers, with what everything costs here: where each verb stops scaling.

Run it on a machine that does nothing else::

    python -m benchmarks.scale [--quick] [--again]

Measures costs, simulates every verb, and writes results/scale.json, the picture and the table of
docs/internals/scale.md. ``--again`` takes the costs of the last run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from anabranch.flow.pictures import COLOURS, paper, plain_number
from benchmarks.correlate_kernel import one_core
from benchmarks.correlate_spark import Bench
from benchmarks.marked import put
from benchmarks.measuring import Screen, machine
from benchmarks.scale_costs import Cost, Spark, of_spark, of_verbs
from benchmarks.scale_model import WORKLOADS, sustained

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks/results/scale.json"
PAGE = ROOT / "docs/internals/scale.md"
WORKERS = (4, 8, 16, 32, 64, 128, 256, 512, 1000)
SHOWN = (4, 16, 64, 256, 1000)
_WORTH = 1.1  # what doubling the workers must bring


def measured(screen: Screen, quick: bool) -> dict[str, Any]:
    """What things cost, on this machine and now."""
    about = machine()
    with tempfile.TemporaryDirectory() as folder, one_core():
        screen.step("kernels, packers and bytes, in one process")
        costs = of_verbs(quick)
        bench = Bench(Path(folder), quick, screen.step)
        try:
            screen.step("micro-batches, tasks, blocks and bytes, on Spark")
            spark, check = of_spark(bench, costs["correlate"])
        finally:
            bench.stop()
    found = {name: asdict(cost) for name, cost in costs.items()}
    return {"machine": about, "costs": found, "spark": asdict(spark), "check": check}


def simulated(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The highest rate of every verb on every number of workers, and what it is spent on."""
    costs = {name: Cost(**cost) for name, cost in found["costs"].items()}
    spark = Spark(**found["spark"])
    lines: dict[str, list[dict[str, Any]]] = {}
    for name, shared in WORKLOADS.items():
        for workers in WORKERS:
            rate, parts = sustained(workers, shared(workers), costs, spark)
            lines.setdefault(name, []).append({"workers": workers, "rate": rate, "parts": parts})
    return lines


def ends(line: list[dict[str, Any]]) -> tuple[int, str]:
    """The number of workers that doubling no longer pays for, and what stands in the way there."""
    for one, next_ in pairwise(line):
        if next_["rate"] < _WORTH * one["rate"]:
            return one["workers"], max(next_["parts"], key=lambda part: next_["parts"][part])
    return line[-1]["workers"], max(line[-1]["parts"], key=lambda p: line[-1]["parts"][p])


def table(lines: Mapping[str, list[dict[str, Any]]]) -> str:
    """The result as a table of the page."""
    heads = ["rows per second of", *(f"{n:,} workers" for n in SHOWN), "pays up to", "then"]
    rows = [heads, ["---", *["---:"] * (len(SHOWN) + 1), "---"]]
    for name, line in lines.items():
        rates = [plain_number(p["rate"]) for p in line if p["workers"] in SHOWN]
        most, part = ends(line)
        rows.append([name, *rates, f"{most:,}", part])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def figures(found: Mapping[str, Any]) -> str:
    """The costs as a table of the page."""
    rows = [["", "row", "copy", "receive", "compare", "bytes"], ["---", *["---:"] * 5]]
    for name, cost in found["costs"].items():
        micro = [f"{cost[part] * 1e6:.3g} µs" for part in ("row", "copy", "receive")]
        rows.append([name, *micro, f"{cost['compare'] * 1e9:.3g} ns", f"{cost['bytes']:.0f}"])
    spark, check = found["spark"], found["check"]
    said = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return (
        f"{said}\nSpark: {spark['base']:.2f} s a micro-batch, {spark['task'] * 1000:.0f} ms a "
        f"task, {spark['schedule'] * 1000:.1f} ms to schedule one, {spark['block'] * 1e6:.0f} µs a "
        f"block, {spark['byte'] * 1e9:.1f} ns a byte. A micro-batch of {check['pairs']:,.0f} "
        f"comparisons was foretold to take {check['foretold']:.2f} s; it took "
        f"{check['measured']:.2f} s.\n"
    )


def draw(lines: Mapping[str, list[dict[str, Any]]], path: Path, dark: bool) -> None:
    """Rates over workers, both on scales of powers."""
    page = paper("scale", path, 4.6, dark=dark)
    axes = page.axes
    axes.set_axis_on()
    axes.patch.set_alpha(0)
    palette = (*("grid", "broadcast", "keyed", "ranges", "broadcast", "selective"), "left", "bad")
    for (name, line), colour in zip(lines.items(), palette, strict=True):
        dashes = "--" if name == "nearest, broadcast" else "-"
        x, y = [p["workers"] for p in line], [p["rate"] for p in line]
        axes.plot(x, y, dashes, color=COLOURS[colour], lw=1.8, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(WORKERS, [f"{n:,}" for n in WORKERS])
    low, high = axes.get_ylim()
    ticks = [10.0**n for n in range(15) if low <= 10.0**n <= high]
    axes.set_yticks(ticks, [plain_number(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("workers", color=page.ink)
    axes.set_ylabel("rows per second", color=page.ink)
    axes.tick_params(colors=page.ink)
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(page.faint)
    axes.legend(frameon=False, fontsize=8, labelcolor=page.ink, ncols=2, loc="upper left")
    page.save(path)


def write(found: Mapping[str, Any]) -> None:
    """Put both tables into the page, and draw the picture."""
    text = PAGE.read_text()
    for mark, made in (("rates", table(found["lines"])), ("costs", figures(found))):
        text = put(text, mark, made.rstrip("\n"))
    PAGE.write_text(text)
    for dark in (False, True):
        draw(found["lines"], ROOT / f"docs/images/scale{'-dark' if dark else ''}.svg", dark)


def main() -> None:
    """Measure, simulate, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small, and nothing is kept")
    parser.add_argument("--again", action="store_true", help="with the costs of the last run")
    options = parser.parse_args()
    screen = Screen()
    found = json.loads(RESULT.read_text()) if options.again else measured(screen, options.quick)
    found["lines"] = simulated(found)
    screen.console.print(table(found["lines"]))
    screen.console.print(figures(found))
    if not options.quick:
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
        write(found)


if __name__ == "__main__":
    main()
