"""Relay and keeper as a process that may be killed: ``HUB ADDRESS DEVICES [asked]``.

Views move all the time, each as soon as its last move is over. They are those of `fleet.friends`,
or what is asked for in the hub's control directory, as `ab.follow` does.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from anabranch.edge.hub import Hub
from anabranch.edge.serving import Cloud
from anabranch.edge.wishes import Requests
from tests.edge.fleet import friends, ring


class Restless:
    """Wishes for a move every now and then, until there is a file ``stop`` in the hub's folder."""

    def __init__(self, count: int, requests: Requests | None) -> None:
        self._requests = requests
        self._names = [f"d{k}" for k in range(count)]
        self._pairs = ring(count)
        self._moved = time.monotonic()

    def __call__(self, cloud: Cloud) -> None:
        keeper, book = cloud.keeper.state, cloud.relay.state.book
        if self._requests is None:
            keeper.add(*friends(self._names, self._pairs))
        elif (asked := self._requests.newest()) is not None:
            asked.enact(keeper, book, lambda _: "cloud")  # where those begin that are new
        stop = (cloud.hub.folder / "stop").exists()
        if book.epoch >= 0 and not stop and time.monotonic() - self._moved > 0.3:
            self._moved = time.monotonic()
            view = random.randrange(len(self._pairs))
            devices = [self._names[k] for k in self._pairs[view]]
            keeper.move(view, random.choice(["cloud", *devices]))


def main(hub: str, address: str, count: str, asked: str = "") -> None:
    place = Hub(hub)
    requests = Requests(place.control) if asked else None
    cloud = Cloud(place, address, decide=Restless(int(count), requests), ack_after=1.0)
    asyncio.run(cloud.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
