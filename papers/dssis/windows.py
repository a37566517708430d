"""Tables 6 and 11 of the DSSIS paper, the closing policies beyond it, and a real access log.

::

    python -m papers.dssis.windows [--quick] [--log FILE] [--out FOLDER]

Writes ``dssis-windows.json`` and ``dssis-windows.md``.
The kernel is the one that runs on Spark; seeds are fixed. Half a minute.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.assembly.closing import Closing
from anabranch.assembly.table import Column
from anabranch.flow.pictures import pyplot
from benchmarks.measuring import machine
from papers.dssis.arrays import Assembled, assemble_arrays
from papers.dssis.tracing.accesslog import AccessLog, read_access_log
from papers.dssis.tracing.generator import Trace, generate_trace
from papers.dssis.tracing.scoring import Score, rows_of_sliding, rows_of_windows, score
from papers.style import PAGE, in_style, line_of, written

ROOT = Path(__file__).parent
LOG = ROOT.parents[2] / "shared" / "data" / "apache_access.log.gz"
TUPLE_BYTES, SLOTS = 135, 13
SWA = ab.close.count(13, "22 seconds")
SLIDING = (8000, 16000, 32000)
PAPER_6 = {  # gamma 1, .85, .75, events; the swapped cells of 16000 and 32000 put right
    "SWA 13/22": (80.48, 90.30, 91.66, 94.06),
    "sliding 8000": (13.15, 15.17, 16.99, 40.16),
    "sliding 16000": (43.44, 45.87, 47.63, 63.15),
    "sliding 32000": (72.11, 73.76, 74.73, 76.27),
}
PAPER_11 = {
    "SWA 13/22": {"L": 1861, "storage MB": 3.1148, "L max": 2007, "max MB": 3.3591, "W": 19.0192},
    "sliding 32000": {
        "L": 15374, "storage MB": 5.2909, "L max": 32096, "max MB": 5.3910, "W": 16.8402,
    },
}  # fmt: skip

Values = dict[str, list[float]]


def keys_of(trace: Trace) -> np.ndarray:
    """Kind, time and client as one number."""
    columns = np.stack([trace.kind, trace.instance_ts, trace.client])
    found: np.ndarray = np.unique(columns, axis=1, return_inverse=True)[1].ravel()
    return found


def percents(found: Score) -> list[float]:
    """The four lines of table 6."""
    return [100 * share for share in (*found.completeness, found.events)]


def rated(trace: Trace, row: np.ndarray) -> Score:
    """The score of an assignment, with events in order of time."""
    order = np.lexsort((np.arange(len(trace)), trace.event_ts))
    return score(row[order], trace.truth[order], (trace.service == 0)[order])


def run(trace: Trace, key: np.ndarray, closing: Closing) -> Assembled:
    """Assemble a trace."""
    return assemble_arrays(trace.event_ts, key, closing, kind=trace.kind, stream=trace.stream)


def mean_of(values: Values) -> dict[str, float]:
    """Means over seeds."""
    return {name: float(np.mean(found)) for name, found in values.items()}


def table_6(seeds: int, changes: dict[str, Any]) -> dict[str, Any]:
    """The small window array against count windows over the whole stream."""
    shares: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        trace = generate_trace(seed=seed, **changes)
        key = keys_of(trace)
        found = rated(trace, rows_of_windows(run(trace, key, SWA)))
        shares.setdefault("SWA 13/22", []).append(percents(found))
        order = np.lexsort((np.arange(len(trace)), trace.arrival_ts))
        for size in SLIDING:
            row = np.empty(len(trace), np.int64)
            row[order] = rows_of_sliding(key[order], size)
            shares.setdefault(f"sliding {size}", []).append(percents(rated(trace, row)))
    return {
        name: {"mean": np.mean(of, axis=0).tolist(), "deviation": np.std(of, axis=0).tolist()}
        for name, of in shares.items()
    }


def table_11(seeds: int) -> dict[str, Any]:
    """Windows and tuples held, their bytes, and residence time."""
    swa: Values = {}
    sliding: Values = {}
    for seed in range(seeds):
        trace = generate_trace(seed=seed)
        key = keys_of(trace)
        found = run(trace, key, SWA)
        first, last = trace.event_ts.min(), trace.event_ts.max()
        opened, closed = found.column(Column.OPENED), found.column(Column.CLOSED)
        # The last windows outlive the trace; what they hold after it is nobody's load.
        until = np.minimum(closed, last)
        held = (until - opened) / (last - first)
        reasons = np.bincount(found.column(Column.REASON), minlength=6)
        tuples = held_tuples(trace, found)
        add(swa, "L", held.sum())
        add(swa, "L max", found.load.peak_windows)
        add(swa, "storage MB", held.sum() * SLOTS * TUPLE_BYTES / 2**20)
        add(swa, "max MB", found.load.peak_windows * SLOTS * TUPLE_BYTES / 2**20)
        add(swa, "W", (closed - opened).mean() / 1e6)
        add(swa, "tuples held", tuples)
        add(swa, "tuples MB", tuples * TUPLE_BYTES / 2**20)
        add(swa, "timed out %", 100 * reasons[2] / reasons.sum())
        size = SLIDING[-1]
        order = np.lexsort((np.arange(len(trace)), trace.arrival_ts))
        times = trace.arrival_ts[order]
        window = np.arange(len(times)) // size
        ends = np.append(times[size - 1 :: size], times[-1])[: window[-1] + 1]
        stay = ends[window] - times
        groups = len(np.unique(np.stack([window, key[order]]), axis=1)[0]) / (window[-1] + 1)
        add(sliding, "L", stay.sum() / (last - first))
        add(sliding, "L max", min(size, len(times)))
        add(sliding, "storage MB", groups * SLOTS * TUPLE_BYTES / 2**20)
        add(sliding, "tuples MB", stay.sum() / (last - first) * TUPLE_BYTES / 2**20)
        add(sliding, "W", stay.mean() / 1e6)
        add(sliding, "groups", groups)
    return {"SWA 13/22": mean_of(swa), "sliding 32000": mean_of(sliding)}


def held_tuples(trace: Trace, found: Assembled) -> float:
    """Tuples in open windows, averaged over the trace."""
    last = trace.event_ts.max()
    until = np.minimum(found.column(Column.CLOSED)[found.row_of], last)
    return float((until - trace.event_ts).sum() / (last - trace.event_ts.min()))


def add(values: Values, name: str, value: Any) -> None:
    """One more seed's value."""
    values.setdefault(name, []).append(float(value))


TRACES: dict[str, dict[str, Any]] = {
    "paper's trace": {},
    "300 kinds": {"kinds": 300, "popularity": 0.0, "kind_span_sigma": 0.4},
    "300 kinds, 3 % optional": {
        "kinds": 300, "popularity": 0.0, "kind_span_sigma": 0.4, "optional_calls": 0.03,
    },
}  # fmt: skip
POLICIES: dict[str, Closing] = {
    "13/22": SWA,
    "fixed wait 22 s, no cap": ab.close.after("22 seconds"),
    "session gap 8 s": ab.close.gap("8 seconds"),
    "learned": ab.close.learned("22 seconds"),
}


def policies(seeds: int) -> dict[str, Any]:
    """Precise completeness, life and number of windows, cold start, beyond the paper."""
    found: dict[str, Any] = {}
    for label, changes in TRACES.items():
        for name, closing in POLICIES.items():
            values: Values = {}
            for seed in range(seeds):
                trace = generate_trace(seed=seed, **changes)
                made = run(trace, keys_of(trace), closing)
                precise = rated(trace, rows_of_windows(made)).completeness[0]
                revised = rated(trace, rows_of_windows(made, revised=True)).completeness[0]
                spread = trace.event_ts.max() - trace.event_ts.min()
                add(values, "precise", 100 * precise)
                add(values, "after revisions", 100 * revised)
                add(values, "life s", made.life.mean() / 1e6)
                add(values, "open windows", made.life.sum() / spread)
            found.setdefault(label, {})[name] = mean_of(values)
        values = {}
        for seed in range(seeds):
            for name, value in warm(generate_trace(seed=seed, **changes)).items():
                add(values, name, value)
        found[label]["learned, warm"] = mean_of(values)
    return found


def warm(trace: Trace) -> dict[str, float]:
    """The learned policy on a trace that it has seen ten minutes before."""
    key, later = keys_of(trace), trace.event_ts + 600_000_000
    made = assemble_arrays(
        np.concatenate([trace.event_ts, later]),
        np.concatenate([key, key + int(key.max()) + 1]),
        ab.close.learned("22 seconds"),
        kind=np.concatenate([trace.kind, trace.kind]),
    )
    again = slice(len(trace), None)
    second = made.column(Column.OPENED) >= later.min()
    life = (made.column(Column.CLOSED) - made.column(Column.OPENED))[
        second & (made.column(Column.REVISION) == 0)
    ]
    found = {}
    for name, revised in (("precise", False), ("after revisions", True)):
        rows = rows_of_windows(made, revised)[again]
        rows = np.where(rows < 0, -1, rows - int(rows[rows >= 0].min()))
        found[name] = 100 * rated(trace, rows).completeness[0]
    found["life s"] = life.mean() / 1e6
    found["open windows"] = life.sum() / (later.max() - later.min())
    return found


def log_point(log: AccessLog, closing: Closing) -> dict[str, float]:
    """Completeness and delay of one policy on the access log."""
    made = assemble_arrays(log.t, log.key, closing, kind=log.kind)
    order = np.lexsort((np.arange(len(log.t)), log.t))

    def of(row: np.ndarray) -> Score:
        return score(row[order], log.truth[order], log.is_page[order])

    began = np.full(int(log.truth.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(began, log.truth, log.t)
    # The row that holds an instance's first event is what its reader gets first.
    backwards = order[::-1]
    first_row = np.empty(len(began), np.int64)
    first_row[log.truth[backwards]] = made.row_of[backwards]
    delay = (made.column(Column.CLOSED)[first_row] - began) / 1e6
    plain = of(rows_of_windows(made))
    return {
        "precise": 100 * plain.completeness[0],
        "events": 100 * plain.events,
        "after revisions": 100 * of(rows_of_windows(made, revised=True)).completeness[0],
        "delay s": float(delay.mean()),
        "windows per second open": float(
            made.life.sum() / 1e6 / ((log.t.max() - log.t.min()) / 1e6)
        ),
        "peak windows": float(made.load.peak_windows),
        "rows": float(len(made.windows)),
    }


def learned_at(risk: float) -> Closing:
    """The learned policy of the access log."""
    return ab.close.learned("60 seconds", risk=risk)


CURVES: dict[str, tuple[list[Any], Callable[[Any], Closing]]] = {
    "small window array (13, T)": (
        [5, 10, 22, 30, 40, 50, 60],
        lambda t: ab.close.count(13, f"{t} seconds"),
    ),
    "fixed wait T": ([5, 10, 20, 30, 40, 50, 60], lambda t: ab.close.after(f"{t} seconds")),
    "session gap": (
        [2, 5, 8, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60],
        lambda t: ab.close.gap(f"{t} seconds"),
    ),
    "learned, risk r": (
        [0.8, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0003, 0.0001],
        learned_at,
    ),
}
NAMED: dict[str, Closing] = {
    "the paper's window, 13/22": SWA,
    "session gap 8 s": ab.close.gap("8 seconds"),
    "session gap 30 s": ab.close.gap("30 seconds"),
    "session gap 40 s": ab.close.gap("40 seconds"),
    "fixed wait 30 s (tail sampling)": ab.close.after("30 seconds"),
    "learned, risk = 0.2": learned_at(0.2),
    "learned, risk = 0.1": learned_at(0.1),
    "learned, risk = 0.05": learned_at(0.05),
    "learned, risk = 0.01": learned_at(0.01),
    "learned, risk = 0.002": learned_at(0.002),
}


def access_log(path: Path) -> dict[str, Any]:
    """The same policies on a real log."""
    log = read_access_log(path)
    sizes = np.bincount(log.truth)
    named = {name: log_point(log, closing) for name, closing in NAMED.items()}
    curves = {
        name: [{"parameter": v, **log_point(log, make(v))} for v in values]
        for name, (values, make) in CURVES.items()
    }
    return {
        "log": {
            "lines": log.lines,
            "unreadable": log.unreadable,
            "objects without a page": log.without_page,
            "events": len(log.t),
            "instances": len(sizes),
            "of one event": int((sizes == 1).sum()),
            "kinds": len(log.kinds),
        },
        "policies": named,
        "curves": curves,
    }


@in_style
def draw(curves: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Completeness against delay."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(PAGE, 4.5), layout="constrained")
    for (name, points), mark in zip(curves.items(), "s^vo", strict=True):
        x, y = [p["delay s"] for p in points], [p["precise"] for p in points]
        axes.plot(x, y, label=name, **(line_of(name) | {"marker": mark}))
    axes.set_xlabel("mean delay from an instance's first event to its row, s")
    axes.set_ylabel("instances complete in their first row, %")
    axes.set_title("Closing policies on a real access log")
    axes.legend(loc="lower right")
    written(figure, path)


def markdown(found: dict[str, Any]) -> str:
    """The results as tables."""
    lines = ["| table 6, % | paper | calibrated | spans literal |", "|---|---|---|---|"]
    for name, theirs in PAPER_6.items():
        cells = [
            " / ".join(f"{x:.1f}" for x in values)
            for values in (
                theirs, found["table 6"][name]["mean"], found["table 6, literal"][name]["mean"],
            )
        ]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| table 11 | SWA, paper | SWA, ours | sliding, paper | sliding, ours |"]
    lines.append("|---|---|---|---|---|")
    ours = found["table 11"]
    for row in dict.fromkeys([*ours["SWA 13/22"], *ours["sliding 32000"]]):
        cells = []
        for name in ("SWA 13/22", "sliding 32000"):
            for value in (PAPER_11[name].get(row), ours[name].get(row)):
                cells.append("" if value is None else f"{value:,.2f}")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    kinds = ["precise", "after revisions", "life s", "open windows"]
    lines += ["", f"| policy | trace | {' | '.join(kinds)} |", "|---|---|---|---|---|---|"]
    for label, of in found["policies"].items():
        for name, values in of.items():
            lines.append(f"| {name} | {label} | {' | '.join(f'{values[h]:,.1f}' for h in kinds)} |")
    if "access log" in found:
        kinds = ["precise", "events", "after revisions", "delay s", "peak windows", "rows"]
        lines += ["", f"| access log | {' | '.join(kinds)} |", "|---" * 7 + "|"]
        for name, values in found["access log"]["policies"].items():
            lines.append(f"| {name} | {' | '.join(f'{values[h]:,.1f}' for h in kinds)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, nothing written")
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--out", type=Path, default=ROOT / "results")
    options = parser.parse_args()
    seeds = 1 if options.quick else 5
    if not options.quick:
        options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {
        "machine": machine(),
        "seeds": seeds,
        "table 6": table_6(seeds, {}),
        "table 6, literal": table_6(seeds, {"span_factor": 1.0, "span_cap": None}),
        "table 11": table_11(seeds),
        "policies": policies(seeds),
    }
    if options.log.exists():
        found["access log"] = access_log(options.log)
    print(markdown(found))
    if not options.quick:
        (options.out / "dssis-windows.json").write_text(json.dumps(found, indent=1) + "\n")
        (options.out / "dssis-windows.md").write_text(markdown(found))


if __name__ == "__main__":
    main()
