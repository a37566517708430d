"""Devices of the lab, many in one process: ``python -m anabranch.testing.lab.devices``.

Arguments are the hub's folder, the broker's address, the flush, and the numbers of the first device
and of the one after the last. Each line of its input is an order as JSON; a line answers it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.edge.agent import Agent

__all__ = ["name_of"]

_AT_ONCE = 16  # devices that connect at a time
_LOOK = 0.01  # seconds between looks at who has adopted what


def name_of(number: int) -> str:
    """The name of a device."""
    return f"d{number:05d}"


class Devices:
    """Agents, and what they have seen."""

    def __init__(self, hub: Path, address: str, flush: str, numbers: range) -> None:
        self._numbers = numbers
        self._agents = {
            number: Agent(
                name_of(number),
                broker=address,
                credentials=hub / "devices" / name_of(number),
                folder=hub / "outboxes" / name_of(number),
                flush=flush,
            )
            for number in numbers
        }
        self._rows: dict[int, list[int]] = {number: [] for number in numbers}
        self._adopted: dict[int, dict[int, float]] = {}  # by epoch and device: when
        self._delays: list[float] = []

    async def connect(self) -> dict[str, Any]:
        """Start all of them, a few at a time."""
        some = asyncio.Semaphore(_AT_ONCE)

        async def start(agent: Agent) -> None:
            async with some:
                await agent.__aenter__()
                while not agent.connected:
                    await asyncio.sleep(0.02)

        for number, agent in self._agents.items():
            agent.on("near", partial(self._seen, name_of(number)))
        await asyncio.gather(*map(start, self._agents.values()))
        self._watch = asyncio.create_task(self._watching())
        return {"connected": len(self._agents)}

    def _seen(self, own: str, result: dict[str, Any]) -> None:
        """How long after its newest row a result came, if that row is of another device."""
        left = result["view"].partition("[")[2].partition("]")[0]
        sides = ("left", "right") if left == own else ("right", "left")
        mine, other = (result[f"{side}_time"] for side in sides)
        if other > mine:
            self._delays.append(time.time() - other / 1e6)

    async def _watching(self) -> None:
        known = dict.fromkeys(self._agents, -1)
        while True:
            await asyncio.sleep(_LOOK)
            now = time.time()
            for number, agent in self._agents.items():
                epoch = agent._state.epoch
                if epoch != known[number]:
                    known[number] = epoch
                    self._adopted.setdefault(epoch, {})[number] = now

    async def put(self, periods: dict[str, float], seconds: float) -> dict[str, Any]:
        """Rows of all devices, for so many seconds: the times of each device's."""
        until = time.time() + seconds
        for rows in self._rows.values():
            rows.clear()

        async def one(number: int) -> None:
            rng, period = np.random.default_rng(number), periods[str(number)]
            at = time.time() + rng.uniform(0, period)
            kept = []
            while at < until:
                await asyncio.sleep(max(at - time.time(), 0))
                xy = np.round(rng.uniform(0, 1000, 2), 1).tolist()
                t = time.time_ns() // 1000
                # Nobody waits for the disk here: that is ten rows a second at most.
                kept.append(asyncio.ensure_future(self._agents[number].put("gps", time=t, xy=xy)))
                self._rows[number].append(t)
                at = max(at + period, time.time())
            await asyncio.gather(*kept)

        await asyncio.gather(*map(one, self._numbers))
        return {"rows": self._rows}

    async def tell(self) -> dict[str, Any]:
        """What they have seen so far: adoptions, and delays of results, which are forgotten."""
        delays, self._delays = self._delays, []
        return {"adopted": self._adopted, "delays": delays}

    async def drain(self) -> dict[str, Any]:
        """Wait until the cloud has all rows and results."""
        await asyncio.gather(*(agent.drained() for agent in self._agents.values()))
        return {"drained": len(self._agents)}

    async def end(self) -> dict[str, Any]:
        """Close all connections."""
        self._watch.cancel()
        for agent in self._agents.values():
            await agent.__aexit__(None, None, None)
        return {"ended": len(self._agents)}


async def _main(hub: str, address: str, flush: str, first: str, last: str) -> None:
    devices = Devices(Path(hub), address, flush, range(int(first), int(last)))
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        answer = await getattr(devices, order.pop("do"))(**order)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
