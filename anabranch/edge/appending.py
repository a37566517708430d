"""Appends to the broker's streams on a condition, many at a time.

nats-py gives each publication a task, a future and a timer of its own, which costs more than all
else that a relay does. Here one subscription hears all answers, and a batch waits once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError

__all__ = ["Appends"]

_PATIENCE = 5.0  # seconds until an answer is given up, and with it the connection


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
