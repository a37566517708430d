"""The relay: what devices send goes to the mailboxes and buckets that need it.

A shell around `RelayState`, which decides. It reads UP by sequence and appends to DOWN and IN, each
append on condition that the subject's last message is the one it knows: a second relay cannot
write. Whatever fails, it starts again from its last snapshot and from what the subjects hold.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NotFoundError

from anabranch.edge.appending import Appends
from anabranch.edge.frames import FrameError, decode_down, decode_output, decode_up, encode_down
from anabranch.edge.placements import Entry
from anabranch.edge.reading import Reading, sequence_of
from anabranch.edge.relay_state import Covered, Message, RelayState
from anabranch.edge.streams import Streams
from anabranch.errors import AnabranchError, StateMismatch

__all__ = ["Relay"]

_BATCH = 1000  # messages that are read at once
_SNAPSHOT = 10.0  # seconds between snapshots
_SLACK = 1.0  # seconds that the broker's clock may be set back
_AT_ONCE = 1 << 20  # bytes that are gathered at most
_SPARE = 100  # messages of a mailbox that are kept though its device has them
_STORED_ELSEWHERE, _NO_SPACE = 10071, (10077, 10122)  # of JetStream's errors


class Relay:
    """One relay at a time serves a hub.

    Parameters
    ----------
    client
        A connection with the cloud's rights.
    folder
        Where snapshots are kept.
    buckets
        Keys of the cloud's state; fixed once there is anything.
    tick
        Seconds that messages for one subject are gathered.
    ack_after
        Seconds after which a device is told what has come if there is nothing else to tell it.
    """

    def __init__(
        self,
        client: Client,
        folder: str | os.PathLike[str],
        buckets: int,
        tick: float = 0.05,
        ack_after: float = 60.0,
    ) -> None:
        self._js, self._client = client.jetstream(), client
        self._folder, self._buckets = Path(folder), buckets
        self._tick, self._ack_after = tick, ack_after
        self._last: dict[str, int] = {}  # sequence of the last message of each subject
        self._stored: dict[str, list[tuple[int, int]]] = {}  # numbers and sequences of mailboxes
        self._seen: dict[str, int] = {}  # what each device has processed of its mailbox
        self._owed: dict[str, float] = {}  # since when a device waits for an acknowledgement
        self._written = self._turned = time.monotonic()
        self._came = self._there = 0  # messages of the last turn; the last one when it opened
        self._reached = -1, 0.0  # the last position of UP that any subject covers, and since when
        self._appends = Appends(client)
        self.bytes: Counter[tuple[str, str]] = Counter()  # by direction and device: payload
        self.frames: Counter[tuple[str, str]] = Counter()
        self.sections: Counter[str] = Counter()  # by direction
        self.rows: Counter[str] = Counter()  # that devices sent
        self.carried: Counter[str] = Counter()  # bytes of the frames with these rows
        self.heard: defaultdict[str, float] = defaultdict(time.monotonic)  # when it last sent

    async def open(self) -> RelayState:
        """Read back what there is; the state, which is whole once `turn` finds nothing new."""
        self.streams = await Streams.open(self._js)
        covered = await self._read_back()
        up = (await self._js.stream_info(self.streams.up)).state
        if self._snapshot.exists():
            self.state = RelayState.restore(self._snapshot.read_bytes(), covered)
        elif up.first_seq > 1:
            raise StateMismatch(
                f"the relay's state is missing in {self._folder}, and {self.streams.up} does not "
                "begin at its first message: bring it back, or begin a new hub"
            )
        else:
            self.state = RelayState(self._buckets, covered)
        reached = max(self.state.position, self._reached[0])
        if up.last_seq < reached:
            raise StateMismatch(
                f"stream {self.streams.up} went back: it ends at {up.last_seq}, and {reached} was "
                "processed; restore the store of the broker"
            )
        await self._refuse_refilled()
        self._reading = Reading(self._client, self.streams.up, max(self.state.position + 1, 1))
        await self._reading.open()
        self._there = up.last_seq
        return self.state

    @property
    def behind(self) -> bool:
        """Whether it has not processed all that there was when it opened."""
        return self._reading.next <= self._there

    async def turn(self) -> int:
        """Process what has come, for one tick at most, and pass it on; how much it was.

        The first message after a pause does not wait for others.
        """
        if 0 < self._came < _BATCH:
            await asyncio.sleep(self._turned + self._tick - time.monotonic())
        messages = await self._reading.some(self._tick)
        self._turned, self._came = time.monotonic(), len(messages)
        size = 0
        for message in messages:
            self._take(message)
            size += len(message.data)
            if size > _AT_ONCE:  # lest what is gathered for one subject be too much for the broker
                await self._append(self.state.flush())
                size = 0
        now = time.monotonic()
        for device, since in self._owed.items():
            if now - since < self._ack_after:
                break  # they are in order of time
            self.state.acknowledge(device)
        await self._append(self.state.flush())
        for device, first in self.state.replays():
            await self._replay(device, first)
        if now - self._written >= _SNAPSHOT:
            await self._write_snapshot()
        return len(messages)

    def _take(self, message: Msg) -> None:
        position = sequence_of(message)
        kind, _, name = message.subject.partition(".")
        try:
            if kind == "u":
                up = decode_up(message.data)
                self.state.frame(position, name, up, _time_of(message) if up.number < 0 else None)
                self.bytes["up", name] += len(message.data)
                self.frames["up", name] += 1
                self.sections["up"] += len(up.sections)
                if rows := sum(len(section.n) for section in up.sections):
                    self.rows[name] += rows
                    self.carried[name] += len(message.data)
                self.heard[name] = time.monotonic()
                self._seen[name] = up.seen
                if up.number >= 0:
                    self._owed.setdefault(name, time.monotonic())
            elif kind == "k":
                self.state.entry(position, Entry.from_dict(json.loads(message.data)))
            else:
                output = decode_output(message.data)
                self.state.output(position, int(name), output.batch, output.results)
        except FrameError:
            # Never the relay's end: anybody who is enrolled may send any bytes. A device of another
            # version learns from the answer that it cannot be understood.
            self.state.counts["frames that cannot be read"] += 1
            if kind == "u":
                self._owed.setdefault(name, time.monotonic())

    # ------------------------------------------------------------ to mailboxes and buckets

    async def _append(self, messages: Sequence[Message]) -> None:
        owed = [(m.subject, m.frame.number, encode_down(m.frame)) for m in messages]
        steps = (len(m.frame.steps) for m in messages if m.subject.startswith("m."))
        self.sections["down"] += sum(steps)
        while owed:
            wanted = [(subject, self._last.get(subject, 0), one) for subject, _, one in owed]
            stored = await self._appends.append(wanted)
            refused = []
            for one, found in zip(owed, stored, strict=True):
                if isinstance(found, int):
                    await self._note(*one, found)
                elif found.err_code in _NO_SPACE:
                    refused.append(one)
                else:
                    raise _refusal(one[0], found) from found
            owed = refused
            if owed:
                self.state.counts["waits for space"] += len(owed)
                await asyncio.sleep(1)  # meanwhile UP fills, and rows wait on devices

    async def _note(self, subject: str, number: int, content: bytes, sequence: int) -> None:
        """A message is stored: now its device may have it."""
        self._last[subject] = sequence
        if subject.startswith("m."):
            self._stored.setdefault(subject[2:], []).append((number, sequence))
            await self._push(subject[2:], content)

    async def _push(self, device: str, content: bytes) -> None:
        self._owed.pop(device, None)
        self.bytes["down", device] += len(content)
        self.frames["down", device] += 1
        await self._client.publish(f"d.{device}", content)

    async def _replay(self, device: str, first: int) -> None:
        """Push again what a device has not processed of its mailbox."""
        since = [seq for number, seq in self._stored.get(device, []) if number >= first]
        for sequence in since:
            stored = await self._js.get_msg(self.streams.down, sequence)
            if stored.data is not None:
                await self._push(device, stored.data)

    # ------------------------------------------------------------ what is kept

    @property
    def _snapshot(self) -> Path:
        return self._folder / f"relay-{self.streams.generation}.state"

    async def _read_back(self) -> dict[str, Covered]:
        """The newest number of every subject, and where each message of a mailbox is."""
        covered: dict[str, Covered] = {}
        for stream in (self.streams.down, self.streams.inside):
            state = (await self._js.stream_info(stream, subjects_filter=">")).state
            for subject in state.subjects or {}:
                message = await self._js.get_last_msg(stream, subject)
                down = decode_down(message.data or b"")
                self._last[subject] = message.seq or 0
                covered[subject] = Covered(down.number, down.position)
                if message.time is not None:
                    self._reached = max(self._reached, (down.position, message.time.timestamp()))
        await self._find_mailboxes()
        return covered

    async def _refuse_refilled(self) -> None:
        """Raise if messages of UP were lost, and others have their numbers by now.

        What follows from a message was stored after it, by the same clock.
        """
        position, stored = self._reached
        if position < 1:
            return
        try:
            message = await self._js.get_msg(self.streams.up, position)
        except NotFoundError:
            return  # purged, for the relay's own state covers it
        if message.time is not None and message.time.timestamp() > stored + _SLACK:
            raise StateMismatch(
                f"stream {self.streams.up} went back and was filled again: its message {position} "
                "is newer than what follows from it; restore the store of the broker"
            )

    async def _find_mailboxes(self) -> None:
        total = (await self._js.stream_info(self.streams.down)).state.messages
        settings = ConsumerConfig(
            ack_policy=AckPolicy.NONE, inactive_threshold=60, mem_storage=True
        )
        reader = await self._js.pull_subscribe("", stream=self.streams.down, config=settings)
        while total > 0:
            for message in await reader.fetch(min(_BATCH, total), timeout=10):
                total -= 1
                found = decode_down(message.data).number, message.metadata.sequence.stream
                self._stored.setdefault(message.subject[2:], []).append(found)
        await reader.unsubscribe()

    async def _write_snapshot(self) -> None:
        """Write the state down, then let the broker forget what nobody will read again."""
        self._written = time.monotonic()
        draft = self._snapshot.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(self.state.snapshot())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._snapshot)
        await self._js.purge_stream(self.streams.up, seq=self.state.position + 1)
        for device, stored in self._stored.items():
            # The newest stays: it says what the mailbox covers.
            first = min(self._seen.get(device, -1), stored[-1][0])
            if first - stored[0][0] >= _SPARE:  # else it is not worth a request
                kept = [found for found in stored if found[0] >= first]
                await self._js.purge_stream(
                    self.streams.down, subject=f"m.{device}", seq=kept[0][1]
                )
                self._stored[device] = kept


def _refusal(subject: str, error: APIError) -> Exception:
    if error.err_code == _STORED_ELSEWHERE:
        return AnabranchError(
            f"another relay writes to {subject}: one serves a hub at a time, so this one must stop"
        )
    return error


def _time_of(message: Msg) -> int:
    """When the broker got a message, in microseconds by its clock."""
    return round(message.metadata.timestamp.timestamp() * 1e6)
