"""Devices of the demo, many in one process: ``python -m anabranch.edge.wanderers``.

Everybody wanders about in a small town. Half of them look often where they are, half seldom; once
there is a file ``changed`` in the hub's folder, it is the other way round. With a file ``stop``
they wait until the cloud has all their rows, and end.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np

from anabranch.edge.agent import Agent

__all__ = ["name_of"]

_BUSY, _QUIET = 0.5, 5.0  # seconds between rows
_TOWN, _STEP = 300.0, 15.0


def name_of(number: int) -> str:
    """The name of a device."""
    return f"w{number:03d}"


async def wander(hub: Path, address: str, number: int) -> None:
    """One device."""
    name, rng = name_of(number), np.random.default_rng(number)
    at = rng.uniform(0, _TOWN, 2)
    async with Agent(
        name,
        broker=address,
        credentials=hub / "devices" / name,
        folder=hub / "outboxes" / name,
    ) as agent:
        await asyncio.sleep(rng.uniform(0, 1))
        while not (hub / "stop").exists():
            at = np.clip(at + rng.normal(0, _STEP, 2), 0, _TOWN)
            await agent.put("gps", xy=at.tolist())
            busy = (number % 2 == 0) != (hub / "changed").exists()
            await asyncio.sleep(_BUSY if busy else _QUIET)
        await agent.drained()


async def _main(hub: str, address: str, count: str) -> None:
    await asyncio.gather(*(wander(Path(hub), address, k) for k in range(int(count))))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
