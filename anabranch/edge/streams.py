"""The broker's three streams, and how the cloud connects to them.

``UP`` holds all that happened, in one order: frames of devices (``u.*``), entries of the log of
placements (``k``) and results of the cloud (``c.*``). ``DOWN`` holds mailboxes (``m.*``), ``IN``
what the cloud evaluates (``in.*``). All are bounded and refuse what does not fit: rows then wait on
devices. After `recover` the streams of the next generation have another name.

UP acknowledges nothing: an acknowledgement goes wherever a message asks for it, with the rights of
the server, so a device could have one put into `k`, a mailbox or a bucket. Who must know that
something is in UP reads it back.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from anabranch.edge.certificates import client_context
from anabranch.errors import StateMismatch

__all__ = ["Streams", "connect", "ignored"]

_BYTES = 1 << 30
_LATER = re.compile(r"(UP|DOWN|IN)-\d+")
_SUBJECTS = {"UP": ["u.*", "k", "c.*"], "DOWN": ["m.*"], "IN": ["in.*"]}


async def connect(
    broker: str, credentials: str | os.PathLike[str] | None, name: str, **options: object
) -> Client:
    """A connection that ends when it is lost: who uses it starts again from what is stored."""
    more = {} if credentials is None else {"tls": client_context(credentials)}
    given = {"allow_reconnect": False, "connect_timeout": 10, "name": name, **more, **options}
    return await nats.connect(broker, **given)


async def ignored(error: Exception) -> None:
    """For `error_cb`, of who notices a failure by a call that fails or by the connection's end."""


@dataclass(frozen=True)
class Streams:
    """Names of the streams of one generation."""

    up: str
    down: str
    inside: str
    generation: int = 0

    @classmethod
    def of(cls, generation: int) -> Streams:
        """The streams of a generation; 0 is the first."""
        ending = f"-{generation}" if generation else ""
        return cls(f"UP{ending}", f"DOWN{ending}", f"IN{ending}", generation)

    @classmethod
    async def newest(cls, js: JetStreamContext) -> int:
        """The newest generation that is whole; 0 if there is none. Some may be missing before."""
        names = [stream.config.name or "" for stream in await js.streams_info()]
        found = [int(name[3:]) for name in names if re.fullmatch(r"UP-\d+", name)]
        return max(found, default=0)

    @classmethod
    async def begun(cls, js: JetStreamContext) -> list[int]:
        """Generations after the newest that is whole: what interrupted recoveries made."""
        names = [stream.config.name or "" for stream in await js.streams_info()]
        found = {int(name[name.index("-") + 1 :]) for name in names if _LATER.fullmatch(name)}
        newest = await cls.newest(js)
        return sorted(generation for generation in found if generation > newest)

    @classmethod
    async def open(cls, js: JetStreamContext) -> Streams:
        """The newest generation; the first one is made if there is none."""
        generation = await cls.newest(js)
        found = cls.of(generation)
        if not generation and not await _exists(js, found.up):
            await found.make(js)
        settings = (await js.stream_info(found.up)).config
        if settings.subjects == [_retired(found.up)]:
            raise StateMismatch(
                "`anabranch edge recover` was interrupted: run it again, before anything else"
            )
        if not settings.no_ack:  # of a hub that was made before, or by hand
            settings.no_ack = True
            await js.update_stream(settings)
        return found

    async def make(self, js: JetStreamContext, *only: str, more: int = 0) -> None:
        """Make the streams, UP last: `open` takes them for whole once it is there.

        `more` bytes than usual may be in each.
        """
        for base in only or ("IN", "DOWN", "UP"):
            name = getattr(self, {"UP": "up", "DOWN": "down", "IN": "inside"}[base])
            settings = StreamConfig(
                name=name,
                subjects=_SUBJECTS[base],
                storage=StorageType.FILE,
                discard=DiscardPolicy.NEW,
                max_bytes=_BYTES + more,
                no_ack=base == "UP",
            )
            if not await _exists(js, name):
                await js.add_stream(settings)

    async def retire(self, js: JetStreamContext) -> None:
        """Take the subjects from streams that went back, and keep what is in them."""
        for name in (self.up, self.down, self.inside):
            if not await _exists(js, name):
                continue
            found = await js.stream_info(name)
            settings = found.config
            settings.subjects = [_retired(name)]
            settings.max_bytes = max(found.state.bytes, 1)  # the broker keeps no more space for it
            await js.update_stream(settings)

    async def drop(self, js: JetStreamContext) -> None:
        """Delete what there is of these streams: half of what an interrupted recovery made."""
        for name in (self.up, self.down, self.inside):
            if await _exists(js, name):
                await js.delete_stream(name)


def _retired(name: str) -> str:
    """The subject of a stream that went back, on which nobody publishes."""
    return f"old.{name}"


async def _exists(js: JetStreamContext, name: str) -> bool:
    try:
        await js.stream_info(name)
    except NotFoundError:
        return False
    return True
