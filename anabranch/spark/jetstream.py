"""A stream of NATS JetStream as a Spark source: ``format("jetstream")``.

An offset is a sequence number, so that a micro-batch that is repeated reads the same messages. The
broker may lose its tail, or be set up anew: numbers would then mean other messages. An offset
therefore says of which generation of the stream it is and when that was created, and a stream that
went back, was created again or no longer holds what comes next is refused, never skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.edge.address import Broker
from anabranch.errors import InvalidCall, StateMismatch
from anabranch.spark.versions import AvailableNow, Limits, limits_of, read_limit

__all__ = ["Held", "JetStream", "JetStreamReader", "Offset"]

_AT_ONCE = 2_000  # messages asked for in one request
_PER_TASK = 5_000
_PATIENCE = 10.0  # seconds for a request
_SCHEMA = pa.schema([("seq", pa.int64()), ("subject", pa.string()), ("data", pa.binary())])
_OPTIONS = ("url", "stream", "generation", "credentials", "max_rows")

Offset = dict[str, Any]
T = TypeVar("T")


class JetStream(DataSource):
    """The messages of a JetStream stream, with their sequence numbers and subjects.

    Options: ``url`` of the broker; ``stream``, its name (``IN``); ``generation`` (the newest when
    the query starts; the stream of generation 2 is called ``IN-2``); ``credentials``, a folder with
    certificates; ``max_rows`` of a micro-batch (all there are; Spark 4.1 knows no limits).
    """

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> str:
        return "seq long, subject string, data binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JetStreamReader(self.options)


@dataclass(frozen=True)
class _Options:
    broker: Broker
    stream: str
    generation: int | None
    max_rows: int | None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> _Options:
        """The options of a call; Spark writes their names small."""
        problems = [] if given.get("url") else ['url is missing, for example "nats://hub:4222"']
        numbers: dict[str, int | None] = {}
        for name, least in (("generation", 0), ("max_rows", 1)):
            text = given.get(name)
            numbers[name] = int(text) if text is not None and text.isdigit() else None
            if text is not None and (not text.isdigit() or int(text) < least):
                problems.append(f"{name} must be a whole number of at least {least}, got {text!r}")
        strange = [name for name in given if name not in _OPTIONS and name != "path"]
        if strange:
            problems.append(f"unknown options {strange}; there are {', '.join(_OPTIONS)}")
        if problems:
            raise InvalidCall("jetstream", problems)
        broker = Broker(given["url"], given.get("credentials"))
        return cls(broker, given.get("stream", "IN"), **numbers)

    def name_of(self, generation: int) -> str:
        return self.stream if generation == 0 else f"{self.stream}-{generation}"


@dataclass(frozen=True)
class _Range(InputPartition):
    stream: str
    first: int
    last: int
    base: int = 0  # that is added to numbers


@dataclass(frozen=True)
class Held:
    """What the broker holds of a generation."""

    created: str
    first: int
    last: int
    messages: int
    bytes: int
    retired: bool = False  # by a recovery: there is a newer generation


class JetStreamReader(DataSourceStreamReader, AvailableNow):  # type: ignore[misc]
    """Reads one stream; the options are those of `JetStream`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = _Options.read(options)
        self.end: int | None = None  # for a query that ends with what there is when it begins
        self._newest: Offset | None = None  # when the micro-batch was planned

    @cached_property
    def generation(self) -> int:
        """The one that is asked for, or the newest."""
        asked = self.options.generation
        return _run(_newest(self.options)) if asked is None else asked

    def initialOffset(self) -> Offset:
        """Before the first message of the generation, whichever the broker still holds."""
        held = self._held(self.generation)
        return self._offset(held, 0)

    def getDefaultReadLimit(self) -> Any:
        return read_limit(Limits(rows=self.options.max_rows))

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """The end of the next micro-batch; Spark 4.1 says neither where it begins nor a limit."""
        held = self._newest_held()
        self._refuse_newer(start)
        self._newest = self._offset(held, held.last)
        begin = 0 if start is None else self._begin(start, held)
        last = held.last if self.end is None else min(held.last, self.end)
        last = max(last, begin)
        most = self._most(held, limits_of(limit).rows)
        return self._offset(held, last if most is None else min(last, begin + most))

    def reportLatestOffset(self) -> Offset | None:
        """The end of the stream when the micro-batch was planned: what is left can be told."""
        return self._newest

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and nothing that comes later."""
        self.end = self._newest_held().last

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # Also for a micro-batch that is repeated, whose end was found in another run.
        self._refuse_newer(end)
        held = self._held(end["gen"])
        begin = self._begin(start, held, end)
        name = self.options.name_of(end["gen"])
        return [
            _Range(name, first, min(first + _PER_TASK - 1, end["seq"]), self._base(end["gen"]))
            for first in range(begin + 1, end["seq"] + 1, _PER_TASK)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        rows = _run(_messages(self.options, partition))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
            ],
            schema=_SCHEMA,
        )

    def commit(self, end: Offset) -> None:
        pass

    def _offset(self, held: Held, sequence: int) -> Offset:
        return {"gen": self.generation, "seq": sequence, "created": held.created}

    def _base(self, generation: int) -> int:
        """What is added to the sequence numbers of a generation."""
        return 0

    def _most(self, held: Held, rows: int | None) -> int | None:
        """How many messages a micro-batch may have, of these that are asked for at most."""
        return rows

    def _held(self, generation: int) -> Held:
        return _run(_state(self.options, self.options.name_of(generation)))

    def _newest_held(self) -> Held:
        """What there is of the generation that is read; after a recovery that is the new one."""
        held = self._held(self.generation)
        if held.retired and self.options.generation is None:
            del self.generation
            self.end = None
            held = self._held(self.generation)
        return held

    def _refuse_newer(self, offset: Offset | None) -> None:
        """Raise if the checkpoint is of a later generation than the option names."""
        if offset is not None and offset["gen"] > self.generation:
            raise StateMismatch(
                f"the checkpoint is of generation {offset['gen']} of stream {self.options.stream}, "
                f"this is generation {self.generation}: set generation={offset['gen']}"
            )

    def _begin(self, start: Offset, held: Held, end: Offset | None = None) -> int:
        """The sequence number after which to read; refuses a stream that is not what it was."""
        generation = self.generation if end is None else end["gen"]
        name = f"stream {self.options.name_of(generation)} at {self.options.broker.url}"
        known = start if end is None else end
        if known["gen"] == generation and known["created"] != held.created:
            raise StateMismatch(
                f"{name} was created {held.created}, the checkpoint is of one created "
                f"{known['created']}: its numbers mean other messages; {_RECOVER}"
            )
        begin: int = start["seq"] if start["gen"] == generation else 0
        reached = begin if end is None else max(begin, end["seq"])
        if held.last < reached:
            raise StateMismatch(
                f"{name} went back: its last message is {held.last}, the checkpoint has reached "
                f"{reached}; the broker has lost them: {_PLANNED if held.retired else _RECOVER}"
            )
        if held.last > begin and held.first > begin + 1:
            raise StateMismatch(
                f"{name} begins at {held.first}, the next message to read is {begin + 1}: those "
                f"between have expired before they were read; {_RECOVER}"
            )
        return begin


_RECOVER = "run `anabranch edge recover` on the hub, then start the query again"
_PLANNED = (
    "the last micro-batch was planned with them and cannot be repeated. If its sink lacks it, "
    "remove the newest file of `offsets` in the checkpoint, which `commits` lacks, and start again"
)


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def _newest(options: _Options) -> int:
    """The newest generation of a stream; 0 if there is none."""
    client = await options.broker.connect()
    try:
        there = await client.jetstream(timeout=_PATIENCE).streams_info()
    finally:
        await client.close()
    head = f"{options.stream}-"
    ends = [(one.config.name or "").removeprefix(head) for one in there]
    names = {one.config.name for one in there}
    return max((int(end) for end in ends if end.isdigit() and head + end in names), default=0)


async def _state(options: _Options, stream: str) -> Held:
    """What the broker holds of a stream."""
    from nats.js.errors import NotFoundError

    client = await options.broker.connect()
    try:
        found = await client.jetstream(timeout=_PATIENCE).stream_info(stream)
    except NotFoundError:
        raise StateMismatch(
            f"there is no stream {stream} at {options.broker.url}: start "
            "`anabranch edge serve`, or name the stream and generation that there are"
        ) from None
    finally:
        await client.close()
    state = found.state
    created = found.created.isoformat()
    retired = found.config.subjects == [f"old.{stream}"]
    return Held(created, state.first_seq, state.last_seq, state.messages, state.bytes, retired)


async def _messages(options: _Options, wanted: _Range) -> list[tuple[int, str, bytes]]:
    """The messages of a range, each there."""
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    client = await options.broker.connect()
    try:
        # Held in the broker's memory and gone with the connection: reading changes nothing.
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=wanted.first,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=30,
            mem_storage=True,
        )
        stream = client.jetstream(timeout=_PATIENCE)
        reading = await stream.pull_subscribe("", stream=wanted.stream, config=config)
        found: list[tuple[int, str, bytes]] = []
        following = wanted.first
        while following <= wanted.last:
            most = min(_AT_ONCE, wanted.last - following + 1)
            for message in await reading.fetch(most, timeout=_PATIENCE):
                number = message.metadata.sequence.stream
                if number != following:
                    raise StateMismatch(
                        f"stream {wanted.stream} at {options.broker.url} has no message "
                        f"{following}, but {number}: messages were removed unread; {_RECOVER}"
                    )
                found.append((wanted.base + number, message.subject, message.data))
                following += 1
        return found
    finally:
        await client.close()
