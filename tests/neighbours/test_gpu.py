"""With a device `nearest` has the hits that it has without one, to the last bit.

The law runs over a stand-in made of numpy, over the kernels in Triton's interpreter if torch and
Triton are installed, and over a GPU if there is one.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import AnabranchError, InvalidCall
from anabranch.flow.gpu import choice
from anabranch.flow.instants import FOREVER
from anabranch.flow.kernel import Task
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.lists import products, resting
from anabranch.neighbours.lists.algorithm import METRICS, Queries
from anabranch.neighbours.lists.repair import ListWithRepair
from anabranch.neighbours.selective.jobs import OwnerJob
from anabranch.predicates import VectorMeasure
from anabranch.testing.workers import LivingWorkers
from tests.devices import Failing, Lent, StandIn, kernels
from tests.examples import examples
from tests.neighbours.runs import START, Run, call_of, expected
from tests.neighbours.test_kernel import MS, in_batches, objects_of, queries_of

FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture(autouse=True)
def _everything_is_worthwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(products, "WORTHWHILE", 0)
    monkeypatch.setattr(resting, "_SCORING", 0)  # nothing that is proposed in vain counts
    choice.warn_once.cache_clear()
    yield
    choice.warn_once.cache_clear()


def lent(device: Any, wanted: str = "gpu") -> Lent:
    return Lent("nearest", wanted, device=device)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Queries, np.ndarray, np.ndarray, list[int]]:
    """Queries, times and points of objects, and when each batch ends."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, count = draw(st.integers(1, 70)), draw(st.integers(1, 12))
    dim = draw(st.sampled_from([1, 3, 5, 17, 70]))
    points, centres = random.normal(size=(n, dim)), random.normal(size=(count, dim))
    if draw(st.booleans()):  # many at one distance
        points, centres = np.round(points), np.round(centres)
    if draw(st.booleans()):  # far from the origin, beside what tells them apart
        points, centres = points + 300.0, centres + 300.0
    centres[random.random(count) < 0.3] = points[0]
    scales = draw(st.sampled_from([[0], [0], [-500, 500], [-1060, -1020], [-30, 0, 30]]))
    for array in (points, centres):
        array[:] = np.ldexp(array, random.choice(scales, (len(array), 1)))
        array[~array.any(axis=1), 0] = 2.0**-1000  # a zero vector has no cosine
    t = np.sort(random.integers(0, 120, n))
    counted = draw(st.booleans())
    queries = Queries.of(
        centres,
        random.integers(1, 7, count),
        random.integers(1, 70, count),
        np.where(random.random(count) < 0.7, -FOREVER, random.integers(0, 80, count)),
        np.where(random.random(count) < 0.7, FOREVER, random.integers(0, 130, count)),
        counted,
        draw(st.sampled_from(METRICS)),
    )
    stops = sorted(draw(st.lists(st.integers(0, 119), max_size=5)))
    return queries, t, points, [*stops, 120, 400]


def played(world: tuple[Queries, np.ndarray, np.ndarray, list[int]], device: Any) -> list[Any]:
    queries, t, points, stops = world
    lists = ListWithRepair(queries, spare=2, index="scan")
    found: list[Any] = []
    at = 0
    for number, stop in enumerate(stops):
        if device is not None:
            lists.use(lent(device))
        end = int(np.searchsorted(t, stop, "right"))
        rows = lists.advance(t[at:end], np.arange(at, end), points[at:end], stop).rows()
        found += [(*row[:3], row[3].hex(), row[4]) for row in rows]
        at = end
        if number % 3 == 2:
            lists = ListWithRepair.from_bytes(lists.to_bytes())
    return found


@settings(max_examples=examples(150))
@given(worlds(), st.integers(1, 5))
def test_a_stand_in_finds_what_a_cpu_finds(world: Any, run: int) -> None:
    assert played(world, StandIn(run=run)) == played(world, None)


@pytest.fixture(scope="module")
def torch_device(request: pytest.FixtureRequest) -> Any:
    return kernels(request)


# The interpreter's maximum is numpy's, which warns of tiles that lie behind the last row.
@pytest.mark.filterwarnings("ignore:All-NaN")
@settings(max_examples=examples(40), deadline=None)
@given(worlds())
def test_the_kernels_find_what_a_cpu_finds(torch_device: Any, world: Any) -> None:
    device = torch_device(world[2].shape[1])
    assert played(world, device) == played(world, None)


def test_it_proposes_little_more_than_what_is_near() -> None:
    random = np.random.default_rng(1)
    points, centres = random.normal(size=(2000, 64)), random.normal(size=(50, 64))
    far = np.sqrt(np.square(centres[:, None] - points[None]).sum(axis=2))
    reach = np.sort(far, axis=1)[:, 20]
    reach[7], wanted = -np.inf, far < reach[:, None]
    proposing = products.Products(lent(StandIn(run=16)))
    found = proposing.near(0, centres, points, reach)
    assert found is not None
    pairs = set(zip(*(part.tolist() for part in found), strict=True))
    assert {(q, i) for q, i in np.argwhere(wanted).tolist() if q != 7} <= pairs
    assert len(pairs) < 1.4 * wanted.sum() and all(q != 7 for q, _ in pairs)


# ---------------------------------------------------------------- workers


@dataclass(frozen=True)
class LendingJob(NearestJob):
    """A job whose tasks have a stand-in."""

    lent: Lent = field(default_factory=lambda: lent(StandIn()))
    stays = (50,)

    def choice(self, task: Task) -> Lent:
        return self.lent


class LendingRun(Run):
    """Workers that have a stand-in; `wanted` is what the call says from a restart on."""

    wanted = "gpu"

    def restart(self, call: Any) -> None:
        super().restart(call)
        device = getattr(self, "device", StandIn(run=3))
        self.device = device
        job = self.workers.job
        assert isinstance(job, NearestJob)
        self.workers.job = LendingJob(job.nearest, job.table, lent(device, self.wanted))


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(["euclidean", "cosine"]),
    disorder=st.sampled_from([0, 20, 60]),
    tied=st.booleans(),
)
def test_any_batching_plan_change_and_restart_equals_brute_force(
    seed: int, metric: str, disorder: int, tied: bool
) -> None:
    """Half of the queries count rows; the device changes at restarts, and so do the workers."""
    random = np.random.default_rng(seed)
    objects = objects_of(random, int(random.integers(20, 90)), 5, tied)
    queries = queries_of(random, int(random.integers(1, 6)), 5, counts=disorder == 0)
    call = call_of(by=VectorMeasure(metric, "v", "v"), watermark="61 milliseconds")
    run = LendingRun(call, queries, (disorder + 1) * MS, int(random.integers(1, 4)))
    for number, batch in enumerate(in_batches(objects, disorder * MS, random)):
        if disorder and number % 4 == 3:
            run.plans = {**run.plans, str(len(run.plans)): [int(random.integers(1, 5)), None]}
        if number % 3 == 2:
            run.wanted = "cpu" if run.wanted == "gpu" else "gpu"
            run.restart(run.call)
        run.step(batch)
    run.finish()
    assert run.hits() == expected(objects, queries, metric)


def test_queries_that_come_and_go_are_known_to_the_device() -> None:
    random = np.random.default_rng(3)
    run = LendingRun(call_of(ops=True), None, MS, 2)
    objects = objects_of(random, 120, 6, tied=False)
    points, asked = random.random((8, 6)).tolist(), []
    for number, batch in enumerate(in_batches(objects, 0, random)):
        ops: list[dict[str, Any]] = []
        if number < 4:
            at = START + 60 * number * MS
            add = {"t": at, "k": 2, "span": 40 * MS, "op": "add"}
            ops = [{"id": n, "v": points[n], **add} for n in (2 * number, 2 * number + 1)]
            asked += [{**op, "until": FOREVER} for op in ops]
        if number == 4:
            ops = [{"id": 0, "t": START + 290 * MS, "op": "cancel"}]
            asked[0]["until"] = START + 290 * MS
        run.step(batch, ops)
    run.finish()
    assert len(run.device.launches) > 4
    assert run.hits() == expected(objects, asked)


def test_owners_of_selective_have_the_device_of_their_task(tmp_path: Path) -> None:
    call = call_of(device="cpu")
    run = Run(call, [{"id": 1, "v": [1.0], "k": 1, "span": MS}], 0, 1)
    assert isinstance(run.workers.job, NearestJob)
    job = OwnerJob(call, run.workers.job.table, str(tmp_path))
    kernel = job.kernel(LivingWorkers(job)._slices(0), Task(4, gpus=("1",)))
    assert kernel.choice == choice.Choice("nearest", "cpu", ("1",), 4)


# ---------------------------------------------------------------- what is kept, and when it is used


def stepped(
    lists: ListWithRepair, dim: int = 5, batches: int = 6, offset: float = 0.0
) -> list[Any]:
    random, found = np.random.default_rng(9), []
    for number in range(batches):
        seq = np.arange(30 * number, 30 * number + 30)
        points = random.normal(size=(30, dim)) + offset
        found += lists.advance(seq, seq, points, int(seq[-1])).rows()
    return found


def some_queries(dim: int = 5, metric: str = "euclidean", offset: float = 0.0) -> Queries:
    points = np.random.default_rng(8).normal(size=(7, dim)) + offset
    return Queries.of(points, k=2, window=60, metric=metric)


def with_device(device: Any, wanted: str = "gpu", **more: Any) -> tuple[ListWithRepair, Lent]:
    lists, asking = ListWithRepair(some_queries(**more)), lent(device, wanted)
    lists.use(asking)
    return lists, asking


def test_queries_are_uploaded_once_and_leave_with_their_lists() -> None:
    device = StandIn()
    lists, asking = with_device(device)
    same = ListWithRepair(some_queries())
    assert stepped(lists) == stepped(same)
    assert device.uploads == [7, 30, 30, 30, 30, 30]  # there is no threshold in the first batch
    lists.use(lent(device))  # another task with the same wish
    assert lists._products is not None and lists._products.choice is asking
    assert lists.nbytes == same.nbytes and len(lists.to_bytes()) == len(same.to_bytes())
    assert device.memory.nbytes > 0
    del lists
    gc.collect()
    assert device.memory.nbytes == 0


def test_it_asks_for_no_device_where_there_is_too_little_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "WORTHWHILE", 7 * 30 * 5 + 1)
    lists, asking = with_device(StandIn())
    stepped(lists)
    assert asking.asked == []
    monkeypatch.setattr(products, "WORTHWHILE", 7 * 30 * 5)
    device = StandIn()
    lists, asking = with_device(device)
    stepped(lists)
    assert len(device.launches) == 5 and len(asking.asked) == 1


@pytest.mark.parametrize("about", [{"dim": 4}, {"metric": "manhattan"}], ids=str)
def test_a_grid_and_sums_of_differences_stay_on_the_cpu(about: dict[str, Any]) -> None:
    lists, asking = with_device(StandIn(), **about)
    dim = about.get("dim", 5)
    assert stepped(lists, dim) == stepped(ListWithRepair(some_queries(**about)), dim)
    assert asking.asked == []


def test_it_rests_while_bfloat16_tells_nothing_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "_SCORING", 512)
    device = StandIn()
    lists, _ = with_device(device, offset=1e4)
    same = ListWithRepair(some_queries(offset=1e4))
    assert stepped(lists, batches=20, offset=1e4) == stepped(same, batches=20, offset=1e4)
    # Of 19 batches with thresholds it looks at the first, and then rests for 1, 2, 4 and 8.
    assert len(device.launches) == 4
    assert lists._products is not None and lists._products.resting.next == 16
    lists._products.resting.judge(useless=0, multiplied=1)
    assert lists._products.resting.next == 1


# ---------------------------------------------------------------- a device that fails


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    "failing", [{"upload": {1}}, {"upload": {3, 4}}, {"start": {2}}, {"finish": {1, 2}}], ids=str
)
def test_what_does_not_fit_into_memory_is_compared_on_the_cpu(
    failing: dict[str, set[int]], caplog: pytest.LogCaptureFixture
) -> None:
    device = Failing(failing, FULL)
    lists, _ = with_device(device)
    assert stepped(lists) == stepped(ListWithRepair(some_queries()))
    assert device.released > 0 and not device.failed and device.calls["finish"] >= 4
    (text,) = warnings_of(caplog)
    assert "ANABRANCH_GPU_MB" in text


@pytest.mark.parametrize("failing", [{"upload": {3}}, {"start": {2}}, {"finish": {1}}], ids=str)
def test_a_device_that_fails_is_given_up(
    failing: dict[str, set[int]], caplog: pytest.LogCaptureFixture
) -> None:
    device = Failing(failing, "an illegal memory access was encountered")
    lists, _ = with_device(device, "auto")
    assert stepped(lists) == stepped(ListWithRepair(some_queries()))
    before = dict(device.calls)
    assert "illegal memory access" in device.failed and device.calls["upload"] <= 3
    assert lists._products is not None
    assert lists._products.near(0, np.ones((2, 5)), np.ones((3, 5)), np.ones(2)) is None
    assert device.calls == before, "it is not asked again"
    (text,) = warnings_of(caplog)
    assert "illegal memory access" in text
    lists, _ = with_device(Failing(failing, "an illegal memory access was encountered"))
    with pytest.raises(AnabranchError, match=r"device='gpu'.*illegal memory access.*'auto'"):
        stepped(lists)


def test_a_call_that_asks_for_the_gpu_stops_where_another_query_has_lost_it() -> None:
    device = StandIn(failed="RuntimeError: an illegal memory access was encountered")
    lists, _ = with_device(device, "auto")
    assert stepped(lists) == stepped(ListWithRepair(some_queries()))
    lists, _ = with_device(device)
    with pytest.raises(AnabranchError, match=r"device='gpu'.*illegal memory access.*'auto'"):
        stepped(lists)


def test_too_many_candidates_are_left_to_the_cpu_and_the_gpu_rests() -> None:
    device = StandIn(most=1)
    lists, _ = with_device(device)
    assert stepped(lists, batches=20) == stepped(ListWithRepair(some_queries()), batches=20)
    # Nobody can judge what is not there; of 19 batches it looks at the first, and rests as above.
    assert len(device.launches) == 4
    assert lists._products is not None and lists._products.resting.next == 16


# ---------------------------------------------------------------- the call


def test_what_a_call_may_want() -> None:
    assert call_of().device == "auto"
    assert call_of(device="gpu").settings(None) == call_of(device="cpu").settings(None)
    with pytest.raises(InvalidCall, match="device must be 'auto' or 'cpu' or 'gpu', got 'tpu'"):
        call_of(device="tpu")
    with pytest.raises(InvalidCall, match=r"device='gpu' knows method='exact' alone.*'relaxed'"):
        call_of(device="gpu", method="relaxed")
    assert call_of(device="auto", method="relaxed").device == "auto"


def test_a_task_that_must_have_a_gpu_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "visible", lambda: 0)
    with pytest.raises(AnabranchError, match=r"sees no GPU|pip install 'anabranch\[gpu\]'") as said:
        NearestJob(call_of(device="gpu"), None).choice(Task(0))
    assert not isinstance(said.value, InvalidCall) or "nearest" in str(said.value)
    assert NearestJob(call_of(), None).choice(Task(0)).open() is None
