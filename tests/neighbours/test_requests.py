"""Queries asked for and cancelled, late, twice and anew: what a model of a few lines says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.neighbours import requests
from anabranch.neighbours.call import plan_nearest
from anabranch.neighbours.methods import ListWithRepair
from anabranch.neighbours.queries import read_queries
from anabranch.neighbours.requests import MEMORY
from tests.examples import examples
from tests.neighbours.runs import OBJECTS, START, Run, Timed, call_of, expected, table, top_of

MS = 1000
Step = tuple[list[Any], list[Any]]


class Model:
    """Of all that was ever asked of an id, the latest holds, from when it is heard of."""

    def __init__(self) -> None:
        self.reached = -1
        self.objects: list[Any] = []
        self.waiting: list[Any] = []
        self.latest: dict[int, tuple[Any, list[Any]]] = {}
        self.running: dict[int, Any] = {}
        self.over: list[Any] = []

    def step(self, objects: list[Any], ops: list[Any], watermark: int) -> None:
        self.objects += [o for o in objects if o[0] > watermark]
        self.waiting += ops
        if watermark <= self.reached:
            return
        for op in sorted(self.waiting, key=lambda op: (op["t"], op["op"] == "add")):
            if op["t"] <= watermark:
                self.hear(op)
        self.waiting = [op for op in self.waiting if op["t"] > watermark]
        self.reached = watermark

    def hear(self, op: Any) -> None:
        ident, key = op["id"], (op["t"], op["op"] == "add")
        before, said = self.latest.get(ident, ((-1, False), []))
        if key < before or (key == before and op in said):
            return
        self.latest[ident] = (key, [*said, op] if key == before else [op])
        at = max(op["t"], self.reached)
        if ident in self.running:
            self.over.append({**self.running.pop(ident), "until": at})
        if op["op"] == "add":
            self.running[ident] = {**op, "t": at}

    def hits(self) -> list[Any]:
        return expected(self.objects, [*self.over, *self.running.values()])

    def top(self, ident: int) -> list[int]:
        """The ids of the current top-k, best first."""
        query = self.running.get(ident)
        if query is None:
            return []
        return top_of(self.objects, query, self.reached)


def asked(t: int, ident: int = 1, **more: Any) -> dict[str, Any]:
    """The op that adds a query at so many milliseconds."""
    query = {"id": ident, "v": [0.0], "k": 1, "span": 100 * MS, **more}
    return {**query, "t": START + t * MS, "op": "add"}


def cancelled(t: int, ident: int = 1) -> dict[str, Any]:
    return {"id": ident, "t": START + t * MS, "op": "cancel"}


def thing(t: int, ident: int, x: float) -> Any:
    return (START + t * MS, ident, [x])


@st.composite
def op(draw: st.DrawFn) -> dict[str, Any]:
    """An op on one of three ids; few times and few contents, so that many of them are the same."""
    t, ident = draw(st.integers(0, 12)) * 5, draw(st.integers(1, 3))
    if draw(st.booleans()):
        return cancelled(t, ident)
    long: dict[str, Any] = {"span": draw(st.sampled_from([5, 12, 40])) * MS}
    if draw(st.booleans()):
        long = {"rows": draw(st.integers(1, 4)), "span": None}
    return asked(t, ident, k=draw(st.integers(1, 2)), v=[draw(st.sampled_from([0.0, 2.0]))], **long)


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    """Micro-batches over some 80 ms; ops come early, late and more than once."""
    pool = draw(st.lists(op(), min_size=1, max_size=6))
    steps: list[Step] = []
    clock, ident = 0, 100
    for _ in range(draw(st.integers(1, 12))):
        clock += draw(st.sampled_from([0, 0, 5, 8, 20]))
        objects = []
        for shift in draw(st.lists(st.integers(-6, 3), max_size=4)):
            ident += 1
            objects.append(thing(max(0, clock + shift), ident, float(draw(st.integers(0, 3)))))
        steps.append((objects, draw(st.lists(st.sampled_from(pool), max_size=3))))
    return steps


@settings(max_examples=examples(150))
@given(scripts(), st.sampled_from([0, 5]), st.integers(1, 2), st.sampled_from(["exact", "relaxed"]))
def test_hits_are_those_of_the_model(
    steps: list[Step], late: int, workers: int, method: str
) -> None:
    run, model = Timed(call_of(ops=True, method=method), None, late * MS, workers), Model()
    for objects, ops in steps:
        model.step(objects, ops, run.watermark)
        run.step(objects, ops)
    run.finish()
    model.step([], [], run.watermark)
    assert run.hits() == model.hits()


@settings(max_examples=examples(150))
@given(scripts(), st.sampled_from([0, 5]), st.integers(1, 2))
def test_the_table_of_tops_is_that_of_the_model_after_every_step(
    steps: list[Step], late: int, workers: int
) -> None:
    run, model = Timed(call_of(ops=True, output="top"), None, late * MS, workers), Model()
    for objects, ops in [*steps, ([], [])]:
        model.step(objects, ops, run.watermark)
        run.step(objects, ops)
        for ident in (1, 2, 3):
            assert table(run.rows, ident) == model.top(ident)


@settings(max_examples=examples(75))
@given(scripts(), st.data(), st.sampled_from(["hits", "top"]))
def test_what_is_delivered_again_has_no_effect(
    steps: list[Step], data: st.DataObject, output: str
) -> None:
    once, again = (Run(call_of(ops=True, output=output), None, 5 * MS, 1) for _ in range(2))
    sent: list[Any] = []
    for objects, ops in steps:
        sent += ops
        copies = data.draw(st.lists(st.sampled_from(sent), max_size=3)) if sent else []
        once.step(objects, ops)
        again.step(objects, [*ops, *copies])
    once.finish()
    again.finish()
    assert again.rows == once.rows


def steadily(run: Run, first: int, last: int) -> None:
    """One object each ten milliseconds, each nearer than the one before."""
    for t in range(first, last, 10):
        run.step([thing(t, t, 1000.0 - t)])


def test_an_add_that_comes_again_is_one_query() -> None:
    """The second time it comes, it is later than what has been dealt with.

    ::

        t       5    10  20  30   40  50  60  70
        first   a--------------------------------
        again                   a
        hits         10  20  30   40  50  60  70    once each
    """
    run = Run(call_of(ops=True), None, 0, 1)
    run.step([thing(0, 0, 1000.0)], [asked(5)])
    steadily(run, 10, 40)
    run.step([], [asked(5)])
    steadily(run, 40, 80)
    run.step([])
    assert [hit[1] for hit in run.hits()] == [10, 20, 30, 40, 50, 60, 70]


@pytest.mark.parametrize("order", [[0, 1], [1, 0], [0, 1, 0]])
def test_a_late_query_and_its_cancellation_leave_nothing(order: list[int]) -> None:
    ops = [asked(5), cancelled(15)]
    run = Run(call_of(ops=True), None, 0, 1)
    steadily(run, 0, 50)
    run.step([])
    for which in order:
        run.step([], [ops[which]])  # no object between: it ends where it began
    steadily(run, 50, 100)
    assert run.hits() == []
    assert run.state_rows <= 2
    assert sum(load.late for load in run.loads) == len(order)


def test_of_two_at_one_time_the_last_holds_and_neither_comes_back() -> None:
    run = Run(call_of(ops=True), None, 0, 1)
    run.step([thing(0, 0, 1000.0)], [asked(5, k=1)])
    steadily(run, 10, 30)
    run.step([], [asked(5, k=3)])
    run.step([thing(30, 30, 1.0)], [asked(5, k=1)])
    run.step([thing(40, 40, 2.0)])
    run.step([])
    assert [(hit[1], hit[5]) for hit in run.hits()] == [(10, 1), (20, 1), (30, 1), (40, 2)]


def test_an_end_told_long_before_does_not_move_time() -> None:
    run = Run(call_of(ops=True), None, 0, 1)
    run.step([thing(0, 0, 1000.0)], [asked(5), cancelled(7_200_000), cancelled(45)])
    steadily(run, 10, 80)
    assert [hit[1] for hit in run.hits()] == [10, 20, 30, 40]
    assert sum(load.late for load in run.loads) == 0


def test_cancellations_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(call_of(ops=True), None, 0, 1)
    run.step([thing(0, 0, 1.0)], [cancelled(5, ident) for ident in range(2000)])
    run.step([thing(10, 10, 1.0)])
    run.step([thing(20, 20, 1.0)])
    remembered = len(run.workers.pieces[0, -1])
    run.step([thing(MEMORY // MS, 30, 1.0)])
    run.step([], [asked(4, ident=7)])  # still known to be cancelled
    run.step([thing(MEMORY // MS + 6, 40, 1.0)])
    run.step([thing(MEMORY // MS + 7, 50, 1.0)])
    assert run.hits() == []
    assert len(run.workers.pieces[0, -1]) < remembered // 4
    monkeypatch.setattr(requests, "MOST_CANCELLED", 10)
    run = Run(call_of(ops=True), None, 0, 1)
    run.step([thing(0, 0, 1.0)], [cancelled(5 + ident, ident) for ident in range(30)])
    run.step([thing(50, 50, 1.0)])
    run.step([])
    run.step([thing(60, 60, 1.0)], [asked(4, ident=19), asked(4, ident=20)])
    run.step([thing(70, 70, 1.0)])
    run.step([thing(80, 80, 1.0)])
    assert {hit[0] for hit in run.hits()} == {19}


def test_many_queries_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of an op must not be that of all queries."""
    calls = []
    plain = ListWithRepair.cancel
    monkeypatch.setattr(
        ListWithRepair, "cancel", lambda *all: (calls.append(len(all[1])), plain(*all))[1]
    )
    run = Run(call_of(ops=True), None, 0, 1)
    run.step([thing(0, 0, 1.0)], [asked(5, ident) for ident in range(500)])
    run.step([thing(10, 10, 1.0)])
    run.step([thing(20, 20, 1.0)], [asked(15 + ident % 3, ident) for ident in range(500)])
    run.step([], [])
    assert calls == [500]


def test_a_cancelled_query_leaves_the_table_of_tops() -> None:
    run = Run(call_of(ops=True, output="top"), None, 0, 1)
    run.step([thing(0, 0, 9.0)], [asked(1), asked(1, ident=2)])
    run.step([thing(10, 10, 5.0)])
    run.step([thing(20, 20, 9.0)], [cancelled(15), asked(15, ident=2)])
    assert table(run.rows, 1) == table(run.rows, 2) == [10]
    run.step([])
    assert table(run.rows, 1) == []
    assert table(run.rows, 2) == [20]
    assert [row["rank"] for row in run.rows if row["query_id"] == 1] == [1, 0]


def test_no_two_tops_are_told_for_one_time() -> None:
    run = Run(call_of(ops=True, output="top"), None, 0, 1)
    run.step([thing(0, 0, 9.0)], [asked(1)])
    run.step([thing(10, 10, 5.0)])
    run.step([])
    assert [(row["as_of"], row["rank"]) for row in run.rows] == [(START + 10 * MS, 1)]
    run.step([], [cancelled(5)])  # late, and time stands still
    assert len(run.rows) == 1
    run.step([thing(20, 20, 1.0)])
    run.step([])
    assert [(row["as_of"], row["rank"]) for row in run.rows[1:]] == [(START + 20 * MS, 0)]


def test_a_new_owner_speaks_though_it_has_nothing_new() -> None:
    """What expires before the handover leaves the table, though the new owner never had it.

    ::

        t          75   100    110       121    131     155
        told  wm    70: plan 2 begins, bound 101; the watermark goes from 101 to 125 at once
        old owner       |--100--|         handover
        new owner  75, over by 85                131 waits
    """
    queries = [{"id": n, "v": [float(n)], "k": 1, "span": 10 * MS} for n in range(4)]
    run = Timed(call_of(watermark="30 milliseconds", output="top"), queries, 30 * MS, 1)
    run.step([thing(100, 100, 0.0)])
    run.plans = {**run.plans, "1": [2, None]}
    run.step([thing(75, 75, 0.0)])
    run.step([thing(131, 131, 0.0)])
    run.step([])
    assert all(table(run.rows, n) == [100] for n in range(4))
    run.step([thing(155, 155, 0.0)])
    run.step([])
    assert run.watermark == START + 125 * MS
    assert all(table(run.rows, n) == [] for n in range(4))


def test_only_the_id_and_the_time_of_a_cancellation_are_read() -> None:
    columns = {"query_id": "string", "v": "array<double>", "k": "int", "window": "string"}
    call = plan_nearest(OBJECTS, {**columns, "op": "string", "ts": "timestamp"}, by="v")[0]
    assert call is not None
    rows = {"id": ["a", "b", "c"], "v": [None, None, [1.0]], "t": [START] * 3, "k": [-1, None, 1]}
    texts = pa.array(["", "soon", "soon"])
    asked = pa.table({**rows, "text": texts, "op": ["cancel", "cancel", "add"]})
    block, faults = read_queries(call, asked)
    assert block.columns["id"].to_pylist() == ["a", "b"]
    assert (len(faults.problems), faults.count) == (1, 1)
    assert faults.problems[0].startswith("query 'c': window:")
