"""The device: keeps rows, sends what is asked for, computes the views that are placed here.

A shell around `AgentState`: socket, clock and disk. One rule: first commit, then send, then show.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time as clock
from collections.abc import Awaitable, Callable
from datetime import datetime
from types import TracebackType
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as BrokerError

from anabranch.calls import Check, Duration
from anabranch.edge.agent_state import AgentState, Effects
from anabranch.edge.clocks import microseconds_of, offset_of
from anabranch.edge.ending import end
from anabranch.edge.frames import FrameError, decode_down
from anabranch.edge.given import check_handler, place_problems, stream_name
from anabranch.edge.mail import KEPT
from anabranch.edge.naming import device_name
from anabranch.edge.outbox import Outbox, OutboxFull
from anabranch.edge.shown import results_of
from anabranch.edge.streams import connect, ignored
from anabranch.errors import AnabranchError, StateMismatch

__all__ = ["Agent"]

_GROUP = 0.1  # seconds of puts that share a commit
_BEAT = 1.0  # seconds between flushes of an agent that flushes with every row
_PRUNE = 10.0
_SILENCE = 180.0  # seconds without a word from the cloud after which it is asked
_BACKOFF = (1.0, 60.0)
_SKEW = 1.0  # seconds that this clock may be off without a word
_LOOK = 0.25  # seconds between looks at the connection


class Agent:
    """One device, connected or not.

    Parameters
    ----------
    device
        Its name, as it was enrolled.
    broker
        Address of the hub, such as ``tls://hub:4222``.
    credentials
        The folder that ``anabranch edge enrol`` made.
    folder
        Where rows are kept until the cloud has them. One agent uses it at a time, and it must not
        be copied.
    flush
        How long a row may wait for others that share its frame. "0 seconds" sends at once.
    full
        What happens at `limit` bytes: "raise" makes `put` raise; "thin" drops from half of the
        limit on ever more of the rows that are sampled last, and counts them in `dropped`.
    limit
        Bytes that the folder may use. From half of it on, what nobody needs is deleted.
    keep
        How long rows and results stay after nobody needs them, while there is room; None keeps
        them until then.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> async def main():
    ...     async with Agent("alice", broker="tls://hub:4222", credentials="alice/",
    ...                      folder="/var/lib/anabranch") as agent:
    ...         agent.on("nearby", print)
    ...         await agent.put("gps", xy=[1.0, 2.0])     # durable when it returns
    """

    def __init__(
        self,
        device: str,
        *,
        broker: str,
        credentials: str | os.PathLike[str] | None,
        folder: str | os.PathLike[str],
        flush: Duration = "1 second",
        full: str = "raise",
        limit: int = 1 << 30,
        keep: Duration | None = None,
    ) -> None:
        check = Check()
        self.device = device_name(device)
        check.problems += place_problems(broker, credentials, folder)
        self._broker, self._credentials, self._folder = broker, credentials, folder
        self._flush = check.duration("flush", flush) / 1e6
        self._full = check.choice("full", full, ["raise", "thin"])
        self._limit = check.whole("limit", limit, 100_000)
        self._keep = None if keep is None else check.duration("keep", keep)
        check.refuse("Agent")
        self.dropped: dict[str, int] = {}
        self.unread = 0  # messages that are no frames
        self._handlers: dict[str, list[Callable[[dict[str, Any]], None]]] = {}
        self._pending: list[tuple[Effects, asyncio.Future[None]]] = []
        self._due, self._failed, self._room = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._error: Exception | None = None
        self._client: Client | None = None
        self._heard = clock.monotonic()
        self._unheard = False  # whether the cloud must hear where this is
        self._searched = 0.0  # when there was nothing to delete
        self._asked = 0  # when it last said hello, by its own clock
        self.clock_offset: float | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------ what an application uses

    def on(self, view: str, function: Callable[[dict[str, Any]], None]) -> None:
        """Call a function with every result of a view, wherever it was computed.

        After a crash a result may come a second time, never not at all: its keys tell.
        """
        check_handler(view, function)
        self._handlers.setdefault(view, []).append(function)

    async def put(
        self, stream: str, /, *, time: datetime | int | None = None, **values: Any
    ) -> None:
        """Keep a row of a stream; it is durable when this returns, connected or not.

        `time` is that of the event: microseconds or a datetime, now if it is not given. It must not
        go back within a stream; the clock of the device may. A feed, such as ``gps``, is this
        device's stream of it, ``gps[alice]``.
        """
        stream = stream_name(stream, self.device)
        async with self._room:  # one looks, and all others wait for what it finds
            await self._make_room()
        own = self._state.stream(stream)
        t = own.time_at(_now()) if time is None else microseconds_of(time)
        room = 2.0 * (1.0 - self._box.size / self._box.limit) if self._full == "thin" else 1.0
        if self._box.full or room < 1.0:
            own.checked(t, values)  # what is no row is refused, and not counted as dropped
        if self._box.full or not own.fits(t, room):
            if self._full == "raise":
                raise OutboxFull(
                    f"the outbox is full, {self._box.size:,} bytes of {self._box.limit:,} are "
                    'used: connect, or give full="thin" or a larger limit='
                )
            own.dropped += 1
            self.dropped[stream] = self.dropped.get(stream, 0) + 1
            return
        kept = self._enqueue(self._state.put(stream, t, values))
        if not self._flush:  # in the same commit, so that it leaves right after it
            kept = self._enqueue(self._state.flush(_now()))
        await kept

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._client is not None and self._client.is_connected

    @property
    def unfit(self) -> dict[str, int]:
        """Rows that were put before views asked for their stream, and do not fit what it is."""
        return self._state.unfit

    async def leave(self) -> None:
        """Leave: the cloud has all rows when this returns; views over them end.

        Once an agent is started again on this device's outbox, they begin anew.
        """
        await self.drained()
        await self._enqueue(self._state.leave())
        await self.drained()

    async def drained(self) -> None:
        """Wait until the cloud has all rows that were put and that it asked for."""
        while True:
            self._raise()
            if not self._state.waiting and not self._pending:
                return
            await asyncio.sleep(0.05)

    async def __aenter__(self) -> Agent:
        self._box = Outbox(self._folder, limit=self._limit, keep=self._keep, release_after=KEPT)
        self._state = self._kept()
        loops = (self._committing, self._flushing, self._linked, self._pruning)
        self._tasks = [asyncio.create_task(self._guarded(loop)) for loop in loops]
        return self

    def _kept(self, former: AgentState | None = None) -> AgentState:
        """As the outbox has it; `former` is that of this process, if it has had any."""
        box, of = self._box, self.device
        return AgentState.restore(of, box.incarnation, *box.load(), former=former, token=box.token)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._error is None:
            # Unless that loop is being cancelled as well, as it is after Ctrl-C.
            last = self._enqueue(self._state.flush(_now()))
            await asyncio.wait([last, self._tasks[0]], return_when=asyncio.FIRST_COMPLETED)
        await end(self._tasks)
        if self._client is not None:
            await self._client.close()
        self._box.close()
        if kind is None:
            self._raise()

    async def run(self) -> None:
        """Wait until something makes this agent stop, and raise it."""
        await self._failed.wait()
        self._raise()

    # ------------------------------------------------------------ commit, then send, then show

    def _enqueue(self, effects: Effects) -> asyncio.Future[None]:
        """Have effects committed, in the order in which they came about."""
        self._raise()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((effects, future))
        self._due.set()
        return future

    async def _committing(self) -> None:
        """One transaction for all effects of 100 ms; the first after a pause does not wait."""
        while True:
            await self._due.wait()
            self._due.clear()
            batch = list(self._pending)
            kept = [effects for effects, _ in batch]
            try:
                await asyncio.to_thread(self._box.commit, kept, self._state.done())
            except OutboxFull as error:
                self._undo(error)
                continue
            del self._pending[: len(batch)]
            for _, future in batch:
                if not future.done():
                    future.set_result(None)
            for effects in kept:
                for content in effects.send:
                    await self._send(content)
                if effects.stopped:
                    raise StateMismatch(f"{self.device} must stop: {effects.stopped}")
                if effects.again:
                    frames = await asyncio.to_thread(lambda: list(self._box.frames()))
                    self._enqueue(self._state.again(frames))
            with contextlib.suppress(OutboxFull):  # they are shown again
                await self._show()
            await asyncio.sleep(_GROUP)

    def _undo(self, error: OutboxFull) -> None:
        """A disk is full: nothing of what waits has happened, as if this had been killed."""
        self._reject(error)
        self._pending.clear()
        self._state = self._kept(self._state)
        self._unheard = True  # where it is by now, so that the cloud sends again what is missing

    async def _send(self, content: bytes) -> None:
        # Without a connection nothing is lost: a hello brings all that is not acknowledged.
        if self._client is not None and self._client.is_connected:
            with contextlib.suppress(BrokerError, OSError):
                await self._client.publish(f"u.{self.device}", content)

    async def _show(self) -> None:
        """Call handlers with what they have not had, also before a crash."""
        known = self._state.evaluator
        waiting = list(self._box.results(self._box.shown))
        for _, found in waiting:
            view = known.known[found.view]
            if handlers := self._handlers.get(view.definition):
                for result in results_of(view.name, known.definitions[view.definition], found):
                    for function in handlers:
                        function(result)
        if waiting:
            await asyncio.to_thread(self._box.show, waiting[-1][0])

    # ------------------------------------------------------------ clocks and connections

    async def _flushing(self) -> None:
        period = max(self._flush, _GROUP) if self._flush else _BEAT
        due = clock.monotonic()
        while True:
            # What a commit takes is part of it: no row waits for longer.
            due = max(due + period, clock.monotonic())
            await asyncio.sleep(due - clock.monotonic())
            with contextlib.suppress(OutboxFull):
                await self._flush_all(clock.monotonic())

    async def _flush_all(self, now: float) -> None:
        await self._enqueue(self._state.flush(_now()))
        waits = self._state.waiting or (self.connected and not self._state.begun)
        if self._unheard or (waits and now - self._heard >= _SILENCE):
            self._heard = now
            await self._enqueue(self._hello())
            self._unheard = False

    async def _pruning(self) -> None:
        while True:
            await asyncio.sleep(_PRUNE)
            with contextlib.suppress(OutboxFull):
                await asyncio.to_thread(self._box.prune)
                if self._box.size > self._box.limit // 2:
                    await asyncio.to_thread(self._box.make_room)

    async def _make_room(self) -> None:
        """What nobody needs keeps no row out; who has found nothing looks again a second later."""
        if self._box.full and clock.monotonic() >= self._searched + 1.0:
            with contextlib.suppress(OutboxFull):
                if not await asyncio.to_thread(self._box.make_room):
                    self._searched = clock.monotonic()

    async def _linked(self) -> None:
        """Stay connected; after a loss wait 1 to 60 seconds, so that not all come back at once."""
        wait, most = _BACKOFF
        while True:
            try:
                client = await self._connect()
            except (BrokerError, OSError, OutboxFull):
                wait = min(2 * wait, most)
            else:
                wait = _BACKOFF[0]
                while client.is_connected:
                    await asyncio.sleep(_LOOK)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    async def _connect(self) -> Client:
        client = await connect(self._broker, self._credentials, self.device, error_cb=ignored)
        try:
            await client.subscribe(f"d.{self.device}", cb=self._receive)
            await client.flush()
            self._client = client
            await self._enqueue(self._hello())
        except BaseException:
            await client.close()
            raise
        return client

    def _hello(self) -> Effects:
        self._asked = _now()
        return self._state.connect(self._asked)

    async def _receive(self, message: Msg) -> None:
        try:
            down = decode_down(message.data)
        except FrameError as error:
            if error.other_version:
                self._fail(error)
            self.unread += 1  # not the cloud's: a frame of its own would be missed by its number
            return
        self._heard = clock.monotonic()
        try:
            said, at = down.extras.get("clock", (None, 0))
            if said is not None and said == self._asked:  # not one of a hello before, sent again
                before, self.clock_offset = self.clock_offset, offset_of(said, at, _now())
                if max(abs(before or 0.0), abs(self.clock_offset)) > _SKEW:
                    self._state.clock = round(self.clock_offset, 3)
            self._enqueue(self._state.receive(down))
        except Exception as error:  # nats-py would go on with the next message
            self._fail(error)

    # ------------------------------------------------------------ failures and room

    async def _guarded(self, loop: Callable[[], Awaitable[None]]) -> None:
        try:
            await loop()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Stop: what is in memory is ahead of what was kept, so only a restart may continue."""
        self._error = self._error or error
        self._failed.set()
        self._reject(error)

    def _reject(self, error: Exception) -> None:
        for _, future in self._pending:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits gets it; nobody has to

    def _raise(self) -> None:
        if isinstance(self._error, AnabranchError):
            raise self._error
        if self._error is not None:
            raise AnabranchError(
                f"agent {self.device} has stopped ({type(self._error).__name__}: {self._error}): "
                "rows that were put are kept; start it again"
            ) from self._error


def _now() -> int:
    return clock.time_ns() // 1000
