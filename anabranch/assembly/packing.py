"""Arrow batches of events to one packed block per bucket, and closed windows back to Arrow.

A batch has the columns ``t, end`` (microseconds), ``h1, h2, kind, tie`` (hashes), ``k0, k1, ...``
(the key) and ``c0, c1, ...`` (what is collected); and ``ends`` where a policy has an end marker.
All windows of a key live in one bucket, and under a learned policy all keys of a kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.assembly.call import Assembly
from anabranch.assembly.kernel import Emitted
from anabranch.assembly.table import CAUSES, MARK, Column
from anabranch.flow.blocks import Block
from anabranch.flow.intake import Faults, time_faults, whole_of
from anabranch.flow.kernel import Packed
from anabranch.flow.lateness import hearing

__all__ = ["EventPacking", "result_batch"]


@dataclass(frozen=True)
class EventPacking:
    """Packs the rows of one input for so many buckets."""

    call: Assembly
    stream: int
    buckets: int
    streaming: bool = False

    def pack(self, batch: pa.RecordBatch, live: Any = None) -> Packed:
        """The cells of one batch; rows without time or key are refused, or counted."""
        faults = self._faults(batch)
        rejected, rejects = faults.count, faults.cell(whole_of(batch), self.stream)
        if rejected:
            batch = batch.take(pa.array(faults.good))
        block = self._block(batch)
        w = block.columns["w"]
        # The low bits find a window in its bucket's table, the high ones find the bucket.
        spread = w[:, 2] if self.call.closing.learns else w[:, 0]
        bucket = (spread.view(np.uint64) >> np.uint64(33)) % np.uint64(self.buckets)
        order = np.argsort(bucket, kind="stable")
        found, starts = np.unique(bucket[order], return_index=True)
        parts = {}
        if len(block):
            for number, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
                parts[int(number)] = block.take(rows).in_time_order()
        by_last_step = self.streaming and self.call.delay is None and not self.call.by_arrival
        for number in hearing(by_last_step, self.buckets):
            parts.setdefault(number, block.slice(0, 0))
        cells = {n: part.encode(rejected=0 if n else rejected) for n, part in parts.items()}
        return Packed(cells, int(block.t.max()) if len(block) else 0, rejects)

    def _faults(self, batch: pa.RecordBatch) -> Faults:
        t = batch.column("t")
        drop, name = self.call.drop_bad_rows, self.call.key[0]
        faults = Faults("event", batch.column("k0"), drop, name, "assembled")
        faults.where(t.is_null(), f"time column {self.call.time!r} is null")
        for number, name in enumerate(self.call.key):
            faults.where(batch.column(f"k{number}").is_null(), f"key column {name!r} is null")
        for rows, reason in time_faults(t, self.streaming and not self.call.by_arrival):
            faults.where(rows, reason)
        return faults

    def _block(self, batch: pa.RecordBatch) -> Block:
        t = batch.column("t").to_numpy()
        w = np.empty((len(t), 6), np.int64)
        for place, name in enumerate(("h1", "h2", "kind")):
            w[:, place] = batch.column(name).to_numpy()
        w[:, 3] = np.maximum(pc.coalesce(batch.column("end"), batch.column("t")).to_numpy(), t)
        w[:, 4] = 1 << self.stream
        if self.call.closing.marker is not None:
            w[:, 4] |= np.where(batch.column("ends").to_numpy(zero_copy_only=False), MARK, 0)
        w[:, 5] = batch.column("tie").to_numpy()
        names = [f"k{n}" for n in range(len(self.call.key))]
        names += [f"c{n}" for n in range(len(self.call.keep))]
        return Block.of(t, {"w": w, **{name: batch.column(name) for name in names}})


def result_batch(call: Assembly, emitted: Emitted) -> pa.RecordBatch:
    """Closed windows as Arrow columns: ``k0, ...``, the figures, ``items``.

    Times are microseconds; the caller's schema says what they are cast to.
    """
    windows, starts, items = emitted.windows, emitted.starts, emitted.items
    assert items is not None
    first_rows = pa.array(starts[:-1])
    arrays = [items.columns[f"k{n}"].take(first_rows) for n in range(len(call.key))]
    names = [f"k{n}" for n in range(len(call.key))]
    count = windows[:, Column.COUNT]
    expected = windows[:, Column.EXPECTED]
    unknown = expected == 0
    share = np.minimum(1.0, count / np.where(unknown, 1, expected))
    bits = (windows[:, Column.STREAMS][:, None] >> np.arange(call.streams)) & 1
    seen = np.concatenate([[0], np.cumsum(bits.sum(axis=1))])
    figures: dict[str, Any] = {
        "seq": windows[:, Column.SEQ].astype(np.int32),
        "revision": windows[:, Column.REVISION].astype(np.int32),
        "opened": windows[:, Column.OPENED],
        "closed": windows[:, Column.CLOSED],
        "reason": pa.array(CAUSES).take(pa.array(windows[:, Column.REASON])),
        "count": count,
        "usual_count": pa.array(expected, mask=unknown),
        "count_ratio": pa.array(share, mask=unknown),
        "first_ts": windows[:, Column.FIRST],
        "last_ts": windows[:, Column.LAST],
        "duration": (windows[:, Column.END] - windows[:, Column.FIRST]) / 1e6,
        "streams": pa.ListArray.from_arrays(
            pa.array(seen.astype(np.int32)), pa.array(np.nonzero(bits)[1].astype(np.int32))
        ),
    }
    for name, values in figures.items():
        names.append(name)
        arrays.append(pa.array(values) if isinstance(values, np.ndarray) else values)
    kept = [items.columns[f"c{n}"] for n in range(len(call.keep))]
    if kept:
        struct = pa.StructArray.from_arrays(kept, list(call.keep))
        names.append("items")
        arrays.append(pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), struct))
    return pa.RecordBatch.from_arrays(arrays, names)
