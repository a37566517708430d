"""Against all views in the cloud, all on devices, and the published greedy rule.

    python -m papers.race.against                    # predicted, for every model of rates; seconds
    python -m papers.race.against --devices 100      # runs two of them, and counts; minutes

500 devices with Zipf(2) friends, a row a second each, of which views need shares. Rows are those
over all links, up and down; cost has downloads at half the price of uploads besides. What is run
has the first model of rates, with those friends, and with 2,870 drawn evenly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.placement import plan_graph
from anabranch.placement.cost import link_costs
from anabranch.placement.graph import pair_graph
from anabranch.testing.lab.lab import Lab
from anabranch.testing.lab.measures import SETTLING
from anabranch.testing.lab.workload import Workload
from benchmarks.marked import put
from benchmarks.origin import origin, signed
from papers.race import social

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent / "README.md"
LEAST = 0.001  # a share: "never" still has to be noticed
MEASURED = "80% never meet, else log-uniform"
EVENLY = 5.74  # views for each device, where friends are drawn evenly


def greedy(pairs: np.ndarray, need: np.ndarray, users: int, up: float, down: float) -> np.ndarray:
    """Where each view is by the rule as printed: -1 for the cloud, else a device.

    Every device sorts its views by how much of its own stream they need, and keeps the ones from
    some place on: that saves upload, and costs a download each, shared or not.
    """
    found = np.full(len(pairs), -1)
    for device in range(users):
        views, sides = np.nonzero(pairs == device)
        order = np.argsort(need[views, sides], kind="stable")
        views, sides = views[order], sides[order]
        own, other = need[views, sides], need[views, 1 - sides]
        if not len(own):
            continue
        kept = np.concatenate([np.cumsum(other[::-1])[::-1], [0.0]])  # from here on, downloaded
        still = np.concatenate([[0.0], own])  # uploaded if those below are
        gain = up * (own[-1] - still) - down * kept
        first = int(np.argmax(gain))
        if gain[first] > 0:
            mine = views[first:]
            found[mine[found[mine] < 0]] = device  # two may want a view, which it does not foresee
    return found


def placements(
    pairs: np.ndarray, need: np.ndarray, users: int, down: float
) -> tuple[dict[str, np.ndarray], Any]:
    """Places of all views by each rule, and the graph."""
    a, b = pairs.T
    graph = pair_graph(a, b, *need.T, sources=users, up=1.0, down=down)
    return {
        "all in the cloud": np.full(len(pairs), -1),
        "all on devices": np.where(need[:, 0] >= need[:, 1], a, b),
        "greedy, as printed": greedy(pairs, need, users, 1.0, down),
        "ours": plan_graph(graph).places,
    }, graph


def predicted(users: int) -> list[dict[str, Any]]:
    """Rows and costs of every rule, for every model of rates."""
    pairs = np.column_stack(social.zipf_graph(users))
    lines = []
    for model in social.RATE_MODELS:
        need = np.maximum(np.column_stack(social.rates(model, len(pairs))), LEAST)
        for down in (1.0, 0.5):
            found, graph = placements(pairs, need, users, down)
            costs = {name: float(link_costs(graph, at).sum()) for name, at in found.items()}
            lines.append({"rates": model, "down": down, "views": len(pairs), **costs})
    return lines


def workloads(users: int) -> dict[str, Workload]:
    """What is run, by name."""
    friends = {
        "Zipf(2)": np.column_stack(social.zipf_graph(users)),
        "drawn evenly": Workload.sampled(users, friends=EVENLY).pairs,
    }
    return {
        name: Workload(
            pairs,
            np.maximum(np.column_stack(social.rates(MEASURED, len(pairs))), LEAST),
            np.ones(users),
        )
        for name, pairs in friends.items()
    }


async def measured(workload: Workload, seconds: float, processes: int) -> dict[str, Any]:
    """All in the cloud and ours, run and counted."""
    views = len(workload.pairs)
    results: dict[str, Any] = {"devices": workload.devices, "views": views, "seconds": seconds}
    places = {"all in the cloud": None, "ours": dict(workload.plan().location)}
    for name, location in places.items():
        at = location or dict.fromkeys(map(workload.name, range(views)), "cloud")
        async with Lab(workload.devices, processes=processes) as lab:
            await lab.adoption(await lab.deploy(workload, at))
            await lab.put(workload, SETTLING)
            await asyncio.sleep(3)
            before = await lab.read()
            await lab.put(workload, seconds)
            await asyncio.sleep(3)
            found = (await lab.read()).since(before)
        results[name] = {**vars(found), "wire": found.wire}
        print(f"{name}: {found.up_rows + found.down_rows} rows, {found.wire:,} bytes", flush=True)
    cloud, ours = results["all in the cloud"], results["ours"]
    rows = [one["up_rows"] + one["down_rows"] for one in (cloud, ours)]
    results["fewer rows"] = rows[0] / rows[1]
    results["fewer bytes of payload"] = _payload(cloud) / _payload(ours)
    results["fewer bytes on sockets"] = _sockets(cloud) / _sockets(ours)
    results["fewer bytes on the wire"] = cloud["wire"] / ours["wire"]
    return results


def table(found: dict[str, dict[str, Any]]) -> str:
    """What was counted, times less than with all views in the cloud."""
    names = [name for name in next(iter(found.values())) if name[:5] == "fewer"]
    lines = [f"| friends | devices | views | {' | '.join(names)} |", "|---" * 7 + "|"]
    for friends, one in found.items():
        cells = " | ".join(f"{one[name]:.1f}" for name in names)
        lines.append(f"| {friends} | {one['devices']} | {one['views']:,} | {cells} |")
    return "\n".join(lines)


def _sockets(found: dict[str, Any]) -> float:
    return float(found["up"] + found["down"])


def _payload(found: dict[str, Any]) -> float:
    return float(found["up_payload"] + found["down_payload"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, help="run so many, in place of predicting")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=2, help="that run the devices")
    options = parser.parse_args()
    if options.devices:
        results = {
            name: asyncio.run(measured(one, options.seconds, options.processes))
            for name, one in workloads(options.devices).items()
        }
        text = json.dumps({"origin": origin(), "found": results}, indent=1)
        (RESULTS / "against-measured.json").write_text(text + "\n")
        PAGE.write_text(put(PAGE.read_text(), "against", table(results)))
        print(table(results))
        return
    lines = predicted(500)
    (RESULTS / "against.json").write_text(json.dumps(signed(lines), indent=1) + "\n")
    names = list(lines[0])[3:]
    print("| rates | down | " + " | ".join(names) + " | times less than all-cloud |")
    for line in lines:
        cells = " | ".join(f"{line[name]:.1f}" for name in names)
        gain = line["all in the cloud"] / line["ours"]
        print(f"| {line['rates']} | {line['down']} | {cells} | {gain:.2f} |")


if __name__ == "__main__":
    main()
