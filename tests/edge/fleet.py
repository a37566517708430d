"""A fleet of devices, the cloud's evaluators without Spark, and the twin that knows the answer."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from anabranch.edge.appending import send_back
from anabranch.edge.broker import Broker
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import decode_down, decode_output
from anabranch.edge.mail import fresh_results
from anabranch.edge.sections import Results
from anabranch.edge.streams import Streams, connect

WINDOW, NEAR = 2_000_000, 10.0
Identity = tuple[int, int, int]  # view, and the numbers of the two rows


def friends(devices: Iterable[str], pairs: Iterable[tuple[int, int]], place: str = "cloud") -> Any:
    """Streams, definition and views of who is near whom, for `KeeperState.add`."""
    names = list(devices)
    streams = [Stream(f"gps[{name}]", name, {"xy": "array<double>"}) for name in names]
    near = Definition(
        "near",
        "pairs",
        (WINDOW, WINDOW),
        ["euclidean", "xy", "xy", None, "<=", NEAR],
        deliver=("cloud", "inputs"),
    )
    views = [(View(f"near({names[a]},{names[b]})", "near", (a, b)), place) for a, b in pairs]
    return streams, [near], views


def ring(count: int) -> list[tuple[int, int]]:
    """Everybody has two friends."""
    return [(k, (k + step) % count) for k in range(count) for step in (1, 2)]


def identities(found: Iterable[Results]) -> Counter[Identity]:
    return Counter((one.view, int(a), int(b)) for one in found for a, b in zip(*one.n, strict=True))


def kept(folder: Path) -> tuple[list[tuple[int, int, list[float]]], Counter[Identity]]:
    """The rows of a device's outbox, and the results that it has been shown or will be."""
    base = sqlite3.connect(folder / "outbox.db")
    rows = [
        (n, t, msgpack.unpackb(content)["xy"])
        for n, t, content in base.execute("SELECT n, t, content FROM rows ORDER BY n")
    ]
    results: Counter[Identity] = Counter()
    for (content,) in base.execute("SELECT content FROM results"):
        results += identities(decode_output(content).results)
    base.close()
    return rows, results


def twin(
    rows: Mapping[int, list[tuple[int, int, list[float]]]], pairs: list[tuple[int, int]]
) -> Counter[Identity]:
    """Every pair of every view, by looking at all of them; rows by number of their stream."""
    found: Counter[Identity] = Counter()
    for view, (left, right) in enumerate(pairs):
        for n, t, (x, y) in rows[left]:
            for m, s, (v, w) in rows[right]:
                if abs(t - s) <= WINDOW and math.hypot(x - v, y - w) <= NEAR:
                    found[view, n, m] += 1
    return found


class CloudViews:
    """What the query on Spark does, in one coroutine: an evaluator for each bucket of IN."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.found: Counter[Identity] = Counter()
        self._places: dict[str, Evaluator] = defaultdict(lambda: Evaluator("cloud"))
        self._numbers: dict[str, int] = {}
        self._had: dict[str, dict[str, int]] = defaultdict(dict)
        self._generation = self._position = 0
        self._sent: list[tuple[int, list[tuple[int, Results]]]] = []
        self._owed: list[tuple[int, list[tuple[int, Results]]]] = []

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
            self._generation, self._position, self._owed = generation, 0, list(self._sent)
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
                while self._owed:  # one by one: a batch is dropped if a later one is there
                    await send_back(client, *self._owed[0])
                    del self._owed[0]
                with contextlib.suppress(TimeoutError):
                    for message in await reader.fetch(100, timeout=0.2):
                        self._take(message)
        finally:
            await client.close()

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
        if found:
            self._owed.append((int(subject[3:]), [(down.number, one) for one in found]))
            self._sent.append(self._owed[-1])


async def quiet(holds: Any, patience: float = 30.0) -> None:
    """Wait for what must happen, and fail loudly if it does not."""
    for _ in range(int(patience / 0.05)):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"it did not happen within {patience} seconds")


def walk(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Positions of one who wanders in a small town."""
    return np.cumsum(rng.normal(0, 2, (steps, 2)), axis=0) + rng.uniform(0, 20, 2)
