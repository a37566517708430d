"""Relay and keeper as one process, which starts again after whatever the broker does to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from nats.errors import Error as BrokerError

from anabranch.calls import is_number
from anabranch.edge.hub import Hub
from anabranch.edge.keeper import Keeper
from anabranch.edge.relay import Relay
from anabranch.edge.streams import connect

__all__ = ["Cloud"]

_AGAIN = 0.5  # seconds until the broker is tried again


class Cloud:
    """Relay and keeper of a hub.

    Parameters
    ----------
    hub
        Its credentials and its log are used, and the relay's snapshots are kept there.
    broker
        Address of the broker.
    buckets
        Keys of the cloud's state.
    decide
        Called after every turn: it may have the keeper wish for views and moves.
    ack_after
        Seconds after which a device is told what has come, if there is nothing else to tell it.
    """

    def __init__(
        self,
        hub: Hub,
        broker: str,
        *,
        buckets: int = 4,
        decide: Callable[[Cloud], None] | None = None,
        ack_after: float = 60.0,
    ) -> None:
        self.hub, self.broker, self.buckets = hub, broker, buckets
        self._decide, self._ack_after = decide, ack_after
        self.relay: Relay
        self.keeper: Keeper
        self.ready = asyncio.Event()
        self.rates: dict[str, float] = {}  # rows per second that a stream has, sent or not
        self._reported: dict[str, float] = {}  # when a device last reported

    async def run(self) -> None:
        """Serve until cancelled; a broker that comes back is served again."""
        while True:
            with contextlib.suppress(BrokerError, OSError):
                await self._serve()
            self.ready.clear()
            await asyncio.sleep(_AGAIN)

    async def _serve(self) -> None:
        client = await connect(self.broker, self.hub.cloud, "cloud", error_cb=_ignored)
        try:
            self.relay = Relay(client, self.hub.folder, self.buckets, ack_after=self._ack_after)
            await self.relay.open()
            while await self.relay.turn():
                pass  # the keeper must know all that was published
            self.keeper = Keeper(client, self.relay.state, self.hub.control)
            await self.keeper.open()
            self.ready.set()
            while True:
                await self.relay.turn()
                self._take_reports(time.monotonic())
                if self._decide is not None:
                    self._decide(self)
                await self.keeper.turn(time.time_ns() // 1000)
        finally:
            await client.close()

    def _take_reports(self, now: float) -> None:
        """Rows per second of streams, by what their own devices say."""
        book = self.relay.state.book
        for device, extras in self.relay.state.reports():
            rows = extras.get("stats", {})
            rows = rows.get("rows", {}) if isinstance(rows, dict) else {}
            if not isinstance(rows, dict) or not rows:
                continue
            before = self._reported.get(device, now)
            self._reported[device] = now
            own = {k: one.name for k, one in enumerate(book.streams) if one.home == device}
            for stream, count in rows.items():
                # Anybody who is enrolled may send anything.
                if stream in own and is_number(count) and now > before:
                    self.rates[own[stream]] = max(count, 0) / (now - before)


async def _ignored(error: Exception) -> None:
    """Every failure also ends a call that was waited for."""
