"""The running system by number of devices: figures 14, 16, 17 and 18.

    python -m papers.race.running 14           # traffic: runs 100 to 500 devices, then draws
    python -m papers.race.running all          # 14, 16, 17 and 18 from one run each
    python -m papers.race.running 14 --drawn   # draws what the last run has left

The tables of the page are written from the results, and from those of ``anabranch edge lab``.
Broker, relay, keeper and devices are processes of this machine, with a line of 80 ms there and back
between them. Friends and rates are drawn as in the paper. Minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.cli.steered import Steered
from anabranch.testing.lab.delays import delay_goals
from anabranch.testing.lab.measures import Goal, fleet, goals, lasted, within
from anabranch.testing.lab.workload import Workload
from benchmarks.marked import put
from benchmarks.origin import signed
from papers.race.drawing import COLOURS, draw

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "running.json"
PAGE = HERE / "README.md"
LABS = HERE.parents[1] / "benchmarks/results"
DEVICES = (100, 200, 300, 400, 500)
FEW = ("1s", "5s")  # results of the lab with 60 devices
UP, DOWN, WHOLE, THEIRS = (COLOURS[name] for name in ("in", "out", "both", "theirs"))


def measured(devices: int, processes: int) -> dict[str, Any]:
    """One run."""
    workload = Workload.friends(devices)
    found = asyncio.run(fleet(workload, seconds=15.0, processes=processes, decide=Steered()))
    for goal in goals(found):
        print(f"  {devices}: {goal.line()}", flush=True)
    return found


def rate(found: dict[str, Any], *names: str) -> float:
    """Thousands a second, while rows were put in the second phase."""
    return float(sum(found["second"][name] for name in names) / lasted(found)) / 1e3


def traffic(axes: Any, runs: list[dict[str, Any]]) -> None:
    """Figure 14: what crosses the data plane."""
    x = [run["devices"] for run in runs]
    axes.plot(x, [rate(run, "up") for run in runs], "o-", color=UP, label="in, on sockets")
    axes.plot(x, [rate(run, "down") for run in runs], "o-", color=DOWN, label="out, on sockets")
    payload = [rate(run, "up_payload", "down_payload") for run in runs]
    axes.plot(x, payload, "o--", color=WHOLE, label="payload, both")
    axes.plot([500], [140], "v", color=THEIRS, ms=9, label="theirs: below this")
    axes.set(xlabel="devices", ylabel="kB a second")


def processor(axes: Any, runs: list[dict[str, Any]]) -> None:
    """Figure 16: CPU of the server."""
    x = [run["devices"] for run in runs]
    both = [100 * rate(run, "broker_cpu", "cloud_cpu") * 1e3 for run in runs]
    broker = [100 * rate(run, "broker_cpu") * 1e3 for run in runs]
    axes.plot(x, both, "o-", color=WHOLE, label="broker, relay and keeper")
    axes.plot(x, broker, "o--", color=DOWN, label="the broker alone")
    axes.plot([500], [42], "v", color=THEIRS, ms=9, label="theirs, with the views: below this")
    axes.set(xlabel="devices", ylabel="% of one core")


def adoption(axes: Any, runs: list[dict[str, Any]]) -> None:
    """Figure 17: how long a deployment takes."""
    for run, colour in zip((runs[0], runs[-1]), (WHOLE, DOWN), strict=True):
        after = np.sort([np.inf if one is None else one for one in run["adoption"]])
        share = 100 * np.arange(1, len(after) + 1) / len(after)
        name = f"{run['devices']} devices, {run['views']:,} views"
        axes.step(after, share, where="post", color=colour, label=name)
    theirs = [2.0, 5.5]
    axes.plot(theirs, [95, 95], "v", color=THEIRS, ms=9, label="theirs: 100 and 500 devices")
    axes.set(xlabel="seconds since the entry was written", ylabel="% of devices have adopted it")
    axes.set_xlim(left=0)


def deployment(axes: Any, runs: list[dict[str, Any]]) -> None:
    """Figure 18: what a deployment sends."""
    x = [run["devices"] for run in runs]
    wire = [run["deployment"]["wire"] / 1e6 for run in runs]
    sockets = [run["deployment"]["bytes"] / 1e6 for run in runs]
    axes.plot(x, wire, "o-", color=WHOLE, label="with headers of packets")
    axes.plot(x, sockets, "o--", color=DOWN, label="on sockets")
    axes.plot([500], [5.5], "v", color=THEIRS, ms=9, label="theirs")
    axes.set(xlabel="devices", ylabel="MB")


FIGURES: dict[int, Callable[..., None]] = {
    14: traffic,
    16: processor,
    17: adoption,
    18: deployment,
}


def table(runs: list[dict[str, Any]]) -> str:
    """All figures in numbers."""
    lines = [
        "| devices | views | rows/s | kB/s in | kB/s out | % CPU | MB | 95 % adopted | MB sent |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for run in runs:
        two = run["second"]
        memory = (two["broker_memory"] + two["cloud_memory"]) / 1e6
        cells = [
            f"{run['devices']}",
            f"{run['views']:,}",
            f"{1e3 * rate(run, 'up_rows', 'down_rows'):.0f}",
            f"{rate(run, 'up'):.1f}",
            f"{rate(run, 'down'):.1f}",
            f"{1e5 * rate(run, 'broker_cpu', 'cloud_cpu'):.1f}",
            f"{memory:.0f}",
            f"{within(run['adoption'], 0.95):.2f} s",
            f"{run['deployment']['wire'] / 1e6:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("| theirs, 100 | | | | | | | 2 s | |")
    lines.append("| theirs, 500 | | | below 140 | below 140 | below 42 | below 350 | 5.5 s | 5.5 |")
    return "\n".join(lines)


def beside_goals(runs: list[dict[str, Any]]) -> str:
    """What each run came to beside its goals; those of other flushes and sizes are other ones."""
    found = [goals(run) for run in runs]
    names = dict.fromkeys(goal.what for of in found for goal in of)
    heads = [f"{run['devices']:,}, {run['flush']}" for run in runs]
    lines = [
        "| devices, flush | goal | " + " | ".join(heads) + " |",
        "|---" * (2 + len(runs)) + "|",
    ]
    for name in names:
        mine = [next((goal for goal in of if goal.what == name), None) for of in found]
        most = dict.fromkeys(goal.most for goal in mine if goal is not None)
        unit = next(goal.unit for goal in mine if goal is not None)
        wanted = ", ".join(f"{one:g}" for one in most if one is not None)
        cells = [wanted and f"{wanted} {unit}", *map(_cell, mine)]
        lines.append(f"| {name.strip()} | {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines).replace("|  |", "| |")


def _cell(goal: Goal | None) -> str:
    if goal is None:
        return ""
    return _plain(goal.measured) if goal.met else f"{_plain(goal.measured)}, **missed**"


def _plain(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.005 else "0"


def delays(labs: dict[str, dict[str, Any]]) -> str:
    """How soon results and directives come in each run, beside the goals."""
    runs = [
        delay_goals(lab["latency"], lab["latency in the cloud"], lab["directives"])
        for lab in labs.values()
    ]
    lines = [f"| | goal | {' | '.join(labs)} |", "|---" * (2 + len(labs)) + "|"]
    for of in zip(*runs, strict=True):
        goal = of[0]
        cells = " | ".join(map(_cell, of))
        lines.append(f"| {goal.what}, {goal.unit} | {_plain(goal.most or 0.0)} | {cells} |")
    return "\n".join(lines)


def explained(runs: list[dict[str, Any]], relay: dict[str, Any]) -> str:
    """Why goals are missed, in numbers."""
    of = [run["second"] for run in runs]
    rows = [
        (two["up_rows"] + two["down_rows"]) / (two["up_frames"] + two["down_frames"]) for two in of
    ]
    cloud = [two["cloud_memory"] / 1e6 for two in of]
    more = (of[-1]["broker_memory"] - of[0]["broker_memory"]) / 1e6
    more /= runs[-1]["devices"] - runs[0]["devices"]
    share = [relay[where]["percent_at_500"] for where in ("in the cloud", "on devices")]
    return (
        f"- A frame has {min(rows):.1f} to {max(rows):.1f} rows at a flush of a second. TCP's "
        "header is 66 bytes with Ethernet's, its acknowledgement as many, and 41 are NATS and TLS: "
        "**so bytes a row meet their goal on sockets, TLS included, and cannot meet it on the "
        "wire.**\n"
        "- Memory is that of the broker and of the process with relay and keeper, which runs the "
        f"lab as well. That process has {min(cloud):.0f} to {max(cloud):.0f} MB, about half of it "
        f"mapped files of libraries. The broker grows by {more:.2f} MB a device.\n"
        "- Relay and broker at 500 frames a second, through one connection: "
        f"{min(share):.0f} to {max(share):.0f} % of a core (`benchmarks/results/relay.json`)."
    )


def in_page(page: str, runs: list[dict[str, Any]], labs: dict[str, Any], relay: Any) -> str:
    """The page with the tables of these runs, of the lab by name of its result, and the relay's."""
    parts = {
        "running": table(runs),
        "goals": beside_goals([*runs, labs["5s"]["fleet"], labs["2000"]["fleet"]]),
        "delays": delays({f"run of {labs[name]['asked']['flush']}": labs[name] for name in FEW}),
        "explained": explained(runs, relay),
    }
    for mark, text in parts.items():
        page = put(page, mark, text)
    return page


def stored_labs() -> dict[str, Any]:
    """What the lab has found: with flushes of one and of five seconds, and of 2,000 devices."""
    return {
        name: json.loads((LABS / f"edge-lab-{name}.json").read_text())
        for name in ("1s", "5s", "2000")
    }


def stored_relay() -> dict[str, Any]:
    """What `benchmarks.relay` has found."""
    found: dict[str, Any] = json.loads((LABS / "relay.json").read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figure", choices=[*map(str, FIGURES), "all"])
    parser.add_argument("--drawn", action="store_true", help="draw the results that are there")
    parser.add_argument(
        "--devices", type=int, nargs="+", default=list(DEVICES), help="runs in place of former ones"
    )
    parser.add_argument("--processes", type=int, default=2, help="that run the devices")
    options = parser.parse_args()
    runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for devices in () if options.drawn else options.devices:
        others = [run for run in runs if run["devices"] != devices]
        fresh = signed([measured(devices, options.processes)])
        runs = sorted([*others, *fresh], key=lambda run: int(run["devices"]))
        RESULTS.write_text(json.dumps(runs) + "\n")
    for figure in FIGURES if options.figure == "all" else [int(options.figure)]:
        draw(figure, partial(FIGURES[figure], runs=runs))
    PAGE.write_text(in_page(PAGE.read_text(), runs, stored_labs(), stored_relay()))
    print(table(runs))


if __name__ == "__main__":
    main()
