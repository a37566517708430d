"""A query that is stopped and started again: each pair once, or a refusal, never a gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import anabranch as ab
from anabranch.errors import StateMismatch
from anabranch.flow.slices import Notes, Slices
from anabranch.flow.stored import place_of
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import Plan
from tests.correlation import twin
from tests.spark.feeds import ROW, SECOND, Feed, agree, at, found, row, scripted
from tests.spark.tws import Correlating

WHERE = ab.cosine("v") >= 0.6
SPANS = (3 * SECOND, 3 * SECOND)
CALL = {"where": WHERE, "window": "3 seconds", "watermark": "3 seconds"}


score = twin.alike(0.6)


def test_each_pair_once_across_restarts(spark: Any, tmp_path: Path) -> None:
    batches = scripted(5, rows=(10, 15), seed=5)
    feed = Feed(tmp_path)
    for part in (batches[:2], [], batches[2:]):
        feed.add(part)
        feed.run(ab.correlate(*feed.streams(spark), **CALL, plan=ab.grid(1, 2)))
    want = twin.pairs_in_time(batches, SPANS, score, 3 * SECOND)
    agree(found(feed.output(spark)), want)
    # The checkpoint is that of another query, and says so.
    feed.add(scripted(6, rows=(10, 15), seed=5)[5:])
    other = {**CALL, "window": "4 seconds"}
    with pytest.raises(StreamingQueryException, match="StateMismatch") as refusal:
        feed.run(ab.correlate(*feed.streams(spark), **other, plan=ab.grid(1, 2)))
    assert "begin a new checkpoint" in str(refusal.value)
    agree(found(feed.output(spark)), want)


def test_the_threshold_may_change() -> None:
    """State holds rows, not pairs, so a new threshold holds for the pairs to come."""
    before, after = scripted(2, rows=(6, 6), seed=6), scripted(4, rows=(6, 6), seed=6)[2:]
    run = Correlating(**CALL, plan=ab.broadcast(2)).run(before)
    old = twin.pairs_in_time(before, SPANS, score, 3 * SECOND)
    agree(run.pairs, old)
    run = run.restarted(where=ab.cosine("v") >= 0.8).run(after)
    new = twin.pairs_in_time([*before, *after], SPANS, score, 3 * SECOND)
    agree(run.pairs, {pair: s for pair, s in new.items() if pair in old or s >= 0.8})


OTHER = {
    "another window": {"window": "4 seconds"},
    "other kept columns": {"keep": ["name"]},
    "another plan": {"plan": ab.broadcast(2, "left")},
    "fewer workers": {"plan": ab.broadcast(1)},
}


@pytest.mark.parametrize("what", OTHER)
def test_state_of_another_query_is_refused(what: str) -> None:
    script = scripted(3, rows=(6, 6))
    begun = Correlating(**CALL, plan=ab.broadcast(2)).run(script[:2])
    kept = begun.pairs
    changed = begun.restarted(**OTHER[what])
    with pytest.raises(StateMismatch, match="begin a new checkpoint"):
        changed.run(script[2:])
    agree(changed.pairs, kept)
    agree(
        begun.restarted().run(script[2:]).pairs,
        twin.pairs_in_time(script, SPANS, score, 3 * SECOND),
    )


def test_kept_columns_of_another_type_are_refused() -> None:
    """A timestamp and a bigint are stored alike, so the old ones would come out as numbers."""
    batches = scripted(3, rows=(6, 6))

    def schema(kind: pa.DataType) -> tuple[pa.Schema, pa.Schema]:
        place = ROW.get_field_index("x")
        return (ROW.set(place, pa.field("x", kind)),) * 2

    call = {**CALL, "plan": ab.broadcast(2), "keep": ["x"]}
    begun = Correlating(schema(pa.timestamp("us", "UTC")), **call).run(batches[:2])
    for kind, name in ((pa.int64(), "bigint"), (pa.int32(), "int")):
        with pytest.raises(StateMismatch, match=f"left.keep='x timestamp'.* left.keep='x {name}'"):
            begun.restarted(schemas=schema(kind)).run(batches[2:])


# Each worker sees only its own rows and state. Under these plans every row before the restart goes
# to one worker, and every row after it to another, which has no state that could contradict.
#
#   second          23.5   24   26  | restart |  27   29
#   first plan      one worker
#   second plan                                  the other
MOVES: dict[str, tuple[Plan, Plan]] = {
    "longer segments": (ab.segments(2, "20 seconds"), ab.segments(2, "40 seconds")),
    "other shares": (keyed(2, weights=[1, 0]), keyed(2, weights=[0, 1])),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_plan_that_moves_every_row_is_refused_too(name: str) -> None:
    first, second = MOVES[name]
    seconds = [23.5, 24, 26, 27, 29]
    batches = [([row(2 * n, at(s))], [row(2 * n + 1, at(s))]) for n, s in enumerate(seconds)]
    call = {**CALL, "where": WHERE & ab.same("room")}
    begun = Correlating(**call, plan=first).run(batches[:3])
    agree(begun.pairs, twin.pairs_in_time(batches[:3], SPANS, score, 3 * SECOND))
    with pytest.raises(StateMismatch):
        begun.restarted(plan=second).run(batches[3:])
    whole = begun.restarted().run(batches[3:])
    agree(whole.pairs, twin.pairs_in_time(batches, SPANS, score, 3 * SECOND))


def test_slices_that_lie_in_parts_come_back_and_leave_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.flow.stored.PART_BYTES", 300)
    batches = scripted(9, rows=(10, 15), seed=5)
    run = Correlating(**CALL, plan=ab.broadcast(2))
    numbers = set()
    for batch in batches:  # each in a process that remembers nothing
        run = run.run([batch]).restarted()
        pieces = run.bench._tester.handle.map_states["pieces"].state
        heads = run.bench._tester.handle.value_states["head"].state
        for worker, (head,) in heads.items():
            listed = Slices.open((0, 0), Notes, head, None).entries.values()
            parts = {place_of(entry.number, n) for entry in listed for n in range(entry.parts)}
            assert {number for (number,) in pieces[worker]} == parts
            numbers |= parts
    agree(run.pairs, twin.pairs_in_time(batches, SPANS, score, 3 * SECOND))
    assert max(numbers) > place_of(0, 2)
    first = next(iter(pieces))
    del pieces[first][max(pieces[first])]
    with pytest.raises(StateMismatch, match="is listed but not in the state store"):
        run.restarted().run(scripted(10, rows=(10, 15), seed=5)[9:])
