"""Views in the cloud while they run: frames out of the broker, evaluators in Spark's state.

The relay writes what the cloud needs to a few buckets. A bucket is one key, whose state is an
evaluator and the number of the last frame that it took; watermarks are inside it, one for each
stream, so that a device that was away for long loses nothing. Results that devices are to have go
back through the broker, in messages that say up to which part of which frame they go, so that a
micro-batch that is repeated, or cut otherwise, sends nothing twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructType

from anabranch.edge.address import Broker
from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, View
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import Down, Output, decode_output, encode_output, own_down
from anabranch.edge.mail import KEPT, fresh_results, generation_of
from anabranch.edge.ownership import CLOUD
from anabranch.edge.placements import PlacementLog
from anabranch.edge.sections import Results
from anabranch.errors import StateMismatch
from anabranch.flow.blocks import encode_batch
from anabranch.flow.container import pack, unpack
from anabranch.flow.folders import absolute
from anabranch.spark.follow_tables import SIDES
from anabranch.spark.quiet import hush_server, hush_trial
from anabranch.spark.settings import has_large_types
from anabranch.spark.unpacking import ROWS_PER_CELL, Unpacker
from anabranch.spark.versions import arrow_schema

__all__ = ["Cloud", "follow_frames"]

_INPUTS = "inputs"
# As types, for Spark is asked anew what a text means.
_STATE = StructType().add("state", BinaryType())
_SENT = StructType().add("at", DoubleType()).add("frame", LongType()).add("results", BinaryType())


@dataclass(frozen=True)
class Cloud:
    """What a bucket's processor needs to know; without a broker nothing goes back to devices."""

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
            Bucket(Cloud(schema, absolute(control), broker)),
            outputStructType="block binary",
            outputMode="Append",
            timeMode="None",
        )
    )
    return cells.mapInArrow(Unpacker(schema), fields)


class Bucket(StatefulProcessor):
    """Runs the evaluator of a bucket inside ``transformWithStateInPandas``."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __setstate__(self, state: dict[str, Any]) -> None:
        hush_trial()  # here, for Spark prints as soon as it has unpickled a processor
        self.__dict__.update(state)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("evaluator", _STATE)
        # What went to devices, for as long as they keep what they send: a broker that loses
        # messages gets it again.
        self._sent = handle.getListState("sent", _SENT)
        self._log, self._book = PlacementLog(self.cloud.control), Book()

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any:
        arrived = pd.concat(rows).sort_values("seq")
        evaluator, notes = self._opened()
        last = before = notes["frame"]
        emitted: list[pa.RecordBatch] = []
        returned: list[tuple[int, Results]] = []
        for content in arrived["data"]:
            frame = own_down(bytes(content))
            if frame is None or frame.number <= last:
                continue  # of a new generation of the stream, which repeats the end of the old one
            if not frame.follows(last):
                raise StateMismatch(
                    f"bucket {key[0]} lacks frames between {last} and {frame.number}: the stream "
                    "IN was changed; run `anabranch edge recover` on the hub"
                )
            last = frame.number
            found = _stepped(evaluator, frame, notes["had"])
            for one, place in found:
                described = self._described(evaluator, one.view)
                emitted.append(table_of(described, one, place, self.cloud.schema))
                if place == CLOUD and _INPUTS in described.definition.deliver:
                    returned.append((last, one))
        newest = generation_of(int(arrived["seq"].max()))
        generation = self._send(key[0], returned, notes["generation"], newest)
        if last != before or generation != notes["generation"]:
            notes |= {"frame": last, "generation": generation}
            notes["oldest"] = self._keep(returned, notes["oldest"])
            self._state.update((pack({"evaluator": evaluator.snapshot()}, notes),))
        whole = pa.Table.from_batches(emitted, self.cloud.schema).combine_chunks()
        for batch in whole.to_batches(max_chunksize=ROWS_PER_CELL):
            yield pd.DataFrame({"block": [encode_batch(batch).to_pybytes()]})

    def close(self) -> None:
        pass

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

    def _opened(self) -> tuple[Evaluator, dict[str, Any]]:
        """The evaluator, and which frames and results it has had."""
        stored = self._state.get()
        if stored is None:
            return Evaluator(CLOUD), {"frame": -1, "generation": 0, "oldest": 0.0, "had": {}}
        parts, notes = unpack(bytes(stored[0]))
        return Evaluator.restore(bytes(parts["evaluator"])), notes

    def _send(
        self, bucket: int, returned: list[tuple[int, Results]], before: int, newest: int
    ) -> int:
        """Send results to devices; the generation of the streams that have them now.

        `before` had those that were sent. To a later one all of them go first, also if the
        micro-batch was planned with frames of an earlier one.
        """
        if self.cloud.broker is None or not (returned or newest > before):
            return before
        return asyncio.run(_send_back(self.cloud.broker, bucket, returned, before, self._kept))

    def _kept(self) -> list[tuple[int, Results]]:
        """What was sent to devices, by the frames that brought it."""
        kept = [(frame, decode_output(bytes(one))) for _, frame, one in self._sent.get()]
        return [(frame, one) for frame, out in kept for one in out.results]

    def _keep(self, returned: list[tuple[int, Results]], oldest: float) -> float:
        """Keep what was sent, and forget what was kept for long; when the oldest was sent."""
        now = time.time()
        if oldest and oldest < now - 2 * KEPT:  # not every time: all of it is read
            kept = [one for one in self._sent.get() if one[0] >= now - KEPT]
            if kept:
                self._sent.put(kept)
            else:  # Spark takes no empty list
                self._sent.clear()
            oldest = min((one[0] for one in kept), default=0.0)
        if returned:
            self._sent.appendList(
                [(now, frame, encode_output(Output(0, (one,)))) for frame, one in returned]
            )
        return oldest or (now if returned else 0.0)


@dataclass(frozen=True)
class _Described:
    name: str
    definition: Definition
    keys: Sequence[str]


def _stepped(evaluator: Evaluator, frame: Down, had: dict[str, int]) -> list[tuple[Results, str]]:
    """What a frame brings: results found here, and those that devices found, with their places."""
    found: list[tuple[Results, str]] = [(one, CLOUD) for one in evaluator.take(frame.steps)]
    return found + fresh_results(frame, had)


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
