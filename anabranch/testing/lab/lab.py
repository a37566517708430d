"""Broker, relay, keeper and devices as processes of this machine, with a long line between.

Relay and keeper run in the process that uses it, so its own CPU time is theirs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from anabranch.calls import Check
from anabranch.edge.broker import Broker
from anabranch.edge.ending import end
from anabranch.edge.fetching import server
from anabranch.edge.hub import Hub
from anabranch.edge.serving import Cloud
from anabranch.edge.wishes import Requests, Wishes
from anabranch.errors import AnabranchError
from anabranch.testing.lab.devices import name_of
from anabranch.testing.lab.line import HEADERS
from anabranch.testing.lab.results import CloudViews, rows_of
from anabranch.testing.lab.workload import Workload

__all__ = ["Lab", "Reading"]

_LINE = 1 << 24  # bytes that an answer of a process may have
_PATIENCE = 300.0
_QUIET = 2.0  # seconds in which results of what has come are on their way
_SHARED_MEMORY = Path("/dev/shm")  # not the disk: 500 devices have one each, and this is one


@dataclass(frozen=True)
class Reading:
    """Counters at one moment, or the difference of two."""

    seconds: float
    up: int  # bytes that sockets of devices carried, TLS included
    down: int
    up_packets: int
    down_packets: int
    up_payload: int  # bytes of frames
    down_payload: int
    up_frames: int
    down_frames: int
    lone: int  # of those down, with neither rows nor results
    sections: int  # both ways
    up_rows: int
    down_rows: int
    broker_cpu: float  # seconds
    cloud_cpu: float
    broker_memory: int  # bytes resident
    cloud_memory: int
    open: int  # connections of devices
    ended: int = 0  # connections of devices that were lost; these connect again by themselves

    def since(self, other: Reading) -> Reading:
        """What has happened since another reading; memory and connections are of now."""
        mine, before = vars(self), vars(other)
        now = ("broker_memory", "cloud_memory", "open")
        return Reading(**{k: v if k in now else v - before[k] for k, v in mine.items()})

    @property
    def wire(self) -> int:
        """Bytes on the wire, both ways: what sockets carried, and the headers of packets."""
        packets = self.up_packets + self.down_packets
        return self.up + self.down + HEADERS * packets


class Lab:
    """A hub with connected devices, for the length of a block.

    Parameters
    ----------
    devices
        How many.
    round_trip
        Seconds to the broker and back.
    flush
        Of all agents.
    processes
        That run them.
    decide, ack_after
        Given to `Cloud`.
    """

    def __init__(
        self,
        devices: int,
        *,
        round_trip: float = 0.08,
        flush: str = "1 second",
        processes: int = 1,
        decide: Any = None,
        ack_after: float = 60.0,
    ) -> None:
        self.devices, self._round_trip, self._flush = devices, round_trip, flush
        self._ack_after = ack_after
        self.flush_seconds = Check().duration("flush", flush) / 1e6
        self._processes, self._decide = processes, decide
        self._running: list[Process] = []

    async def __aenter__(self) -> Lab:
        shared = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-lab-", dir=shared))
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        hub = Hub.create(self._folder / "hub", ["localhost", "127.0.0.1"])
        hub.enrol(*map(name_of, range(self.devices)))
        self._broker = Broker(hub, "127.0.0.1:0", program=server(print))
        self._broker.start()
        address = self._broker.address
        self.cloud = Cloud(hub, address, decide=self._decide, ack_after=self._ack_after)
        self._serving = asyncio.create_task(self.cloud.run())
        await asyncio.wait_for(self.cloud.ready.wait(), _PATIENCE)
        words = [self._broker.port, self._round_trip / 2]
        self._line = await self._spawn("line", *words)
        assert self._line.stdout is not None
        port = int(await self._line.stdout.readline())
        edges = np.linspace(0, self.devices, self._processes + 1).astype(int).tolist()
        address = f"tls://127.0.0.1:{port}"
        self._fleets = [
            await self._spawn("devices", hub.folder, address, self._flush, first, last)
            for first, last in pairwise(edges)
        ]
        await self._order(do="connect")

    async def _spawn(self, module: str, *words: Any) -> Process:
        name = f"anabranch.testing.lab.{module}"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", name, *map(str, words), stdin=PIPE, stdout=PIPE, limit=_LINE
        )
        self._running.append(process)
        return process

    async def _stop(self) -> None:
        tasks = [vars(self)[name] for name in ("_serving", "_watching") if name in vars(self)]
        await end(tasks)
        for process in self._running:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if hasattr(self, "_broker"):
            self._broker.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # why it ended by itself

    async def _ask(self, process: Process, text: str, seconds: float = 0.0) -> Any:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(text.encode() + b"\n")
        await process.stdin.drain()
        answer = await asyncio.wait_for(process.stdout.readline(), seconds + _PATIENCE)
        if not answer:
            raise AnabranchError("a process of the lab has ended: see what it wrote above")
        return json.loads(answer)

    async def _order(self, **order: Any) -> list[Any]:
        if self._serving.done():
            self._serving.result()
        text, lasts = json.dumps(order), float(order.get("seconds", 0.0))
        return await asyncio.gather(*(self._ask(one, text, lasts) for one in self._fleets))

    # ------------------------------------------------------------ what can be done

    async def deploy(
        self,
        workload: Workload,
        location: dict[str, str],
        cost: float = 1.0,
        download_cost: float | None = None,
    ) -> int:
        """Have views run, each at its place: the number of the entry, once it is written.

        From there `decide` may move them, at this cost of a byte up or down; 0 keeps them there.
        """
        streams, definitions, views = workload.wishes(location)
        self.cloud.keeper.state.add(streams, definitions, views)
        if self._decide is not None:  # asked for before they are there, it would place them
            wanted = tuple(streams), tuple(definitions), tuple(view for view, _ in views)
            down = cost if download_cost is None else download_cost
            Requests(self.cloud.hub.control).write(Wishes(*wanted, cost, down))
        return await self._written()

    def places(self) -> dict[str, str]:
        """Where views are."""
        book = self.cloud.relay.state.book
        return {view.name: book.place(number) for number, view in enumerate(book.views)}

    async def move(self, location: dict[str, str]) -> int:
        """Have views move to other places: the number of the entry, once it is written."""
        for number, view in enumerate(self.cloud.relay.state.book.views):
            self.cloud.keeper.state.move(number, location.get(view.name, ""))
        return await self._written()

    async def _written(self) -> int:
        before = self.cloud.relay.state.book.epoch
        while self.cloud.relay.state.book.epoch == before:
            await asyncio.sleep(0.01)
            if self._serving.done():
                self._serving.result()
        return self.cloud.relay.state.book.epoch

    async def adoption(self, epoch: int, patience: float = 60.0) -> np.ndarray:
        """Seconds from the writing of an entry to its adoption, by device, in order of time.

        Whoever has not adopted it when patience ends has taken infinitely long.
        """
        written = self.cloud.keeper.log.entries()[epoch].written
        begun = np.datetime64(written.partition("+")[0]).astype("datetime64[us]").astype(int) / 1e6
        book, until = self.cloud.relay.state.book, time.monotonic() + patience
        while True:
            found = [when for one in await self._order(do="tell") for when in _of(one, epoch)]
            concerned = len({home for home in _concerned(book, epoch)})
            missing = max(concerned - len(found), 0)
            if not missing or time.monotonic() > until:
                return np.sort(np.append(np.array(found) - begun, np.full(missing, np.inf)))
            await asyncio.sleep(0.1)

    async def put(self, workload: Workload, seconds: float) -> dict[str, list[int]]:
        """Rows of all devices for so many seconds; the times of each device's."""
        periods = {str(number): period for number, period in enumerate(workload.periods.tolist())}
        answers = await self._order(do="put", periods=periods, seconds=seconds)
        rows: dict[str, list[int]] = {}
        for answer in answers:
            rows |= answer["rows"]
        return rows

    async def delays(self) -> np.ndarray:
        """Seconds from a row of another device to each result on a device since the last call."""
        answers = await self._order(do="tell")
        return np.sort(np.array([delay for answer in answers for delay in answer["delays"]]))

    def watch(self) -> CloudViews:
        """Compute the views that are in the cloud, and take all results that are for it."""
        views = CloudViews(self._broker)
        self._watching = asyncio.create_task(views.run())
        return views

    async def cut(self, share: float, seconds: float) -> None:
        """Break a share of the devices' connections; for so long nobody comes back."""
        await self._ask(self._line, json.dumps({"share": share, "seconds": seconds}))

    async def settled(self, views: CloudViews) -> None:
        """Wait until the cloud has all rows and results of devices, and no more come."""
        found = -1
        while found != views.found.total():
            found = views.found.total()
            await self._order(do="drain")
            await asyncio.sleep(self.flush_seconds + _QUIET)

    async def kept(self) -> list[list[tuple[int, int, Any]]]:
        """End all devices; number, time and position of each row that they put, by device."""
        await self._order(do="end")
        boxes = self._folder / "hub" / "outboxes"
        return [rows_of(boxes / name_of(number)) for number in range(self.devices)]

    async def read(self) -> Reading:
        """The counters of now."""
        counts = await self._ask(self._line, "")
        relay, state = self.cloud.relay, self.cloud.relay.state
        payload = {way: sum(n for (w, _), n in relay.bytes.items() if w == way) for way in _WAYS}
        frames = {way: sum(n for (w, _), n in relay.frames.items() if w == way) for way in _WAYS}
        assert self._broker.process is not None
        broker_cpu, broker_memory = _used(self._broker.process.pid)
        own_cpu, own_memory = _used(os.getpid())
        return Reading(
            time.monotonic(),
            counts.get("up", 0),
            counts.get("down", 0),
            counts.get("up_packets", 0),
            counts.get("down_packets", 0),
            payload["up"],
            payload["down"],
            frames["up"],
            frames["down"],
            relay.lone,
            relay.sections.total(),
            sum(relay.rows.values()),
            state.passed,
            broker_cpu,
            own_cpu,
            broker_memory,
            own_memory,
            counts["open"],
            counts["connections"] - counts["open"],
        )


_WAYS = ("up", "down")


def _of(answer: dict[str, Any], epoch: int) -> list[float]:
    """When each device adopted an entry, or a later one in its place."""
    first: dict[str, float] = {}
    for number, found in answer["adopted"].items():
        for device, when in found.items():
            if int(number) >= epoch:
                first[device] = min(when, first.get(device, when))
    return list(first.values())


def _concerned(book: Any, epoch: int) -> set[str]:
    """Devices that an entry concerns: sources and places of the views that it changed."""
    found = set()
    for view, bounds in zip(book.views, book.bounds, strict=True):
        if bounds[-1].epoch == epoch:
            found |= {book.streams[stream].home for stream in view.inputs}
    return found


def _used(pid: int) -> tuple[float, int]:
    """Seconds of CPU and bytes resident of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
