"""Heals a hub whose broker has lost messages: opens a new generation of its streams.

The order makes it safe to be interrupted: streams of a generation are there once its UP is, which
is made last. Run again, it begins anew from the old streams, which keep what they have.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nats.aio.client import Client
from nats.js.errors import NotFoundError

from anabranch.edge.frames import Down, encode_down, own_down
from anabranch.edge.mail import KEPT, Covered
from anabranch.edge.mailboxes import Mailboxes
from anabranch.edge.placements import PlacementLog
from anabranch.edge.reading import all_messages
from anabranch.edge.recovery import lost_frames, recovered
from anabranch.edge.relay_state import RelayState
from anabranch.edge.snapshots import snapshot_path, write_snapshot
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
        LOST FOR GOOD: the store ends 2026-11-17 12:00:00 UTC, and devices keep what they sent for \
20 minutes. What was sent up to 2026-11-17 14:40:00 UTC and not read by then from m.ann cannot \
come again
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
        until = None if self.saved is None else self.saved.timestamp() - KEPT
        begun = 0.0 if self.ended is None else self.ended.timestamp()
        if self.lost and until is not None and begun < until:
            ends = "is empty" if self.ended is None else f"ends {_told(begun)}"
            found.append(
                f"LOST FOR GOOD: the store {ends}, and devices keep what they sent for "
                f"{KEPT / 60:.0f} minutes. What was sent up to {_told(until)} and not read by then "
                f"from {', '.join(self.lost)} cannot come again"
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
        old = Streams.of(await Streams.newest(self._js))
        states = {int(found[1]): path for path, found in _states(self._folder)}
        before = max([old.generation, *states])
        former, saved = None, None
        if path := states.get(before):
            former = RelayState.restore(path.read_bytes(), None)
            saved = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        ended = await self._ended(old)
        new = Streams.of(before + 1)
        await new.drop(self._js)
        await old.retire(self._js)
        await new.make(self._js, "IN", "DOWN")
        left = await self._carry_over(old, new)
        log = PlacementLog(self._control).entries()
        there = self._covered, new.generation, self._begun
        relay = recovered(former, log, self._buckets, *there)
        lost = lost_frames(former, self._covered)
        if former is not None and len(log) <= former.book.epoch:
            raise StateMismatch(
                f"the log of placements in {self._control} ends at entry {len(log) - 1}, and entry "
                f"{former.book.epoch} was in use: bring it back as it was, then recover again"
            )
        for message in relay.flush():
            await self._js.publish(message.subject, encode_down(message.frame))
        write_snapshot(snapshot_path(self._folder, new.generation), relay)
        await new.make(self._js)
        return Recovered(new.generation, left, lost, ended, saved)

    async def _ended(self, streams: Streams) -> datetime | None:
        """When the newest message came of those that went to mailboxes and buckets."""
        times = []
        for name in (streams.down, streams.inside):
            try:
                last = (await self._js.stream_info(name)).state.last_seq
                times.append((await self._js.get_msg(name, last)).time)
            except NotFoundError:
                continue
        return min((time for time in times if time is not None), default=None)

    async def _carry_over(self, old: Streams, new: Streams) -> int:
        """Bring what is left of mailboxes and buckets to the new streams; how many frames."""
        beside = self._folder / f"mailboxes-{old.generation}"
        kept = Mailboxes(self._js, old.down, beside)
        try:
            async for message in all_messages(self._js, old.down, ">"):
                if down := own_down(message.data):
                    sequence = message.metadata.sequence.stream
                    kept.found(message.subject[2:], down.number, sequence, len(message.data))
        except NotFoundError:
            pass  # the store is empty
        there = Mailboxes(self._js, new.down, self._folder / f"mailboxes-{new.generation}")
        count = 0
        for device in kept.devices():
            there.drop(device)  # of a recovery that was interrupted
            async for number, content in kept.contents(device, 0):
                down = own_down(content)
                if down is None or not self._takes(f"m.{device}", down):
                    continue
                count += 1
                if there.has_room(device, len(content)):
                    stored = await self._js.publish(f"m.{device}", content)
                    there.found(device, number, stored.seq, len(content))
                else:
                    there.keep_beside(device, number, down.position, content)
        there.sync()
        return count + await self._carry_buckets(old.inside)

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


def _states(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    """The files with states of relays."""
    found = [(path, re.fullmatch(r"relay-(\d+)\.state", path.name)) for path in folder.iterdir()]
    return [(path, match) for path, match in found if match is not None]


def _told(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
