"""The operator of every verb on the bench: steps, timers, restarts, and odd times and zones.

::

    batch    1      2     restart    3        4
    rows     a  b   a                a, late  far, far later
    timer                                     closes what got no rows
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.errors import StateMismatch
from tests.assembly.twin import Twin
from tests.neighbours.runs import expected
from tests.spark.feeds import ROW, SECOND, START, at, row
from tests.spark.tws import Assembling, Correlating, Searching

# The last second of the year 9999, which no nanosecond reaches and no zone east of London.
FAR = 253_402_300_799 * SECOND
ZONES = ("Asia/Tokyo", "America/New_York")


def zoned(zone: str) -> pa.DataType:
    return pa.timestamp("us", zone)


# ---------------------------------------------------------------- nearest

QUERIES = [{"id": n, "v": [float(n)], "k": 2, "span": (n + 1) * SECOND} for n in range(6)]
OBJECTS = [(at(n / 4), n, [float(n % 7)]) for n in range(20)]
BATCHES = [OBJECTS[n : n + 5] for n in range(0, 20, 5)]


def test_nearest_steps_and_restarts_and_its_timers_tell_what_enters_later() -> None:
    run = Searching(QUERIES, watermark="500 ms").run([(batch, []) for batch in BATCHES[:2]])
    run = run.restarted().run([(batch, []) for batch in BATCHES[2:]])
    end = (FAR, 99, [1e6])
    # Nobody has rows in the last micro-batch; what enters when others expire is told by timers.
    run.run([([end], []), ([], []), ([], [])])
    want = [hit for hit in expected([*OBJECTS, end], QUERIES) if hit[3] <= FAR - SECOND // 2]
    assert run.hits == want
    assert sum(hit[3] > hit[2] for hit in want) > 3, "some enter later than they come"
    assert sum(run.bench.state_rows().values()) <= 2, "the last object waits at each worker"


def test_queries_begin_and_end_across_a_restart() -> None:
    added = [{**query, "t": at(0.5), "op": "add"} for query in QUERIES]
    ended = [{"id": n, "t": at(3), "op": "cancel"} for n in (0, 3)]
    run = Searching(watermark="500 ms").run([(BATCHES[0], added), (BATCHES[1], [])])
    run = run.restarted().run([(BATCHES[2], ended), (BATCHES[3], []), ([(at(60), 99, [1e6])], [])])
    run.run([([], [])])
    asked = [{**query, "t": at(0.5)} for query in QUERIES]
    for query in asked:
        if query["id"] in (0, 3):
            query["until"] = at(3)
    assert run.hits == [hit for hit in expected(OBJECTS, asked) if hit[3] <= at(59.5)]


@pytest.mark.parametrize("fixed", [None, QUERIES])
def test_another_number_of_workers_at_a_restart_is_named(fixed: Any) -> None:
    """By default it is that of shuffle partitions, of which a checkpoint keeps its own."""
    added = [{**query, "t": at(0), "op": "add"} for query in QUERIES] if fixed is None else []
    run = Searching(fixed, watermark="500 ms").run([(BATCHES[0], added)])
    with pytest.raises(
        StateMismatch, match=r"begun with ab.broadcast\(2\).*pass plan=ab.broadcast\(2\)"
    ):
        run.restarted(plan=ab.broadcast(3)).run([(BATCHES[1], [])])
    again = run.restarted(plan=ab.broadcast(2)).run([(batch, []) for batch in BATCHES[1:]])
    assert again.hits


# ---------------------------------------------------------------- assemble


def shape(zone: str = "UTC") -> pa.Schema:
    """Numbered pages, and two columns with instants of a session in this zone."""
    kinds = {"page": pa.int64(), "ts": zoned(zone), "seen": zoned(zone), "n": pa.int64()}
    return pa.schema({**kinds, "more": pa.struct({"z": zoned(zone)})})


def visit(page: int, seconds: float, n: int, t: int | None = None) -> dict[str, Any]:
    t = at(seconds) if t is None else t
    return {"page": page, "t": t, "seen": START, "n": n, "more": {"z": FAR}}


PAGES = {"key": ["page", "seen"], "keep": ["n", "more"], "watermark": "1 second"}


def instances(run: Assembling) -> list[Any]:
    """Page, when it closed, why, and what it holds."""
    found = []
    for batch in run.bench.results:
        items = batch.column("items")
        numbers = pc.struct_field(items.flatten(), "n").to_pylist()
        ends = items.offsets.to_pylist()
        assert set(
            pc.struct_field(items.flatten(), ["more", "z"]).cast(pa.int64()).to_pylist()
        ) <= {FAR}
        names = ("k0", "closed", "reason")
        for n, one in enumerate(batch.select(names).to_pylist()):
            found.append((*one.values(), numbers[ends[n] : ends[n + 1]]))
    return sorted(found)


@pytest.mark.parametrize("zones", [("UTC", "UTC"), ZONES, ZONES[::-1]])
def test_assemble_steps_and_restarts_in_another_zone_and_its_timers_close(zones: Any) -> None:
    run = Assembling(
        shape(zones[0]), close=ab.close.gap("3 seconds", remember="9 seconds"), **PAGES
    )
    run.run([[visit(n, 0, n) for n in range(4)], [visit(0, 2, 10), visit(1, 2.5, 11)]])
    run = run.restarted(schema=shape(zones[1]))
    run.run([[visit(0, 4, 20), visit(2, 7, 22)], [visit(1, 1, 31)]])
    # One row beyond the years that nanoseconds hold: time goes on, and timers close the rest.
    run.run([[visit(3, 0, 99, FAR)], [], []])
    want = [
        (0, at(7), "timeout", [0, 10, 20]),
        (1, at(5.5), "timeout", [1, 11]),
        (1, at(6), "late", [31]),
        (2, at(3), "timeout", [2]),
        (2, at(10), "timeout", [22]),
        (3, at(3), "timeout", [3]),
    ]
    assert instances(run) == want
    assert sum(run.bench.state_rows().values()) == 1, "the row of the far future waits"


@pytest.mark.parametrize("restarts", [set(), {1}, {1, 2, 3, 4, 5}])
@pytest.mark.parametrize("policy", ["count or timeout", "session", "wait"])
def test_assemble_by_the_clock_across_restarts(policy: str, restarts: set[int]) -> None:
    """Windows close by the time of micro-batches, with rows or without, in whichever process."""
    closing = {
        "count or timeout": ab.close.count(3, "2500 ms"),
        "session": ab.close.gap("1200 ms", remember="2 seconds"),
        "wait": ab.close.after("2 seconds", remember="3 seconds"),
    }[policy]
    call = {"key": ["page", "seen"], "keep": ["n", "more"], "clock": "processing"}
    run, book = Assembling(shape(), close=closing, **call), Twin(closing, by_arrival=True)
    pages = [[0, 1, 2], [0], [0, 3], [], [1, 1], [2], [], []]
    want: list[Any] = []
    for number, some in enumerate(pages):
        rows = [visit(page, n, 10 * number + n) for n, page in enumerate(some)]
        clock = at(number) // 1000
        run = run.restarted() if number in restarts else run
        run.run([rows], [clock])
        # The twin goes through keys in order, as buckets go through their hashes.
        given = [{**r, "key": r["page"], "kind": 0, "end": r["t"], "stream": 0} for r in rows]
        for each in book.step([{**r, "tie": n} for n, r in enumerate(given)], clock * 1000):
            items = [item["n"] for item in each["items"]]
            want.append((each["key"], each["closed"], each["reason"], items))
    assert instances(run) == sorted(want)
    assert len(want) > 4


def test_an_assembly_with_another_number_of_workers_is_named() -> None:
    run = Assembling(shape(), close=ab.close.gap("3 seconds"), **PAGES).run([[visit(1, 0, 1)]])
    with pytest.raises(StateMismatch, match=r"plan='ab.keyed\(2\)'.*now says plan='ab.keyed\(3\)'"):
        run.restarted(workers=3).run([[visit(n, 1, n) for n in range(9)]])
    again = run.restarted(workers=2).run([[visit(1, 1, 2)], [visit(2, 9, 3)], []])
    assert instances(again) == [(1, at(4), "timeout", [1, 2])]


# ---------------------------------------------------------------- correlate


@pytest.mark.parametrize("zones", [("UTC", "UTC"), ZONES, ZONES[::-1]])
def test_correlate_keeps_instants_of_any_year_across_a_restart_in_another_zone(zones: Any) -> None:
    def shapes(zone: str) -> Any:
        kinds = {field.name: field.type for field in ROW} | {"ts": zoned(zone), "seen": zoned(zone)}
        return (pa.schema({**kinds, "more": pa.struct({"z": zoned(zone)})}),) * 2

    def made(ident: int, t: int) -> dict[str, Any]:
        return {**row(ident, t), "seen": FAR, "more": {"z": FAR}}

    call = {"where": ab.within("x", 1), "window": "2 seconds", "watermark": "1 second"}
    run = Correlating(shapes(zones[0]), plan=ab.broadcast(2), keep=["seen", "more"], **call)
    run.run([([made(1, at(0))], [made(2, at(0.5))]), ([made(3, at(1))], [])])
    run = run.restarted(schemas=shapes(zones[1]))
    run.run([([], [made(4, at(1.5))]), ([made(5, FAR)], [made(6, FAR)]), ([], []), ([], [])])
    assert set(run.pairs) == {(1, 2), (1, 4), (3, 2), (3, 4), (5, 6)}
    for batch in run.bench.results:
        for name in ("left_k0", "right_k0"):
            assert set(batch.column(name).cast(pa.int64()).to_pylist()) == {FAR}
        for name in ("left_k1", "right_k1"):
            kept = pc.struct_field(batch.column(name), "z").cast(pa.int64())
            assert set(kept.to_pylist()) == {FAR}
