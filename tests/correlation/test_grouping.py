"""Groups of pairs: those of the twin, however pairs come, and each event once."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from anabranch.correlation.grouping import Grouping, Groups, GroupsJob
from anabranch.correlation.pair_packing import PairPacking
from anabranch.errors import AnabranchError, BadRow
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import check_settings
from anabranch.testing.workers import LivingWorkers, Workers
from tests.examples import examples

Pair = tuple[int, int, int]
START = 1_700_000_000_000_000


def components(pairs: list[Pair], one: bool) -> list[frozenset[Pair]]:
    """Connected components of pairs, by scipy."""
    ends = [[(0, a), (0 if one else 1, b)] for _, a, b in pairs]
    number = {row: n for n, row in enumerate(sorted({row for end in ends for row in end}))}
    if not number:
        return []
    edges = np.array([[number[row] for row in end] for end in ends])
    size = len(number)
    graph = coo_array((np.ones(len(edges)), edges.T), shape=(size, size))
    _, label = connected_components(graph, directed=False)
    found: dict[int, set[Pair]] = {}
    for pair, (a, _) in zip(pairs, edges, strict=True):
        found.setdefault(int(label[a]), set()).add(pair)
    return [frozenset(group) for group in found.values()]


def twin(
    pairs: list[Pair], gap: int, one: bool, changed: tuple[int, int] | None = None
) -> Counter[frozenset[Pair]]:
    """Final groups: at each pair, the components of all live ones; old components leave.

    With `changed`, a time and a gap, that gap counts after that time.
    """
    live: list[Pair] = []
    closed: Counter[frozenset[Pair]] = Counter()

    def leave(before: int, gap: int) -> None:
        old = [group for group in components(live, one) if max(p[0] for p in group) + gap < before]
        closed.update(old)
        gone = set().union(*old)
        live[:] = [p for p in live if p not in gone]

    for pair in sorted(set(pairs)):
        if changed is not None and pair[0] > changed[0]:
            leave(changed[0] + 1, gap)
            gap, changed = changed[1], None
        leave(pair[0], gap)
        live.append(pair)
    if changed is not None:
        leave(changed[0] + 1, gap)
    closed.update(components(live, one))
    return closed


def told(events: list[dict[str, Any]], pairs: list[Pair]) -> Counter[frozenset[Pair]]:
    """Final groups, out of the events alone."""
    assert len({(e["group"], e["revision"]) for e in events}) == len(events)
    members: dict[str, set[Pair]] = {}
    closed: Counter[frozenset[Pair]] = Counter()
    for event in events:
        name = event["group"]
        if event["event"] in ("opened", "grew"):
            assert (event["event"] == "opened") == (name not in members)
            pair = (event["t"], event["left_id"], event["right_id"])
            members.setdefault(name, set()).add(pair)
            assert event["pairs"] == len(members[name])
        elif event["event"] == "merged":
            members[event["into"]] |= members.pop(name)
        else:
            group = members.pop(name)
            assert event["pairs"] == len(group) and event["last"] == max(p[0] for p in group)
            rows = {(0, a) for _, a, _ in group} | {(1, b) for _, _, b in group}
            here = [event["left_members"], event["right_members"]]
            if not event["right_members"]:
                rows = {(0, row) for _, row in rows}
            assert rows == {(n, row) for n, part in enumerate(here) for row in part or ()}
            assert event["rows"] == len(rows)
            closed[frozenset(group)] += 1
    assert not members
    return closed


pair_lists = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 8), st.integers(0, 8)).filter(
        lambda p: p[1] != p[2]
    ),
    max_size=40,
)


@settings(max_examples=examples(200), deadline=None)
@given(pair_lists, st.integers(1, 30), st.booleans())
def test_groups_are_those_of_the_twin(pairs: list[Pair], gap: int, one: bool) -> None:
    groups = Groups(gap, one)
    for pair in sorted(set(pairs)):
        groups.deal(*pair)
    groups.close(10**6)
    assert told(groups.events, pairs) == twin(pairs, gap, one)
    assert not groups.open and not groups.of and groups.pairs == 0


class Moves(dict[Any, Any]):
    """Where rows are, and how often one of them was put somewhere."""

    count = 0

    def __setitem__(self, row: Any, place: Any) -> None:
        self.count += 1
        super().__setitem__(row, place)


@pytest.mark.parametrize("order", ["youngest first", "oldest first", "halves"])
def test_merges_move_few_rows(order: str) -> None:
    """Each row at most as often as its group can double, whichever of two groups is older."""
    n = 1024
    moves = Moves()
    groups = Groups(gap=10**6, one_stream=True, of=moves)
    for k in range(n):
        groups.deal(k, 2 * k, 2 * k + 1)
    links = [(k, k + 1) for k in range(n - 1)]
    if order == "youngest first":  # a large young group meets small ones that are older
        links.reverse()
    if order == "halves":
        steps = [2**power for power in range(10)]
        links = [(k, k + step) for step in steps for k in range(0, n, 2 * step)]
    for t, (one, other) in enumerate(links):
        groups.deal(n + t, 2 * one, 2 * other)
    (left,) = groups.open.values()
    assert (left.name, len(left.rows)) == (groups.events[0]["group"], 2 * n)
    assert sum(event["event"] == "merged" for event in groups.events) == n - 1
    assert moves.count <= 2 * n * (1 + math.log2(n))


def block(pairs: list[Pair]) -> Block:
    t, left, right = (np.array(part, np.int64) for part in zip(*pairs, strict=True))
    return Block.of(t, {"left": left, "right": right})


@pytest.mark.parametrize("between", [[], [(START + 105, 4, 5)]])
def test_what_is_late_does_not_depend_on_unrelated_pairs(between: list[Pair]) -> None:
    """Behind an operator, late is what the last watermark has passed, be there pairs or not."""
    workers = Workers(GroupsJob(Grouping(10, True)))
    steps = [([(START + 3, 1, 2)], 5), ([], 50), (between, 100), ([(START + 60, 7, 8)], 110)]
    events: list[dict[str, Any]] = []
    for pairs, mark in [*steps, ([], 500)]:
        if pairs or workers.is_due(0, START + mark):
            for found in workers.step(0, [block(pairs)] if pairs else [], START + mark):
                events += found.to_pylist()
    assert {e["left_id"] for e in events if e["event"] == "opened"} == {1, *(p[1] for p in between)}
    assert sum(load.late for load in workers.loads) == 1


@settings(max_examples=examples(150), deadline=None)
@given(pair_lists, st.integers(1, 30), st.data())
def test_batching_order_and_restarts_do_not_matter(
    pairs: list[Pair], gap: int, data: st.DataObject
) -> None:
    """Pairs come at most 10 late, in any order and batches, and some of them several times, to
    kernels that live on or do not.
    """
    job = GroupsJob(Grouping(gap, True))
    workers: Workers = data.draw(st.sampled_from([Workers, LivingWorkers]))(job)
    arrival = sorted(pairs, key=lambda p: p[0] + data.draw(st.integers(0, 10)))
    events: list[dict[str, Any]] = []
    mark, at = START, 0
    while at < len(arrival):
        count = data.draw(st.integers(1, 10))
        batch = [(START + t, a, b) for t, a, b in arrival[at : at + count]]
        at += count
        for found in workers.step(0, [block(batch)], mark):
            events += found.to_pylist()
        rest = [t for t, _, _ in arrival[at:]]
        mark = max(mark, START + min(rest, default=0) - 1)
        if workers.is_due(0, mark):
            for found in workers.step(0, [], mark):
                events += found.to_pylist()
    for found in workers.step(0, [], START + 1000):
        events += found.to_pylist()
    for event in events:
        for name in ("t", "began", "last"):
            event[name] -= START
    assert told(events, pairs) == twin(pairs, gap, True)
    assert workers.state_rows == 0
    assert sum(load.late for load in workers.loads) == 0
    kinds = Counter(event["event"] for event in events)
    for name, kind in (("opened",) * 2, ("grown", "grew"), ("merged",) * 2, ("closed",) * 2):
        assert sum(getattr(load, name) for load in workers.loads) == kinds[kind]
    assert sum(load.rows for load in workers.loads) == len(pairs)
    assert workers.loads[-1].open_groups == workers.loads[-1].waiting_pairs == 0


@settings(max_examples=examples(100), deadline=None)
@given(pair_lists, st.tuples(st.integers(1, 30), st.integers(1, 30)), st.data())
def test_the_gap_may_change_at_a_restart(
    pairs: list[Pair], gaps: tuple[int, int], data: st.DataObject
) -> None:
    """What was open closes by the new gap, from its last pair; what has closed stays closed."""
    workers: Workers = data.draw(st.sampled_from([Workers, LivingWorkers]))(
        GroupsJob(Grouping(gaps[0], True))
    )
    change = data.draw(st.integers(0, 60))
    events: list[dict[str, Any]] = []
    for gap, mark, part in (
        (gaps[0], change, [p for p in pairs if p[0] <= change]),
        (gaps[1], 1000, [p for p in pairs if p[0] > change]),
    ):
        workers.job = GroupsJob(Grouping(gap, True))
        blocks = [block([(START + t, a, b) for t, a, b in part])] if part else []
        for found in workers.step(0, blocks, START + mark):
            events += found.to_pylist()
    for event in events:
        for name in ("t", "began", "last"):
            event[name] -= START
    assert told(events, pairs) == twin(pairs, gaps[0], True, (change, gaps[1]))


def test_the_same_rows_may_meet_again() -> None:
    """Two groups of the same first rows have two names, so a sink by (group, revision) has both."""
    groups = Groups(gap=10, one_stream=True)
    for t in (START + 1, START + 100):
        groups.deal(t, 1, 2)
    groups.close(START + 1000)
    assert [(event["group"], event["revision"]) for event in groups.events] == [
        ("2023-11-14T22:13:20.000001Z|1|2", 1),
        ("2023-11-14T22:13:20.000001Z|1|2", 2),
        ("2023-11-14T22:13:20.000100Z|1|2", 1),
        ("2023-11-14T22:13:20.000100Z|1|2", 2),
    ]


@pytest.mark.parametrize("kind", [Workers, LivingWorkers])
def test_too_many_open_pairs_are_refused_until_the_gap_is_shorter(kind: type[Workers]) -> None:
    def call(gap: int) -> GroupsJob:
        return GroupsJob(Grouping(gap, True, most_pairs=5))

    workers = kind(call(10**9))
    workers.step(0, [block([(START + 9 * n, n, n + 1) for n in range(4)])], START + 50)
    more = [block([(START + 100 + n, n, n + 1) for n in range(4)])]
    with pytest.raises(AnabranchError, match="or shorten gap=; both may change at a restart"):
        workers.step(0, more, START + 200)
    check_settings(call(10**9).settings, call(10).settings)
    workers.job = call(10)
    events = [event for found in workers.step(0, more, START + 200) for event in found.to_pylist()]
    assert [event["pairs"] for event in events if event["event"] == "closed"] == [4, 4]


def test_a_pair_that_was_dealt_is_late() -> None:
    """So it counts once, and what comes of it again is counted."""
    for delay in (None, 0):
        workers = LivingWorkers(GroupsJob(Grouping(10, True, delay=delay)))
        pair = block([(START + 3, 1, 2)])
        first = workers.step(0, [pair, pair], START + (5 if delay is None else 2))
        again = workers.step(0, [pair], START + 5), workers.step(0, [pair], START + 100)
        events = [e for step in (first, *again) for found in step for e in found.to_pylist()]
        assert [(e["event"], e["revision"], e["pairs"]) for e in events] == [
            ("opened", 1, 1),
            ("closed", 2, 1),
        ]
        assert sum(load.late for load in workers.loads) == 2


def test_late_pairs_are_counted() -> None:
    workers = Workers(GroupsJob(Grouping(10, True, delay=0)))
    workers.step(0, [block([(START, 1, 2)])], START - 1)
    workers.step(0, [block([(START + 3, 3, 4)])], START + 5)
    assert [load.late for load in workers.loads] == [0, 1]


def test_a_pair_has_both_ids() -> None:
    """One id: a row without a partner, which is counted. None: a bad row."""
    columns = {"t": [5, 6, None, 8], "left": [1, None, 3, None], "right": [2, 4, None, None]}
    batch = pa.RecordBatch.from_pydict({k: pa.array(v, pa.int64()) for k, v in columns.items()})
    packed = PairPacking().pack(batch.slice(0, 3), None)
    workers = Workers(GroupsJob(Grouping(10, True)))
    workers.step(0, [Block.decode(packed.cells[0])], 1)
    assert workers.loads[-1].reasons == {"without partner": 2} and workers.loads[-1].rejected == 0
    with pytest.raises(BadRow, match="pair with left id None cannot be grouped: both ids are null"):
        PairPacking().pack(batch, None)
    packed = PairPacking(drop_bad_rows=True).pack(batch, None)
    assert packed.newest == 5
    workers.step(0, [Block.decode(packed.cells[0])], 2)
    assert workers.loads[-1].reasons == {"without partner": 2} and workers.loads[-1].rejected == 1


def test_an_id_that_is_no_text_in_utf8_is_bad() -> None:
    odd = pa.array([b"a", b"\xff", b"b"]).view(pa.string())
    batch = pa.RecordBatch.from_pydict({"t": [5, 6, 7], "left": odd, "right": odd[::-1]})
    with pytest.raises(BadRow, match=r"left id b'\\xff' cannot be grouped: its left id is no text"):
        PairPacking().pack(batch, None)
    kept = Block.decode(PairPacking(drop_bad_rows=True).pack(batch, None).cells[0])
    assert kept.t.tolist() == [5, 7] and kept.meta["rejected"] == 1
    right = pa.RecordBatch.from_pydict({"t": [5], "left": odd[:1], "right": odd[1:2]})
    with pytest.raises(BadRow, match="left id 'a' cannot be grouped: its right id is no text in"):
        PairPacking().pack(right, None)


def test_pairs_without_a_usable_time_are_rejected() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"t": pa.array([5, None, 1 << 62], pa.int64()), "left": [1, 2, 3], "right": [4, 5, 6]}
    )
    with pytest.raises(BadRow, match="pair with left id 2 cannot be grouped: time column 'at' is"):
        PairPacking("at").pack(batch, None)
    packed = PairPacking("at", drop_bad_rows=True).pack(batch, None)
    kept = Block.decode(packed.cells[0])
    assert kept.t.tolist() == [5] and packed.newest == 5 and kept.meta["rejected"] == 2
    workers = Workers(GroupsJob(Grouping(10, True)))
    workers.step(0, [kept], 1)
    assert workers.loads[-1].rejected == 2
