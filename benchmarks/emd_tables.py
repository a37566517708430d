"""The tables of `emd.py` that documents show, as markdown."""

from __future__ import annotations

import statistics
from typing import Any

__all__ = ["tables"]

_PHASES = {
    "latestOffset": "asking the file sources what is new",
    "walCommit": "write-ahead log of offsets",
    "queryPlanning": "planning",
    "addBatch": "the job: read, pack, shuffle, operator, state commit",
    "slowest worker": "&nbsp; of it our worker, state and timers included",
    "its comparing": "&nbsp; &nbsp; of it comparing",
    "commitOffsets": "commit log",
    "micro-batch": "all",
}


def tables(result: dict[str, Any]) -> str:
    """Readings of the paper's chain, then the headline on Spark."""
    details, parts = result["details"], []
    known = [n for n in ("8x8", "lab-64") if f"{n}-readings" in details]
    if known:
        parts.append(_readings({n: details[f"{n}-readings"] for n in known}))
    if "spark" in details:
        parts += [_spark(details["spark"]), _phases(details["spark"])]
    return "\n\n".join(parts)


def _readings(found: dict[str, Any]) -> str:
    lines = ["| reading | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for reading in next(iter(found.values()))["times"]:
        cells = []
        for of in found.values():
            times = of["times"][reading]
            middle = statistics.median(times)
            cells.append(f"**{middle:.1f}** ({min(times):.1f} to {max(times):.1f})")
        lines.append(f"| {reading} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spark(found: dict[str, Any]) -> str:
    names = {
        "ours": "ours (`ab.ranges(2)`, closed form)",
        "ours, long": "ours, micro-batches of 4 s",
        "ShuffleJ": "ShuffleJ",
        "Head-SJ": "Head-SJ (even ranges)",
    }
    lines = [
        "| | micro-batch (s), median | real-time factor | slowest worker (s) | solved | copies |",
        "|---|---|---|---|---|---|",
    ]
    for name, label in names.items():
        of = found[name]
        seconds, stream = of["median_seconds"], 4 if name == "ours, long" else 1
        factor = stream / seconds["micro-batch"]
        solved = statistics.median(of["solved"])
        lines.append(
            f"| {label} | {seconds['micro-batch']:.2f} | {factor:.2f} | "
            f"{seconds['slowest worker']:.2f} | {solved:,.0f} | {of['copies_per_row']:.2f} |"
        )
    return "\n".join(lines)


def _phases(found: dict[str, Any]) -> str:
    runs = {"one row": "1 row", "ours": "1 s", "ours, long": "4 s", "ShuffleJ": "ShuffleJ, 1 s"}
    lines = ["| milliseconds, median | " + " | ".join(runs.values()) + " |"]
    lines.append("|---|" + "---|" * len(runs))
    for phase, label in _PHASES.items():
        cells = [f"{1000 * found[name]['median_seconds'][phase]:,.0f}" for name in runs]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
