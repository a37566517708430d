"""How soon results of a view come after their rows, and directives after the report they follow.

Nothing here runs Spark. A view in the cloud is computed by `CloudViews`, one coroutine that takes
what has come as soon as it has. So what is measured of it is the way there and back through broker,
relay, evaluator and mailbox. A query on Spark adds its micro-batch, which is most of what the goal
allows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from anabranch.edge.placements import Entry
from anabranch.testing.lab.devices import name_of
from anabranch.testing.lab.lab import Lab
from anabranch.testing.lab.measures import Goal, within
from anabranch.testing.lab.workload import Workload

__all__ = ["Heard", "delay_goals", "directives", "latency"]

_WARM_UP = 3.0
_BUSY, _QUIET = 0.2, 2.0  # seconds between rows
_PATIENCE = 15.0  # seconds in which the reports of a change come, and views move


async def latency(
    devices: int = 20,
    seconds: float = 30.0,
    round_trip: float = 0.08,
    decide: Any = None,
    cloud: bool = False,
) -> dict[str, Any]:
    """Results on devices, from rows of others: how long after the row, with a flush of 0.

    Of views on a device, or of views in the cloud, whose results come back to both. `decide` is
    given to `Cloud`, and has no reason to move a view: bytes cost nothing here.
    """
    workload = replace(Workload.sampled(devices, friends=1.0), near=1e9, window=2_000_000, tick=0)
    names = list(map(workload.name, range(len(workload.pairs))))
    places = dict(zip(names, map(name_of, workload.pairs[:, 0].tolist()), strict=True))
    if cloud:
        workload, places = replace(workload, deliver=("inputs",)), dict.fromkeys(names, "cloud")
    async with Lab(devices, round_trip=round_trip, flush="0 seconds", decide=decide) as lab:
        if cloud:
            lab.watch()
        await lab.adoption(await lab.deploy(workload, places, cost=0.0))
        await lab.put(workload, _WARM_UP)
        await asyncio.sleep(1)
        await lab.delays()
        await lab.put(workload, seconds)
        await asyncio.sleep(1)
        found = await lab.delays()
    return {"devices": devices, "results": len(found), **_quantiles(found)}


class Heard:
    """Given to a `Cloud` in place of what decides: it decides, and notes when each rate came.

    Examples
    --------
    >>> heard = Heard(lambda cloud: None, clock=iter([5.0, 6.0, 9.0]).__next__)
    >>> from types import SimpleNamespace
    >>> for rate in (1.0, 1.0, 4.0): heard(SimpleNamespace(rates={"gps[ann]": rate}))
    >>> heard.before(8.0, ["gps[ann]"]), heard.before(9.5, ["gps[ann]"]), heard.before(4.0, ["x"])
    (5.0, 9.0, None)
    """

    def __init__(
        self, decide: Callable[[Any], Any], clock: Callable[[], float] = time.time
    ) -> None:
        self._decide, self._clock = decide, clock
        self._rates: dict[str, float] = {}
        self._came: list[tuple[float, str]] = []

    def __call__(self, cloud: Any) -> None:
        """Note which rates are new, then decide."""
        now = self._clock()
        new = [s for s, rate in cloud.rates.items() if self._rates.get(s) != rate]
        self._came += [(now, stream) for stream in new]
        self._rates.update(cloud.rates)
        self._decide(cloud)

    def before(self, moment: float, streams: Iterable[str]) -> float | None:
        """When the newest rate of these streams came, of those before a moment."""
        mine = set(streams)
        return max((t for t, stream in self._came if t <= moment and stream in mine), default=None)


async def directives(
    devices: int = 20, round_trip: float = 0.08, decide: Any = None
) -> dict[str, Any]:
    """From the report that makes views move to the directive on each device concerned.

    Devices in pairs, each with a view: one of the two is busy, and then the other. Windows are
    short, and downloads cost nothing, so a move is worth its price in the second in which the
    report is used: what hysteresis waits for is no part of this.
    """
    pairs = np.arange(2 * (devices // 2)).reshape(-1, 2)
    periods = np.full(devices, _QUIET)
    periods[pairs[:, 0]] = _BUSY
    workload = Workload(pairs, np.ones(pairs.shape), periods, near=0.0, window=100_000, tick=0)
    names = list(map(workload.name, range(len(pairs))))
    first = dict(zip(names, map(name_of, pairs[:, 0].tolist()), strict=True))
    swapped = replace(workload, periods=np.where(periods == _BUSY, _QUIET, _BUSY))
    heard = Heard(decide)
    async with Lab(devices, round_trip=round_trip, flush="0 seconds", decide=heard) as lab:
        await lab.adoption(await lab.deploy(workload, first, cost=1.0, download_cost=0.0))
        await lab.put(workload, _PATIENCE)
        begun = lab.cloud.relay.state.book.epoch
        await lab.put(swapped, _PATIENCE)
        spans: list[float | None] = []
        entries = [
            one for one in lab.cloud.keeper.log.entries() if one.number > begun and one.moves
        ]
        book = lab.cloud.relay.state.book
        for entry in entries:
            inputs = {s for view, _ in entry.moves for s in book.views[view].inputs}
            streams = [book.streams[stream].name for stream in inputs]
            spans += spans_of(entry, heard, streams, await lab.adoption(entry.number))
    return {"devices": devices, "moves": sum(len(entry.moves) for entry in entries), "spans": spans}


def spans_of(
    entry: Entry, heard: Heard, streams: Iterable[str], adopted: Iterable[float]
) -> list[float | None]:
    """Seconds from the newest report that an entry may be of to its adoption, by device.

    None stands for a device that never adopts it.
    """
    written = datetime.fromisoformat(entry.written).timestamp()
    reported = heard.before(written, streams)
    if reported is None:
        return []
    since = [written - reported + float(after) for after in adopted]
    return [round(one, 3) if np.isfinite(one) else None for one in since]


def _quantiles(found: np.ndarray) -> dict[str, float]:
    return {f"p{q}": float(np.quantile(found, q / 100)) for q in (50, 90, 99)}


def delay_goals(
    device: Mapping[str, Any], cloud: Mapping[str, Any], moved: Mapping[str, Any]
) -> list[Goal]:
    """What `latency` found of views on devices and in the cloud, and `directives`, with goals."""
    soon = within(moved["spans"], 0.95) if moved["spans"] else float("inf")
    return [
        Goal("a view on a device: half of its results after", 1e3 * device["p50"], 150.0, "ms"),
        Goal("99 % of them after", 1e3 * device["p99"], 400.0, "ms"),
        Goal("a view in the cloud, no Spark: half after", 1e3 * cloud["p50"], 1300.0, "ms"),
        Goal("99 % of them after", 1e3 * cloud["p99"], 3000.0, "ms"),
        Goal("95 % have a directive, since the report", soon, 2.0, "s"),
    ]
