"""What the views of a hub have found, without Spark, and the rows that devices put."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from anabranch.edge.appending import send_back
from anabranch.edge.broker import Broker
from anabranch.edge.ending import heed_cancellation
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import decode_down
from anabranch.edge.mail import fresh_results
from anabranch.edge.sections import Results
from anabranch.edge.streams import Streams, connect
from anabranch.testing.lab.workload import Workload

__all__ = ["CloudViews", "Identity", "expected", "identities", "rows_of"]

Identity = tuple[int, int, int]
"""A view, and the numbers of the two rows."""


def identities(found: Iterable[Results]) -> Counter[Identity]:
    """How often each result is there."""
    return Counter((one.view, int(a), int(b)) for one in found for a, b in zip(*one.n, strict=True))


def rows_of(folder: Path) -> list[tuple[int, int, Any]]:
    """Number, time and position of each row in the outbox of a device that has ended."""
    base = sqlite3.connect(folder / "outbox.db")
    try:
        found = base.execute("SELECT n, t, content FROM rows ORDER BY n")
        return [(n, t, msgpack.unpackb(content)["xy"]) for n, t, content in found]
    finally:
        base.close()


def expected(workload: Workload, rows: list[list[tuple[int, int, Any]]]) -> set[Identity]:
    """The twin: of each view every two rows that are near each other in time and place.

    Of a workload whose views need every row.
    """
    due: set[Identity] = set()
    numbers = [np.array([n for n, _, _ in of], np.int64) for of in rows]
    times = [np.array([t for _, t, _ in of], np.int64) for of in rows]
    places = [np.array([xy for _, _, xy in of], float).reshape(-1, 2) for of in rows]
    for view, (a, b) in enumerate(workload.pairs.tolist()):
        for n, t, xy in zip(numbers[a].tolist(), times[a], places[a], strict=True):
            near = np.abs(times[b] - t) <= workload.window
            near &= np.hypot(*(places[b] - xy).T) <= workload.near
            due |= {(view, n, m) for m in numbers[b][near].tolist()}
    return due


class CloudViews:
    """What the query on Spark does, in one coroutine: an evaluator for each bucket of IN."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.found: Counter[Identity] = Counter()
        self._places: dict[str, Evaluator] = defaultdict(lambda: Evaluator("cloud"))
        self._numbers: dict[str, int] = {}
        self._had: dict[str, dict[str, int]] = defaultdict(dict)
        self._generation = self._position = 0
        # Results of each bucket by the frames that brought them: all, and those yet to be sent.
        self._sent: dict[int, list[tuple[int, Results]]] = defaultdict(list)
        self._owed: dict[int, list[tuple[int, Results]]] = defaultdict(list)

    async def run(self) -> None:
        """Continue after whatever becomes of the broker."""
        while True:
            with contextlib.suppress(Error, OSError):
                await self._run()
            await asyncio.sleep(0.2)

    async def _run(self) -> None:
        client = await connect(self._broker.address, self._broker.hub.cloud, "views")
        js = client.jetstream()
        generation = await Streams.newest(js)
        if generation > self._generation:
            self._generation, self._position = generation, 0
            self._owed.update({bucket: list(found) for bucket, found in self._sent.items()})
        settings = ConsumerConfig(
            ack_policy=AckPolicy.NONE,
            mem_storage=True,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._position + 1,
        )
        try:
            inside = Streams.of(generation).inside
            reader = await js.pull_subscribe("", stream=inside, config=settings)
            while True:
                heed_cancellation()
                # All buckets at once, and what has come of each in one: as the tasks of a query do.
                due = [bucket for bucket, found in self._owed.items() if found]
                await asyncio.gather(*(self._send(client, bucket) for bucket in due))
                with contextlib.suppress(TimeoutError):
                    for message in await reader.fetch(100, timeout=0.2):
                        self._take(message)
        finally:
            await client.close()

    async def _send(self, client: Client, bucket: int) -> None:
        await send_back(client, bucket, self._owed[bucket])
        self._owed[bucket].clear()

    def _take(self, message: Msg) -> None:
        self._position = message.metadata.sequence.stream
        down, subject = decode_down(message.data), message.subject
        last = self._numbers.get(subject, -1)
        if down.number <= last:
            return  # a new generation repeats the end of the old one
        assert down.follows(last), "IN has a gap"
        self._numbers[subject] = down.number
        found = self._places[subject].take(down.steps)
        received = [one for one, _ in fresh_results(down, self._had[subject])]
        self.found += identities([*found, *received])
        for results in (self._sent, self._owed) if found else ():
            results[int(subject[3:])] += [(down.number, one) for one in found]
