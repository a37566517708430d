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
        first = before.counted(await lab.put(before, seconds / 2), seconds / 2)
        change = time.time() - begun
        print(f"rates change after {change:.0f} s", flush=True)
        second = after.counted(await lab.put(after, seconds / 2), seconds / 2)
        reading.cancel()
        entries = lab.cloud.keeper.log.entries()
        names = [view.name for view in lab.cloud.relay.state.book.views]
    moves = [
        {"after": _moment(entry.written) - begun, "view": names[view], "place": place}
        | {name: entry.cause["moves"][names[view]][name] for name in ("account", "price", "saves")}
        for entry in entries
        for view, place in entry.moves
    ]
    return {
        "devices": devices,
        "views": len(before.pairs),
        "change": change,
        "readings": readings,
        "moves": moves,
        "rows": _rows(before, first, second, moves, change),
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


def _rows(
    workload: Workload,
    first: np.ndarray,
    second: np.ndarray,
    moves: list[dict[str, Any]],
    change: float,
) -> dict[str, float]:
    """Rows per second by `plan.traffic()`, at the rates that there were in either half.

    Before the change and after it with the views where they were at the change; where they were
    half a minute later, and in the end; and with a new plan.
    """

    def places(until: float) -> dict[str, str]:
        cloud = dict.fromkeys(map(workload.name, range(len(workload.pairs))), "cloud")
        return cloud | {one["view"]: one["place"] for one in moves if one["after"] <= until}

    then = {"stay": change, "after 30 s": change + 30, "end": np.inf}
    found = {name: workload.plan(second, pin=places(until)).cost for name, until in then.items()}
    before = workload.plan(first, pin=places(change)).cost
    return {"before": before, **found, "new": workload.plan(second).cost}


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
    moved = [one["after"] for one in found["moves"] if one["after"] > change]
    first, last = (moved[0], moved[-1]) if moved else (end, end)

    def mean(low: float, high: float) -> float:
        some = (at > low) & (at <= high)
        return float(rows[some].mean() * 1e3) if some.any() else float("nan")

    before, new = mean(change / 2, change), mean(end - 20, end)
    stay = mean(change + 10, max(first, change + 14))
    due, optimum = found["rows"], found["rows"]["new"]
    within = sum(one <= change + 30 for one in moved)
    lines = [
        f"rates change after {change:.0f} s; the hub moves {len(moved)} views, {within} of them "
        f"within 30 s, the first {first - change:.0f} s later, the last {last - change:.0f} s",
        f"by plan.traffic() over the optimum: {100 * (due['stay'] / optimum - 1):.1f} % at the "
        f"change, {100 * (due['after 30 s'] / optimum - 1):.1f} % after 30 s, "
        f"{100 * (due['end'] / optimum - 1):.1f} % at the end",
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
    moves = sorted({one["after"] for one in found["moves"]})
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
