"""The source of `ab.follow`: the hub's stream, and the request for views when a query starts.

To build a DataFrame has no lasting effect. The request is written by the one part of a query that
runs when it starts, and on its driver: the reader of its source.

It also lets the broker forget what the checkpoint has, or the stream would fill, and the relay wait
without end. The last frame of each bucket stays: by it the relay knows what the bucket has.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.edge.address import Broker
from anabranch.edge.frames import FrameError, decode_down
from anabranch.edge.mail import base_of
from anabranch.edge.wishes import Requests, Wishes
from anabranch.spark.jetstream import Held, JetStream, JetStreamReader, Offset

__all__ = ["Followed", "asking"]

_BYTES = 1 << 28  # of a micro-batch, about: a quarter of what the stream may hold


class Followed(JetStream):
    """A stream of the hub, for a query that asks for views: options ``control`` and ``wishes``."""

    @classmethod
    def name(cls) -> str:
        return "anabranch.follow"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        given = dict(self.options)
        control, wishes = given.pop("control"), given.pop("wishes")
        return _Asking(given, control, Wishes.from_dict(json.loads(wishes)))


def asking(control: str, wishes: Wishes) -> dict[str, str]:
    """The options with which a query asks for views."""
    return {"control": control, "wishes": json.dumps(wishes.to_dict())}


class _Asking(JetStreamReader):
    def __init__(self, given: dict[str, str], control: str, wishes: Wishes) -> None:
        super().__init__(given)
        self._control = control
        self._wishes: Wishes | None = wishes
        self._planned: Offset | None = None  # the end of the micro-batch that runs, or ran last
        self._forgotten: Offset | None = None  # up to where the broker was told to forget

    def _ask(self) -> None:
        """Ask once in a start; the same request again changes nothing."""
        if self._wishes is not None:
            Requests(self._control).write(self._wishes)
            self._wishes = None

    def initialOffset(self) -> Offset:
        self._ask()
        return super().initialOffset()

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        self._ask()
        latest = super().latestOffset(start, limit)
        # Spark asks once the micro-batch before is in its checkpoint; `commit` waits for new rows,
        # and none can come to a stream that is full. Spark 4.1 does not say where it begins.
        self._forget(self._planned if start is None else start)
        return latest

    def prepareForTriggerAvailableNow(self) -> None:
        self._ask()
        super().prepareForTriggerAvailableNow()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        found = super().partitions(start, end)
        self._planned = end
        return found

    def commit(self, end: Offset) -> None:
        self._forget(end)

    def _base(self, generation: int) -> int:
        """By which a bucket knows that its streams are new."""
        return base_of(generation)

    def _most(self, held: Held, rows: int | None) -> int | None:
        """So few that what they take, by the mean of those that there are, leaves space for new."""
        if rows is None or held.bytes <= _BYTES:
            return rows
        return min(rows, max(1, held.messages * _BYTES // held.bytes))

    def _forget(self, end: Offset | None) -> None:
        if end is None or end == self._forgotten or end["gen"] != self.generation:
            return  # streams of former generations are kept as they are
        if end["seq"] > 0:
            stream = self.options.name_of(end["gen"])
            asyncio.run(_forget(self.options.broker, stream, end))
        self._forgotten = end


async def _forget(broker: Broker, stream: str, end: Offset) -> None:
    """Purge what is in the checkpoint, but for the last frame of every subject."""
    client = await broker.connect()
    try:
        js = client.jetstream(timeout=10)
        found = await js.stream_info(stream, subjects_filter=">")
        if found.created.isoformat() != end["created"] or found.state.last_seq < end["seq"]:
            return  # its numbers mean other messages, which the next look at it refuses
        for subject in found.state.subjects or {}:
            newest = await js.get_last_msg(stream, subject)
            if _is_frame(newest.data or b""):
                before = min(end["seq"] + 1, newest.seq)
                await js.purge_stream(stream, subject=subject, seq=before)
    finally:
        await client.close()


def _is_frame(content: bytes) -> bool:
    """Whether the relay can read from it what the bucket has; else it needs those before."""
    try:
        decode_down(content)
    except FrameError:
        return False
    return True
