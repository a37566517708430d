"""How fast and how small the placement planner is, against minimum cuts on the same graphs.

    python -m benchmarks.place            # about 10 minutes, 6 GB
    python -m benchmarks.place --quick    # about 2 minutes, 1 GB; leaves the largest sizes out

Every measurement runs in a process of its own. Seconds are CPU seconds of one thread (planner and
cuts alike use one), the least of several runs where they are short, so that other work on the
machine disturbs them little; wall seconds are in the JSON. What is compared is taken in one run.
Memory is the most that is held beyond the view graph itself, network included for cuts.
Needs Linux with glibc.

planner       view graph as arrays in, finished plan with costs out
whole call    `ab.place` on pandas tables of views and of sources: reading, checking, numbering,
              planning
one cut       one SciPy maximum flow over the whole demand graph, level nodes for uploads and a node
              per demand edge; its value must equal the planner's cost. Building it is not timed
cut per device
              what the paper measured against: one cut of the whole view graph for every device,
              its streams against all others. Timed for a sample of devices, times the number of
              devices; building is not timed
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow

import anabranch as ab
from anabranch.flow.pictures import plain_number, pyplot
from anabranch.placement import plan_graph
from anabranch.placement.graph import ViewGraph, pair_graph
from benchmarks.origin import origin
from papers.race import social
from papers.style import PAGE, in_both, in_style, ink, line_of, written

RESULTS = Path(__file__).parent / "results"
SAMPLED = "80% never meet, else log-uniform"
_FOREVER = 2**31 - 1


def workload(kind: str, users: int, edges: int, down: float) -> ViewGraph:
    """`zipf`: Zipf(2) friends, full feeds. `feeds`, `sampled`: Facebook-like degrees."""
    if kind == "zipf":
        a, b = social.zipf_graph(users)
    else:
        a, b = social.facebook_like(users, int(edges * 1.033))  # some pairs are drawn twice
    if kind == "sampled":
        rate_a, rate_b = social.rates(SAMPLED, len(a))
    else:
        feed = social.zipf_feeds(users)
        rate_a, rate_b = feed[a], feed[b]
    return pair_graph(a, b, rate_a, rate_b, sources=users, up=1.0, down=down)


def one_cut(graph: ViewGraph) -> csr_array:
    """The whole problem as one network, for streams that are needed at one rate by all views."""
    rows = len(graph.inputs)
    stream, seat = 2 + graph.inputs.astype(np.int64), 2 + graph.sources + np.arange(rows)
    rate = np.zeros(graph.sources)
    rate[graph.inputs] = graph.rates
    other = graph.rates.reshape(-1, 2)[:, ::-1].ravel()
    tail = np.concatenate([np.zeros(graph.sources, int), stream, seat])
    head = np.concatenate([2 + np.arange(graph.sources), seat, np.ones(rows, int)])
    room = np.concatenate([rate, np.full(rows, _FOREVER), other]).astype(np.int32)
    size = 2 + graph.sources + rows
    return csr_array(coo_array((room, (tail, head)), shape=(size, size)))


def device_cut(graph: ViewGraph, device: int) -> csr_array:
    """The whole view graph cut between one device's stream and all others."""
    view = 2 + graph.sources + graph.row_view.astype(np.int64)
    stream = 2 + graph.inputs.astype(np.int64)
    own = graph.inputs == device
    rate = np.zeros(graph.sources)
    rate[graph.inputs] = graph.rates
    others = np.flatnonzero(np.arange(graph.sources) != device)
    tail = np.concatenate([[0], stream[own], view[~own], 2 + others])
    head = np.concatenate([[2 + device], view[own], stream[~own], np.ones(len(others), int)])
    forever = np.full(len(graph.inputs), _FOREVER)
    room = np.concatenate([[rate[device]], forever, rate[others]]).astype(np.int32)
    size = 2 + graph.sources + graph.views
    return csr_array(coo_array((room, (tail, head)), shape=(size, size)))


def child(method: str, kind: str, users: int, edges: int, down: float) -> dict[str, Any]:
    """One measurement, in this process."""
    plan_graph(workload("zipf", 60, 0, 1.0))  # compile
    plan_graph(workload("zipf", 60, 0, 0.2))
    graph = workload(kind, users, edges, down)
    found: dict[str, Any] = {"users": users, "edges": len(graph.inputs), "devices": graph.devices}
    before = _forget_peak()
    if method == "planner":
        repeats = 1 if len(graph.inputs) > 3_000_000 else 7
        clock = Clock()
        for _ in range(repeats):
            fresh = ViewGraph(
                graph.offsets, graph.inputs, graph.rates, graph.home, graph.up, graph.down
            )  # without what an earlier run has remembered
            with clock:
                plan = plan_graph(fresh)
        found |= {"cost": plan.cost, "baseline": plan.baseline_cost, "optimal": plan.optimal}
        found |= {"methods": plan.methods}
    elif method == "whole call":
        table = pd.DataFrame(
            {"view": graph.row_view, "input": graph.inputs + graph.views, "rate": graph.rates}
        )
        names = np.arange(graph.sources) + graph.views
        sources = pd.DataFrame({"source": names, "device": names})
        clock = Clock()
        for _ in range(1 if len(graph.inputs) > 3_000_000 else 3):
            with clock:
                plan = ab.place(table, sources, upload_cost=1.0, download_cost=down)
        found |= {"cost": plan.cost, "optimal": plan.optimal}
    elif method == "one cut":
        network = one_cut(graph)
        clock = Clock()
        for _ in range(1 if len(graph.inputs) > 3_000_000 else 3):
            with clock:
                flow = maximum_flow(network, 0, 1)
        found |= {"cost": float(flow.flow_value)}
    else:
        sample = np.random.default_rng(4).choice(graph.devices, 12, replace=False)
        clock = Clock()
        total = total_wall = 0.0
        for device in sample:
            network = device_cut(graph, int(device))
            with clock:
                maximum_flow(network, 0, 1)
            total += clock.last
            total_wall += clock.last_wall
        times = graph.devices / len(sample)
        found |= {"sample": len(sample), "extrapolated": total * times}
        found |= {"extrapolated_wall": total_wall * times}
    found |= {"seconds": clock.least, "wall": clock.least_wall}
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found |= {"memory_mb": _status("VmHWM") - before, "process_mb": most}
    return found


class Clock:
    """CPU and wall seconds of the block, the least of all blocks."""

    def __init__(self) -> None:
        self.least = self.least_wall = self.last = self.last_wall = math.inf

    def __enter__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.last = time.process_time() - self._cpu
        self.last_wall = time.perf_counter() - self._wall
        self.least = min(self.least, self.last)
        self.least_wall = min(self.least_wall, self.last_wall)


def _status(field: str) -> float:
    """Megabytes from the process's own status: VmRSS is now, VmHWM the most since the reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return float(line.split()[1]) / 1024
    raise OSError(f"no {field} in /proc/self/status")


def _forget_peak() -> float:
    """Start counting the most memory anew; returns what is held now."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # freed memory would hide what is taken next
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def measure(
    method: str, kind: str, users: int, edges: int = 0, down: float = 1.0
) -> dict[str, Any]:
    """One measurement in a new process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.place",
        "--child",
        method,
        kind,
        str(users),
        str(edges),
        str(down),
    ]
    print(f"  {method}: {kind}, {users:,} users, down/up {down:g} ...", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"    failed: {done.stderr.strip().splitlines()[-1:]}")
        return {}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shown = found.get("extrapolated", found["seconds"])
    print(f"    {shown:,.4g} s, {found['memory_mb']:,.0f} MB more", flush=True)
    return {"method": method, "workload": kind, "down": down, **found}


def targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each target with what was measured; sizes that did not run have no line."""
    by = {(r["method"], r["workload"], r["users"], r["down"]): r for r in rows if r}
    lines: list[dict[str, Any]] = []

    def line(text: str, value: float, unit: str, wanted: float, at_least: bool) -> None:
        met = value >= wanted if at_least else value <= wanted
        sign = ">=" if at_least else "<="
        lines.append(
            {
                "target": text,
                "measured": value,
                "unit": unit,
                "wanted": f"{sign} {wanted:g}",
                "met": met,
            }
        )

    plan = by.get(("planner", "zipf", 20_000, 1.0))
    if plan and (cut := by.get(("one cut", "zipf", 20_000, 1.0))):
        assert math.isclose(plan["cost"], cut["cost"]), "the cut and the planner must agree"
        line("20K users: times faster than one cut", cut["seconds"] / plan["seconds"], "x", 2, True)
    if plan and (each := by.get(("cut per device", "zipf", 20_000, 1.0))):
        ratio = each["extrapolated"] / plan["seconds"]
        line("20K users: times faster than a cut per device", ratio, "x", 5000, True)
    for kind in ("sampled", "feeds"):
        if big := by.get(("planner", kind, 100_000, 1.0)):
            line(f"100K users, 8.6M edges, {kind}: planner", big["seconds"], "s", 3, False)
    if huge := by.get(("planner", "sampled", 1_000_000, 1.0)):
        line("1M users, 100M edges: whole process", huge["process_mb"] / 1024, "GB", 12, False)
    curve = [r for r in rows if r and r["method"] == "planner" and r["workload"] == "sampled"]
    curve = [r for r in curve if r["down"] == 1.0 and r["edges"] > 50_000]
    if len(curve) > 2:
        n = np.log([r["edges"] * math.log2(r["edges"]) for r in curve])
        slope = np.polyfit(n, np.log([r["seconds"] for r in curve]), 1)[0]
        line("time grows as (n log n)^k: k", float(slope), "", 1.2, False)
    return lines


@in_style
def plot(rows: list[dict[str, Any]], path: Path) -> None:
    figure, axes = pyplot().subplots(1, 2, figsize=(PAGE, 4.0), layout="constrained")
    for method, kind, label in (
        ("planner", "zipf", "planner, Zipf friends"),
        ("one cut", "zipf", "one cut (SciPy)"),
        ("cut per device", "zipf", "cut per device (extrapolated)"),
        ("planner", "sampled", "planner, Facebook-like, sampled"),
    ):
        mine = [r for r in rows if r and r["method"] == method and r["workload"] == kind]
        mine = sorted((r for r in mine if r["down"] == 1.0), key=lambda r: r["edges"])
        if not mine:
            continue
        x = [r["edges"] for r in mine]
        seconds = [r.get("extrapolated", r["seconds"]) for r in mine]
        axes[0].plot(x, seconds, label=label, **line_of(label))
        axes[1].plot(x, [max(r["memory_mb"], 0.1) for r in mine], **line_of(label))
    curve = sorted(
        (r for r in rows if r and r["method"] == "planner" and r["workload"] == "sampled"),
        key=lambda r: r["edges"],
    )
    if curve:
        edges = np.array([r["edges"] for r in curve if r["down"] == 1.0], float)
        y = edges * np.log2(edges)
        y *= curve[-1]["seconds"] / y[-1]
        axes[0].plot(edges, y, ":", color=ink(), label="n log n")
    for axis, title in zip(axes, ("CPU seconds", "memory beyond the input, MB"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="demand edges", title=title)
        for labels in (axis.xaxis, axis.yaxis):
            labels.set_major_formatter(lambda value, _: plain_number(value))
        axis.grid(alpha=0.25)
    lines = axes[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=3, fontsize=9)
    written(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the largest sizes out")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        method, kind, users, edges, down = options.child
        print(json.dumps(child(method, kind, int(users), int(edges), float(down))))
        return
    rows = []
    for users in (2_000, 5_000, 10_000, 20_000) + (() if options.quick else (100_000, 1_000_000)):
        rows.append(measure("planner", "zipf", users))
        rows.append(measure("one cut", "zipf", users))
        if users <= 20_000:
            rows.append(measure("cut per device", "zipf", users))
        if users >= 20_000:
            rows.append(measure("whole call", "zipf", users))
    sizes = [(1_000, 86_000), (10_000, 860_000), (30_000, 2_600_000), (100_000, 8_600_000)]
    if not options.quick:
        sizes += [(300_000, 26_000_000), (1_000_000, 100_000_000)]
    for users, edges in sizes:
        rows.append(measure("planner", "sampled", users, edges))
    rows.append(measure("planner", "sampled", 100_000, 8_600_000, 0.2))
    rows.append(measure("whole call", "sampled", 100_000, 8_600_000))
    rows.append(measure("planner", "feeds", 100_000, 8_600_000))
    if not options.quick:
        rows.append(measure("one cut", "feeds", 100_000, 8_600_000))
    rows = [r for r in rows if r]
    lines = targets(rows)
    name = "place-quick" if options.quick else "place"
    RESULTS.mkdir(exist_ok=True)
    machine = {
        **origin(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    (RESULTS / f"{name}.json").write_text(
        json.dumps({"machine": machine, "targets": lines, "rows": rows}, indent=1) + "\n"
    )
    in_both(plot, RESULTS / name, rows)
    text = report(lines, rows)
    (RESULTS / f"{name}.md").write_text(text)
    print("\n" + text)


def report(lines: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    """Targets and measurements as Markdown tables."""
    found = ["| target | measured | wanted | |", "|---|---|---|---|"]
    for item in lines:
        verdict = "met" if item["met"] else "NOT MET"
        found.append(
            f"| {item['target']} | {item['measured']:,.3g} {item['unit']} | {item['wanted']} "
            f"| {verdict} |"
        )
    found += ["", "| method | workload | down/up | users | demand edges | CPU s | wall s | MB |"]
    found += ["|---|---|---|---|---|---|---|---|"]
    for r in rows:
        seconds, wall = r["seconds"], f"{r['wall']:,.4g}"
        if "extrapolated" in r:  # wall too, or not at all: older results have it for a single cut
            seconds = r["extrapolated"]
            wall = f"{r['extrapolated_wall']:,.4g}" if "extrapolated_wall" in r else "not kept"
        found.append(
            f"| {r['method']} | {r['workload']} | {r['down']:g} | {r['users']:,} | "
            f"{r['edges']:,} | {seconds:,.4g} | {wall} | {r['memory_mb']:,.0f} |"
        )
    return "\n".join(found) + "\n"


if __name__ == "__main__":
    main()
