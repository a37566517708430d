"""What the hub takes each second to decide which views move, with everything that steering does.

    python -m benchmarks.place_deciding           # a minute; writes results/place-deciding.json
    python -m benchmarks.place_deciding --quick   # 2,000 devices; seconds

20,000 devices with Zipf(2) friends, 94,430 views, rates of 1 to 10 rows a second, Zipf(2). Timed is
`Steering.decide`, with `Switcher.observe` in it, in CPU milliseconds of one thread, the least and
the median of several seconds:

nothing       no rate is other than a second ago
1 in 100      that part of the streams reports a rate 1.5 times as high, or as low as before
all           every stream does; half of them are five times as busy at first, as in figure 13
moving        views move in the seconds after, until staying no longer costs what moving would
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.placement.steering import Decision, Running, Steering
from benchmarks.marked import put
from benchmarks.origin import origin, processor
from papers.race import social

__all__ = ["Fleet", "measured"]

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "papers/race/README.md"
GOAL = 50.0  # milliseconds
BYTES = 24.0  # of a row


class Fleet:
    """Devices that report rates, and views that go where they are told."""

    def __init__(self, users: int) -> None:
        a, b = social.zipf_graph(users)
        self.names = [f"gps[{device:05d}]" for device in range(users)]
        self.homes = {name: name[4:-1] for name in self.names}
        self.rates = social.zipf_feeds(users) * BYTES
        self.steering = Steering(download_cost=1.0)
        self.now = 0.0
        self.views: dict[str, Running] = {}
        for k, pair in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            one, other = (self.names[device] for device in pair)
            self.views[f"v{k}"] = Running(f"v{k}", (one, other), (1.0, 1.0), window=5.0)
        self.report(range(users))
        self.decide()

    def report(self, devices: Any) -> None:
        """Some devices say what their rates are."""
        for device in devices:
            self.steering.report(self.names[device], {1.0: float(self.rates[device])})

    def decide(self) -> tuple[float, list[Decision]]:
        """Decide, a second later: milliseconds of CPU, and what is to be done, which is done."""
        self.now += 1.0
        views = list(self.views.values())
        begun = time.process_time()
        found = self.steering.decide(self.now, views, self.homes)
        taken = 1e3 * (time.process_time() - begun)
        for one in found:
            view = self.views[one.view]
            since = self.now if one.origin is not None else view.since
            self.views[one.view] = replace(view, place=one.place, since=since)
        return taken, found


def measured(users: int, seconds: int) -> dict[str, Any]:
    """Every case, for so many seconds each."""
    fleet = Fleet(users)
    rng = np.random.default_rng(3)
    up = np.ones(users, bool)

    def step(share: float) -> Callable[[], None]:
        def change() -> None:
            some = np.flatnonzero(rng.random(users) < share)
            fleet.rates[some] *= np.where(up[some], 1.5, 1 / 1.5)
            up[some] = ~up[some]
            fleet.report(some.tolist())

        return change

    def busier() -> None:
        fleet.rates *= np.where(rng.random(users) < 0.5, 5.0, 1 / 2.33)
        fleet.report(range(users))

    fleet.decide()  # what has begun is followed from here on
    cases: dict[str, Any] = {"nothing": lambda: None, "1 in 100": step(0.01), "all": step(1.0)}
    found = {name: _times(fleet, change, seconds) for name, change in cases.items()}
    busier()
    found["moving"] = _times(fleet, lambda: None, seconds)
    return {"devices": users, "views": len(fleet.views), "cases": found}


def _times(fleet: Fleet, change: Callable[[], None], seconds: int) -> dict[str, float]:
    times, moves = [], 0
    for _ in range(seconds):
        change()
        taken, decisions = fleet.decide()
        times.append(taken)
        moves += len(decisions)
    some = {"least": min(times), "median": float(np.median(times)), "most": max(times)}
    return {**some, "moves": moves}


def table(found: dict[str, Any]) -> str:
    """All of it in numbers; the goal is that of the median."""
    size = f"{found['devices']:,} devices, {found['views']:,} views"
    lines = [f"{size}, milliseconds of one thread's CPU time:", ""]
    lines += ["| rates that change | least | median | most | moves | goal 50 |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, case in found["cases"].items():
        verdict = "met" if case["median"] <= GOAL else "**missed**"
        figures = " | ".join(f"{case[what]:.1f}" for what in ("least", "median", "most"))
        lines.append(f"| {name} | {figures} | {case['moves']:,} | {verdict} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2,000 devices")
    options = parser.parse_args()
    found = measured(*((2_000, 5) if options.quick else (20_000, 15)))
    name = "place-deciding-quick" if options.quick else "place-deciding"
    written = {"origin": origin(), "processor": processor(), **found}
    (RESULTS / f"{name}.json").write_text(json.dumps(written, indent=1) + "\n")
    if not options.quick:
        PAGE.write_text(put(PAGE.read_text(), "deciding", table(found)))
    print(table(found))


if __name__ == "__main__":
    main()
