"""The narrow stage hands Spark as much at a time as an Arrow array holds."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.correlation.packing import SidePacking
from anabranch.flow import kernel
from anabranch.flow.blocks import Block, encode_batch
from anabranch.plans.current import CurrentPlans
from anabranch.spark import operator, unpacking
from anabranch.testing import InProcess, prepare


def test_blocks_of_many_workers_leave_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 200
    table = pa.table(
        {
            "id": pa.array(range(n)),
            "ts": pa.array([1_700_000_000_000_000] * n, pa.timestamp("us", "UTC")),
            "v": pa.array([[1.0] * 64] * n, pa.list_(pa.float64())),
        }
    )
    call = {"where": ab.cosine("v") >= 0.9, "window": "1 second", "plan": ab.broadcast(9)}
    correlation = InProcess(table.schema, table.schema, **call).correlation
    right = prepare(correlation.sides[1], table)

    def packed() -> list[pa.RecordBatch]:
        return list(
            operator.Packer(SidePacking(correlation, 1), CurrentPlans(ab.broadcast(9)))(
                iter([right])
            )
        )

    (whole,) = packed()
    size = len(whole.column("block")[0].as_py())
    monkeypatch.setattr(kernel, "BYTES_AT_ONCE", 2 * size + size // 2)
    parts = packed()
    assert [part.num_rows for part in parts] == [2, 2, 2, 2, 1]
    assert pa.Table.from_batches(parts).column("worker").to_pylist() == whole["worker"].to_pylist()
    assert {len(Block.decode(c.as_py())) for p in parts for c in p["block"]} == {n}
    monkeypatch.setattr(kernel, "BYTES_AT_ONCE", 1)
    assert Counter(part.num_rows for part in packed()) == {1: 9}


def test_a_step_sends_its_report_with_its_last_cell_and_rows_come_of_cells_alone() -> None:
    cells = [encode_batch(pa.RecordBatch.from_pydict({"a": [n, n]})).to_pybytes() for n in (1, 2)]
    frames = [operator._frame(7, cells[:1]), operator._frame(7, cells[1:], "{}")]
    assert [len(frame) for frame in frames] == [1, 2]
    assert {str(t) for frame in frames for t in frame["t"]} == {"1970-01-01 00:00:00.008000+00:00"}
    batches = [pa.RecordBatch.from_pandas(frame, preserve_index=False) for frame in frames]
    batches += [pa.RecordBatch.from_pandas(operator._frame(7, [], "{}"), schema=batches[1].schema)]
    found = list(unpacking.Unpacker(pa.schema({"a": pa.int64()}))(iter(batches)))
    assert [batch.column("a").to_pylist() for batch in found] == [[1, 1], [2, 2]]


def test_the_newest_time_of_a_cell_is_a_timestamp_to_the_microsecond() -> None:
    far = 253_402_300_799_999_999  # the last one of the year 9999
    (sent,) = kernel.addressed([(0, b"x")], far)
    newest = sent.column("newest")
    assert newest.type == pa.timestamp("us", "UTC") and newest.cast(pa.int64())[0].as_py() == far
