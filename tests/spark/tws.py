"""A verb's processor without a cluster: cells and watermarks in, results and load reports out.

`Bench` keeps a processor in Spark's own `TwsTester` and does in each micro-batch what Spark does:
workers with rows first, under the watermark of the batches before, then the timers that it has
passed. `restarted` goes on from the stored state, in a process that remembers nothing.
`Correlating`, `Searching` and `Assembling` bring rows there through the verbs' own packers.
"""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from anabranch.assembly.call import plan_assembly
from anabranch.assembly.job import AssembleJob
from anabranch.assembly.packing import EventPacking
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.kernel import CorrelateJob
from anabranch.correlation.packing import SidePacking
from anabranch.errors import InvalidCall
from anabranch.flow.blocks import decode_batch
from anabranch.flow.cache import CACHE
from anabranch.flow.hashing import mix
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.packing import ObjectPacking, QueryPacking
from anabranch.neighbours.queries import fixed_queries
from anabranch.plans.current import CurrentPlans
from anabranch.plans.hashed import broadcast
from anabranch.spark.operator import Packer, StreamWorker
from anabranch.spark.processor import Processor
from anabranch.testing import prepare, simple_types
from tests.correlation.twin import Batch, Pairs, Row
from tests.neighbours.runs import call_of, query_table
from tests.spark.feeds import ROW, table_of

_NOT_LATE = 1 << 62


class Bench:
    """A processor, the state of all its workers, and what came out so far.

    `late` is how far the watermark stays behind the newest row, in microseconds.
    """

    def __init__(self, processor: StatefulProcessor, late: int, mode: str = "EventTime") -> None:
        self.late = late
        self.mode = mode
        self.newest: int | None = None
        self.batches = 0
        self.results: list[pa.RecordBatch] = []
        self.loads: list[list[dict[str, Any]]] = []  # by micro-batch
        self._tester = self._on(processor)

    def _on(self, processor: StatefulProcessor) -> TwsTester:
        # Cells carry no time that Spark could call late: kernels judge row by row.
        return TwsTester(
            _Recorder(processor, self._take),
            timeMode=self.mode,
            eventTimeExtractor=lambda row: _NOT_LATE,
        )

    @property
    def watermark(self) -> int:
        """That of the next micro-batch, in microseconds."""
        if self.newest is None:
            return 0
        return max(0, (self.newest // 1000 - -(-self.late // 1000)) * 1000)

    def batch(self, *packed: pa.RecordBatch, clock: int = 0) -> list[dict[str, Any]]:
        """One micro-batch of packed rows; what its workers reported.

        `clock` is the processing time in milliseconds, by which timers go if that is the mode.
        """
        cells: dict[int, list[bytes]] = defaultdict(list)
        newest = []
        for part in packed:
            for worker, block in zip(
                *(part.column(n).to_pylist() for n in ("worker", "block")), strict=True
            ):
                cells[worker].append(block)
            newest += part.column("newest").cast(pa.int64()).to_pylist()
        tester = self._tester
        # Its own setter would fire timers before there are rows, which Spark does after.
        tester._currentWatermarkMs = self.watermark // 1000
        tester.handle.setWatermark(self.watermark // 1000)
        tester._currentProcessingTimeMs = clock
        self.loads.append([])
        for worker in sorted(cells):
            tester.testInPandas(worker, pd.DataFrame({"block": cells[worker]}))
        tester._handleExpiredTimers()
        self.newest = max([*newest, *([] if self.newest is None else [self.newest])], default=None)
        self.batches += 1
        return self.loads[-1]

    def restarted(self, processor: StatefulProcessor) -> Bench:
        """The same checkpoint under another processor, in a process with an empty memory."""
        CACHE.__init__(CACHE.budget)  # type: ignore[misc]
        again = copy.copy(self)
        again.results, again.loads = list(self.results), list(self.loads)
        again._tester = again._on(processor)
        ours, theirs = again._tester.handle, self._tester.handle
        for kind in ("value_states", "list_states", "map_states"):
            for name, stored in getattr(theirs, kind).items():
                getattr(ours, kind)[name].state = copy.deepcopy(stored.state)
        ours._timers = copy.deepcopy(theirs._timers)
        return again

    def _take(self, frame: pd.DataFrame) -> None:
        loads = frame["load"].dropna()
        self.loads[-1] += map(json.loads, loads)
        self.results += [decode_batch(cell) for cell in frame["block"].dropna()]

    def state_rows(self) -> dict[int, int]:
        """Rows that each worker held when it last reported."""
        return {load["worker"]: load["state_rows"] for loads in self.loads for load in loads}

    def total(self, name: str) -> int:
        """The sum of a figure over all reports."""
        return sum(load.get(name, 0) for loads in self.loads for load in loads)


class _Recorder(StatefulProcessor):
    """Hands what a processor yields to a function, frame by frame."""

    def __init__(self, inner: StatefulProcessor, take: Any) -> None:
        self.inner, self.take = inner, take

    def init(self, handle: Any) -> None:
        self.inner.init(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        return self._record(self.inner.handleInputRows(key, rows, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, info: Any) -> Iterator[pd.DataFrame]:
        return self._record(self.inner.handleExpiredTimer(key, timerValues, info))

    def _record(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            self.take(frame)
        return iter(())

    def close(self) -> None:
        self.inner.close()


class OnBench:
    """A call of a verb on a bench."""

    bench: Bench
    mode = "EventTime"

    def __init__(self, **call: Any) -> None:
        self.call = call
        self._check()
        self.bench = Bench(self._processor(), self.late, self.mode)

    def _check(self) -> None:
        """Check the call, or raise."""
        raise NotImplementedError

    def _processor(self) -> StatefulProcessor:
        raise NotImplementedError

    @property
    def late(self) -> int:
        """How far the watermark stays behind, in microseconds."""
        raise NotImplementedError

    def restarted(self, **change: Any) -> Any:
        """The same checkpoint under a changed call."""
        again = copy.copy(self)
        again.call = {**self.call, **change}
        again._check()
        again.bench = self.bench.restarted(again._processor())
        return again

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows of the results."""
        return [row for batch in self.bench.results for row in batch.to_pylist()]


class Correlating(OnBench):
    """A correlation on a bench; takes what `correlate` takes, for rows of these schemas."""

    def __init__(self, schemas: tuple[pa.Schema, pa.Schema] = (ROW, ROW), **call: Any) -> None:
        super().__init__(schemas=schemas, **call)

    def _check(self) -> None:
        call = dict(self.call)
        self.schemas = call.pop("schemas")
        found, problems = plan_correlation(*map(simple_types, self.schemas), **call)
        if found is None:
            raise InvalidCall("correlate", problems)
        self.correlation, self.plan = found, found.plan
        assert self.plan is not None, "say which plan"

    @property
    def late(self) -> int:
        assert self.correlation.delay is not None
        return self.correlation.delay

    def _processor(self) -> StatefulProcessor:
        return Processor(StreamWorker(CorrelateJob(self.correlation)))

    def run(self, batches: Sequence[Batch]) -> Correlating:
        """One micro-batch after the other."""
        for batch in batches:
            packed: list[pa.RecordBatch] = []
            for number, (rows, schema) in enumerate(zip(batch, self.schemas, strict=True)):
                if rows:
                    table = prepare(self.correlation.sides[number], table_of(rows, schema))
                    packing = SidePacking(self.correlation, number, streaming=True)
                    packed += Packer(packing, CurrentPlans(self.plan))(iter([table]))
            self.bench.batch(*packed)
        return self

    @property
    def pairs(self) -> Pairs:
        """The pairs with their scores; fails if one came twice."""
        names = ["left_id", "right_id", "score"]
        rows = [
            tuple(row.values())
            for batch in self.bench.results
            for row in batch.select(names).to_pylist()
        ]
        twice = [pair for pair, n in Counter((a, b) for a, b, _ in rows).items() if n > 1]
        assert not twice, f"{len(twice)} pairs came more than once, such as {twice[:3]}"
        return {(a, b): s for a, b, s in rows}


class Searching(OnBench):
    """k-NN queries on a bench, by default of two workers.

    Without `fixed` queries come as ops in the batches.
    """

    def __init__(self, fixed: Sequence[dict[str, Any]] | None = None, **call: Any) -> None:
        super().__init__(fixed=fixed, **call)

    def _check(self) -> None:
        call = dict(self.call)
        self.fixed = call.pop("fixed")
        self.plan = call.pop("plan", broadcast(2))
        self.nearest = call_of(ops=self.fixed is None, **call)

    @property
    def late(self) -> int:
        assert self.nearest.delay is not None
        return self.nearest.delay

    def _processor(self) -> StatefulProcessor:
        table = None
        if self.fixed is not None:
            block = fixed_queries(self.nearest, query_table(self.fixed))[0]
            table = block.encode(**block.meta)
        return Processor(StreamWorker(NearestJob(self.nearest, table)))

    def run(self, batches: Iterable[tuple[Sequence[Any], Sequence[dict[str, Any]]]]) -> Searching:
        """Micro-batches of objects (t, id, point) and of ops."""
        for objects, ops in batches:
            packed: list[pa.RecordBatch] = []
            if objects:
                t, ids, points = zip(*objects, strict=True)
                kinds = {"t": pa.int64(), "id": pa.int64(), "v": pa.list_(pa.float64())}
                made = pa.record_batch([t, ids, points], pa.schema(kinds))
                for name in ("h", "key"):
                    made = made.append_column(name, pa.array(mix(np.array(ids))))
                packed += Packer(ObjectPacking(self.nearest), CurrentPlans(self.plan))(iter([made]))
            if ops:
                table = query_table(ops)
                table = table.append_column("h", pa.array(mix(table["id"].to_numpy())))
                made = table.combine_chunks().to_batches()[0]
                packed += Packer(QueryPacking(self.nearest), CurrentPlans(self.plan))(iter([made]))
            self.bench.batch(*packed)
        return self

    @property
    def hits(self) -> list[Any]:
        """The hits, in order: query, object, its time, the instant, distance, rank."""
        names = ("query_id", "object_id", "object_t", "entered_t", "distance", "rank")
        return sorted(tuple(row[name] for name in names) for row in self.rows)


class Assembling(OnBench):
    """Instances on a bench, by default in two buckets; `schema` is that of all rows."""

    def __init__(self, schema: pa.Schema, **call: Any) -> None:
        super().__init__(schema=schema, **call)

    def _check(self) -> None:
        call = dict(self.call)
        self.schema = call.pop("schema")
        self.buckets = call.pop("workers", 2)
        found, problems = plan_assembly([simple_types(self.schema)], **call)
        if found is None:
            raise InvalidCall("assemble", problems)
        self.assembly = found
        self.mode = "ProcessingTime" if found.by_arrival else "EventTime"

    @property
    def late(self) -> int:
        return self.assembly.delay or 0

    def _processor(self) -> StatefulProcessor:
        job = AssembleJob(self.assembly, self.buckets, streaming=True)
        return Processor(StreamWorker(job, self.assembly.by_arrival))

    def run(self, batches: Iterable[Sequence[Row]], clocks: Iterable[int] = ()) -> Assembling:
        """Micro-batches of rows, whose first key column is a number, at these clocks if at any."""
        for rows, clock in zip_longest(batches, clocks, fillvalue=0):
            made = self._prepared(table_of(rows, self.schema)) if rows else None
            packing = EventPacking(self.assembly, 0, self.buckets, streaming=True)
            packed = [] if made is None else Packer(packing)(iter([made]))
            self.bench.batch(*packed, clock=clock)
        return self

    def _prepared(self, table: pa.Table) -> pa.RecordBatch:
        call, t = self.assembly, table["ts"].cast(pa.int64())
        key = table[call.key[0]].to_numpy()
        columns = {"t": t, "end": t, "h1": mix(key), "h2": key, "kind": mix(key)}
        columns["tie"] = np.arange(len(key))
        columns |= {f"k{n}": table[name] for n, name in enumerate(call.key)}
        columns |= {f"c{n}": table[name] for n, name in enumerate(call.keep)}
        return pa.table(columns).combine_chunks().to_batches()[0]
