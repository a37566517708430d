"""Heals a hub whose broker has lost messages: opens a new generation of its streams.

The order makes it safe to be interrupted: streams of a generation are there once its UP is, which
is made last. Run again, it drops what it had made, and begins anew from the old streams, which keep
what they have.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nats.aio.client import Client
from nats.js.api import StreamState
from nats.js.errors import APIError, NotFoundError

from anabranch.edge.frames import Down, encode_down, own_down
from anabranch.edge.mail import KEPT, Covered, base_of
from anabranch.edge.mailboxes import NO_SPACE, Mailboxes, beside
from anabranch.edge.placements import PlacementLog
from anabranch.edge.reading import all_messages
from anabranch.edge.recovery import lost_frames, recovered
from anabranch.edge.relay_state import RelayState
from anabranch.edge.snapshots import INTERVAL, snapshot_path, snapshots, write_snapshot
from anabranch.edge.streams import Streams
from anabranch.errors import StateMismatch

__all__ = ["Recovered", "Recovery"]


@dataclass(frozen=True)
class Recovered:
    """What `Recovery.run` did: `lost` has the frames of each subject that the broker lost."""

    generation: int
    left: int  # frames that nobody may have read, and that are there
    lost: dict[str, int]
    ended: datetime | None  # when the newest message came that the broker still has
    saved: datetime | None  # when the relay last wrote its state down

    def lines(self) -> list[str]:
        """What there is to tell, for people.

        Examples
        --------
        >>> noon = datetime(2026, 11, 17, 12, tzinfo=UTC)
        >>> for line in Recovered(1, 40, {}, noon, noon).lines(): print(line)
        generation 1 of the streams is open; 40 frames for devices and the query are there yet
        of what the relay's last state knows, no frame is lost
        start `anabranch edge serve`: devices and the query send again what they keep
        >>> late = noon.replace(hour=15)
        >>> for line in Recovered(1, 40, {"m.ann": 7}, noon, late).lines()[1:3]: print(line)
        lost: 7 frames of m.ann; devices send again what these came from
        LOST FOR GOOD: the store ends 2026-11-17 12:00:00 UTC, and devices keep what they sent in \
the 20 minutes before they last heard from the cloud. What was sent up to 2026-11-17 14:40:10 UTC \
and not read by then from m.ann cannot come again
        """
        found = [
            f"generation {self.generation} of the streams is open; {self.left} frames for devices "
            "and the query are there yet"
        ]
        if not self.lost:
            found.append("of what the relay's last state knows, no frame is lost")
        else:
            many = ", ".join(f"{count} frames of {subject}" for subject, count in self.lost.items())
            found.append(f"lost: {many}; devices send again what these came from")
        # Acknowledgements may have come until the relay would have written its state again.
        until = None if self.saved is None else self.saved.timestamp() + INTERVAL - KEPT
        begun = 0.0 if self.ended is None else self.ended.timestamp()
        if self.lost and until is not None and begun < until:
            ends = "is empty" if self.ended is None else f"ends {_told(begun)}"
            found.append(
                f"LOST FOR GOOD: the store {ends}, and devices keep what they sent in the "
                f"{KEPT / 60:.0f} minutes before they last heard from the cloud. What was sent up "
                f"to {_told(until)} and not read by then from {', '.join(self.lost)} cannot come "
                "again"
            )
        found.append(
            "start `anabranch edge serve`: devices and the query send again what they keep"
        )
        return found


class Recovery:
    """One recovery, while no relay runs.

    Parameters
    ----------
    client
        A connection with the cloud's rights.
    folder
        The hub's, with the relay's snapshots.
    control
        The directory of the log of placements, which must be the newest there ever was.
    buckets
        Keys of the cloud's state, for a hub whose relay never wrote its state down.
    """

    def __init__(self, client: Client, folder: Path, control: Path, buckets: int) -> None:
        self._js, self._client = client.jetstream(), client
        self._folder, self._control, self._buckets = folder, control, buckets
        self._covered: dict[str, Covered] = {}
        self._begun: dict[str, int] = {}

    async def run(self) -> Recovered:
        """Open the next generation of the streams."""
        states = snapshots(self._folder)
        begun = await Streams.begun(self._js)
        served = [g for g in begun if g in states and _was_served(states[g], g)]
        old = Streams.of(max([await Streams.newest(self._js), *served]))
        half = [generation for generation in begun if generation > old.generation]
        whole = states.keys() - set(half)
        former, saved = None, None
        if whole:
            path = states[max(whole)]
            former = RelayState.restore(path.read_bytes(), None)
            saved = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        log = PlacementLog(self._control).entries()
        inside = await self._state(old.inside)
        self._refuse(former, len(log), inside)
        ended = await self._ended(old)
        # A new number, for a query may have read what an interrupted recovery made.
        new = Streams.of(max([old.generation, *states, *half]) + 1)
        for generation in (*half, new.generation):
            await self._drop(generation)
        await old.retire(self._js)
        await new.make(self._js, "DOWN")
        await new.make(self._js, "IN", more=0 if inside is None else inside.bytes)
        there = Mailboxes(self._js, new.down, beside(self._folder, new.generation))
        left = await self._carry_over(old, there) + await self._carry_buckets(old.inside)
        lost = lost_frames(former, self._covered)
        known = self._covered, new.generation, self._begun
        relay = recovered(former, log, self._buckets, *known)
        for subject, frame in ((m.subject, m.frame) for m in relay.flush()):
            await self._put(there, subject, frame, encode_down(frame))
        there.sync()
        write_snapshot(snapshot_path(self._folder, new.generation), relay)
        await new.make(self._js, "UP")
        return Recovered(new.generation, left, lost, ended, saved)

    def _refuse(self, former: RelayState | None, entries: int, inside: StreamState | None) -> None:
        """Raise if it cannot be healed like this, before anything is touched."""
        if former is not None and entries <= former.book.epoch:
            raise StateMismatch(
                f"the log of placements in {self._control} ends at entry {entries - 1}, and entry "
                f"{former.book.epoch} was in use: bring it back as it was, then recover again"
            )
        buckets = self._buckets if former is None else former.buckets
        there = (inside.subjects if inside is not None else None) or {}
        last = max((int(name[3:]) for name in there if name[3:].isdigit()), default=-1)
        if last >= buckets:
            raise StateMismatch(
                f"there are frames for bucket {last}, and {buckets} buckets: recover with as many "
                "--buckets as the hub was served with"
            )

    async def _state(self, name: str) -> StreamState | None:
        """What a stream holds, and of which subjects; None if there is no such stream."""
        try:
            return (await self._js.stream_info(name, subjects_filter=">")).state
        except NotFoundError:
            return None

    async def _ended(self, streams: Streams) -> datetime | None:
        """When the newest message came of those that went to mailboxes and buckets."""
        times = []
        for name in (streams.down, streams.inside):
            state = await self._state(name)
            if state is not None and state.messages:
                times.append((await self._js.get_msg(name, state.last_seq)).time)
        return max((time for time in times if time is not None), default=None)

    async def _drop(self, generation: int) -> None:
        """Remove what an interrupted recovery made; first what would pass for a relay's state."""
        snapshot_path(self._folder, generation).unlink(missing_ok=True)
        shutil.rmtree(beside(self._folder, generation), ignore_errors=True)
        await Streams.of(generation).drop(self._js)

    async def _carry_over(self, old: Streams, there: Mailboxes) -> int:
        """Bring what is left of mailboxes to the new ones; how many frames."""
        kept = Mailboxes(self._js, old.down, beside(self._folder, old.generation))
        try:
            async for message in all_messages(self._js, old.down, ">"):
                if down := own_down(message.data):
                    sequence = message.metadata.sequence.stream
                    kept.found(message.subject[2:], down.number, sequence, len(message.data))
        except NotFoundError:
            pass  # the store is empty
        count = 0
        for device in kept.devices():
            async for _, content in kept.contents(device, 0):
                down = own_down(content)
                if down is not None and self._takes(f"m.{device}", down):
                    count += 1
                    await self._put(there, f"m.{device}", down, content)
        return count

    async def _put(self, there: Mailboxes, subject: str, down: Down, content: bytes) -> None:
        """Append a frame to its subject; beside the broker if a mailbox has no room there."""
        device = subject[2:] if subject.startswith("m.") else None
        if device is None or there.has_room(device, len(content)):
            try:
                stored = await self._js.publish(subject, content)
            except APIError as error:
                if device is None or error.err_code not in NO_SPACE:
                    raise
            else:
                if device is not None:
                    there.found(device, down.number, stored.seq, len(content))
                return
        there.keep_beside(device, down.number, down.position, content)

    async def _carry_buckets(self, stream: str) -> int:
        count = 0
        async for subject, content, down in self._frames_of(stream):
            if self._takes(subject, down):
                count += 1
                await self._js.publish(subject, content)
        return count

    async def _frames_of(self, stream: str) -> AsyncIterator[tuple[str, bytes, Down]]:
        try:
            async for message in all_messages(self._js, stream, ">"):
                if down := own_down(message.data):
                    yield message.subject, message.data, down
        except NotFoundError:
            return

    def _takes(self, subject: str, down: Down) -> bool:
        """Whether a frame follows what there is of its subject: after a gap nothing is of use."""
        known = self._covered.get(subject)
        if known is not None and not down.follows(known.number):
            return False
        self._covered[subject] = Covered(down.number, down.position)
        if begin := down.extras.get("begin"):
            self._begun[subject[2:]] = begin[0]
        return True


def _was_served(path: Path, generation: int) -> bool:
    """Whether the relay of a generation has processed any message: UP was there, then."""
    return RelayState.restore(path.read_bytes(), None).position > base_of(generation)


def _told(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
