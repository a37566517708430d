"""Reads one stream of the broker in order, as messages come."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from anabranch.errors import StateMismatch

__all__ = ["Reading", "all_messages", "sequence_of"]

_BATCH = 1000  # messages that may be under way
_PLAIN = 9  # parts of a subject for answers; with a domain and an account they are more
_EXPIRES = 10.0  # seconds that a request for more stays with the broker


class Reading:
    """The messages of a stream from a sequence on, without a gap.

    A request for more is always with the broker, so a message comes without being asked for. No
    more are under way than were asked for, however far behind this is.
    """

    def __init__(self, client: Client, stream: str, start: int) -> None:
        self._client, self.stream, self.next = client, stream, start
        self._came: list[Msg] = []
        self._any = asyncio.Event()
        self._left, self._asked = 0, 0.0  # of the last request: messages to come, and its time

    async def open(self) -> None:
        """Begin to read."""
        settings = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self.next,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=60,
            mem_storage=True,
        )
        made = await self._client.jetstream().add_consumer(self.stream, settings)
        self._ask = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{made.name}"
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(self._inbox, cb=self._take)

    async def some(self, patience: float) -> list[Msg]:
        """What has come and was not returned; waits so many seconds for the first."""
        if self._left < _BATCH // 2 or time.monotonic() - self._asked > _EXPIRES + 1:
            self._left, self._asked = self._left + _BATCH, time.monotonic()
            ask = {"batch": _BATCH, "expires": int(_EXPIRES * 1e9)}
            await self._client.publish(self._ask, json.dumps(ask).encode(), self._inbox)
        if not self._came:
            if not self._client.is_connected:
                raise ConnectionClosedError
            self._any.clear()
            try:
                await asyncio.wait_for(self._any.wait(), patience)
            except TimeoutError:
                return []
        found, self._came = self._came, []
        for message in found:
            position = sequence_of(message)
            if position != self.next:
                raise StateMismatch(
                    f"message {self.next} of {self.stream} is missing: the next is {position}; "
                    "stop `anabranch edge serve` and run `anabranch edge recover`"
                )
            self.next += 1
        return found

    async def _take(self, message: Msg) -> None:
        if not message.reply:  # that a request has expired
            self._left = 0
            return
        self._left -= 1
        self._came.append(message)
        self._any.set()


async def all_messages(js: JetStreamContext, stream: str, subject: str) -> AsyncIterator[Msg]:
    """All messages that a stream has of a subject, in order."""
    state = (await js.stream_info(stream, subjects_filter=subject)).state
    total = sum((state.subjects or {}).values())
    settings = ConsumerConfig(
        ack_policy=AckPolicy.NONE,
        inactive_threshold=60,
        mem_storage=True,
        filter_subject=None if subject == ">" else subject,
    )
    reader = await js.pull_subscribe("", stream=stream, config=settings)
    while total > 0:
        for message in await reader.fetch(min(_BATCH, total), timeout=10):
            total -= 1
            yield message
    await reader.unsubscribe()


def sequence_of(message: Msg) -> int:
    """Where in its stream a message is; `Msg.metadata` says it, too, and takes ten times as long.

    Examples
    --------
    >>> from unittest.mock import Mock
    >>> sequence_of(Mock(reply="$JS.ACK.UP.reader.1.57.3.1794837900104219000.0"))
    57
    >>> sequence_of(Mock(reply="$JS.ACK._.account.UP.reader.1.57.3.1794837900104219000.0.token"))
    57
    """
    parts = message.reply.split(".")
    return int(parts[5] if len(parts) == _PLAIN else parts[7])
