"""``anabranch edge lab``: measures, and says which goals are met."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from anabranch.calls import Check
from anabranch.flow.origin import origin
from anabranch.testing.lab.delays import delay_goals, directives, latency
from anabranch.testing.lab.measures import fleet, goals
from anabranch.testing.lab.workload import Workload

__all__ = ["measure"]

_SOME = 20  # devices whose latency is measured: their own work must not be what is measured


async def measure(
    asked: dict[str, Any], out: Path | None, say: Callable[[str], Any], decide: Callable[[], Any]
) -> int:
    """Measure, say and write; the exit code. `decide` makes what a `Cloud` decides by."""
    check, devices = Check(), asked["devices"]
    check.choice("workload", asked["workload"], ["friends", "sampled"])
    check.duration("flush", asked["flush"])
    check.refuse("edge lab")
    workload = getattr(Workload, asked["workload"])(devices)
    workload = replace(workload, periods=asked["slower"] * workload.periods)
    line = asked["round_trip"]
    say(f"{devices} devices, {len(workload.pairs)} views, flush {asked['flush']} ...")
    found = await fleet(
        workload, asked["flush"], asked["seconds"], asked["processes"], line, decide()
    )
    few = min(devices, _SOME)
    fast = await latency(few, asked["seconds"], line, decide())
    cloud = await latency(few, asked["seconds"], line, decide(), cloud=True)
    moved = await directives(few, line, decide())
    results = [*goals(found), *delay_goals(fast, cloud, moved)]
    for goal in results:
        say(goal.line())
    if out is not None:
        lines = [{**vars(goal), "met": goal.met} for goal in results]
        written = {
            "origin": origin(),
            "asked": asked,
            "goals": lines,
            "fleet": found,
            "latency": fast,
            "latency in the cloud": cloud,
            "directives": moved,
        }
        out.write_text(json.dumps(written, indent=1) + "\n")
    return 0 if all(goal.met for goal in results) else 1
