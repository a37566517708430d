"""Traffic while rates change and views move by themselves: figure 13.

    python -m papers.race.replanned            # runs 100 devices for four minutes, then draws
    python -m papers.race.replanned --drawn    # draws what the last run has left

After half of the time half of the devices have five times as many rows, the others 2.33 times
fewer, as in the paper. Nobody triggers it: devices report their rates, and the hub moves views.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.cli.steered import Steered
from anabranch.edge.wishes import Requests, Wishes
from anabranch.testing.lab.lab import Lab
from anabranch.testing.lab.workload import Workload
from papers.race.drawing import COLOURS, draw

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "replanned.json"
EVERY = 2.0  # seconds between readings
THEIRS = {"stay / before": 51 / 28, "new / before": 40 / 28, "new / stay": 40 / 51}


def changed(workload: Workload) -> Workload:
    """Half of the devices five times as busy, the others 2.33 times less."""
    rng = np.random.default_rng(3)
    busy = rng.permutation(workload.devices) < workload.devices // 2
    return replace(workload, periods=np.where(busy, workload.periods / 5, workload.periods * 2.33))


async def run(devices: int, seconds: float) -> dict[str, Any]:
    """One run: readings, entries of the log, and what the planner says."""
    before = Workload.friends(devices, window=5_000_000)
    after = changed(before)
    readings: list[dict[str, float]] = []
    async with Lab(devices, decide=Steered()) as lab:
        streams, definitions, views = before.wishes(dict(before.plan().location))
        wishes = Wishes(tuple(streams), tuple(definitions), tuple(view for view, _ in views))
        Requests(lab.cloud.hub.control).write(replace(wishes, download_cost=1.0))
        while lab.cloud.relay.state.book.epoch < 0:
            await asyncio.sleep(0.1)
        begun = time.time()
        reading = asyncio.create_task(_read(lab, readings, begun))
        await lab.put(before, seconds / 2)
        change = time.time() - begun
        print(f"rates change after {change:.0f} s", flush=True)
        await lab.put(after, seconds / 2)
        reading.cancel()
        entries = [
            {"after": _moment(entry.written) - begun, "moves": len(entry.moves)}
            for entry in lab.cloud.keeper.log.entries()
        ]
    return {
        "devices": devices,
        "views": len(before.pairs),
        "change": change,
        "readings": readings,
        "entries": entries,
        "rows": _rows(before, after),
    }


async def _read(lab: Lab, readings: list[dict[str, float]], begun: float) -> None:
    while True:
        one = await lab.read()
        names = ("up", "down", "up_payload", "down_payload", "up_rows", "down_rows")
        readings.append({"at": time.time() - begun, **{name: vars(one)[name] for name in names}})
        await asyncio.sleep(EVERY)


def _moment(written: str) -> float:
    return (
        float(np.datetime64(written.partition("+")[0]).astype("datetime64[us]").astype(int)) / 1e6
    )


def _rows(before: Workload, after: Workload) -> dict[str, float]:
    """Rows per second that are predicted: before, after the change, and with a new plan."""
    first = before.plan()
    rates = after.shares / after.periods[after.pairs]
    stay = after.plan(rates, pin=dict(first.location))
    return {"before": first.cost, "stay": stay.cost, "new": after.plan(rates).cost}


def rates(found: dict[str, Any], *names: str) -> tuple[np.ndarray, np.ndarray]:
    """Moments, and thousands a second, over about ten seconds."""
    at = np.array([one["at"] for one in found["readings"]])
    sums = np.array([sum(one[name] for name in names) for one in found["readings"]])
    step = 5
    return at[step:], (sums[step:] - sums[:-step]) / (at[step:] - at[:-step]) / 1e3


def told(found: dict[str, Any]) -> str:
    """The figure in numbers."""
    at, rows = rates(found, "up_rows", "down_rows")
    change, end = found["change"], found["readings"][-1]["at"]
    moved = [one["after"] for one in found["entries"] if one["moves"] and one["after"] > change]
    first, last = (moved[0], moved[-1]) if moved else (end, end)

    def mean(low: float, high: float) -> float:
        some = (at > low) & (at <= high)
        return float(rows[some].mean() * 1e3) if some.any() else float("nan")

    before, new = mean(30, change), mean(max(last + 15, end - 40), end)
    stay = mean(change + 10, max(first, change + 14))
    due, optimum = found["rows"], found["rows"]["new"]
    lines = [
        f"rates change after {change:.0f} s; the hub moves views {first - change:.0f} s later, "
        f"and last {last - change:.0f} s later",
        f"rows a second: {before:.0f} before ({due['before']:.0f} planned), {stay:.0f} after the "
        f"change ({due['stay']:.0f}), {new:.0f} at the end (optimum {optimum:.0f})",
        f"ratios: stay / before {stay / before:.2f}, new / before {new / before:.2f}, "
        f"new / stay {new / stay:.2f}; theirs "
        + ", ".join(f"{name} {value:.2f}" for name, value in THEIRS.items()),
    ]
    return "\n".join(lines)


def fill(axes: Any, found: dict[str, Any]) -> None:
    """Traffic over time, and when views moved."""
    lines = {"both": ("up", "down"), "in": ("up",), "out": ("down",)}
    for name, of in lines.items():
        axes.plot(*rates(found, *of), color=COLOURS[name], label=f"{name}, on sockets")
    axes.axvline(found["change"], color="grey", linestyle=":", label="rates change")
    moves = [one["after"] for one in found["entries"] if one["moves"]]
    for number, after in enumerate(moves):
        label = "views move" if not number else None
        axes.axvline(after, color="#f97316", alpha=0.6, linewidth=1, label=label)
    axes.set(xlabel="seconds", ylabel="kB a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drawn", action="store_true", help="draw the results that are there")
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=240.0)
    options = parser.parse_args()
    if options.drawn:
        found = json.loads(RESULTS.read_text())
    else:
        found = asyncio.run(run(options.devices, options.seconds))
        RESULTS.write_text(json.dumps(found) + "\n")
    draw(13, lambda axes: fill(axes, found), "upper left")
    print(told(found))


if __name__ == "__main__":
    main()
