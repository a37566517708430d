"""Any batching, any policy: the kernel gives what the twin gives, and no event is lost."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.assembly import close, due, store
from anabranch.assembly.closing import Closing
from anabranch.assembly.kernel import AssembleKernel, Emitted
from anabranch.assembly.store import AssembleNotes
from anabranch.assembly.table import CAUSES, MARK, Column
from anabranch.flow.blocks import Block
from anabranch.flow.instants import BEGINNING
from anabranch.flow.slices import Slices
from anabranch.testing import Workers
from tests.assembly.twin import Row, Twin
from tests.examples import examples

POLICIES = {
    "count or timeout": close.count(3, "7 us", remember="5 us"),
    "nothing remembered": close.count(2, "4 us", remember="0 us"),
    "gap": close.gap("4 us", remember="9 us"),
    "after": close.after("6 us", remember="10 us"),
    "learned": close.learned("9 us", risk=0.2, after=2, coverage=0.6, remember="6 us", cap=5),
    "learned, hardly any risk": close.learned("9 us", risk=0.001, after=1, remember="3 us"),
    "end marker, no grace": close.until("ends", otherwise=close.after("6 us", remember="10 us")),
    "end marker or gap": close.until("ends", "3 us", otherwise=close.gap("4 us", remember="9 us")),
    "end marker or count": close.until("ends", "4 us", otherwise=close.count(3, "7 us")),
    "end marker or learned": close.until(
        "ends", "2 us", otherwise=close.learned("9 us", risk=0.1, after=2, remember="6 us")
    ),
    "few kinds": close.learned("9 us", risk=0.3, after=2, remember="6 us", max_kinds=2),
}


def event(
    key: int, t: int, tie: int = 0, stream: int = 0, took: int = 0, ends: bool = False
) -> Row:
    """An event; equal ties mean equal content, as with the hash that Spark gives."""
    return {
        "key": (key, key * 31),
        "kind": key % 3,
        "t": t,
        "end": t + took,
        "stream": stream,
        "ends": ends,
        "tie": 2000 * tie + 200 * stream + 2 * took + ends,
    }


def block(rows: list[Row]) -> Block:
    w = [
        [*r["key"], r["kind"], r["end"], 1 << r["stream"] | MARK * r["ends"], r["tie"]]
        for r in rows
    ]
    return Block.of([r["t"] for r in rows], {"w": np.array(w, np.int64).reshape(len(rows), 6)})


class Job:
    """Kernels over bare rows, as the operator would run them."""

    verb, small, settings, notes, stays = "assemble", True, {}, AssembleNotes, (0, 0)

    def __init__(self, make: Any) -> None:
        self.make = make

    def kernel(self, slices: Any, task: Any) -> AssembleKernel:
        return self.make(slices)


class Bucket:
    """A kernel whose state goes through bytes between steps, as it does on Spark."""

    def __init__(self, closing: Closing, **options: Any) -> None:
        self.make = lambda slices: AssembleKernel(closing, slices, **options)
        self.workers = Workers(Job(lambda slices: self.make(slices)))
        self.results: list[Row] = []

    @property
    def loads(self) -> list[Any]:
        return self.workers.loads

    @property
    def due(self) -> int | None:
        return self.workers.timers[0]

    @property
    def stored(self) -> dict[int, bytes]:
        return {number: piece for (_, number), piece in self.workers.pieces.items()}

    def step(self, rows: list[Row], clock: int, flush: bool = False) -> list[Row]:
        made = self.workers.kernel(0)
        arrivals = [block(rows[::2]), block(rows[1::2])] if rows else []
        emitted = [row for part in made.advance(arrivals, clock, flush) for row in read_back(part)]
        self.workers.store(0, made)
        self.results += emitted
        return emitted


def read_back(emitted: Emitted) -> list[Row]:
    found = []
    for window, start, stop in zip(
        emitted.windows.tolist(), emitted.starts[:-1], emitted.starts[1:], strict=True
    ):
        assert emitted.items is not None
        w, t = emitted.items.columns["w"][start:stop], emitted.items.t[start:stop]
        items = [
            {
                "key": (int(r[0]), int(r[1])),
                "kind": int(r[2]),
                "t": int(at),
                "end": int(r[3]),
                "stream": int(r[4] & ~MARK).bit_length() - 1,
                "ends": bool(r[4] & MARK),
                "tie": int(r[5]),
            }
            for at, r in zip(t, w, strict=True)
        ]
        found.append(
            {
                "key": (window[Column.H1], window[Column.H2]),
                "seq": window[Column.SEQ],
                "revision": window[Column.REVISION],
                "opened": window[Column.OPENED],
                "closed": window[Column.CLOSED],
                "reason": CAUSES[window[Column.REASON]],
                "count": window[Column.COUNT],
                "usual_count": window[Column.EXPECTED] or None,
                "first": window[Column.FIRST],
                "last": window[Column.LAST],
                "end": window[Column.END],
                "streams": [n for n in range(4) if window[Column.STREAMS] >> n & 1],
                "items": items,
            }
        )
    return found


INVOCATIONS = st.builds(
    event,
    key=st.integers(0, 5),
    t=st.integers(1, 60),
    tie=st.integers(0, 3),
    stream=st.integers(0, 2),
    took=st.integers(0, 20),
    ends=st.sampled_from([False, False, False, True]),
)
STREAMS = st.lists(INVOCATIONS, max_size=60)
CUTS = st.lists(st.integers(0, 60), max_size=6)


def steps(rows: list[Row], cuts: list[int], lag: int) -> list[tuple[list[Row], int]]:
    """The rows in arrival order, cut into batches, each with a watermark of what came before."""
    found, clock, newest = [], 0, 0
    places = [0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]
    for start, stop in itertools.pairwise(places):
        clock = max(clock, newest - lag)
        found.append((rows[start:stop], clock))
        newest = max([newest, *(r["t"] for r in rows[start:stop])])
    return [*found, ([], max(clock, newest - lag)), ([], 500)]


def canonical(results: list[Row]) -> list[str]:
    """Results in an order of their own, so that only their content counts."""
    return sorted(map(repr, results))


@pytest.mark.parametrize("name", POLICIES)
@given(rows=STREAMS, cuts=CUTS, lag=st.sampled_from([0, 3, 100]), limit=st.sampled_from([None, 2]))
@settings(max_examples=examples(75))
def test_the_kernel_is_the_twin_late_rows_and_all(
    name: str, rows: list[Row], cuts: list[int], lag: int, limit: int | None
) -> None:
    closing = POLICIES[name]
    bucket, twin = Bucket(closing, max_open=limit), Twin(closing, limit)
    for batch, clock in steps(rows, cuts, lag):
        assert bucket.step(batch, clock) == twin.step(batch, clock)
    told = [repr(item) for row in bucket.results for item in row["items"]]
    assert Counter(told) == Counter(map(repr, rows)), "every event comes out once"
    assert sum(load.late for load in bucket.loads) == sum(
        sum(r["t"] <= clock for r in batch) for batch, clock in steps(rows, cuts, lag)
    )
    assert len(bucket.stored) <= 1, "no rows are kept when all windows have closed"


@pytest.mark.parametrize("name", POLICIES)
@given(rows=STREAMS, cuts=CUTS, other=CUTS, seed=st.randoms(), limit=st.sampled_from([None, 1, 3]))
@settings(max_examples=examples(50))
def test_any_batching_and_any_order_give_the_same_rows(
    name: str, rows: list[Row], cuts: list[int], other: list[int], seed: Any, limit: int | None
) -> None:
    first, second = (Bucket(POLICIES[name], max_open=limit) for _ in range(2))
    for batch, clock in steps(rows, cuts, 100):
        first.step(batch, clock)
    shuffled = rows[:]
    seed.shuffle(shuffled)
    for batch, clock in steps(shuffled, other, 100):
        second.step(batch, clock)
    assert canonical(first.results) == canonical(second.results)


@pytest.mark.parametrize("name", ["count or timeout", "gap", "learned"])
@given(rows=STREAMS, cuts=CUTS)
def test_clocks_between_change_nothing(name: str, rows: list[Row], cuts: list[int]) -> None:
    """A watermark that creeps fires the same timers as one that leaps."""
    creeping, leaping = Bucket(POLICIES[name]), Bucket(POLICIES[name])
    creeping.step(rows, 0)
    leaping.step(rows, 0)
    for clock in range(1, 120, 1 + len(cuts)):
        creeping.step([], clock)
    leaping.step([], 118)
    for bucket in (creeping, leaping):
        bucket.step([], 500)
    assert creeping.results == leaping.results


@pytest.mark.parametrize("name", POLICIES)
@given(rows=STREAMS, cuts=CUTS, limit=st.sampled_from([None, 2]))
def test_processing_time(name: str, rows: list[Row], cuts: list[int], limit: int | None) -> None:
    closing = POLICIES[name]
    bucket = Bucket(closing, max_open=limit, by_arrival=True)
    twin = Twin(closing, limit, by_arrival=True)
    for n, (batch, _) in enumerate(steps(rows, cuts, 0)):
        assert bucket.step(batch, 5 * n) == twin.step(batch, 5 * n)


@given(rows=STREAMS)
def test_event_time_is_processing_time_on_the_sorted_stream(rows: list[Row]) -> None:
    closing = POLICIES["count or timeout"]
    by_event, by_arrival = Bucket(closing), Bucket(closing, by_arrival=True)
    by_event.step(rows, 0)
    by_event.step([], 500)
    for t in sorted({r["t"] for r in rows}):
        by_arrival.step([r for r in rows if r["t"] == t], t)
    by_arrival.step([], 500)
    assert canonical(by_event.results) == canonical(by_arrival.results)


@given(rows=STREAMS, at=st.integers(0, 70))
def test_flush_closes_what_is_open(rows: list[Row], at: int) -> None:
    closing = POLICIES["gap"]
    bucket, twin = Bucket(closing), Twin(closing)
    for batch, clock, flush in ((rows, 0, False), ([], at, True)):
        assert bucket.step(batch, clock, flush) == twin.step(batch, clock, flush)


# 13/22 in small: n = 3, timeout 7
#
#  t        1   2   3   4 ...  8   9       15
#  key 1    o   o   o | .          o ------ (16)   full at 3; the fourth opens seq 1
#  key 2        o ............ (9)               timeout at 9, before the row of time 9
def test_a_story_of_the_small_window_array() -> None:
    rows = [event(1, t) for t in (1, 2, 3, 6)] + [event(2, t) for t in (2, 9)]
    bucket = Bucket(close.count(3, "7 us"))
    bucket.step(rows, 0)
    told = bucket.step([], 100)
    assert [(r["key"][0], r["seq"], r["reason"], r["opened"], r["closed"]) for r in told] == [
        (1, 0, "full", 1, 3),
        (2, 0, "timeout", 2, 9),
        (1, 1, "timeout", 6, 13),
        (2, 1, "timeout", 9, 16),
    ]


def test_a_late_event_is_a_revision_and_holds_only_what_is_new() -> None:
    bucket = Bucket(close.count(2, "5 us", remember="20 us"))
    bucket.step([event(1, 10), event(1, 11)], 0)
    (whole,) = bucket.step([], 12)
    (again,) = bucket.step([event(1, 9)], 15)
    assert (whole["revision"], whole["reason"], whole["count"]) == (0, "full", 2)
    assert (again["revision"], again["reason"], again["count"]) == (1, "late", 3)
    assert (again["seq"], again["first"], [r["t"] for r in again["items"]]) == (0, 9, [9])


def test_a_learned_kind_closes_at_its_size() -> None:
    bucket = Bucket(close.learned("50 us", risk=0.2, after=4, remember="5 us"))
    rows = [event(3 * n, 100 * n + d) for n in range(20) for d in (1, 2, 5)]
    bucket.step(rows, 0)
    told = bucket.step([], 5000)
    assert [r["reason"] for r in told[:4]] == ["timeout"] * 4
    assert {r["reason"] for r in told[12:]} == {"complete"}
    assert {r["usual_count"] for r in told[2:]} == {3} and {r["count"] for r in told} == {3}
    late = Bucket(close.learned("50 us", risk=0.2, after=4, remember="5 us"))
    late.step([*rows, event(3 * 20, 2001), event(3 * 20, 2002)], 0)
    short = late.step([], 5000)[-1]
    assert (short["reason"], short["count"]) == ("gap", 2)
    assert 2002 + 3 < short["closed"] < 2002 + 50  # the longest silence so far was 3


def test_a_hundred_thousand_open_windows() -> None:
    n = 100_000
    w = np.zeros((n, 6), np.int64)
    w[:, 0] = w[:, 1] = np.arange(n)
    bucket = AssembleKernel(close.count(9, "1 second"), Slices((0, 0), AssembleNotes()))
    bucket.advance([Block.of(np.arange(1, n + 1), {"w": w})], 0)
    bucket.advance([], n)
    assert bucket.load.open_windows == n and bucket.load.instances == 0
    bucket.advance([], 2 * n + 1_000_000)
    assert bucket.load.open_windows == 0 and bucket.load.instances == n


def test_slices_that_are_mostly_dead_are_copied_together() -> None:
    bucket = Bucket(close.gap("500 us"))
    for n in range(60):
        rows = [event(key, n * 20 + 1) for key in range(1000 * n, 1000 * n + 50)]
        bucket.step([*rows, *(event(0, n * 20 + d) for d in range(3))], n * 20)
    assert sum(load.evicted for load in bucket.loads) == 0
    assert bucket.loads[-1].state_rows < 4000


def test_what_is_copied_together_is_stored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, cut = Bucket(close.gap("500 us")), Bucket(close.gap("500 us"))
    most = {}
    for size, bucket in ((1 << 25, plain), (2000, cut)):
        monkeypatch.setattr(store, "SLICE_BYTES", size)
        for n in range(40):
            bucket.step([event(key, n * 20 + 1, tie=n) for key in range(10)], n * 20)
        most[size] = max(map(len, bucket.stored.values()))
        for clock in (5_000, 10_000):
            bucket.step([], clock)
    assert plain.results == cut.results and len(plain.results) == 10
    assert most[2000] < most[1 << 25] / 2


def test_a_large_batch_is_stored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [event(key, t) for t in range(1, 60) for key in range(4)]
    plain, cut = Bucket(POLICIES["gap"]), Bucket(POLICIES["gap"])
    plain.step(rows, 20)
    monkeypatch.setattr(due, "SLICE_BYTES", 1000)
    cut.step(rows, 20)
    assert len(cut.stored) > len(plain.stored) + 5
    for clock in (30, 500):
        assert plain.step([], clock) == cut.step([], clock)
    assert plain.results == cut.results and len(cut.stored) <= 1


def test_next_due_wakes_for_rows_that_wait_and_for_deadlines() -> None:
    bucket = Bucket(close.count(5, "7 us", remember="2 us"))
    bucket.step([event(1, 10)], 0)
    assert bucket.due == 10
    bucket.step([], 11)
    assert bucket.due == 17
    bucket.step([], 17)
    assert bucket.due == 19
    bucket.step([], 19)
    assert bucket.due is None


def test_policies_differ_in_what_comes_after_the_close() -> None:
    assert replace(POLICIES["after"]).revises and not POLICIES["gap"].revises
    assert BEGINNING < 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("risk", [0.3, 0.05, 0.002])
def test_what_is_learned_from_a_long_stream_is_what_the_twin_learns(risk: float, seed: int) -> None:
    """Long enough for rings to go round, and with several events at one instant."""
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    for key in range(400):
        t = 12 * key + 1
        size = (1, 3, 6)[key % 3] + int(random.random() < 0.1)
        for n, gap in enumerate(random.choice([0, 0, 1, 2, 4, 9, 14], size)):
            t += int(gap)
            rows.append(event(key, t, tie=n))
    closing = close.learned("15 us", risk=risk, after=10, remember="20 us")
    twin, bucket = Twin(closing), Bucket(closing)
    for clock in [0, *range(500, 6000, 500)]:
        part = [row for row in rows if clock < row["t"] + 30 <= clock + 500]  # some are late
        assert bucket.step(part, clock) == twin.step(part, clock)
    reasons = Counter(row["reason"] for row in twin.results)
    assert sum(row["count"] for row in twin.results if row["reason"] != "late") > 1000
    assert reasons["timeout"] > 20 and (risk < 0.01 or reasons["complete"] > 20)


def test_behind_an_operator_late_is_what_the_last_clock_had_passed() -> None:
    """An aggregate upstream emits its rows when the watermark has passed them."""
    bucket = Bucket(close.gap("3 us"), by_last_step=True)
    bucket.step([event(1, 5)], 0)
    bucket.step([event(1, 4), event(1, 7)], 10)
    assert bucket.due == 11, "called at every watermark, rows or not"
    bucket.step([event(2, 9)], 20)
    bucket.step([], 99)
    assert [(row["reason"], row["count"]) for row in bucket.results] == [
        ("gap", 3),
        ("late", 1),
    ]
    assert [load.late for load in bucket.loads] == [0, 0, 1, 0]


def test_a_second_window_of_a_key_does_not_keep_others_remembered() -> None:
    """Key 1 closes again before key 2 is forgotten: what was queued of it first is out of date."""
    closing = close.count(1, "5 us", remember="10 us")
    rows = [event(1, 1), event(2, 2), event(1, 9), event(2, 13)]
    twin, bucket = Twin(closing), Bucket(closing)
    assert bucket.step(rows, 0) == twin.step(rows, 0) == []
    found = bucket.step([], 14)
    assert found == twin.step([], 14)
    assert [row["seq"] for row in found] == [0, 0, 1, 0]
