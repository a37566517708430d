"""The keeper: the only one who writes the log of placements.

A shell around `KeeperState`, which decides what an entry says. An entry is on disk before it is
published, so whatever is killed in between, the log is the truth and is published again. That an
entry is published is known when the relay has folded it; until then it is published again.
"""

from __future__ import annotations

import json
import os

from nats.aio.client import Client

from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.placements import Entry, PlacementLog
from anabranch.edge.relay_state import RelayState

__all__ = ["Keeper"]

_LOOK = 1_000_000  # microseconds between looks at who is silent
_AGAIN = 5_000_000  # microseconds after which an entry that nobody has read is published again


class Keeper:
    """Beside one relay, whose state says what has been published.

    Parameters
    ----------
    client
        A connection with the cloud's rights.
    relay
        The relay's state, which has processed all that there is.
    control
        The directory of the log.
    """

    def __init__(self, client: Client, relay: RelayState, control: str | os.PathLike[str]) -> None:
        self._client, self._relay = client, relay
        # Microseconds that a silent stream is waited for; its rows that come later are late.
        self.watermark = 600_000_000
        self._looked = 0
        self._published: int | None = None  # when an entry was last, of those that are not folded
        self._since: dict[int, int] = {}  # when a stream was first waited for
        self.log = PlacementLog(control)
        self.state = KeeperState(relay.book)

    async def open(self) -> None:
        """Publish what was written and may not have been published."""
        await self._publish(*self.state.unfolded(self.log.entries()))

    async def turn(self, now: int) -> Entry | None:
        """Write and publish the entry that is due at a time, in microseconds."""
        self._presume(now)
        await self._publish_again(now)
        entry = self.state.next_entry()
        if entry is None:
            return None
        written = self.log.write(entry)
        await self._publish(written)
        return written

    def _presume(self, now: int) -> None:
        """Silence is decided once, in the log, so that everybody decides alike."""
        if now < self._looked + _LOOK:
            return
        self._looked, book = now, self._relay.book
        for stream in book.by_stream:
            heard = max(book.watermark(stream), self._since.setdefault(stream, now))
            # Twice as long: not an entry for every moment that a device is away.
            if heard < now - 2 * self.watermark and book.awaits(stream):
                self.state.presume(stream, now - self.watermark)
                self.state.because({"rule": "silence"})

    async def _publish_again(self, now: int) -> None:
        """Publish what the relay has not folded after a while: UP may have had no space for it."""
        waiting = self.state.waiting()
        if not waiting:
            self._published = None
        elif self._published is None or now < self._published:  # or the clock was set back
            self._published = now
        elif now >= self._published + _AGAIN:
            self._published = now
            await self._publish(*waiting)

    async def _publish(self, *entries: Entry) -> None:
        """In order: the relay drops an entry that does not follow the one before it."""
        for entry in entries:
            await self._client.publish("k", json.dumps(entry.to_dict()).encode())
