"""Tables 7 to 10 of the DSSIS paper, equations 4 to 12 and figures 11 and 12: ours beside theirs.

Writes ``dssis-queues.json`` and ``dssis-queues.md``. Seeds are fixed; only the
seconds differ from run to run. About a minute.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.assembly import close
from anabranch.assembly.fitting import PhaseType, fit_hyper_erlang
from anabranch.assembly.table import Column
from anabranch.errors import InvalidCall
from benchmarks.measuring import machine
from papers.dssis.arrays import Assembled, assemble_arrays
from papers.dssis.equations import EQ4, EQ5, EQ7, EQ8, EQ10, calibrated, calibrated_span
from papers.dssis.queueing import bulk_queue, gg_infinity, ggc, linear_law, window_array
from papers.dssis.tracing import LITERAL, Trace, generate_trace
from papers.dssis.tracing.scoring import rows_of_windows, score
from papers.style import in_style, written

RESULTS = Path(__file__).parent / "results"
SIZE, TIMEOUT = 13, 22

Lines = list[tuple[str, Any, Any, str]]


def main() -> None:
    """Run all and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = {
        "Equations 4 to 8": equations(),
        "Table 7": table_7(options.seeds),
        "Table 8": table_8(),
        "Table 9": table_9(),
        "Equation 11": equation_11(),
        "Table 10": table_10(options.seeds),
        "The window array, predicted and played": arrays(options.seeds),
    }
    text = "\n".join(markdown(title, lines) for title, lines in parts.items())
    (options.out / "dssis-queues.md").write_text(text)
    found = {
        title: [dict(zip(("what", "paper", "ours", "note"), line, strict=True)) for line in lines]
        for title, lines in parts.items()
    }
    document = {"machine": machine(), "seeds": options.seeds, "tables": found}
    (options.out / "dssis-queues.json").write_text(json.dumps(document, indent=1) + "\n")
    print(text)


def equations() -> Lines:
    """What the printed distributions give."""
    trace = generate_trace(seed=0, instances=40_000, kinds=35_000, **LITERAL)
    begun = time.process_time()
    fitted = ab.fit_windows(trace.table())
    seconds = time.process_time() - begun
    data = EQ5.sample(100_000, seed=1)
    begun = time.process_time()
    again = fit_hyper_erlang(data)
    fit_seconds = time.process_time() - begun
    try:
        PhaseType([1, 0], [[-0.1452, -0.0329], [0, -0.1191]])
        refusal = ""
    except InvalidCall as error:
        refusal = error.problems[0]
    repaired = PhaseType([1, 0], [[-0.1452, 0.0329], [0, -0.1191]])
    return [
        ("equation 4: F(12)", 0.7186, r(float(EQ4.cdf(12)), 4), ""),
        ("equation 4: F(13)", 0.92, r(float(EQ4.cdf(13)), 4), "size 13 either way"),
        ("equation 4: F(14)", 0.9857, r(float(EQ4.cdf(14)), 4), ""),
        ("equation 5: mean, s", 11.2513, r(EQ5.mean, 4), "brackets of its CDF restored"),
        ("equation 5: F(22)", 0.95, r(float(EQ5.cdf(22)), 4), ""),
        ("equation 5: timeout, s", 22, r(float(EQ5.ppf(0.95)), 2), ""),
        ("fit_windows on the literal trace: size", 13, fitted.size, f"{seconds:.1f} s of one core"),
        ("fit_windows on the literal trace: timeout, s", 22, r(fitted.timeout, 2), ""),
        (
            "branches found in 100,000 spans",
            "1, 4",
            ", ".join(map(str, again.shapes)),
            f"{again!r}, {fit_seconds:.1f} s of one core",
        ),
        ("equation 6: mean, ms", 9.778, r(repaired.mean, 2), f"as printed refused: {refusal}"),
        ("equation 7: mean, ms", 0.9457, r(EQ7.mean, 4), "as printed, .0001, 0.9341"),
        ("equation 8: mean, ms", 0.005364, r(EQ8.mean, 6), "its negative rate set to 0"),
    ]


STRATEGIES = {
    "kind": ("kind",),
    "kind, time": ("kind", "instance_ts"),
    "kind, client": ("kind", "client"),
    "kind, time, client": ("kind", "instance_ts", "client"),
}
PRINTED = {
    "kind": (70.38, 78.30, 79.41, 81.14, 91.31, 85.17),
    "kind, time": (79.53, 89.14, 90.48, 92.79, 99.31, 98.63),
    "kind, client": (80.44, 90.13, 91.49, 93.98, 99.99, 99.98),
    "kind, time, client": (80.4815, 90.2979, 91.6553, 94.0649, 100.0, 100.0),
}
INDICATORS = ("complete, gamma 1", "gamma .85", "gamma .75", "events", "recall", "correct")


def table_7(seeds: int) -> Lines:
    """The four association strategies, windows of 13 and 22 s, in percent."""
    lines: Lines = []
    for name, columns in STRATEGIES.items():
        runs = []
        for seed in range(seeds):
            trace = generate_trace(seed=seed)
            runs.append(strategy(trace, assembled(trace, columns)))
        mean = np.mean(runs, axis=0)
        for number, indicator in enumerate(INDICATORS):
            note = f"per row {mean[6]:.2f}" if indicator == "correct" else ""
            lines.append((f"{name}: {indicator}", PRINTED[name][number], r(mean[number], 2), note))
    return lines


def assembled(trace: Trace, columns: tuple[str, ...]) -> Assembled:
    """The trace in windows of 13 and 22 s under a key of these columns."""
    parts = np.stack([getattr(trace, name) for name in columns], axis=1)
    _, key = np.unique(parts, axis=0, return_inverse=True)
    return assemble_arrays(trace.event_ts, key.ravel(), close.count(SIZE, f"{TIMEOUT} seconds"))


def strategy(trace: Trace, found: Assembled) -> tuple[float, ...]:
    """Completeness at three levels, events, recall, correct instances and correct rows, %."""
    rated = score(rows_of_windows(found), trace.truth, trace.service == 0)
    shares = (*rated.completeness, rated.events, rated.recall, rated.correct)
    return tuple(100 * share for share in (*shares, rated.correct_rows))


def table_8() -> Lines:
    """UNION as PH2/PH4/1/60, milliseconds."""
    begun = time.process_time()
    found = bulk_queue(EQ7, EQ8, 60)
    seconds = time.process_time() - begun
    one = bulk_queue(EQ7, EQ8, 1)
    return [
        ("L", 0.005698, r(found.L, 7), f"{found.states} states, {seconds:.2f} s"),
        ("Lq", 0.000025, r(found.Lq, 7), ""),
        ("W, ms", 0.005388, r(found.W, 7), "observed there .005370"),
        ("Wq, ms", 0.000024, r(found.Wq, 7), ""),
        (
            "P_busy",
            0.005673,
            r(found.P_busy, 6),
            f"of time; arrivals find {found.P_busy_arrival:.6f}, which the paper says it prints",
        ),
        ("P_loss", 0.000027, found.P_loss, f"with room for 1 instead of 60 {one.P_loss:.4g}"),
    ]


def table_9() -> Lines:
    """The count window of 20 as PH2/PH53[20,20]/1/60, milliseconds."""
    begun = time.process_time()
    found = bulk_queue(EQ7, EQ10, 60, a=20)
    seconds = time.process_time() - begun
    slower = bulk_queue(EQ7.scaled(1.1049 / EQ7.mean), EQ10, 60, a=20)
    as_one = found.Lq + found.P_busy
    return [
        ("Lq", 9.5, r(found.Lq, 4), f"{found.states} states, {seconds:.2f} s"),
        ("Wq, ms", 8.9837, r(found.Wq, 4), ""),
        ("L, a batch of 20 counted as one", 9.5324, r(as_one, 4), ""),
        ("W, ms, the same", 9.0134, r(as_one / found.rate, 4), ""),
        ("L", None, r(found.L, 3), "observed there 10.2797"),
        ("W, ms", None, r(found.W, 3), "observed there 11.3649"),
        ("W, ms, input every 1.1049 ms", 10.5275, r(slower.W, 3), "theirs a batch as one"),
        ("P_busy", 0.00324, r(found.P_busy, 4), "misprinted by a factor of 10"),
        ("P_loss", 0.000044, found.P_loss, "their own room of 60 is never full"),
    ]


def equation_11() -> Lines:
    """The lines that need no fit."""
    windows = np.arange(10, 81, 10)
    found = [bulk_queue(EQ7, EQ10, 2 * int(k), a=int(k)) for k in windows]
    slope = float(np.polyfit(windows, [one.Lq for one in found], 1)[0])
    law = linear_law(8000, 1 / 1.1049, EQ10.mean)
    return [
        ("slope of L", 0.4994, r(slope, 4), "exactly 1/2 at low load"),
        ("slope of W, ms", 0.5518, r(0.5 * 1.1049, 4), "1/2 over the rate"),
        ("L of a window of 8000", 3994.4747, r(law.L, 1), "observed there 4008.9"),
        ("W of a window of 8000, s", 4.4139, r(law.W / 1000, 4), "observed there 4.9367"),
    ]


def table_10(seeds: int) -> Lines:
    """The small window array as G/G/c, seconds."""
    many = ggc(1000 / 9.778, 20.7137, 10_000)
    later = gg_infinity(1000 / 11.8092, 20.7137)
    edge = ggc(1000 / 9.778, 20.7137, 2119)
    lives = [
        assembled(generate_trace(seed=seed), STRATEGIES["kind, time, client"]).life.mean() / 1e6
        for seed in range(seeds)
    ]
    told = window_array(1000 / 9.778, SIZE, TIMEOUT, calibrated(), calibrated_span())
    return [
        ("L", 2119.2972, r(many.L, 2), "rate times mean, nothing else"),
        ("W, s", 20.7137, r(many.W, 4), "the measured mean put in"),
        ("P_wait", 7.9272e-5, many.P_wait, ""),
        ("L, input every 11.8092 ms", 1754.0605, r(later.L, 2), "observed there 1860.6"),
        (
            "servers needed (equation 12)",
            2119,
            round(gg_infinity(1000 / 9.778, 20.7137).peak),
            f"peak; with 2119 servers (used to {edge.utilisation:.4f}) {edge.Lq:,.0f} would wait",
        ),
        ("W, s, from size, timeout, sizes and spans", None, r(told.life, 2), "nothing measured"),
        ("W, s, played on the calibrated trace", 19.0129, r(float(np.mean(lives)), 2), ""),
    ]


def arrays(seeds: int) -> Lines:
    """Open windows: the model against windows really opened and closed."""
    lines: Lines = []
    for size, timeout in ((13, 22), (10, 22), (13, 10), (8, 15)):
        told = window_array(1000 / 9.778, size, timeout, calibrated(), calibrated_span())
        seen = [played(seed, size, timeout) for seed in range(seeds)]
        note = (
            f"played {np.mean(seen):,.0f}, model {100 * (told.windows / np.mean(seen) - 1):+.2f} %"
        )
        plain = told.rate * told.first_life
        note += f"; without second windows {plain:,.0f}"
        lines.append((f"{size} events, {timeout} s", None, round(told.windows), note))
    return lines


def played(seed: int, size: int, timeout: int) -> float:
    """Mean number of open windows per nominal rate, once the array is full."""
    trace = generate_trace(seed=seed, span_cap=None, instances=30_000, kinds=25_000)
    found = assemble_arrays(trace.event_ts, trace.truth, close.count(size, f"{timeout} seconds"))
    begun = trace.event_ts[trace.service == 0]
    low, high = int(begun[0]) + 60_000_000, int(begun[-1])
    opened, closed = found.column(Column.OPENED), found.column(Column.CLOSED)
    inside = (np.clip(closed, low, high) - np.clip(opened, low, high)).sum() / (high - low)
    rate = np.sum((begun > low) & (begun <= high)) / (high - low) * 1e6
    return float(inside / rate * 1000 / 9.778)


@in_style
def draw(path: Path) -> None:
    """Figures 11 and 12: density and distribution of sizes and spans, seen and fitted."""
    written(ab.fit_windows(generate_trace(seed=0, **LITERAL).table()).plot(), path)


def markdown(title: str, lines: Lines) -> str:
    """A table of the results."""
    text = [f"### {title}\n", "| | paper | ours | |", "|---|---|---|---|"]
    for what, paper, ours, note in lines:
        text.append(f"| {what} | {shown(paper)} | {shown(ours)} | {note} |")
    return "\n".join(text) + "\n"


def shown(value: Any) -> str:
    """A value as the table prints it."""
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1e-4 else str(value)


def r(value: float, digits: int) -> float:
    """Rounded."""
    return round(float(value), digits)


if __name__ == "__main__":
    main()
