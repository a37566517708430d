"""The narrow stage: rows in, a few fat rows out, each a block for one worker.

Spark hands rows to a stateful Python operator one by one; a block of thousands of rows in a single
binary cell passes at the speed of memory, with its types untouched. So rows are checked, routed
and packed where they are read, and only blocks are shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from anabranch.correlation.call import Correlation
from anabranch.correlation.kernel import query_fingerprint
from anabranch.correlation.packing import pack
from anabranch.flow.hashing import worker_keys
from anabranch.flow.heap import settle
from anabranch.plans.log import User, reader
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans

__all__ = ["PACKED", "Packer", "live_plans", "user"]

# worker: the key of the worker; newest: greatest event time in microseconds, for the watermark.
PACKED = "worker int, newest long, block binary"
# An Arrow array of bytes holds 2 GB, and every batch is held twice on its way to Spark.
BYTES_AT_ONCE = 256 << 20


@dataclass(frozen=True)
class Packer:
    """Packs the rows of one side; the function of a ``mapInArrow``."""

    correlation: Correlation
    side: int
    plan: Plan
    control: str | None = None
    call: str = ""  # what tells this call from others in the query

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One output row per worker that gets rows, for each input batch."""
        settle()
        operator = query_fingerprint(self.correlation)
        live = live_plans(self.plan, self.control, operator, self.call)
        # A plan of the log may be bound to the threshold of an earlier run.
        bound = {number: self.correlation.bound(plan) for number, plan in live.plans.items()}
        live = LivePlans(bound)
        keys = worker_keys(live.workers)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            packed = pack(self.correlation, self.side, live, batch)
            for workers in _loads(packed.blocks):
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([keys[worker] for worker in workers], pa.int32()),
                        pa.array([packed.newest] * len(workers), pa.int64()),
                        pa.array([packed.blocks[worker] for worker in workers], pa.binary()),
                    ],
                    ["worker", "newest", "block"],
                )


def _loads(blocks: Mapping[int, bytes]) -> Iterator[list[int]]:
    """The workers of blocks that fit into one Arrow batch, all of them as a rule."""
    load: list[int] = []
    filled = 0
    for worker, block in blocks.items():
        if load and filled + len(block) > BYTES_AT_ONCE:
            yield load
            load, filled = [], 0
        load.append(worker)
        filled += len(block)
    yield load


def live_plans(plan: Plan, control: str | None, operator: str = "", call: str = "") -> LivePlans:
    """The plans of this task's micro-batch; a repeated task reads the same ones."""
    if control is None:
        return LivePlans({0: plan})
    task = TaskContext.get()
    batch = task.getLocalProperty("streaming.sql.batchId") if task is not None else None
    if batch is None:
        raise RuntimeError("a plan log is read by micro-batch, and this is not one")
    return reader(control).live_at(int(batch), plan, user(operator, call))


def user(operator: str, call: str) -> User:
    """Who uses a control directory in this task: an operator of this run of this query."""
    task = TaskContext.get()
    if task is None:
        return User(None, operator, None, call)
    query = task.getLocalProperty("sql.streaming.queryId")
    run = task.getLocalProperty("spark.jobGroup.id")  # Spark's name of a run's jobs is its id
    return User(query, operator, run, call)
