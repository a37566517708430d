"""Views in the cloud while they run: frames out of the broker, evaluators in Spark's state.

The relay writes what the cloud needs to a few buckets. A bucket is one key, whose state is an
evaluator and the number of the last frame that it took; watermarks are inside it, one for each
stream, so that a device that was away for long loses nothing. Results that devices are to have go
back through the broker, in messages that say up to which part of which frame they go, so that a
micro-batch that is repeated, or cut otherwise, sends nothing twice. An evaluator is read back only
where the process has another one than that which wrote the state.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import StructType

from anabranch.edge.address import Broker
from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, View
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import Output, decode_output, encode_output, own_down
from anabranch.edge.mail import KEPT, fresh_results, generation_of
from anabranch.edge.ownership import CLOUD
from anabranch.edge.placements import PlacementLog
from anabranch.edge.sections import Results
from anabranch.errors import StateMismatch
from anabranch.flow.blocks import encode_batch
from anabranch.flow.cache import CACHE
from anabranch.flow.container import pack, unpack
from anabranch.flow.folders import absolute
from anabranch.flow.pieces import Pieces
from anabranch.flow.process import freeze_imports, single_threaded
from anabranch.flow.stored import restored, stored
from anabranch.spark.follow_tables import SIDES
from anabranch.spark.processor import Processor
from anabranch.spark.quiet import hush_server
from anabranch.spark.settings import has_large_types
from anabranch.spark.tasks import place
from anabranch.spark.unpacking import ROWS_PER_CELL, Unpacker
from anabranch.spark.versions import arrow_schema

__all__ = ["Cloud", "follow_frames"]

_INPUTS = "inputs"
_EVALUATOR = 0  # its place among the pieces of the state; what went to devices follows


@dataclass(frozen=True)
class Cloud:
    """What a bucket's worker needs to know; without a broker nothing goes back to devices."""

    schema: pa.Schema
    control: str
    broker: Broker | None = None


def follow_frames(
    frames: DataFrame, columns: Mapping[str, str], control: str, broker: Broker | None = None
) -> DataFrame:
    """The results in frames with columns seq, subject and data, as they stream in."""
    spark = frames.sparkSession
    hush_server(spark)
    ddl = ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())
    fields: StructType = spark.createDataFrame([], ddl).schema
    schema = arrow_schema(fields, has_large_types(spark))
    bucket = F.substring_index("subject", ".", -1).cast("int").alias("bucket")
    cells = (
        frames.select(bucket, "seq", "data")
        .groupBy("bucket")
        .transformWithStateInPandas(
            Processor(Bucket(Cloud(schema, absolute(control), broker))),
            outputStructType="block binary",
            outputMode="Append",
            timeMode="None",
        )
    )
    return cells.mapInArrow(Unpacker(schema), fields)


@dataclass
class _Notes:
    """What a bucket remembers beside its evaluator.

    `frame` is the last that it took; `had`, the results of devices that it has; `generation`, that
    of the streams which have what it sent: pieces from `first` up to `next`, the oldest of which
    went at `oldest`. The evaluator lies in so many `parts` and is known by its `token`.
    """

    frame: int = -1
    generation: int = 0
    had: dict[str, int] = field(default_factory=dict)
    oldest: float = 0.0
    first: int = _EVALUATOR + 1
    next: int = _EVALUATOR + 1
    parts: int = 0
    token: str = ""


@dataclass(frozen=True)
class _Remembered:
    """An evaluator as the state has it, and how large it is there."""

    evaluator: Evaluator
    nbytes: int


@dataclass
class Bucket:
    """Runs the evaluator of a bucket over the state that Spark keeps for it."""

    cloud: Cloud

    def begin(self, handle: StatefulProcessorHandle, head: Any, pieces: Any) -> None:
        """Take up the state of a task."""
        freeze_imports()
        self._head, self._pieces = head, Pieces(pieces)
        query, self._batch, _, _ = place()
        self._owner = f"{query} follow {self.cloud.control}"
        self._log, self._book = PlacementLog(self.cloud.control), Book()

    def take(self, key: Any, rows: Iterator[pd.DataFrame], values: Any) -> Iterator[pd.DataFrame]:
        """The results in a bucket's new frames."""
        arrived, bucket = pd.concat(rows).sort_values("seq"), int(key[0])
        notes = self._noted()
        remembered = self._opened(notes)
        with single_threaded():
            emitted, returned, last = self._stepped(remembered.evaluator, arrived, bucket, notes)
        newest = generation_of(int(arrived["seq"].max()))
        generation = self._send(bucket, returned, notes, newest)
        if last != notes.frame or generation != notes.generation:
            notes.frame, notes.generation = last, generation
            self._keep(returned, notes)
            remembered = self._write(remembered.evaluator, notes)
        if notes.token:
            CACHE.put(
                notes.token, remembered, self._owner, last_batch=self._batch + 1, worker=bucket
            )
        CACHE.hear(self._owner, 0, self._batch, bucket, [notes.token])
        whole = pa.Table.from_batches(emitted, self.cloud.schema).combine_chunks()
        for batch in whole.to_batches(max_chunksize=ROWS_PER_CELL):
            yield pd.DataFrame({"block": [encode_batch(batch).to_pybytes()]})

    def wake(self, key: Any, values: Any, fired: int) -> Iterator[pd.DataFrame]:
        """Nothing: a bucket sets no timer."""
        return iter(())

    def _stepped(
        self, evaluator: Evaluator, arrived: pd.DataFrame, bucket: int, notes: _Notes
    ) -> tuple[list[pa.RecordBatch], list[tuple[int, Results]], int]:
        """What new frames bring: results, those that go back to devices, and the last frame."""
        last = notes.frame
        emitted: list[pa.RecordBatch] = []
        returned: list[tuple[int, Results]] = []
        for content in arrived["data"]:
            frame = own_down(bytes(content))
            if frame is None or frame.number <= last:
                continue  # of a new generation of the stream, which repeats the end of the old one
            if not frame.follows(last):
                raise StateMismatch(
                    f"bucket {bucket} lacks frames between {last} and {frame.number}: the stream "
                    "IN was changed; run `anabranch edge recover` on the hub"
                )
            last = frame.number
            found: list[tuple[Results, str]] = [(one, CLOUD) for one in evaluator.take(frame.steps)]
            for one, where in found + fresh_results(frame, notes.had):
                described = self._described(evaluator, one.view)
                emitted.append(table_of(described, one, where, self.cloud.schema))
                if where == CLOUD and _INPUTS in described.definition.deliver:
                    returned.append((last, one))
        return emitted, returned, last

    def _described(self, evaluator: Evaluator, view: int) -> _Described:
        """A view: as the evaluator knows it or, if only devices ever had it, as the log does."""
        if view in evaluator.known:
            asked = evaluator.known[view]
            known: Any = evaluator
        else:
            asked, known = self._logged(view), self._book
        keys = [known.streams[stream].home for stream in asked.inputs]
        return _Described(asked.name, known.definitions[asked.definition], keys)

    def _logged(self, view: int) -> View:
        """A view of the log, which is read on when it comes to one that it has not read of."""
        if view >= len(self._book.views):
            for entry in self._log.entries()[self._book.epoch + 1 :]:
                self._book.enact(entry)
        if view >= len(self._book.views):
            raise StateMismatch(
                f"results came of view {view}, of which the placement log in {self.cloud.control} "
                "does not know: give the control directory of this hub"
            )
        return self._book.views[view]

    def _noted(self) -> _Notes:
        found = self._head.get()
        return _Notes() if found is None else _Notes(**unpack(bytes(found[0]))[1])

    def _opened(self, notes: _Notes) -> _Remembered:
        """The evaluator as the state has it: the very one that wrote it, if it is here."""
        if not notes.token:
            return _Remembered(Evaluator(CLOUD), 0)
        cached: _Remembered | None = CACHE.take(notes.token)
        if cached is not None:
            return cached
        data = self._pieces.read(_EVALUATOR, notes.parts, "an evaluator")
        blob = bytes(unpack(restored(data))[0]["evaluator"])
        return _Remembered(Evaluator.restore(blob), len(blob))

    def _write(self, evaluator: Evaluator, notes: _Notes) -> _Remembered:
        """Store the evaluator, and what is noted beside it."""
        blob = evaluator.snapshot()
        data = stored(pack({"evaluator": blob}))
        notes.parts = self._pieces.write(_EVALUATOR, data, had=notes.parts)
        notes.token = secrets.token_hex(8)
        self._head.update((pack({}, asdict(notes)),))
        return _Remembered(evaluator, len(blob))

    def _send(
        self, bucket: int, returned: list[tuple[int, Results]], notes: _Notes, newest: int
    ) -> int:
        """Send results to devices; the generation of the streams that have them now.

        The one that is noted had those that were sent. To a later one all of them go first, also if
        the micro-batch was planned with frames of an earlier one.
        """
        before = notes.generation
        if self.cloud.broker is None or not (returned or newest > before):
            return before
        sent = _send_back(self.cloud.broker, bucket, returned, before, lambda: self._kept(notes))
        return asyncio.run(sent)

    def _sent(self, number: int) -> tuple[float, int, Output]:
        """One piece of what went to devices: when, by which frame, and what."""
        parts, about = unpack(self._pieces.read(number))
        return about["at"], about["frame"], decode_output(bytes(parts["results"]))

    def _kept(self, notes: _Notes) -> list[tuple[int, Results]]:
        """What was sent to devices, by the frames that brought it."""
        kept = [self._sent(number)[1:] for number in range(notes.first, notes.next)]
        return [(frame, one) for frame, out in kept for one in out.results]

    def _keep(self, returned: list[tuple[int, Results]], notes: _Notes) -> None:
        """Keep what was sent, and forget what was kept for long.

        Devices keep what they send as long, so that a broker that loses messages gets it again.
        """
        now = time.time()
        while notes.first < notes.next and notes.oldest < now - KEPT:
            self._pieces.remove(notes.first)
            notes.first += 1
            notes.oldest = self._sent(notes.first)[0] if notes.first < notes.next else now
        if notes.first == notes.next:
            notes.oldest = now
        for frame, one in returned:
            results = encode_output(Output(0, (one,)))
            piece = pack({"results": results}, {"at": now, "frame": frame})
            self._pieces.put(notes.next, piece)
            notes.next += 1


@dataclass(frozen=True)
class _Described:
    name: str
    definition: Definition
    keys: Sequence[str]


async def _send_back(
    broker: Broker,
    bucket: int,
    found: Sequence[tuple[int, Results]],
    before: int,
    kept: Callable[[], list[tuple[int, Results]]],
) -> int:
    client = await broker.connect()
    try:
        from anabranch.edge.appending import send_back  # here, for tables do without a broker

        return await send_back(client, bucket, found, before, kept)
    finally:
        await client.close()


def table_of(
    view: _Described, found: Results, place: str | None, schema: pa.Schema
) -> pa.RecordBatch:
    """Results as rows of the result's columns."""
    rows = len(found.stamp)
    columns: dict[str, Any] = {
        "view": [view.name] * rows,
        "score": pa.array(found.score, from_pandas=True),  # NaN is none
        "place": [place] * rows,
        "epoch": found.stamp,
    }
    kept = iter(found.columns)
    for side, key, n, t, names in zip(
        SIDES, view.keys, found.n, found.t, view.definition.keep, strict=False
    ):
        columns[f"{side}_key"] = [key] * rows
        columns[f"{side}_n"], columns[f"{side}_time"] = n, np.asarray(t).view("datetime64[us]")
        for name in names:
            columns[f"{side}_{name}"] = _listed(next(kept))
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _listed(column: np.ndarray) -> Any:
    """A column as Arrow takes it: vectors as lists."""
    return list(column) if column.ndim == 2 else column
