"""``python -m scripts.reliability.kills``: devices, hub and query, killed at random.

Six devices in three processes share rows while views move all the time. Of each run one kind of
process is killed, or any of devices, cloud and broker; then all is compared with every two rows
that were put. In the runs of `driver` and `executors` Spark computes what is in the cloud.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from scripts.reliability import RESULTS
from scripts.reliability.evidence import circumstances, load, said, workplace, write
from scripts.services.nats import server
from tests.edge.kills import VICTIMS, killed

__all__ = ["faults", "main"]


def faults(report: dict[str, Any], kills: int) -> list[str]:
    """Why a run has failed."""
    if "error" in report:
        return [report["error"]]
    found = [f"{what}: {report[what]:,}" for what in ("lost", "double or not due") if report[what]]
    found += [] if report["expected"] else ["nothing was due"]
    done = sum(report["kills"].values())
    return [*found, *([f"{done} of {kills} kills"] if done < kills else [])]


def run(folder: Path, victim: str, kills: int, seed: int) -> dict[str, Any]:
    """One run, from its beginning to its report."""
    folder.mkdir()
    begun, began = circumstances(), time.monotonic()
    try:
        found = killed(folder, server(), victim, kills, random.Random(f"{victim} {seed}")).report()
    except Exception as error:
        traceback.print_exc()
        found = {"error": said(error)}
    seconds = round(time.monotonic() - began, 1)
    report = {"begun": begun, "seed": seed, "goal": kills, **found, "seconds": seconds}
    return {**report, "load": load(), "faults": faults(report, kills)}


def main() -> None:
    """Run, and write what came of it; fails if a result is lost or double."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="in each run")
    parser.add_argument("--victim", choices=list(VICTIMS), action="append", help="by default all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="by default the one that is shown, or, of a "
                        "run that fails, in its folder")  # fmt: skip
    options = parser.parse_args()
    if options.kills < 1:
        parser.error("--kills: where nothing is killed nothing is shown")
    reports: dict[str, Any] = {}
    with workplace("kills") as place:
        for victim in options.victim or VICTIMS:
            report = run(place.folder / victim, victim, options.kills, options.seed)
            reports[victim] = report
            print(victim, json.dumps(report), flush=True)
            place.failed = place.failed or bool(report["faults"])
        path = place.report(options.report, RESULTS / "edge-kills.json")
        known = json.loads(path.read_text()) if path.exists() else {}
        write({**known, **reports}, path)
    found = [f"{name}: {fault}" for name, report in reports.items() for fault in report["faults"]]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
