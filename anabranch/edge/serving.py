"""Relay and keeper as one process, which starts again after whatever the broker does to it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from nats.errors import Error as BrokerError

from anabranch.calls import is_number
from anabranch.edge.ending import heed_cancellation
from anabranch.edge.hub import Hub
from anabranch.edge.keeper import Keeper
from anabranch.edge.losses import Losses
from anabranch.edge.relay import Relay
from anabranch.edge.streams import connect, ignored

__all__ = ["Cloud"]

_SKEW = 1.0  # seconds that a clock may be off without a word
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
        self._said: set[type[Exception]] = set()
        self.clocks: dict[str, float] = {}  # seconds that a device's is ahead, if over one
        self.rates: dict[str, float] = {}  # rows per second that a stream has, sent or not
        self._losses = Losses()

    async def run(self) -> None:
        """Serve until cancelled; a broker that comes back is served again."""
        while True:
            heed_cancellation()
            try:
                await self._serve()
            except (BrokerError, OSError) as error:
                self._say(error)
            self.ready.clear()
            await asyncio.sleep(_AGAIN)

    def _say(self, error: Exception) -> None:
        """Print why it starts again, once for each kind: a full disk says so without end."""
        if type(error) not in self._said:
            self._said.add(type(error))
            what = f"{type(error).__name__}: {error}"
            _tell(f"serving is interrupted ({what}); it is tried again")

    async def _serve(self) -> None:
        client = await connect(self.broker, self.hub.cloud, "cloud", error_cb=ignored)
        try:
            self.relay = Relay(client, self.hub.folder, self.buckets, ack_after=self._ack_after)
            await self.relay.open()
            while self.relay.behind:  # the keeper must know all that was published
                await self.relay.turn()
            self.keeper = Keeper(client, self.relay.state, self.hub.control)
            await self.keeper.open()
            self.ready.set()
            while True:
                heed_cancellation()
                await self.relay.turn()
                self._take_reports()
                self.keeper.state.without(self.relay.state.left)
                if self._decide is not None:
                    self._decide(self)
                await self.keeper.turn(time.time_ns() // 1000)
        finally:
            await client.close()

    def _take_reports(self) -> None:
        """Rows per second of streams, by what their own devices say; and what was left out."""
        relay, because = self.relay.state, self.keeper.state.because
        streams = relay.book.streams
        for device, extras in relay.reports():
            rates = extras.get("rates")
            for number, rate in rates.items() if isinstance(rates, dict) else ():
                # Anybody who is enrolled may send anything.
                known = type(number) is int and 0 <= number < len(streams)
                if known and streams[number].home == device and is_number(rate):
                    self.rates[streams[number].name] = max(float(rate), 0.0)
            ahead: Any = extras.get("clock")
            if is_number(ahead) and abs(ahead) > _SKEW:
                if device not in self.clocks:
                    way = "ahead of" if ahead > 0 else "behind"
                    _tell(f"the clock of {device} is {abs(ahead):,.0f} s {way} the hub's")
                self.clocks[device] = float(ahead)
                because({"clocks": dict(self.clocks)})
            elif is_number(ahead):
                self.clocks.pop(device, None)
        for line in self._losses.due(relay.counts):
            _tell(line)
        because(self._losses.cause(relay.counts))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
