"""Appends to the broker's streams on a condition, many at a time.

nats-py gives each publication a task, a future and a timer of its own, which costs more than all
else that a relay does. Here one subscription hears all answers, and a batch waits once. UP answers
nobody: what must be there is read back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from anabranch.edge.frames import FrameError, Output, decode_output, encode_output
from anabranch.edge.sections import Results
from anabranch.edge.splitting import portions, size_of
from anabranch.errors import AnabranchError, StateMismatch

__all__ = ["Appends", "messages_of", "send_back"]

_PATIENCE = 5.0  # seconds until an answer is given up, and with it the connection
_ATTEMPTS, _LOOKS, _LOOK = 5, 40, 0.05  # to send; to read it back; seconds between those
_AT_ONCE = 1 << 20  # bytes of results that share a message
_PARTS = 1 << 16  # of one frame at most

Part = tuple[int, tuple[Results, ...]]


class Appends:
    """Appends over one connection; one batch at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = ""
        self._batch = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._awaited = 0
        self._complete = asyncio.Event()

    async def append(self, wanted: Sequence[tuple[str, int, bytes]]) -> list[int | APIError]:
        """Append (subject, sequence of its last message, content): the sequences, or errors.

        An append is refused if another message is the last of its subject by now. Raises
        `TimeoutError` if answers do not come: what was stored is to be read back.
        """
        if not wanted:
            return []
        if not self._inbox:
            self._inbox = self._client.new_inbox()
            await self._client.subscribe(f"{self._inbox}.*.*", cb=self._answered)
        self._batch, self._awaited, self._answers = self._batch + 1, len(wanted), {}
        self._complete.clear()
        for number, (subject, last, content) in enumerate(wanted):
            expected = {"Nats-Expected-Last-Subject-Sequence": str(last)}
            reply = f"{self._inbox}.{self._batch}.{number}"
            await self._client.publish(subject, content, reply, expected)
        await asyncio.wait_for(self._complete.wait(), _PATIENCE)
        return [_sequence(self._answers[number]) for number in range(len(wanted))]

    async def _answered(self, message: Msg) -> None:
        *_, batch, number = message.subject.split(".")
        if int(batch) == self._batch:  # else it is late, and its batch has been given up
            self._answers[int(number)] = json.loads(message.data or b'{"error": {}}')
            if len(self._answers) == self._awaited:
                self._complete.set()


def _sequence(answer: dict[str, Any]) -> int | APIError:
    """An empty answer says that no stream has the subject."""
    if "error" in answer:
        error: dict[str, Any] = answer["error"]
        return APIError(error.get("code", 503), error.get("description"), error.get("err_code"))
    return int(answer["seq"])


async def send_back(
    client: Client,
    bucket: int,
    found: Sequence[tuple[int, Results]],
    before: int = 0,
    kept: Callable[[], Sequence[tuple[int, Results]]] = list,
) -> int:
    """Send results of a bucket to devices, by the frames that brought them, and read them back.

    What was sent before is left out. `kept` is what went to the streams of generation `before`:
    later ones get it first. Their generation. Raises if it does not come to be the last of its
    subject.
    """
    js, subject = client.jetstream(), f"c.{bucket}"
    stream = await js.find_stream_name_by_subject(subject)
    _, _, ending = stream.partition("-")
    generation = int(ending or 0)
    if generation > before:
        found = [*kept(), *found]
    for message in messages_of(found):
        await _send(client, js, stream, subject, message)
    return generation


def messages_of(found: Sequence[tuple[int, Results]]) -> list[list[Part]]:
    """Results by frames, in parts that messages can carry.

    A part has a number, by its frame and by its place in what came of that frame: it is the same
    one in a micro-batch that is repeated, or cut otherwise.
    """
    messages: list[list[Part]] = []
    size = 0
    for frame, several in groupby(found, key=lambda one: one[0]):
        for number, part in enumerate(portions((), [one for _, one in several])):
            size += size_of(part)
            if not messages or size > _AT_ONCE:
                messages.append([])
                size = size_of(part)
            messages[-1].append((frame * _PARTS + number, part))
    return messages


async def _send(
    client: Client, js: JetStreamContext, stream: str, subject: str, message: Sequence[Part]
) -> None:
    for _ in range(_ATTEMPTS):  # the relay may have it forgotten before it is read back
        sent, after, _ = await _last(js, stream, subject)
        fresh = [(number, one) for number, part in message if number > sent for one in part]
        if not fresh:
            return
        numbers, results = zip(*fresh, strict=True)
        content = encode_output(Output(message[-1][0], results, numbers))
        # Another query that writes for the same bucket is not overwritten.
        expected = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        await client.publish(subject, content, headers=expected)
        for _ in range(_LOOKS):
            _, sequence, stored = await _last(js, stream, subject)
            if stored == content:
                return
            if sequence > after:
                raise StateMismatch(
                    f"another query writes to {subject}: one follows a hub at a time, so this one "
                    "must stop"
                )
            await asyncio.sleep(_LOOK)
    raise AnabranchError(
        f"results on {subject} have not come to stream {stream}, which may be full: see that "
        "`anabranch edge serve` runs, then start the query again"
    )


async def _last(js: JetStreamContext, stream: str, subject: str) -> tuple[int, int, bytes]:
    """The last message of a bucket: up to which part it goes, its sequence, and its content.

    The relay lets the broker forget it once it has it, and drops what comes a second time.
    """
    try:
        newest = await js.get_last_msg(stream, subject)
    except NotFoundError:
        return -1, 0, b""
    content = newest.data or b""
    try:
        return decode_output(content).batch, newest.seq or 0, content
    except FrameError:  # nobody's of ours
        return -1, newest.seq or 0, content
