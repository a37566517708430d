"""What README.md says of decoded frames, written from the stored result.

`papers.vico.decoded` puts it there, and `tests/papers/test_vico_decoded.py` holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import marked

__all__ = ["PAGE", "put", "section"]

PAGE = Path(__file__).parent / "README.md"
_RATE = 25  # frames a second of a channel


def section(result: Mapping[str, Any]) -> str:
    """The tables of figures 7 and 8 and what follows from them."""
    of = result["details"]
    parts = [
        _played(of),
        _figure_7(of["found"]),
        _findings(of["found"], result["rows"]),
        _workers(of["found"]),
        _stages(of),
        _figure_8(of["routing"]),
        _measured(result["machine"]),
    ]
    return "\n\n".join(part for part in parts if part)


def put(page: str, text: str) -> str:
    """A page with this text in the place of the one that it has."""
    return marked.put(page, "decoded", text)


def _played(of: Mapping[str, Any]) -> str:
    live = of["found"]["key frames"]["centralised"]
    sampled = len(live["curve"])
    layout = f" of layout {of['layout']}" if "layout" in of else ""
    return (
        f"{of['frames']:,} frames with {of['keys']} key frames, and 576 features{layout}. Each "
        f"curve has {sampled:,} samples of the key frames."
    )


def _figure_7(found: Mapping[str, Any]) -> str:
    names = list(found)
    lines = [
        f"| figure 7: comparisons/s (processor seconds of all workers) | {' | '.join(names)} |",
        "|---|" + "---:|" * len(names),
    ]
    for plan in found["key frames"]:
        cells = " | ".join(
            f"{_millions(_rate(found[name][plan]))} ({found[name][plan]['seconds']:.2f})"
            for name in names
        )
        lines.append(f"| {plan} | {cells} |")
    return "\n".join(lines)


def _findings(found: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    share = next(row for row in rows if "made-up features" in row["what"])
    lines = [
        f"- *{name}*, the fastest first: "
        + "; ".join(sorted(of, key=lambda plan: -_rate(of[plan])))
        + f". The fastest has {_ahead(of):.2f} times the rate of the centralised one."
        for name, of in found.items()
        if "made up" not in name
    ]
    verdict = "reached" if share["met"] else "missed"
    lines.append(
        f"- Decoded features are compared at {share['reached']:.2f} times the rate of made-up "
        f"ones, by processor time in the median of the fixed plans. The goal of {share['target']:g}"
        f" is {verdict}."
    )
    for name, of in found.items():
        # An entry that retires a plan is of the same plan again.
        plans = [plan for plan, _ in groupby(of.get("adaptive, 3 workers", {}).get("plans", []))]
        if plans and "made up" not in name:
            lines.append(
                f"- *{name}*: `adaptive` began with `{plans[0]}`, changed its plan "
                f"{len(plans) - 1} times, and ended with `{plans[-1]}`."
            )
    return "\n".join(lines)


def _workers(found: Mapping[str, Any]) -> str:
    """Processor seconds of each worker, for a result that has them."""
    if "workers" not in found["saturated"]["centralised"]:
        return ""
    lines = ["| saturated: processor seconds by worker | |", "|---|---|"]
    for plan, of in found["saturated"].items():
        lines.append(f"| {plan} | {', '.join(f'{spent:.2f}' for spent in of['workers'])} |")
    return "\n".join(lines)


def _stages(of: Mapping[str, Any]) -> str:
    channels = of.get("by_channel", {})
    heads = ["processor time per frame", *channels]
    lines = [
        "| stage | " + " | ".join([*heads[:1], *(f"seconds, {name}" for name in channels)]) + " |",
        "|---|" + "---:|" * len(heads),
    ]
    for stage, spent in of["stages"].items():
        cells = [f"{1000 * spent / of['frames']:.3f} ms"]
        cells += [f"{seconds[stage]:.2f}" for seconds in channels.values()]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    every = of["found"]["every frame"]["centralised"]
    compared = every["seconds"] / every["comparisons"]
    frame = _RATE * 60 * 2 * compared
    described = sum(of["stages"].values()) / of["frames"]
    return "\n".join(lines) + (
        f"\n\nA frame meets up to {_RATE * 60 * 2:,} others in the windows, at "
        f"{1e9 * compared:.0f} ns each: {1e3 * frame:.3f} ms. Decoding and describing it cost "
        f"{described / frame:.0f} times as much."
    )


def _figure_8(routing: Mapping[str, float]) -> str:
    lines = ["| figure 8: time in the router per frame | |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {spent:.3f} us |" for name, spent in routing.items())])


def _measured(machine: Mapping[str, Any]) -> str:
    made = f", commit {machine['commit'][:12]}" if "commit" in machine else ""
    return (
        f"One run on {machine['cores']} cores, load average "
        f"{machine['load_average_at_start']:.1f} at the start{made}. Processor time is less "
        "sensitive to the work of others than a clock, yet differences below a tenth mean nothing."
    )


def _rate(outcome: Mapping[str, Any]) -> float:
    return float(outcome["comparisons"] / outcome["curve"][-1][0])


def _ahead(of: Mapping[str, Any]) -> float:
    return max(map(_rate, of.values())) / _rate(of["centralised"])


def _millions(rate: float) -> str:
    return f"{float(f'{rate / 1e6:.3g}'):,g} M"
