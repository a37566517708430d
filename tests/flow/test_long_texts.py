"""More text than the offsets of an Arrow column can tell: every verb goes on, in a wide type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.correlation.grouping import Grouping, GroupsJob
from anabranch.flow import blocks, kernel
from anabranch.flow.blocks import Block, concat, joined, take
from anabranch.flow.forms import stored_type, wide_type
from anabranch.flow.hashing import worker_of
from anabranch.flow.kernel import addressed, in_loads
from anabranch.flow.slices import Notes, Slices
from anabranch.neighbours import kernel as nearest_kernel
from anabranch.neighbours.selective import homes
from anabranch.testing import Workers
from tests.assembly.test_laws import POLICIES, event
from tests.flow.test_check_kernel import assembling
from tests.neighbours import runs, selective_runs
from tests.neighbours.runs import START, Run, call_of
from tests.neighbours.selective_runs import SelectiveRun

MOST = 300
MS = 1000
LONG = ["y" * 90, "z" * 70, "", None, "x" * 120]


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Arrow whose offsets tell few bytes, as if that were 2 GB; how often text was too long."""
    real: Callable[[Sequence[pa.Array]], pa.Array] = pa.concat_arrays
    wide: list[int] = []

    def concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
        size, kind = sum(array.nbytes for array in arrays), arrays[0].type
        if size > MOST and kind != wide_type(kind):
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        wide.append(int(size > MOST))
        return real(arrays)

    monkeypatch.setattr(pa, "concat_arrays", concat_arrays)
    monkeypatch.setattr(blocks, "TOGETHER_BYTES", MOST)
    return wide


KINDS = {
    "strings": pa.array(LONG),
    "bytes": pa.array([b"y" * 90, None, b""]),
    "lists of strings": pa.array([["y" * 90] * 3, [], None]),
    "structs": pa.array([{"a": "y" * 90, "b": 1}, {"a": None, "b": 2}]),
    "maps": pa.array([[("k", "y" * 200)], []], pa.map_(pa.string(), pa.string())),
    "lists of structs": pa.array([[{"a": "y" * 90}], []]),
}


@pytest.mark.parametrize("name", KINDS)
def test_blocks_of_every_type_become_wide_and_narrow_again(little: list[int], name: str) -> None:
    column = KINDS[name]
    some = [Block.of(np.arange(len(column)), {"c": column}) for _ in range(9)]
    whole = concat(some)
    assert whole.columns["c"].type == wide_type(column.type) != column.type
    assert whole.columns["c"].to_pylist() == column.to_pylist() * 9
    assert concat([whole, some[0]]).columns["c"].type == wide_type(column.type)
    stored = whole.slice(0, len(column)).in_stored_form()
    assert stored.columns["c"].equals(column) and stored_type(wide_type(column.type)) == column.type
    assert some[0].in_stored_form() is some[0]
    assert sum(little) == 2


@pytest.mark.slow
def test_a_part_of_what_exceeds_the_offsets_of_arrow_is_stored() -> None:
    """Its offsets are beyond 2 GB, though it is short."""
    whole = joined([pa.array(["x" * (100 << 20)] * 9)] * 3)
    assert whole.type == pa.large_string()
    block = Block.of(np.arange(27), {"c": whole})
    stored = [piece.in_stored_form().columns["c"] for piece in block.pieces(300 << 20)]
    assert {part.type for part in stored} == {pa.string()} and sum(map(len, stored)) == 27


@pytest.mark.slow
def test_texts_that_exceed_the_offsets_of_arrow_itself() -> None:
    column = pa.array(["x" * (100 << 20)])
    found = take(column, np.zeros(25, np.int64))
    assert len(found) == 25 and found.nbytes > 2**31
    part = take(column, np.zeros(9, np.int64))
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        pa.concat_arrays([part] * 3)
    assert joined([part] * 3).nbytes > 2**31


def test_slices_are_stored_in_one_form(little: list[int]) -> None:
    slices = Slices((10,), Notes())
    for n in range(20):
        slices.append(0, Block.of([n], {"c": pa.array([LONG[n % 5]], pa.string())}))
    whole = slices.take_until(0, 14)
    assert whole is not None and whole.columns["c"].type == pa.large_string()
    slices.append(0, whole)
    assert {block.columns["c"].type for block in slices.reach(0, 0, 99)} == {pa.string()}
    again = slices.take_until(0, 99)
    assert again is not None and sum(little) == 2
    order = np.argsort(again.t)
    assert again.take(order).columns["c"].to_pylist() == LONG * 4


def carrying(call: Any, things: Sequence[Any]) -> Block:
    """Objects with a long text, which comes out, and one that a condition compares."""
    t, ids, points = zip(*things, strict=True)
    columns = {
        "id": np.array(ids, np.int64),
        "v": np.array(points, np.float64),
        "where0": pa.array([f"{n % 2}" * 40 for n in ids]),
        "k0": pa.array([LONG[n % 5] for n in ids]),
    }
    return Block.of(t, columns)


@pytest.mark.parametrize("kind", [Run, SelectiveRun])
@pytest.mark.parametrize("output", ["hits", "top"])
def test_nearest(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kind: Any, output: str
) -> None:
    """All objects are there before the watermark goes on, so that they are put together."""
    if kind is SelectiveRun and output == "top":
        pytest.skip("owners emit hits")
    for module in (runs, selective_runs):
        monkeypatch.setattr(module, "object_block", carrying)
    call = call_of(keep=["kind"], where=ab.same("kind"), output=output, watermark="50 ms")
    queries = [
        {"id": n, "v": [float(n)], "k": 3, "span": 40 * MS, "kind": f"{n % 2}" * 40, "t": None}
        for n in range(4)
    ]
    for query in queries:
        query["where0"] = query["kind"]
    monkeypatch.setattr(
        runs,
        "compared",
        lambda call, side, rows: {"where0": pa.array([row["kind"] for row in rows])},
    )
    things = [(START + n * MS, n, [float(n * 7 % 11)]) for n in range(60)]

    def told() -> list[Any]:
        run = kind(call, queries, 50 * MS, 3)
        for start in range(0, 60, 6):
            run.step(things[start : start + 6])
        run.finish()
        return sorted(map(str, run.rows))

    want = told()
    little = request.getfixturevalue("little")
    monkeypatch.setattr(nearest_kernel, "_HIT_BYTES_AT_ONCE", 1000)
    monkeypatch.setattr(homes, "_CELL_BYTES", 500)
    assert told() == want and len(want) > 9 and any("y" * 90 in row for row in want)
    assert sum(little) > 10


@pytest.mark.parametrize("live", [False, True])
def test_groups(request: pytest.FixtureRequest, live: bool) -> None:
    job = GroupsJob(Grouping(30, one_stream=True, types=("string", "string"), live=live))
    ids = [[f"{'y' * 50}{n}", f"{'y' * 50}{n + n % 3}"] for n in range(40)]

    def told() -> list[Any]:
        workers, events = Workers(job), []
        for start in range(0, 40, 4):
            left, right = (pa.array(part) for part in zip(*ids[start : start + 4], strict=True))
            pairs = Block.of(np.arange(start, start + 4), {"left": left, "right": right})
            mark = start - 20 if start % 8 else max(0, start - 30)
            for batch in workers.step(0, [Block.decode(pairs.encode())], mark):
                events += batch.to_pylist()
        for batch in workers.step(0, [], 1000):
            events += batch.to_pylist()
        return events

    want = told()
    little = request.getfixturevalue("little")
    assert told() == want and len(want) > 50 and sum(little) > 2


def test_assemble(little: list[int]) -> None:
    rows = [event(n % 3, 1 + n, tie=n % 2) for n in range(60)]
    case = assembling(rows, [5, 10, 15, 40], 3, POLICIES["gap"])
    texts = []
    for arrivals, now in case.steps:
        parts = [
            Block.of(part.t, {**part.columns, "c0": _texts(part.columns["c0"])})
            for part in arrivals
        ]
        texts.append((parts, now))
    found: list[Any] = []
    workers = Workers(case.job)
    for arrivals, now in [*texts, ([], 10_000)]:
        for batch in workers.step(0, arrivals, now):
            found += batch.to_pylist()
    items = [[item["tie"] for item in row["items"]] for row in found]
    assert items == [["y" * 40 + str(tie) for tie in row[-1]] for row in case.expected]
    assert sum(map(len, items)) == 60 and sum(little) > 0


def _texts(ties: pa.Array) -> pa.Array:
    return pa.array(["y" * 40 + str(tie) for tie in ties.to_pylist()])


def test_cells_are_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [(n % 3, bytes(size)) for n, size in enumerate([4, 4, 3, 20, 1, 1, 0, 9])]
    monkeypatch.setattr(kernel, "BYTES_AT_ONCE", 10)
    loads = list(in_loads(iter(cells)))
    assert [[len(cell) for _, cell in load] for load in loads] == [
        [4, 4],
        [3],
        [20],
        [1, 1, 0],
        [9],
    ]
    assert [cell for load in loads for cell in load] == cells
    table = pa.Table.from_batches(addressed(cells, newest=7))
    sent = table.to_pylist()
    assert [(worker_of(row["worker"]), row["block"]) for row in sent] == cells
    assert set(table.column("newest").cast(pa.int64()).to_pylist()) == {7}
    assert list(addressed([])) == [] and next(addressed(cells)).schema.names == ["worker", "block"]


def test_a_block_is_cut_by_bytes() -> None:
    block = Block.of(np.arange(10), {"c": np.zeros((10, 4))})
    assert [len(piece) for piece in block.pieces(100)] == [3, 3, 3, 1]
    assert [piece.t.tolist() for piece in block.pieces(1)] == [[n] for n in range(10)]
    assert [len(piece) for piece in block.pieces(1000)] == [10]
    assert [len(piece) for piece in block.slice(0, 0).pieces(1)] == [0]
