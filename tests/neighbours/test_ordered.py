"""Objects keep their order and numbers through every restart, also those delivered twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.flow.blocks import Block
from anabranch.neighbours.lists.ordered import Ordered
from tests.neighbours.runs import START, Run, call_of, expected

MS = 1000


def test_objects_delivered_five_times_survive_a_restart() -> None:
    # Rows 2: of the five alike, three are forgotten; the cut lies among equals.
    run = Run(call_of(), [{"id": 1, "v": [0.0], "k": 1, "rows": 2}], 1_000_000, workers=1)
    objects = [(START, 7, [7.0])] * 5
    objects += [(START + s * 500_000, 8 + s, [8.0 + s]) for s in range(10, 40)]
    run.step(objects[:5])
    for one in objects[5:]:
        run.step([one])
    run.finish()
    assert run.hits() == expected(objects, [{"id": 1, "v": [0.0], "k": 1, "rows": 2}])


@given(
    seed=st.integers(0, 2**32 - 1),
    method=st.sampled_from(["exact", "exact", "relaxed", "filtered"]),
    workers=st.integers(1, 2),
    corrected=st.booleans(),
)
def test_redelivered_objects_in_any_batching_equal_brute_force(
    seed: int, method: str, workers: int, corrected: bool
) -> None:
    """Some objects come again, at once or later, some with another vector; all are restarted."""
    random = np.random.default_rng(seed)
    queries: list[dict[str, Any]] = []
    for ident in range(int(random.integers(1, 4))):
        size = int(random.integers(2, 12))
        window = {"rows": size} if random.random() < 0.7 else {"span": 2 * size * MS}
        point = random.integers(1, 4, 2) * 1.0
        k = int(random.integers(1, 4))
        queries.append({"id": ident, "v": point.tolist(), "k": k, **window})
    objects = []
    for _ in range(int(random.integers(1, 40))):
        t = START + int(random.integers(0, 60)) * MS
        ident, point = int(random.integers(0, 30)), random.integers(1, 4, 2) * 1.0
        for _ in range(int(random.choice([1, 1, 2, 5]))):
            again = random.integers(1, 4, 2) * 1.0 if corrected else point
            objects.append((t, ident, again.tolist()))
    arrival = np.array([t for t, *_ in objects]) + random.integers(0, 21 * MS, len(objects))
    queue = [objects[i] for i in np.argsort(arrival, kind="stable")]
    run = Run(call_of(method=method), queries, 22 * MS, workers)
    while queue:
        size = int(random.integers(1, 9))
        run.step(queue[:size])
        queue = queue[size:]
    run.finish()
    assert sum(load.late for load in run.loads) == 0
    assert run.hits() == expected(objects, queries)


@pytest.mark.parametrize("text", [False, True])
def test_the_order_does_not_depend_on_how_objects_came(text: bool) -> None:
    random = np.random.default_rng(3)
    t, ids = random.integers(0, 6, 60), random.integers(0, 3, 60)
    vectors = random.integers(0, 3, (60, 2)) * 1.0

    def block(rows: np.ndarray) -> Block:
        names = pa.array([f"n{i}" for i in ids[rows]]) if text else ids[rows]
        return Block.of(t[rows], {"id": names, "v": vectors[rows]})

    found = []
    for _ in range(5):
        objects = Ordered()
        for rows in np.array_split(random.permutation(60), 4):
            objects.add(block(rows))
        due = objects.due(9)
        columns = [list(due.columns[name]) for name in ("id", "v")]
        found.append([due.t.tolist(), [str(i) for i in columns[0]], np.array(columns[1]).tolist()])
    assert all(order == found[0] for order in found)
    wanted = sorted(zip(t.tolist(), ids.tolist(), vectors.tolist(), strict=True))
    assert found[0][0] == [row[0] for row in wanted]
    assert found[0][2] == [row[2] for row in wanted]


@given(seed=st.integers(0, 2**32 - 1))
def test_decoding_finds_the_cut_among_equals(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 30))
    columns = {"id": random.integers(0, 2, n), "v": random.integers(0, 2, (n, 1)) * 1.0}
    stored = Block.of(random.integers(0, 4, n), columns)
    objects, reached = Ordered(), int(random.integers(-1, 5))
    objects.add(stored)
    objects.due(reached)
    objects.drop_before(int(random.integers(0, objects.next_number + 1)))
    halves = [stored.take(rows) for rows in np.array_split(random.permutation(n), 2)]
    again = Ordered.decode(objects.encode(), halves, reached)
    assert again.next_number == objects.next_number
    assert again.first_past == objects.first_past
    numbers = np.arange(objects._base, objects.next_number)
    if len(numbers):
        (ours, our_times), (theirs, their_times) = again.look(numbers), objects.look(numbers)
        assert ours["id"].tolist() == theirs["id"].tolist()
        assert our_times.tolist() == their_times.tolist()
    left, right = (
        [block.columns["v"].tolist() for block in (each.due(9),) if len(block)]
        for each in (again, objects)
    )
    assert left == right
