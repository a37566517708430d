"""The laws of kernels hold for those of three verbs, and fail where a kernel breaks one of them.

Those of the other kernels are in `test_every_kernel`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.closing import Closing
from anabranch.assembly.job import AssembleJob
from anabranch.assembly.kernel import AssembleKernel
from anabranch.assembly.table import MARK
from anabranch.correlation.call import Correlation, plan_correlation
from anabranch.correlation.kernel import CorrelateJob, CorrelateKernel
from anabranch.correlation.packing import SidePacking
from anabranch.flow.blocks import Block
from anabranch.flow.slices import Slices
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.queries import fixed_queries, read_queries
from anabranch.plans.hashed import broadcast
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.plans.routing import LivePlans
from anabranch.testing import check_kernel, prepare, simple_types
from anabranch.testing.kernels import Step
from tests.assembly.test_laws import CUTS, POLICIES, STREAMS, event, steps
from tests.assembly.twin import Twin
from tests.correlation import twin
from tests.correlation.test_laws import SCHEMA, streams, table, windows
from tests.examples import examples
from tests.neighbours.runs import START, call_of, expected, query_table

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=examples(8))


@dataclass(frozen=True)
class Case:
    """What `check_kernel` takes."""

    job: Any
    steps: Sequence[Step]
    expected: Sequence[Any]
    answer: Callable[[list[dict[str, Any]]], list[Any]]

    def check(self, job: Any = None, **more: Any) -> None:
        check_kernel(job or self.job, self.steps, self.expected, answer=self.answer, **more)


# ---------------------------------------------------------------- correlate


def near(a: twin.Row, b: twin.Row) -> float | None:
    apart = abs(a["x"] - b["x"])
    return float(apart) if apart <= 2 else None


def correlating(batches: list[twin.Batch], window: tuple[str, str], late: int | None) -> Case:
    """A correlation; without `late` rows are late by the watermark of the last step."""
    call: dict[str, Any] = {"where": ab.within("x", 2), "window": window}
    call["watermark"] = None if late is None else f"{late} us"
    types = simple_types(SCHEMA)
    found, problems = plan_correlation(types, types, **call)
    assert found is not None, problems
    made, left, right = sent(found, batches, late)
    want = twin.pairs(left, right, found.window, near)
    return Case(CorrelateJob(found), made, [(*pair, score) for pair, score in want.items()], pairs)


def sent(
    found: Correlation, batches: list[twin.Batch], late: int | None, packing: Any = SidePacking
) -> tuple[list[Step], list[twin.Row], list[twin.Row]]:
    """What reaches the one worker of a call, and which of the rows are in time."""
    live = LivePlans({0: broadcast(1)})
    marks = list(twin.watermarks(batches, 20_000 if late is None else late))
    made: list[Step] = []
    for batch, mark in zip(batches, marks, strict=True):
        blocks = []
        for side, rows in zip((LEFT, RIGHT), batch, strict=True):
            if rows:
                packs = packing(found, side, streaming=True)
                packed = packs.pack(prepare(found.sides[side], table(list(rows))), live)
                blocks += [Block.decode(cell) for cell in packed.cells.values()]
        made.append((blocks, mark))
    limits = marks if late is not None else [0, *marks[:-1]]
    left, right, _ = twin.in_time(batches, limits)
    return made, left, right


def pairs(rows: list[dict[str, Any]]) -> list[Any]:
    return [(row["left_id"], row["right_id"], row["score"]) for row in rows]


@FEW
@given(streams(), windows, st.sampled_from([0, 10_000, 400_000, None]), SEEDS)
def test_correlate(batches: Any, window: Any, late: int | None, seed: int) -> None:
    correlating(batches, window, late).check(seed=seed)


# ---------------------------------------------------------------- nearest

MS = 1000
THINGS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 6)), max_size=40)
ASKED = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=3
)


def hits(rows: list[dict[str, Any]]) -> list[Any]:
    names = ("query_id", "object_id", "object_t", "entered_t", "distance", "rank")
    return [tuple(row[name] for name in names) for row in rows]


def searching(
    things: list[tuple[int, int]],
    asked: Any,
    cuts: list[int],
    counted: bool,
    ops: bool,
    **more: Any,
) -> Case:
    """Queries over a line, fixed or (`ops`) begun and cancelled on the way."""
    objects = [(START + t * MS, n, [float(x)]) for n, (t, x) in enumerate(things)]
    span = (lambda w: {"rows": w}) if counted else (lambda w: {"span": w * MS})
    queries = [{"id": n, "v": [float(x)], "k": k, **span(w)} for n, (x, k, w) in enumerate(asked)]
    call = call_of(ops=ops, watermark=f"{more.pop('late', 10)} ms", **more)
    told: list[Any] = []
    fixed = None
    if ops:
        for number, query in enumerate(queries):
            query["t"], query["until"] = START + number * 7 * MS, START + (40 + number) * MS
            told.append({**query, "op": "add"})
            told.append({"id": number, "t": query["until"], "op": "cancel"})
    else:
        block = fixed_queries(call, query_table(queries))[0]
        fixed = block.encode(**block.meta)
    places = [0, *sorted(min(cut, len(objects)) for cut in cuts), len(objects)]
    plans = {"0": [1, None]}
    made, taken, newest = [], [], 0
    for start, stop in itertools.pairwise(places):
        mark = max(0, newest - (call.delay or 0)) // MS * MS
        part, blocks = objects[start:stop], []
        if ops and not made:
            asking = read_queries(call, query_table(told))[0]
            blocks.append(Block.decode(asking.encode(side=LEFT, nearest=plans)))
        if part:
            t, ids, points = zip(*part, strict=True)
            columns = {"id": np.array(ids, np.int64), "v": np.array(points, np.float64)}
            coded = Block.of(t, columns).encode(side=RIGHT, nearest=plans)
            blocks.append(Block.decode(coded))
            newest = max(newest, *t)
        taken += [thing for thing in part if thing[0] > mark]
        made.append((blocks, mark))
    return Case(NearestJob(call, fixed), made, expected(taken, queries), hits)


@FEW
@given(THINGS, ASKED, CUTS, st.sampled_from([0, 10, 100]), SEEDS)
@pytest.mark.parametrize("ops", [False, True])
def test_nearest(ops: bool, things: Any, asked: Any, cuts: Any, late: int, seed: int) -> None:
    searching(things, asked, cuts, False, ops, late=late).check(seed=seed)


@FEW
@given(THINGS, ASKED, CUTS, SEEDS)
def test_nearest_among_the_newest_objects(things: Any, asked: Any, cuts: Any, seed: int) -> None:
    longest = max(rows for _, _, rows in asked)
    # Slices go whole, so that more than the window may stay for a while.
    case = searching(things, asked, cuts, True, False)
    case.check(seed=seed, remains=longest + len(things))


@FEW
@given(THINGS, ASKED, CUTS, st.sampled_from(["relaxed", "filtered"]), SEEDS)
def test_nearest_as_the_literature_has_it(
    things: Any, asked: Any, cuts: Any, method: str, seed: int
) -> None:
    asked = [(x, k, window + 1) for x, k, window in asked]
    searching(things, asked, cuts, False, False, method=method).check(seed=seed)


@FEW
@given(THINGS, ASKED, CUTS, st.booleans(), SEEDS)
def test_what_the_probabilistic_method_misses_does_not_depend_on_batches(
    things: Any, asked: Any, cuts: Any, counted: bool, seed: int
) -> None:
    case = searching(things, asked, cuts, counted, False, method="probabilistic", error=0.3)
    remains = 100 if counted else 0
    check_kernel(case.job, case.steps, answer=case.answer, remains=remains, seed=seed)


# ---------------------------------------------------------------- assemble


NAMES = ("seq", "revision", "opened", "closed", "reason", "count", "usual_count", "first", "last")


def assembling(
    rows: list[Any], cuts: list[int], lag: int, closing: Closing, late: bool = True, **more: Any
) -> Case:
    """Instances of a few keys; without `late` nothing is said of what must come out."""
    call, problems = plan_assembly(
        [{"key": "bigint", "ts": "timestamp", "tie": "bigint"}] * 3,
        key="key",
        close=closing,
        keep="tie",
        watermark=f"{lag} us" if late else None,
        **more,
    )
    assert call is not None, problems
    book = Twin(closing, call.max_open)
    made: list[Step] = []
    told: list[Any] = []
    for batch, clock in steps(rows, cuts, lag):
        made.append(([packed(batch)] if batch else [], clock))
        told += book.step(batch, clock)
    told += book.step([], 10_000)
    want = [
        (
            r["key"][0],
            *(r[name] for name in NAMES),
            (r["end"] - r["first"]) / 1e6,
            r["streams"],
            [item["tie"] for item in r["items"]],
        )
        for r in told
    ]
    return Case(AssembleJob(call, 1, streaming=True), made, want, instances)


def packed(rows: list[Any]) -> Block:
    streams = [1 << r["stream"] | (MARK if r["ends"] else 0) for r in rows]
    w = [
        [*r["key"], r["kind"], r["end"], stream, r["tie"]]
        for r, stream in zip(rows, streams, strict=True)
    ]
    columns = {
        "w": np.array(w, np.int64),
        "k0": pa.array([r["key"][0] for r in rows]),
        "c0": pa.array([r["tie"] for r in rows]),
    }
    return Block.of([r["t"] for r in rows], columns)


def instances(rows: list[dict[str, Any]]) -> list[Any]:
    names = ("k0", *NAMES[:-2], "first_ts", "last_ts", "duration", "streams")
    return [
        (*(row[name] for name in names), [item["tie"] for item in row["items"]]) for row in rows
    ]


@FEW
@given(STREAMS, CUTS, st.sampled_from([0, 3, 100]), SEEDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_assemble(policy: str, rows: Any, cuts: Any, lag: int, seed: int) -> None:
    assembling(rows, cuts, lag, POLICIES[policy]).check(seed=seed)


@FEW
@given(STREAMS, CUTS, st.integers(1, 3), SEEDS)
def test_assemble_with_few_open_windows(rows: Any, cuts: Any, most: int, seed: int) -> None:
    assembling(rows, cuts, 3, POLICIES["gap"], max_open=most).check(seed=seed)


@FEW
@given(STREAMS, CUTS, SEEDS)
def test_assemble_by_the_watermarks_of_its_inputs(rows: Any, cuts: Any, seed: int) -> None:
    case = assembling(rows, cuts, 3, POLICIES["after"], late=False)
    check_kernel(case.job, case.steps, answer=case.answer, seed=seed)


# ---------------------------------------------------------------- kernels that break a law

ROWS = [{"id": n, "t": START + n * MS, "v": [1, 0, 0], "x": n % 3, "k": "k"} for n in range(24)]
AT_ONCE = [(ROWS[::2], ROWS[1::2])]
BY_AND_BY = [(ROWS[n : n + 6 : 2], ROWS[n + 1 : n + 6 : 2]) for n in range(0, 24, 6)]
GIVEN: set[Any] = set()


class Unsorted(CorrelateKernel):
    """Takes rows in the order in which they come."""

    def _take_in(self, side: int, arrivals: Any, limit: int) -> list[Block]:
        blocks = [block.without("lead") for block in arrivals if block.meta["side"] == side]
        return [block for block in blocks if len(block)]


class Forgetful(CorrelateKernel):
    """Looks for partners in the same micro-batch alone."""

    def _pairings(self, lefts: Any, rights: Any) -> Any:
        stored, self.slices = self.slices, Slices((0, 0), self.slices.notes)
        found = list(super()._pairings(lefts, rights))
        self.slices = stored
        return found


class Remembering(CorrelateKernel):
    """Gives each pair once, and remembers in the process which it gave."""

    def step(self, arrivals: Any, now: int, last: bool = False) -> Any:
        if not self.slices.next_number:
            GIVEN.clear()
        for batch in super().step(arrivals, now, last):
            found = {(row["left_id"], row["right_id"]) for row in batch.to_pylist()}
            if not found & GIVEN:
                GIVEN.update(found)
                yield batch


class Hoarding(CorrelateKernel):
    """Never frees a row."""

    def step(self, arrivals: Any, now: int, last: bool = False) -> Any:
        self.slices.stays = (1 << 60, 1 << 60)
        return super().step(arrivals, now, last)


class Growing(CorrelateKernel):
    """Notes every step for ever."""

    def step(self, arrivals: Any, now: int, last: bool = False) -> Any:
        self.slices.notes.lengths[f"step {len(self.slices.notes.lengths)}"] = now
        return super().step(arrivals, now, last)


class Asleep(CorrelateKernel):
    """Never asks to be run."""

    def due(self) -> None:
        return None


def job_with(job: Any, kind: Any) -> Any:
    """The job, with kernels of this class."""

    class Broken(type(job)):  # type: ignore[misc]
        def kernel(self, slices: Any, task: Any) -> Any:
            made = super().kernel(slices, task)
            made.__class__ = kind
            return made

    broken = object.__new__(Broken)
    broken.__dict__.update(vars(job))
    return broken


@pytest.mark.parametrize(
    ("kind", "batches", "says"),
    [
        (Unsorted, AT_ONCE, "rows in another order"),
        (Forgetful, AT_ONCE, "a row at a time"),
        (Remembering, BY_AND_BY, "steps that failed and ran again"),
        (Hoarding, BY_AND_BY, "24 rows stay stored"),
        (Growing, BY_AND_BY, "20 idle steps made"),
        (Asleep, BY_AND_BY, "run only when due: [0-9]+ rows stay stored"),
    ],
)
def test_a_broken_correlation_is_found(kind: Any, batches: Any, says: str) -> None:
    case = correlating(batches, ("10 ms", "10 ms"), 400_000)
    case.check()
    with pytest.raises(AssertionError, match=says):
        case.check(job_with(case.job, kind))


class Unrestored(AssembleKernel):
    """Takes up no snapshot."""

    def restore(self, data: Any) -> None:
        pass


class Unrenewed(AssembleKernel):
    """Lives on with the tables of its first step."""

    def renew(self, fresh: Any) -> None:
        super().renew(fresh)
        self._tables = {name: table[:0] for name, table in self._tables.items()}


class Sleepy(AssembleKernel):
    """Asks to be run a while after there was something to do."""

    def due(self) -> int | None:
        found = super().due()
        return None if found is None else found + 10**9


class Late(AssembleKernel):
    """Gives once more what it gave, when all is over."""

    def step(self, arrivals: Any, now: int, last: bool = False) -> Any:
        found = list(super().step(arrivals, now, last))
        if now <= 200 or found:
            return found
        return [pa.record_batch({"seq": [0]})]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Unrestored, "as given|a row at a time"),
        (Unrenewed, "kernels that live on"),
        (Sleepy, "run only when due"),
        (Late, "results come when everything has expired"),
    ],
)
def test_a_broken_assembly_is_found(kind: Any, says: str) -> None:
    rows = [event(n % 3, 1 + n, tie=n % 2) for n in range(20)]
    case = assembling(rows, [5, 10, 15], 3, POLICIES["count or timeout"])
    case.check()
    with pytest.raises(AssertionError, match=says):
        case.check(job_with(case.job, kind))


def test_a_wrong_answer_is_found() -> None:
    case = searching([(n, n % 5) for n in range(1, 20)], [(2, 2, 9)], [10], False, False)
    case.check()
    more, less = [*case.expected, case.expected[0]], case.expected[1:]
    for wrong, says in ((more, "1 of .* are missing"), (less, "1 should not be there")):
        with pytest.raises(AssertionError, match=f"nearest, as given: .*{says}"):
            check_kernel(case.job, case.steps, wrong, answer=case.answer)
