"""Relay and keeper as a process that may be killed: ``HUB ADDRESS DEVICES``.

Views move all the time, each as soon as its last move is over.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from anabranch.edge.hub import Hub
from anabranch.edge.serving import Cloud
from tests.edge.fleet import friends, ring


class Restless:
    """Wishes for a move every now and then, until there is a file ``stop`` in the hub's folder."""

    def __init__(self, count: int) -> None:
        self._names = [f"d{k}" for k in range(count)]
        self._pairs = ring(count)
        self._moved = time.monotonic()

    def __call__(self, cloud: Cloud) -> None:
        keeper, book = cloud.keeper.state, cloud.relay.state.book
        keeper.add(*friends(self._names, self._pairs))
        stop = (cloud.hub.folder / "stop").exists()
        if book.epoch >= 0 and not stop and time.monotonic() - self._moved > 0.3:
            self._moved = time.monotonic()
            view = random.randrange(len(self._pairs))
            devices = [self._names[k] for k in self._pairs[view]]
            keeper.move(view, random.choice(["cloud", *devices]))


def main(hub: str, address: str, count: str) -> None:
    cloud = Cloud(Hub(hub), address, decide=Restless(int(count)), ack_after=1.0)
    asyncio.run(cloud.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
