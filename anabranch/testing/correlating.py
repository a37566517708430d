"""Whole correlations without Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation, plan_correlation
from anabranch.correlation.forwarding import ForwardingJob
from anabranch.correlation.homes import Homes
from anabranch.correlation.jobs import job_of
from anabranch.correlation.ordering import OrderJob, OrderPacking
from anabranch.correlation.packing import SidePacking
from anabranch.errors import InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import worker_of
from anabranch.flow.load import Load
from anabranch.flow.sides import Side, hash_column, keep_column
from anabranch.flow.slices import BEGINNING
from anabranch.plans.costs import choose
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.plans.routing import LivePlans
from anabranch.testing.workers import Workers

__all__ = ["InProcess", "prepare", "simple_types"]


class InProcess:
    """A correlation in one process.

    Takes what `correlate` takes, with Arrow schemas in place of DataFrames; without a right one it
    is one stream against itself. No plan may have more than so many `workers`, as many as Spark
    has partitions. A `fixed` one cannot change, as that of tables, or of a stream without a log.

    Examples
    --------
    >>> from anabranch import predicates
    >>> table = pa.table({"id": [1, 2], "ts": pa.array([10, 20], pa.timestamp("us", "UTC")),
    ...                   "x": [1.0, 5.0]})
    >>> where = predicates.within("x", 1)
    >>> run = InProcess(table.schema, table.schema, where=where, window="1 second")
    >>> _ = run.step(table, table)
    >>> [(pair["left_id"], pair["right_id"]) for pair in run.pairs]
    [(1, 1), (2, 2)]
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema | None,
        workers: int = 4,
        streaming: bool = False,
        fixed: bool | None = None,
        **call: Any,
    ) -> None:
        types = None if right is None else simple_types(right)
        found, problems = plan_correlation(simple_types(left), types, **call)
        if found is None:
            raise InvalidCall("correlate", problems)
        self.correlation: Correlation = found
        chosen = keyed(workers) if found.has_key else choose(workers, one_stream=right is None)
        self.plan = found.plan or chosen
        self.streaming, self._room = streaming, workers
        self.pairs: list[dict[str, Any]] = []
        steady = self.plan if (not streaming if fixed is None else fixed) else None
        self.workers = Workers(job_of(found, steady))
        self.homes = Homes(found) if isinstance(self.workers.job, ForwardingJob) else None
        self._live = LivePlans({0: self.plan})
        self.order = Workers(OrderJob(found, lambda _: self._live))
        self._newest = BEGINNING

    @property
    def watermark(self) -> int:
        """What Spark's would be: newest time of earlier batches less its delay, in milliseconds."""
        if not self.streaming or self._newest == BEGINNING:
            return 0 if self.streaming else BEGINNING
        return (self._newest // 1000 - -(-(self.correlation.delay or 0) // 1000)) * 1000

    def step(
        self,
        left: pa.Table | None,
        right: pa.Table | None = None,
        live: tuple[LivePlans, LivePlans] | None = None,
        watermark: int | None = None,
    ) -> list[Load]:
        """One micro-batch; `live` are the plans that the left and the right router hold live.

        `watermark` is that of the inputs, of a call without `watermark`.
        """
        routers = live or (LivePlans({0: self.plan}),) * 2
        self._live, by_rows = routers[LEFT], self.correlation.by_rows
        inbox: dict[int, list[Block]] = {}
        newest = self._newest
        for side, table in ((LEFT, left), (RIGHT, right)):
            if table is None or table.num_rows == 0:
                continue
            batch = prepare(self.correlation.sides[side], table)
            of = (self.correlation, side, self.streaming)
            packing = OrderPacking(*of) if by_rows else SidePacking(*of, self._room)
            packed = packing.pack(batch, routers[side])
            newest = max(newest, packed.newest or newest)
            for worker, cell in packed.cells.items():
                inbox.setdefault(worker, []).append(Block.decode(cell))
        watermark = self.watermark if watermark is None else watermark
        if by_rows:
            inbox = self._ordered(inbox.get(0, []), watermark)
        self._newest = newest
        return self._compared(inbox, watermark)

    def _ordered(self, arrivals: list[Block], watermark: int) -> dict[int, list[Block]]:
        """What the worker that orders rows sends on."""
        posted: dict[int, list[Block]] = {}
        if arrivals or self.order.is_due(0, watermark):
            for cells in self.order.step(0, arrivals, watermark):
                _post(cells, posted)
        return posted

    def _compared(
        self, inbox: dict[int, list[Block]], watermark: int, last: bool = False
    ) -> list[Load]:
        before = len(self.workers.loads)
        posted: dict[int, list[Block]] = {}
        for worker in sorted(set(self.workers.heads) | set(inbox)):
            # As in Spark: a worker runs if it has rows, or if its timer is due.
            if last:
                results = list(self.workers.kernel(worker).step([], watermark, last=True))
            elif worker in inbox or self.workers.is_due(worker, watermark):
                results = self.workers.step(worker, inbox.get(worker, []), watermark)
            else:
                continue
            for found in results:
                if self.homes is not None:
                    _post(found, posted)
                else:
                    self.pairs += found.to_pylist()
        for _, cells in sorted(posted.items()):
            assert self.homes is not None
            for found in self.homes(cells):
                self.pairs += found.to_pylist()
        return self.workers.loads[before:]

    def finish(self) -> None:
        """The end of tables: rows that wait for their rank get it, others get no partner."""
        if self.correlation.by_rows:
            posted: dict[int, list[Block]] = {}
            for cells in self.order.kernel(0).step([], self.watermark, last=True):
                _post(cells, posted)
            self._compared(posted, self.watermark)
        if self.correlation.unmatched:
            self._compared({}, self.watermark, last=True)

    def take_up(self, other: InProcess) -> None:
        """Go on with the state of another run, as a restarted query does."""
        found = other.workers.copy()
        found.job = self.workers.job
        self.workers = found
        order, self.order = self.order, other.order.copy()
        self.order.job = order.job

    @property
    def loads(self) -> list[Load]:
        """The reports of all steps."""
        return self.order.loads + self.workers.loads

    @property
    def state_rows(self) -> int:
        """Rows stored in all workers after the last step."""
        return self.order.state_rows + self.workers.state_rows


def _post(cells: pa.RecordBatch, posted: dict[int, list[Block]]) -> None:
    for key, cell in zip(*cells.to_pydict().values(), strict=True):
        posted.setdefault(worker_of(key), []).append(Block.decode(cell))


def prepare(side: Side, table: pa.Table) -> pa.RecordBatch:
    """The columns that `Intake` reads, as Spark would prepare them."""
    columns: dict[str, Any] = {"t": table[side.time], "id": table[side.id]}
    keys = []
    for slot in side.slots:
        columns[slot.name] = table[slot.column]
        if slot.kind == "text":
            columns[slot.name] = table[slot.column].cast(pa.string())
            columns[hash_column(slot)] = _text_hash(columns[slot.name].to_pylist())
        if slot.is_key:
            keys.append([str(value) for value in table[slot.column].to_pylist()])
    ids = [str(value) for value in table[side.id].to_pylist()]
    columns["h"] = _text_hash(ids)
    texts = ["|".join(parts) for parts in zip(*keys, strict=True)] if keys else ids
    columns["key"] = _text_hash(texts)
    for number, name in enumerate(side.keep):
        columns[keep_column(number)] = table[name]
    whole = pa.table(columns).combine_chunks()
    return whole.to_batches()[0]


def _text_hash(texts: Iterable[str | None]) -> pa.Array:
    digests = [hashlib.blake2b(str(text).encode(), digest_size=8).digest() for text in texts]
    return pa.array(np.frombuffer(b"".join(digests), np.int64))


_ARROW_NAMES: Mapping[str, str] = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
}


def simple_types(schema: pa.Schema) -> dict[str, str]:
    """Spark's short names of the types of an Arrow schema.

    Examples
    --------
    >>> simple_types(pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32())}))
    {'id': 'bigint', 'v': 'array<float>'}
    """

    def name(type_: pa.DataType) -> str:
        if pa.types.is_list(type_):
            return f"array<{name(type_.value_type)}>"
        if pa.types.is_struct(type_):
            return f"struct<{','.join(f'{field.name}:{name(field.type)}' for field in type_)}>"
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            return "timestamp"
        if pa.types.is_decimal(type_):
            return f"decimal({type_.precision},{type_.scale})"
        text = str(type_)
        return _ARROW_NAMES.get(text, text)

    return {field.name: name(field.type) for field in schema}
