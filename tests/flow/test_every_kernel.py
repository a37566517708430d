"""The laws of kernels, for all that `test_check_kernel` does not try."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.alone import AloneJob, AloneKernel
from anabranch.correlation.call import Correlation, plan_correlation
from anabranch.correlation.forwarding import ForwardingJob, ForwardingKernel
from anabranch.correlation.grouping import Grouping, Groups, GroupsJob, GroupsKernel
from anabranch.correlation.homes import Homes as RowHomes
from anabranch.correlation.kernel import CorrelateKernel
from anabranch.correlation.ordering import FIRST, OrderJob, OrderKernel, OrderPacking
from anabranch.correlation.ranked import RankedJob, RankedKernel
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import worker_of
from anabranch.flow.sides import BEFORE
from anabranch.neighbours.kernel import NearestKernel
from anabranch.neighbours.lists.algorithm import FOREVER
from anabranch.neighbours.selective import homes as object_homes
from anabranch.neighbours.selective.homes import Owners
from anabranch.neighbours.selective.horizons import Merger
from anabranch.neighbours.selective.jobs import HomeJob, OwnerJob
from anabranch.neighbours.selective.owners import OwnerKernel
from anabranch.plans.hashed import broadcast
from anabranch.plans.plan import RIGHT
from anabranch.plans.routing import LivePlans
from anabranch.testing import Workers, check_kernel, simple_types
from anabranch.testing.kernels import Step
from anabranch.video.shot_kernel import FramePacking, ShotKernel, ShotsJob
from anabranch.video.tickers import TickerKernel, TickersJob
from tests.assembly.test_laws import CUTS
from tests.correlation import twin
from tests.correlation.test_grouping import pair_lists
from tests.correlation.test_laws import SCHEMA, streams, windows
from tests.correlation.test_row_windows import windows as row_windows
from tests.examples import examples
from tests.flow.test_check_kernel import ASKED, SEEDS, THINGS, AssembleKernel, near, searching, sent
from tests.neighbours.runs import START
from tests.video.test_shots import channels, rows_of
from tests.video.test_tickers import block as key_frames
from tests.video.test_tickers import evenings
from tests.video.test_tickers import twin as said_by_twin

MS = 1000
FEW = settings(max_examples=examples(5))
LATE = st.sampled_from([0, 10_000, 400_000, None])
HOW = st.sampled_from(["left", "right", "full", "anti"])
TRIED = {
    *(CorrelateKernel, NearestKernel, AssembleKernel),  # in `test_check_kernel`
    *(ForwardingKernel, AloneKernel, OrderKernel, RankedKernel),
    *(GroupsKernel, object_homes.HomeKernel, OwnerKernel, ShotKernel, TickerKernel),
}


def test_no_kernel_is_left_out() -> None:
    package = Path(ab.__file__).parent
    written = {
        (".".join(path.relative_to(package.parent).with_suffix("").parts), name)
        for path in package.rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w*Kernel)\b(?!\(ABC\))", path.read_text(), re.M)
    }
    assert written == {(kind.__module__, kind.__name__) for kind in TRIED}


def cells(rows: list[dict[str, Any]]) -> list[tuple[int, Block]]:
    """The cells that a kernel sends to others, and the worker of each."""
    return [(worker_of(row["worker"]), Block.decode(row["block"])) for row in rows]


# ---------------------------------------------------------------- correlate: rows without a partner


def unmatched_call(window: Any, late: int | None, how: str) -> Correlation:
    types = simple_types(SCHEMA)
    call: dict[str, Any] = {"where": ab.within("x", 2), "window": window, "how": how}
    found, problems = plan_correlation(
        types, types, watermark=None if late is None else f"{late} us", **call
    )
    assert found is not None, problems
    return found


def partners(rows: list[dict[str, Any]]) -> list[Any]:
    return [(row["left_id"], row["right_id"]) for row in rows]


def expected_partners(call: Correlation, left: Any, right: Any, how: str) -> list[Any]:
    met = list(twin.pairs(left, right, call.window, near))
    found = [] if how == "anti" else list(met)
    if how != "right":
        found += [(row["id"], None) for row in left if row["id"] not in {a for a, _ in met}]
    if how in ("right", "full"):
        found += [(None, row["id"]) for row in right if row["id"] not in {b for _, b in met}]
    return found


@FEW
@given(streams(), windows, LATE, HOW, SEEDS)
def test_workers_that_know_who_is_alone(
    batches: Any, window: Any, late: int | None, how: str, seed: int
) -> None:
    call = unmatched_call(window, late, how)
    steps, left, right = sent(call, batches, late)
    want = expected_partners(call, left, right, how)
    check_kernel(AloneJob(call), steps, want, answer=partners, seed=seed)


@FEW
@given(streams(), windows, LATE, HOW, SEEDS)
def test_workers_that_send_rows_home(
    batches: Any, window: Any, late: int | None, how: str, seed: int
) -> None:
    """One home has them all here; what it makes of cells does not depend on how they come."""
    call = unmatched_call(window, late, how)
    steps, left, right = sent(call, batches, late)

    def home(rows: list[dict[str, Any]]) -> list[Any]:
        blocks = [block for _, block in cells(rows)]
        return partners([row for batch in RowHomes(call)(blocks) for row in batch.to_pylist()])

    want = expected_partners(call, left, right, how)
    check_kernel(ForwardingJob(call), steps, want, answer=home, seed=seed)


# ---------------------------------------------------------------- correlate: windows of rows


def row_call(window: tuple[int, int], late: int | None) -> Correlation:
    types = simple_types(SCHEMA)
    lag = None if late is None else f"{late} us"
    found, problems = plan_correlation(
        types, types, where=ab.within("x", 2), window=window, watermark=lag
    )
    assert found is not None, problems
    return found


def order_job(call: Correlation) -> OrderJob:
    return OrderJob(call, lambda _: LivePlans({0: broadcast(1)}))


def ranks(rows: list[dict[str, Any]]) -> list[Any]:
    return [
        (int(block.meta["side"]), *row)
        for _, block in cells(rows)
        if len(block)
        for row in zip(
            block.columns["id"].tolist(),
            block.t.tolist(),
            block.columns[BEFORE].tolist(),
            strict=True,
        )
    ]


@FEW
@given(streams(), row_windows, LATE, SEEDS)
def test_the_worker_that_orders_rows(
    batches: Any, window: Any, late: int | None, seed: int
) -> None:
    call = row_call(window, late)
    steps, left, right = sent(call, batches, late, OrderPacking)
    want = []
    for side, (mine, others) in enumerate([(left, right), (right, left)]):
        for place, row in enumerate(sorted(mine, key=lambda row: (row["t"], row["id"]))):
            # At one time left rows come before right ones.
            before = sum(o["t"] < row["t"] or (side == 1 and o["t"] == row["t"]) for o in others)
            want.append((side, row["id"], FIRST + place, FIRST + before))
    check_kernel(order_job(call), steps, want, answer=ranks, seed=seed)


@FEW
@given(streams(), row_windows, st.sampled_from([0, 10_000, 400_000]), SEEDS)
def test_workers_that_compare_by_rank(batches: Any, window: Any, late: int, seed: int) -> None:
    """Micro-batches are those of the worker that orders rows."""
    call = row_call(window, late)
    steps, left, right = sent(call, batches, late, OrderPacking)
    workers, posted = Workers(order_job(call)), []
    for arrivals, now in [*steps, ([], FIRST - 1)]:
        found = [row for batch in workers.step(0, arrivals, now) for row in batch.to_pylist()]
        if found:
            posted.append(([block for _, block in cells(found)], now))
    want = list(twin.pairs_by_rows(left, right, window, near))
    check_kernel(
        RankedJob(call),
        posted,
        want,
        answer=partners,
        remains=len(left) + len(right),
        batches="as given",
        seed=seed,
    )


# ---------------------------------------------------------------- groups


@FEW
@given(pair_lists, CUTS, st.integers(1, 30), st.booleans(), st.sampled_from([3, None]), SEEDS)
@example([(9, 0, 1), (4, 2, 3)], [1], 5, True, None, 0)  # nothing is due before the late pair
@pytest.mark.parametrize("idle", [False, True])
def test_groups(
    idle: bool, pairs: Any, cuts: Any, gap: int, one: bool, late: int | None, seed: int
) -> None:
    """Without `late`, late is what the watermark of the last step has passed, `idle` or not."""
    pairs = [(t + 1, left, right) for t, left, right in pairs]
    steps: list[Step] = []
    good: list[Any] = []
    newest, before, groups = 0, -1, Groups(gap, one)
    places = [0, *sorted(min(cut, len(pairs)) for cut in cuts), len(pairs)]
    for start, stop in itertools.pairwise(places):
        part, mark = pairs[start:stop], max(0, newest - 3)
        if idle:
            steps.append(([], mark))
            before = mark
        limit = mark if late is not None else before
        good += [pair for pair in part if pair[0] > limit]
        t, left, right = np.array(part, np.int64).reshape(-1, 3).T
        steps.append(([Block.of(t, {"left": left, "right": right})] if part else [], mark))
        newest, before = max([newest, *t.tolist()]), mark
    for pair in sorted(good):
        groups.deal(*pair)
    groups.close(FOREVER)
    job = GroupsJob(Grouping(gap, one, delay=late))
    check_kernel(job, [*steps, ([], 200)], groups.events, seed=seed)


# ---------------------------------------------------------------- nearest, selective


@dataclass(frozen=True)
class Homes(HomeJob):
    """Homes that are always given the same mergers."""

    given: Any = None

    def kernel(self, slices: Any, task: Any) -> Any:
        owners = Owners.of(Block.decode(self.table), self.owners, self.nearest.measure)
        by_last_step, given = self.nearest.delay is None, self.given or {}
        return object_homes.HomeKernel(owners, slices, task.worker, lambda _: given, by_last_step)


def copies(rows: list[dict[str, Any]]) -> list[Any]:
    found = [
        (owner, ident)
        for owner, block in cells(rows)
        if len(block)
        for ident in block.columns["id"].tolist()
    ]
    assert len(set(found)) == len(found)
    return found


@FEW
@given(THINGS, ASKED, CUTS, st.sampled_from([0, 10, 100]), SEEDS)
def test_homes_of_objects(things: Any, asked: Any, cuts: Any, late: int, seed: int) -> None:
    case = searching(things, asked, cuts, False, False, late=late)
    job = Homes(case.job.nearest, case.job.table, 2, "")
    has_queries = [len(of) > 0 for of in Owners.of(case.job.queries, 2, "euclidean").queries]
    want = [
        (owner, ident)
        for arrivals, now in case.steps
        for block in arrivals
        for ident, t in zip(block.columns["id"].tolist(), block.t.tolist(), strict=True)
        for owner in range(2)
        if t > now and has_queries[owner]
    ]
    check_kernel(job, case.steps, want, answer=copies, seed=seed)


def withholding(case: Any) -> Homes:
    """Homes whose one owner has had, at START + 30 ms, the best that there can be."""
    queries = Owners.of(case.job.queries, 1, "euclidean").queries[0]
    best = np.repeat(queries.points, queries.k, axis=0)
    t = np.full(len(best), START + 29 * MS)
    merger = Merger.of(queries, START + 30 * MS, t, best, np.empty((len(best), 0), np.int64))
    merger.wanted[:] = 0.0
    return Homes(case.job.nearest, case.job.table, 1, "", given={0: merger})


@FEW
@given(THINGS, ASKED, CUTS, st.sampled_from([0, 10, 100]), SEEDS)
def test_homes_that_withhold_objects(
    things: Any, asked: Any, cuts: Any, late: int, seed: int
) -> None:
    """What is sent depends on when a home looks; nothing is sent twice, or kept for ever."""
    case = searching(things, asked, cuts, False, False, late=late)
    check_kernel(withholding(case), case.steps, [], answer=lambda rows: copies(rows)[:0], seed=seed)


def test_homes_do_withhold_objects() -> None:
    case = searching([(n, n % 6) for n in range(1, 60)], [(0, 1, 25)], [20, 40], False, False)
    homes = Workers(withholding(case))
    for arrivals, now in [*case.steps, ([], START + 45 * MS)]:
        homes.step(0, arrivals, now)
    assert sum(load.withheld for load in homes.loads) > 5


class Owning(OwnerJob):
    """Owners that publish nowhere."""

    def kernel(self, slices: Any, task: Any) -> Any:
        about = (self.nearest, self.queries, slices, task.worker)
        return OwnerKernel(*about, publish=lambda *_: ["published"])


@FEW
@given(THINGS, ASKED, CUTS, st.booleans(), SEEDS)
def test_owners(things: Any, asked: Any, cuts: Any, at_once: bool, seed: int) -> None:
    """Objects come as soon as they are there, or when the watermark has passed them."""
    case = searching(things, asked, cuts, False, False)
    notes = {"home": 0, "stamp": "s", "looked": FOREVER, "next_look": FOREVER}
    steps: list[Step] = []
    held: list[Block] = []
    for arrivals, now in [*case.steps, ([], FOREVER // 2)]:
        held += [block.take(np.flatnonzero(block.t > now)) for block in arrivals]
        send = [block.take(np.flatnonzero(at_once | (block.t <= now))) for block in held]
        held = [block.take(np.flatnonzero((not at_once) & (block.t > now))) for block in held]
        some = [Block(b.t, b.epoch, b.mask, b.columns, {**META, **notes}) for b in send if len(b)]
        if now < FOREVER // 2 or some:
            steps.append((some, min(now, LAST)))
    job = Owning(case.job.nearest, case.job.table)
    check_kernel(job, steps, case.expected, answer=case.answer, seed=seed)


META = {"side": RIGHT, "nearest": {"0": [1, None]}}
LAST = START + 10**9


# ---------------------------------------------------------------- video


@FEW
@given(evenings(), st.integers(1, 60), SEEDS)
def test_tickers(keys: Any, lasting: int, seed: int) -> None:
    want = [(f"{name}{t}", words) for (name, t), words in said_by_twin(keys, lasting).items()]
    steps: list[Step] = [([key_frames(keys)] if keys else [], 100)]
    check_kernel(
        TickersJob(lasting),
        steps,
        want,
        answer=lambda rows: [(row["id"], row["words"]) for row in rows],
        batches="in order",
        seed=seed,
    )


@settings(max_examples=examples(3))
@given(channels(), channels(), st.integers(0, 6), SEEDS)
def test_shots(one: Any, other: Any, cut: int, seed: int) -> None:
    """Of each channel a segment or two; what no later frame decides is not emitted."""
    blocks = []
    for name, frames in (("north", one), ("south", other)):
        channel = tuple(part[-60:] for part in frames)
        rows = rows_of(name, channel, [len(channel[0]) * cut // 6])
        blocks.append(Block.decode(FramePacking(1).pack(rows, None).cells[0]))
    newest = max(int(block.t.max()) for block in blocks)
    check_kernel(
        ShotsJob(3 * 10**6),
        [(blocks, newest)],
        answer=lambda rows: [(row["id"], row["reason"], row["began"]) for row in rows],
        batches="in order",
        seed=seed,
    )


class Hasty(TickerKernel):
    """Takes the frames of a micro-batch for all there are."""

    def step(self, arrivals: Any, now: int, last: bool = False) -> Any:
        self.channels.clear()
        return super().step(arrivals, now, last)


class HastyJob(TickersJob):
    """Tickers with such kernels."""

    def kernel(self, slices: Any, task: Any) -> Any:
        return Hasty(self.lasting, slices, task.worker)


def test_a_kernel_that_depends_on_how_rows_in_order_are_cut_is_found() -> None:
    keys = [(t, "north", ["WATCH US LIVE"]) for t in range(30)]
    with pytest.raises(AssertionError, match="describe, a row at a time"):
        check_kernel(HastyJob(60), [([key_frames(keys)], 100)], batches="in order")
