"""Some devices as a process that may be killed: ``HUB ADDRESS FOLDER NAME...``.

They put rows until there is a file ``stop`` in the hub's folder; then they wait until the cloud has
all, and end.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np

from anabranch.edge import agent as agent_module
from anabranch.edge.agent import Agent
from tests.edge.fleet import walk


async def device(hub: Path, address: str, folder: Path, name: str) -> None:
    rng = np.random.default_rng()
    async with Agent(
        name,
        broker=address,
        credentials=hub / "devices" / name,
        folder=folder / name,
        flush="0.2 seconds",
    ) as agent:
        while not (hub / "stop").exists():
            for x, y in walk(rng, 100):
                await agent.put(f"gps[{name}]", xy=[float(x), float(y)])
                await asyncio.sleep(rng.uniform(0.05, 0.3))
                if (hub / "stop").exists():
                    break
        # The connection may be lost, and have to wait before it is tried again.
        await asyncio.wait_for(agent.drained(), 120)
        await asyncio.sleep(3)


async def main(hub: str, address: str, folder: str, *names: str) -> None:
    agent_module._SILENCE = 5.0  # the hub of this story acknowledges after one second
    await asyncio.gather(*(device(Path(hub), address, Path(folder), name) for name in names))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
