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
from nats.js.errors import APIError, NotFoundError

from anabranch.edge.appending import Appends
from anabranch.edge.frames import (
    Down,
    FrameError,
    Up,
    decode_output,
    decode_up,
    encode_down,
    own_down,
)
from anabranch.edge.mail import base_of
from anabranch.edge.mailboxes import NO_SPACE, Mailboxes, beside
from anabranch.edge.placements import Entry
from anabranch.edge.reading import Reading, all_messages, sequence_of
from anabranch.edge.relay_state import RECOVER, Covered, Message, RelayState
from anabranch.edge.snapshots import INTERVAL, snapshot_path, snapshots, write_snapshot
from anabranch.edge.streams import Streams
from anabranch.errors import AnabranchError, StateMismatch
from anabranch.flow.numbered import UNREADABLE, described

__all__ = ["Relay"]

_BATCH = 1000  # messages that are read at once
_SLACK = 1.0  # seconds that the broker's clock may be set back
_AT_ONCE = 1 << 20  # bytes that are gathered at most
_MOST = 2 << 20  # bytes of a frame of a device: two rows of the largest, in one result, are less
_AGAIN = 1 << 20  # bytes of a mailbox that are pushed again in one turn
_STORED_ELSEWHERE = 10071  # of JetStream's errors


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
        self._resend: dict[str, int] = {}  # devices that get their mailbox again, from where on
        self._seen: dict[str, int] = {}  # what each device has processed of its mailbox
        self._owed: dict[str, float] = {}  # since when a device waits for an acknowledgement
        self._written = self._turned = time.monotonic()
        self._came = self._there = 0  # messages of the last turn; the last one when it opened
        self._reached = -1, 0.0  # the last position of UP that any subject covers, and since when
        self._appends = Appends(client)
        self.bytes: Counter[tuple[str, str]] = Counter()  # by direction and device: payload
        self.frames: Counter[tuple[str, str]] = Counter()
        self.lone = 0  # frames to devices with neither rows nor results, as acknowledgements
        self.sections: Counter[str] = Counter()  # by direction
        self.rows: Counter[str] = Counter()  # that devices sent
        self.carried: Counter[str] = Counter()  # bytes of the frames with these rows
        self.heard: defaultdict[str, float] = defaultdict(time.monotonic)  # when it last sent

    async def open(self) -> RelayState:
        """Read back what there is; the state, which is whole once `turn` finds nothing new."""
        self.streams = await Streams.open(self._js)
        self._folder.mkdir(parents=True, exist_ok=True)  # of a new hub
        newest = max(snapshots(self._folder), default=0)
        if newest > self.streams.generation:
            raise StateMismatch(
                f"the relay's state in {self._folder} is of generation {newest} of the streams, "
                f"and the broker's are of generation {self.streams.generation}: its store was put "
                f"back; {RECOVER}"
            )
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
            self.state = RelayState(self._buckets, covered, self.streams.generation)
        reached = max(self.state.position, self._reached[0]) - self._base
        if up.last_seq < reached:
            raise StateMismatch(
                f"stream {self.streams.up} went back: it ends at {up.last_seq}, and {reached} was "
                f"processed; {RECOVER}"
            )
        await self._refuse_refilled()
        start = max(self.state.position - self._base + 1, 1)
        self._reading = Reading(self._client, self.streams.up, start)
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
            # Lest what is gathered for one subject be too much for the broker.
            if size + len(message.data) > _AT_ONCE:
                await self._append(self.state.flush())
                size = 0
            size += self._take(message)
        now = time.monotonic()
        for device, since in self._owed.items():
            if now - since < self._ack_after:
                break  # they are in order of time
            self.state.acknowledge(device)
        for device, first in self.state.replays():
            self._resend[device] = first
            # What a generation begins with follows all that was before.
            if 0 < first < self.mailboxes.first(device) != self._base:
                self.state.stop(device, first - 1)
        await self._append(self.state.flush())
        await self._push_again()
        if now - self._written >= INTERVAL:
            await self._write_snapshot()
        return len(messages)

    def _take(self, message: Msg) -> int:
        """Fold a message; how many bytes of others' messages may follow from it."""
        position, size = self._base + sequence_of(message), len(message.data)
        kind, _, name = message.subject.partition(".")
        try:
            if kind == "u":
                up = decode_up(message.data) if size <= _MOST else None
                if up is None or (size := max(size, _unpacked(up))) > _MOST:
                    raise FrameError(f"a frame of {size} bytes is too large")
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
                self.state.entry(position, _entry_of(message.data))
            elif name.isdigit():
                output = decode_output(message.data)
                self.state.output(position, int(name), output)
            else:
                raise FrameError(f"there is no bucket {name!r}")
        except FrameError:
            # Never the relay's end: anybody who is enrolled may send any bytes. A device of another
            # version learns from the answer that it cannot be understood. An entry that was skipped
            # is published again, and a query that cannot read back its results ends.
            self.state.skip(position, "frames" if kind == "u" else "messages of the cloud")
            if kind == "u":
                self._owed.setdefault(name, time.monotonic())
        return size

    # ------------------------------------------------------------ to mailboxes and buckets

    async def _append(self, messages: Sequence[Message]) -> None:
        owed = [(m.subject, m.frame.number, encode_down(m.frame)) for m in messages]
        mail = [m.frame for m in messages if m.subject.startswith("m.")]
        self.sections["down"] += sum(len(frame.steps) for frame in mail)
        self.lone += sum(not frame.steps and not frame.results for frame in mail)
        owed = [one for one in owed if not await self._over(*one)]
        while owed:
            wanted = [(subject, self._last.get(subject, 0), one) for subject, _, one in owed]
            stored = await self._appends.append(wanted)
            refused = []
            for one, found in zip(owed, stored, strict=True):
                if isinstance(found, int):
                    await self._note(*one, found)
                elif found.err_code not in NO_SPACE:
                    raise _refusal(one[0], found) from found
                elif not await self._over(*one, full=True):
                    refused.append(one)
            owed = refused
            if owed:
                self.state.counts["waits for space"] += len(owed)
                await asyncio.sleep(1)  # meanwhile UP fills, and rows wait on devices

    async def _over(self, subject: str, number: int, content: bytes, full: bool = False) -> bool:
        """Keep a frame beside the broker if its mailbox has no room there; whether it was."""
        device = subject[2:]
        fits = not full and self.mailboxes.has_room(device, len(content))
        if fits or not subject.startswith("m."):
            return False
        self.mailboxes.keep_beside(device, number, self.state.position, content)
        self.state.counts["frames kept beside the broker"] += 1
        await self._push(device, content)
        return True

    async def _note(self, subject: str, number: int, content: bytes, sequence: int) -> None:
        """A message is stored: now its device may have it."""
        self._last[subject] = sequence
        if subject.startswith("m."):
            self.mailboxes.found(subject[2:], number, sequence, len(content))
            await self._push(subject[2:], content)

    async def _push(self, device: str, content: bytes, again: bool = False) -> None:
        if device in self._resend and not again:
            return  # it comes in its turn
        self._owed.pop(device, None)
        self.bytes["down", device] += len(content)
        self.frames["down", device] += 1
        await self._client.publish(f"d.{device}", content)

    async def _push_again(self) -> None:
        """Push what devices have not processed of their mailboxes, some of it in every turn."""
        for device, first in list(self._resend.items()):
            size = 0
            async for number, content in self.mailboxes.contents(device, first):
                if size > _AGAIN:
                    self._resend[device] = number
                    break
                await self._push(device, content, again=True)
                size += len(content)
            else:
                del self._resend[device]

    # ------------------------------------------------------------ what is kept

    @property
    def _base(self) -> int:
        """Before the first position of this generation; before position 1 is 0."""
        return base_of(self.streams.generation)

    @property
    def _snapshot(self) -> Path:
        return snapshot_path(self._folder, self.streams.generation)

    async def _read_back(self) -> dict[str, Covered]:
        """The newest number of every subject, and where each message of a mailbox is."""
        covered: dict[str, Covered] = {}
        files = beside(self._folder, self.streams.generation)
        self.mailboxes = Mailboxes(self._js, self.streams.down, files)
        for stream in (self.streams.down, self.streams.inside):
            state = (await self._js.stream_info(stream, subjects_filter=">")).state
            for subject in state.subjects or {}:
                message = await self._js.get_last_msg(stream, subject)
                self._last[subject] = message.seq or 0
                newest = own_down(message.data or b"")
                stored = None if message.time is None else message.time.timestamp()
                if newest is None:
                    newest, stored = await self._newest_of(stream, subject), None
                if newest is not None:
                    covered[subject] = Covered(newest.number, newest.position)
                    if stored is not None:
                        self._reached = max(self._reached, (newest.position, stored))
        await self._find_mailboxes()
        for subject, kept in self.mailboxes.covered().items():
            if kept.number > covered.get(subject, Covered()).number:
                covered[subject] = kept
        return covered

    async def _newest_of(self, stream: str, subject: str) -> Down | None:
        """The newest frame of a subject whose newest message is none, found by reading them all."""
        found = None
        async for message in all_messages(self._js, stream, subject):
            found = own_down(message.data) or found
        return found

    async def _refuse_refilled(self) -> None:
        """Raise if messages of UP were lost, and others have their numbers by now.

        What follows from a message was stored after it, by the same clock.
        """
        position, stored = self._reached[0] - self._base, self._reached[1]
        if position < 1:
            return
        try:
            message = await self._js.get_msg(self.streams.up, position)
        except NotFoundError:
            return  # purged, for the relay's own state covers it
        if message.time is not None and message.time.timestamp() > stored + _SLACK:
            raise StateMismatch(
                f"stream {self.streams.up} went back and was filled again: its message {position} "
                f"is newer than what follows from it; {RECOVER}"
            )

    async def _find_mailboxes(self) -> None:
        async for message in all_messages(self._js, self.streams.down, ">"):
            if down := own_down(message.data):
                sequence = message.metadata.sequence.stream
                self.mailboxes.found(message.subject[2:], down.number, sequence, len(message.data))

    async def _write_snapshot(self) -> None:
        """Write the state down, then let the broker forget what nobody will read again."""
        self._written = time.monotonic()
        self.mailboxes.sync()
        # Before the broker forgets, also if the power is cut.
        write_snapshot(self._snapshot, self.state)
        read = self.state.position - self._base
        if read > 0:  # nats-py takes 0 for none, and would purge all that waits
            await self._js.purge_stream(self.streams.up, seq=read + 1)
        await self.mailboxes.forget(self._seen)


def _unpacked(up: Up) -> int:
    """Bytes of columns if a part of the rows is passed on: a few may stand for many."""
    return sum(column.nbytes for section in up.sections for column in section.columns)


def _refusal(subject: str, error: APIError) -> Exception:
    if error.err_code == _STORED_ELSEWHERE:
        return AnabranchError(
            f"another relay writes to {subject}: one serves a hub at a time, so this one must stop"
        )
    return error


def _entry_of(content: bytes) -> Entry:
    """An entry of the log, as the keeper publishes it."""
    try:
        return Entry.from_dict(json.loads(content))
    except UNREADABLE as error:
        raise FrameError(f"{len(content)} bytes are no entry ({described(error)})") from error


def _time_of(message: Msg) -> int:
    """When the broker got a message, in microseconds by its clock."""
    return round(message.metadata.timestamp.timestamp() * 1e6)
