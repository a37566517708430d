"""Rejected rows as files: whatever is killed, repeated or restored, each counts once."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.flow import rejects
from anabranch.flow.blocks import Block
from anabranch.flow.cache import Cache
from anabranch.flow.kernel import Task
from anabranch.flow.rejects import Rejecting, accepted, as_json, commit, counted_files
from anabranch.flow.sides import REASON, WHOLE
from tests.examples import examples

WORKERS = 3
Rows = tuple[int, ...]  # how many rows each worker rejects in a micro-batch


def read(path: str) -> list[dict[str, Any]]:
    """All rows that count."""
    files = [pq.read_table(Path(path) / name, partitioning=None) for name in counted_files(path)]
    return [row for table in files for row in table.to_pylist()]


def cell(names: list[str]) -> Block:
    whole = pa.array([{"{}": json.dumps({"name": name})} for name in names])
    columns = {REASON: pa.array(["odd"] * len(names)), WHOLE: whole}
    return Block.decode(Block.of(np.zeros(len(names)), columns).encode(side=0))


@dataclass
class World:
    """A query whose driver is killed and started again, and what it has rejected for good."""

    path: str
    committed: list[list[str]] = field(default_factory=list)  # rows, by micro-batch
    planned: list[list[str]] | None = None  # rows of a batch that was begun, by worker
    runs: int = 0
    made: int = 0

    def plan(self, rows: Rows) -> list[list[str]]:
        """What a micro-batch rejects; one that was begun rejects the same when it is repeated."""
        if self.planned is None:
            self.planned = []
            for count in rows:
                self.planned.append([f"row {self.made + n}" for n in range(count)])
                self.made += count
        return self.planned

    def run(self, back: int, batches: list[tuple[Rows, int, bool]], hears: bool) -> None:
        """One run: micro-batches with how many workers finish, and whether tasks are repeated.

        The last batch is interrupted where not all finish. The driver `hears` of the last commit,
        or is killed before.
        """
        self.runs += 1
        if back and len(self.committed) >= back:  # an older checkpoint was restored
            del self.committed[-back:]
            self.planned = None
        run = f"run-{self.runs}"
        rejecting = Rejecting(self.path, "verb", ("stream",), "call")
        for place, (rows, finishing, repeated) in enumerate(batches):
            number, parts = len(self.committed), self.plan(rows)
            for worker in list(range(finishing)) * (1 + repeated):
                cells = [cell(parts[worker])] if parts[worker] else []
                rejecting.keep(cells, None, 0, Task(worker, "q", number, run))
            if finishing < WORKERS:
                return
            self.committed.append([name for part in parts for name in part])
            self.planned = None
            last = place == len(batches) - 1
            if any(parts) and (hears or not last):
                commit(self.path, "q", run, number)
            self.check(whole=hears or not last or not any(parts))

    def check(self, whole: bool) -> None:
        """Nothing twice, nothing that is not committed; all of it, if the driver has heard."""
        seen = Counter(json.loads(row["row"])["name"] for row in read(self.path))
        want = Counter(name for names in self.committed for name in names)
        assert not seen - want
        if whole:
            assert seen == want
        else:  # only the newest is not yet known to be committed
            assert want - seen == Counter(self.committed[-1])


a_batch = st.tuples(
    st.tuples(*[st.integers(0, 2)] * WORKERS),
    st.integers(0, WORKERS) | st.just(WORKERS),
    st.booleans(),
)
a_run = st.tuples(st.just(0) | st.integers(0, 3), st.lists(a_batch, max_size=4), st.booleans())


@settings(max_examples=examples(25))
@given(st.lists(a_run, max_size=5))
def test_each_row_counts_once_through_kills_and_restored_checkpoints(runs: Any) -> None:
    with tempfile.TemporaryDirectory() as path:
        world = World(path)
        for run in runs:
            world.run(*run)
        # Once the query has been started again everything is known.
        world.run(0, [((1, 0, 1), WORKERS, False)] * 2, hears=True)
        assert {row["side"] for row in read(path)} == {"stream"}


def test_a_batch_counts_when_it_is_computed_and_once(tmp_path: Path) -> None:
    path = str(tmp_path)
    for call in ("one", "one", "two"):  # the result of the first is computed twice
        beforehand = Block.of([0], {REASON: pa.array(["dim"]), WHOLE: pa.array([{"{}": "{}"}])})
        rejecting = Rejecting(path, "verb", ("a", "b"), call, beforehand.encode(side=1))
        rejecting.keep([cell(["x"])], None, None, Task(0), first=True)
        rejecting.keep([], None, None, Task(1), first=True)
    rows = read(path)
    assert [row["side"] for row in rows] == ["a", "b"] * 2
    assert {(row["batch"], row["watermark"]) for row in rows} == {(None, None)}


def test_rows_that_were_read_are_kept_within_the_bounds_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(10_000)
    monkeypatch.setattr(rejects, "CACHE", cache)
    rejecting = Rejecting(str(tmp_path), "verb", ("stream",), "call")
    for batch in range(20):
        names = [f"{batch} {n} {'x' * 500}" for n in range(5)]
        rejecting.keep([cell(names)], None, 0, Task(0, "q", batch, "run"))
    for _ in range(2):
        rows = rejects.newest_rows(str(tmp_path), "q", 60)
        assert len(rows) == 60 and len({row["row"] for row in rows}) == 60
        assert 2_500 < cache.nbytes <= cache.budget


def test_kernels_see_neither_bad_rows_nor_what_goes_along() -> None:
    along = Block.of([1], {"id": np.array([7]), WHOLE: pa.array([{"{}": "{}"}])})
    along.meta["side"] = 1
    (block,) = accepted([cell(["x"]), along])
    assert (list(block.columns), block.meta) == (["id"], {"side": 1})


numbers = st.one_of(
    st.none(), st.floats(width=32), st.sampled_from([0.1, math.nan, math.inf, -math.inf])
)


@settings(max_examples=examples(20))
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.text(), st.none() | st.text() | st.integers(), max_size=2),
            st.none() | st.lists(numbers, max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    st.text(min_size=1).filter(lambda name: name != "{}"),
)
def test_rows_as_json_hold_what_they_held(rows: list[tuple[Any, Any]], name: str) -> None:
    kind = pa.struct({"{}": pa.string(), name: pa.list_(pa.float32())})
    texts = [json.dumps(fields, separators=(",", ":")) for fields, _ in rows]
    made = [{"{}": text, name: vector} for text, (_, vector) in zip(texts, rows, strict=True)]
    # As a slice, whose arrays begin somewhere in their buffers.
    found = as_json(pa.array([*made[:1], *made], kind)[1:]).to_pylist()
    for text, (fields, vector) in zip(found, rows, strict=True):
        got = json.loads(text)
        if vector is not None:
            back = [None if x is None else float(x) for x in got[name]]
            np.testing.assert_array_equal(
                np.array(back, np.float32), np.array(vector, np.float32), strict=True
            )
            vector = got[name]
        assert got == {**fields, name: vector}
