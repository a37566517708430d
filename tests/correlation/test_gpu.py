"""A device finds the pairs and scores that a CPU finds, to the last bit, and uploads rows once.

The law runs over a stand-in made of numpy, over the kernels in Triton's interpreter if torch and
Triton are installed, and over a GPU if there is one.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation import jobs
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.correlation.gpu import search
from anabranch.correlation.matching import Matcher
from anabranch.errors import AnabranchError
from anabranch.flow.blocks import Block
from anabranch.flow.cache import Cache
from anabranch.flow.gpu import choice
from anabranch.flow.owning import owned
from anabranch.flow.sides import BEFORE
from anabranch.plans.routing import MAX_LIVE, OTHER
from anabranch.testing import InProcess
from tests.correlation.stand_in import StandInForwardingJob, StandInJob
from tests.devices import StandIn, kernels
from tests.examples import examples

TYPES = {"id": "bigint", "ts": "timestamp", "v": "array<double>"}
MEASURES = {
    "cosine": ab.cosine,
    "dot": ab.dot,
    "euclidean": ab.euclidean,
    "manhattan": ab.manhattan,
    "emd": ab.emd,
}

LEAST = {"cosine": -1, "dot": -1e300, "euclidean": 0, "manhattan": 0, "emd": 0}


@pytest.fixture(autouse=True)
def _everything_is_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WORTHWHILE", 0)
    monkeypatch.setattr(StandInJob, "opened", None)


def matcher(where: Any, device: Any = None) -> Matcher:
    wanted = "cpu" if device is None else "gpu"  # which stops if the device fails
    found, problems = plan_correlation(TYPES, TYPES, where=where, window="1 second", device=wanted)
    assert found is not None, problems
    return Matcher(found, device)


@st.composite
def vectors(draw: st.DrawFn, rows: int, d: int) -> np.ndarray:
    """Rows of about one size, or of very different ones; some of them alike up to a factor."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = random.normal(size=(rows, d))
    if draw(st.booleans()):
        values = np.round(values * 4)
    values[random.random(rows) < 0.3] = values[0]
    shift = draw(st.sampled_from([0, 0, 30, -30, 60, -60]))
    spread = random.integers(0, draw(st.sampled_from([0, 3, 60])) + 1, (rows, 1))
    values = np.ldexp(values, shift - spread).astype(draw(st.sampled_from(["f4", "f8"])))
    values[~values.any(axis=1), 0] = 1.0  # a zero vector has no cosine
    return values


@st.composite
def blocks(draw: st.DrawFn, d: int, one: bool) -> Block:
    n = draw(st.integers(1, 9))
    few = st.sampled_from([0, 1, 2, 5])
    times = sorted(draw(st.lists(few, min_size=n, max_size=n)))
    if draw(st.sampled_from([False, False, True])):
        times = sorted(draw(st.sampled_from([-(2**63), 2**63 - 9])) + t for t in times)
    epochs = draw(st.lists(st.sampled_from([0, 0, 1, 40]), min_size=n, max_size=n))
    masks = [draw(st.lists(st.integers(0, 15), min_size=n, max_size=n)) for _ in range(2)]
    columns: dict[str, Any] = {"id": np.arange(n), "s0": draw(vectors(n, d))}
    if one:
        columns[OTHER] = np.array(masks[1])
    return Block(np.array(times), np.array(epochs), np.array(masks[0]), columns)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Any, list[Pair]]:
    """A predicate and some pairs of blocks, whose scores meet its threshold exactly."""
    d, one = draw(st.sampled_from([1, 3, 17, 70, 130])), draw(st.booleans())
    ends = st.sampled_from([0, 1, 3, 2**63 - 1, 2**70])
    some = draw(st.lists(blocks(d, one), min_size=2, max_size=4))
    window = draw(ends), draw(ends)
    pairs = [Pair(some[0], other, window) for other in some[1:]]
    kind = draw(st.sampled_from(sorted(MEASURES)))
    if kind == "emd":  # of masses, which are not negative
        for block_ in some:
            block_.columns["s0"] = np.abs(block_.columns["s0"])
    measure = MEASURES[kind]("v")
    every = matcher(measure >= LEAST[kind])
    scores = [found.score for pair in pairs for found in every.matches(pair)]
    threshold = 0.5 if not scores else float(draw(st.sampled_from(np.concatenate(scores).tolist())))
    return (measure >= threshold if draw(st.booleans()) else measure <= threshold), pairs


def found(where: Any, pairs: list[Pair], device: Any = None) -> list[tuple[int, int, int, str]]:
    return sorted(
        (pairs.index(pair), int(i), int(j), float(score).hex())
        for pair, matches in matcher(where, device).over(pairs)
        for i, j, score in zip(*matches, strict=True)
    )


# Thresholds come from scores, and what computes them is compiled when it is first called.
COMPILES = [HealthCheck.too_slow]


@settings(max_examples=examples(120), suppress_health_check=COMPILES)
@given(worlds(), st.integers(1, 5))
def test_a_stand_in_finds_what_a_cpu_finds(world: tuple[Any, list[Pair]], run: int):
    where, pairs = world
    device = StandIn(run=run)
    assert found(where, pairs, device) == found(where, pairs)
    assert device.launches == [len(pairs)]


# ---------------------------------------------------------------- the rule of ownership


class Cells(np.ndarray):
    """What a kernel has loaded."""

    def to(self, _: Any) -> Cells:
        return self


def kernels_over(memory: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the kernels, whose addresses are places in an array of 64-bit numbers."""

    def load(at: Any, mask: Any = True, other: int = 0) -> Cells:
        return np.where(mask, np.atleast_1d(memory[np.where(mask, at, 0)]), other).view(Cells)

    triton, language = types.ModuleType("triton"), types.ModuleType("triton.language")
    same = {"constexpr": lambda it: it, "pointer_type": lambda it: it, "int64": None}
    vars(language).update(same, load=load, minimum=np.minimum, where=np.where)
    vars(triton).update(jit=lambda it: it, language=language)
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", language)
    path = Path(choice.__file__).with_name("join.py")
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_kernels_own_what_the_rule_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one rule, `flow.owning.owned`, read as the kernels read their memory."""
    random, n, back, ahead = np.random.default_rng(1), 60, 40, 25
    columns = {
        f"{side}_{what}": values
        for side in ("left", "right")
        for what, values in {
            "times": random.integers(-100, 100, n),
            "epochs": random.integers(0, MAX_LIVE + 5, n),
            "masks": random.integers(0, 2**63, n) & random.integers(0, 2**63, n),
        }.items()
    }
    first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    window = {"back": back, "ahead": ahead, "endless_back": first, "endless_ahead": last}
    table = np.zeros(64, np.int64)
    memory = np.concatenate([table, *columns.values()])
    kernels = kernels_over(memory, monkeypatch)
    places = {name: len(table) + n * number for number, name in enumerate(columns)}
    for name, value in {**window, **places}.items():
        memory[kernels.FIELDS.index(name)] = value
    c, j, shares = columns, np.arange(n), []
    for i in range(n):
        apart = c["right_times"] - c["left_times"][i]
        left = (np.full(n, c[f"left_{what}"][i]) for what in ("epochs", "masks"))
        due = owned(*left, c["right_epochs"], c["right_masks"])
        there = j < n - 3
        admitted = kernels._admitted(0, i, j, there)
        shares.append(due.mean())
        due &= (-back <= apart) & (apart <= ahead)
        assert (admitted & there).tolist() == (due & there).tolist()
    assert 0.1 < np.mean(shares) < 0.9


# ---------------------------------------------------------------- the kernels


@pytest.fixture(scope="module")
def torch_device(request: pytest.FixtureRequest) -> Any:
    return kernels(request)


# The interpreter's maximum is numpy's, which warns of tiles that lie behind the last row.
@pytest.mark.filterwarnings("ignore:All-NaN")
@settings(max_examples=examples(40), suppress_health_check=COMPILES)
@given(worlds())
def test_the_kernels_find_what_a_cpu_finds(torch_device: Any, world: tuple[Any, list[Pair]]):
    where, pairs = world
    device = torch_device(pairs[0].left.columns["s0"].shape[1])
    assert found(where, pairs, device) == found(where, pairs)


def test_a_list_that_is_too_short_is_made_longer(torch_device: Any):
    device = torch_device(3)
    device._capacity = [2, 2]
    pair = Pair(*(block(np.tile([[1.0, 2.0, 3.0]], (n, 1))) for n in (11, 13)), (9, 9))
    assert found(ab.cosine("v") >= 0.9, [pair], device) == found(ab.cosine("v") >= 0.9, [pair])
    assert device._capacity[0] in (16, 64)  # 11 rows in one tile, or in four
    assert device._capacity[1] == 256  # 143 pairs


def test_what_lies_behind_the_last_row_is_near_to_nothing(torch_device: Any):
    device = torch_device(3)
    rows = np.array([[1.0, 0.0, 0.0]] * 3)  # nearer to zeros than to each other's opposites
    pair = Pair(block(rows), block(-rows), (9, 9))
    assert found(ab.euclidean("v") <= 1.5, [pair], device) == []
    started = matcher(ab.euclidean("v") <= 1.5, device)._search._start([pair]).launch
    assert device.finish(started) is not None
    assert started.counts.tolist() == [0, 0]


def block(values: np.ndarray) -> Block:
    return Block.of(np.zeros(len(values)), {"id": np.arange(len(values)), "s0": values})


# ---------------------------------------------------------------- what is kept on the device


def test_rows_are_uploaded_once_and_leave_with_their_block():
    device, where = StandIn(), ab.dot("v") >= 0
    stored, first, second = (block(np.eye(4)[:, :3] + 1) for _ in range(3))
    for fresh in (first, second, second):
        assert len(found(where, [Pair(fresh, stored, (0, 0))], device)) == 16
    assert device.uploads == [4, 4, 4]
    kept = device.memory.nbytes
    del stored
    gc.collect()
    assert 0 < device.memory.nbytes < kept


def test_within_a_budget_the_least_recently_used_is_uploaded_again():
    rows = np.ones((4, 8))
    device = StandIn(memory=Cache(3 * 4 * 8 * 2))  # three blocks of bfloat16
    fresh, one, two, three = (block(rows) for _ in range(4))
    for other in (one, two, one, three, one, two):
        assert len(found(ab.dot("v") >= 8, [Pair(fresh, other, (0, 0))], device)) == 16
    assert len(device.uploads) == 5  # two had to give way to three
    assert device.memory.nbytes <= device.memory.budget
    # However often it comes back, a block is waited for once.
    watched = [weakref.getweakrefs(one) for one in (fresh, one, two, three)]
    assert [len(references) for references in watched] == [1] * 4


def test_slices_cut_from_a_block_take_its_rows_over():
    device, rows = StandIn(), np.random.default_rng(1).normal(size=(12, 3))
    where = ab.euclidean("v") <= 1.5
    whole, fresh = block(rows), block(rows)
    matching = matcher(where, device)
    assert list(matching.over([Pair(whole, fresh, (0, 0))]))
    parts = [whole.slice(0, 5), whole.slice(5, 12)]
    for start, part in zip((0, 5), parts, strict=True):
        matching.inherit(whole, start, part)
    pairs = [Pair(part, fresh, (0, 0)) for part in parts]
    assert found(where, pairs, device) == found(where, pairs)
    assert device.uploads == [12, 12]


def test_too_many_candidates_are_left_to_the_cpu():
    device, where = StandIn(most=3), ab.dot("v") >= 0
    pair = Pair(block(np.ones((4, 2))), block(np.ones((5, 2))), (0, 0))
    assert found(where, [pair], device) == found(where, [pair])
    assert device.launches == [1]


def test_what_a_core_does_at_once_is_not_launched(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "WORTHWHILE", 21)
    device, where = StandIn(), ab.dot("v") >= 0
    pair = Pair(block(np.ones((4, 2))), block(np.ones((5, 2))), (0, 0))
    assert found(where, [pair], device) == found(where, [pair])
    assert device.launches == []
    assert len(found(where, [pair, pair], device)) == 40 and device.launches == [2]
    # As many pairs as a launch takes are few comparisons all the same.
    monkeypatch.setattr(search, "_PAIRS", 1)
    assert len(found(where, [pair, pair], device)) == 40 and device.launches == [2]


def test_launches_are_cut_and_overlap(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "_PAIRS", 2)
    order: list[str] = []

    class Watched(StandIn):
        def start(self, *work: Any) -> Any:
            order.append("start")
            return super().start(*work)

        def finish(self, started: Any) -> Any:
            order.append("finish")
            return super().finish(started)

    pairs = [Pair(block(np.ones((4, 2))), block(np.ones((5, 2))), (0, 0)) for _ in range(5)]
    assert len(found(ab.dot("v") >= 0, pairs, Watched())) == 20 * 5
    assert order == ["start", "start", "finish", "start", "finish", "finish"]
    # The last launch is full: there is none of nothing behind it.
    device = StandIn()
    assert len(found(ab.dot("v") >= 0, pairs[:4], device)) == 20 * 4
    assert device.launches == [2, 2]


def test_windows_that_count_rows_stay_on_the_cpu():
    device, where = StandIn(), ab.dot("v") >= 0
    columns = {"id": np.arange(4), "s0": np.ones((4, 2)), BEFORE: np.arange(4)}
    few, many = (Block.of(np.arange(rows), columns) for rows in (4, 4))
    pair = Pair(few, many, (1, 0))
    assert not pair.whole and comparisons(pair) == comparisons(pair.mirrored)
    assert len(found(where, [pair], device)) == comparisons(pair) < 16
    assert device.uploads == []


@settings(max_examples=examples(30), suppress_health_check=COMPILES)
@given(st.integers(0, 2**32), st.sampled_from(["<=", ">="]))
def test_histograms_of_many_bins_go_with_sums_of_their_columns(seed: int, op: str):
    random, device = np.random.default_rng(seed), StandIn()
    masses = random.gamma(0.2, size=(30, 90)) + 1e-9
    left, right = block(masses), block(np.roll(masses, 1, axis=1)[::-1].copy())
    scores = [
        found.score for found in matcher(ab.emd("v") <= 1e9).matches(Pair(left, right, (0, 0)))
    ]
    threshold = float(np.sort(np.concatenate(scores))[random.integers(0, 900)])
    where = ab.emd("v") <= threshold if op == "<=" else ab.emd("v") >= threshold
    pairs = [Pair(left, right, (0, 0))]
    assert found(where, pairs, device) == found(where, pairs) != []
    assert device.launches == [1] and device.summed == (2 if op == "<=" else 0)


def test_what_a_device_compares_is_counted_by_ranges_of_keys():
    masses = np.random.default_rng(1).random((12, 5))
    pair = Pair(block(masses), block(masses[:7]), (0, 0))
    matching = matcher(ab.emd("v") <= 0.5, StandIn())
    (one,) = matching.searches
    one.tally = Tally(ranges=(0.0, 4.0, 3))
    assert list(matching.over([pair]))
    assert one.tally.work.sum() == 12 * 7


@pytest.mark.parametrize("where", [ab.hamming("v") <= 1, (ab.dot("v") >= 0) & ab.same("id")])
def test_what_no_device_compares_stays_on_the_cpu(where: Any):
    device = StandIn()
    columns = {"id": np.arange(4), "s0": np.ones((4, 2)), "s1": np.arange(4)}
    pair = Pair(Block.of(np.zeros(4), columns), Block.of(np.zeros(4), columns), (0, 0))
    assert found(where, [pair], device) == found(where, [pair]) != []
    assert device.uploads == []


# ---------------------------------------------------------------- whole correlations


@pytest.mark.parametrize("how", [{}, {"how": "full"}])
def test_an_engine_with_a_device_emits_the_same(how: Any, monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(3)
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    schema = schema.append(pa.field("v", pa.list_(pa.float32())))

    def table(first: int) -> pa.Table:
        vectors = random.normal(size=(40, 6)).astype(np.float32)
        times = 10**15 + (first + np.arange(40)) * 50_000
        return pa.table([range(first, first + 40), times, vectors.tolist()], schema=schema)

    batches = [(table(first), table(first)) for first in range(0, 160, 40)]
    results = []
    for device in ("cpu", "auto"):
        monkeypatch.setattr(jobs, "CorrelateJob", StandInJob)
        monkeypatch.setattr(jobs, "ForwardingJob", StandInForwardingJob)
        call = {"where": ab.cosine("v") >= 0.7, "window": "2 seconds", "watermark": "1 second"}
        run = InProcess(schema, schema, 2, True, device=device, **call, **how)
        for left, right in batches:
            run.step(left, right)
        results.append(sorted(map(repr, run.pairs)))
    assert results[0] == results[1] and len(results[0]) > 50
    assert StandInJob.opened is not None and len(StandInJob.opened.launches) >= 8


# ---------------------------------------------------------------- which device


def test_the_cpu_is_taken_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choice, "visible", lambda: 0)
    assert choice.Choice("correlate", "auto", (), 0).open() is None
    assert choice.Choice("correlate", "cpu", ("0",)).open() is None


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choice, "visible", lambda: 0)
    with pytest.raises(AnabranchError, match=r"sees no GPU|pip install 'anabranch\[gpu\]'"):
        choice.Choice("correlate", "gpu", (), 0).open()


def test_addresses_of_spark_are_those_of_cuda(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert choice.ordinal("2", 4) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    assert choice.ordinal("3", 2) == 1
    assert choice.ordinal("7", 2) is None


def test_the_budget_is_that_of_the_process_or_the_one_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANABRANCH_GPU_MB", raising=False)
    assert choice.budget() == choice.CACHE.budget
    monkeypatch.setenv("ANABRANCH_GPU_MB", "3")
    assert choice.budget() == 3 << 20


def test_a_wrong_device_is_refused_at_the_call():
    call = {"where": ab.cosine("v") >= 0.9, "window": "1 second", "device": "cuda"}
    (problem,) = plan_correlation(TYPES, TYPES, **call)[1]
    assert problem == "device must be 'auto' or 'cpu' or 'gpu', got 'cuda'"
