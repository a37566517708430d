"""A GPU that cannot be opened, runs out of memory or dies: the same pairs, from the CPU."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.gpu import search
from anabranch.correlation.matching import Matcher
from anabranch.errors import AnabranchError, InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.cache import Cache
from anabranch.flow.gpu import choice
from tests.devices import Failing

TYPES = {"id": "bigint", "ts": "timestamp", "v": "array<double>"}
WHERE = ab.dot("v") >= 0
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture(autouse=True)
def _each_test_is_a_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(search, "WORTHWHILE", 0)
    choice.warn_once.cache_clear()
    yield
    choice.warn_once.cache_clear()


def block(rows: np.ndarray) -> Block:
    n = len(rows)
    return Block.of(np.zeros(n), {"id": np.arange(n), "s0": rows.astype(np.float32)})


def matcher(device: Any, wanted: str = "auto") -> Matcher:
    call, problems = plan_correlation(TYPES, TYPES, where=WHERE, window="1 second", device=wanted)
    assert call is not None, problems
    return Matcher(call, device)


def pairs(count: int) -> list[Pair]:
    random = np.random.default_rng(1)
    return [
        Pair(block(random.normal(size=(4, 3))), block(random.normal(size=(5, 3))), (0, 0))
        for _ in range(count)
    ]


def found(matching: Matcher, worlds: list[Pair]) -> list[tuple[Any, ...]]:
    """The matches by pair of blocks, whichever came first."""
    rows = []
    for pair, matches in matching.over(iter(worlds)):
        number = next(n for n, one in enumerate(worlds) if one is pair)
        both = (matches.left.tolist(), matches.right.tolist(), matches.score.tolist())
        rows += [(number, *row) for row in zip(*both, strict=True)]
    return sorted(rows)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# ---------------------------------------------------------------- at the start


def broken_torch(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A driver that shows a GPU, and a torch that cannot use it."""

    def refuse(number: int) -> Any:
        raise error

    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(get_device_capability=refuse)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "triton", types.ModuleType("triton"))
    monkeypatch.setattr(choice, "visible", lambda: 1)
    monkeypatch.setattr(choice, "_installed", lambda: True)


def test_a_gpu_that_torch_cannot_use_is_said_once_and_the_cpu_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken_torch(monkeypatch, RuntimeError("the NVIDIA driver is too old (found version 11040)"))
    assert [choice.Choice("correlate", "auto", (), worker).open() for worker in range(3)] == [
        None
    ] * 3
    (text,) = warnings_of(caplog)
    assert "on the CPU" in text and "driver is too old" in text
    with pytest.raises(InvalidCall, match=r"RuntimeError: the NVIDIA driver is too old.*'auto'"):
        choice.Choice("correlate", "gpu", (), 0).open()


def test_a_torch_that_cannot_be_imported_does_not_stop_auto(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken_torch(monkeypatch, RuntimeError("never asked"))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert choice.Choice("correlate", "auto", (), 0).open() is None
    assert "torch" in warnings_of(caplog)[0]


@pytest.mark.parametrize("addresses", [("7",), ()])
def test_auto_says_why_an_assigned_or_an_old_gpu_is_of_no_use(
    addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken_torch(monkeypatch, RuntimeError("never asked"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    sys.modules["torch"].cuda.get_device_capability = lambda number: (7, 5)
    assert choice.Choice("correlate", "auto", addresses, 0).open() is None
    assert ("assigned GPU '7'" if addresses else "compute capability 7.5") in warnings_of(caplog)[0]
    with pytest.raises(InvalidCall):
        choice.Choice("correlate", "gpu", addresses, 0).open()


# ---------------------------------------------------------------- in a step


@pytest.mark.parametrize(
    "failing",
    [{"upload": {3}}, {"start": {1}}, {"start": {2, 3}}, {"finish": {1}}, {"upload": {1, 2, 3, 4}}],
    ids=str,
)
def test_what_does_not_fit_into_memory_is_compared_on_the_cpu(
    failing: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(search, "_PAIRS", 2)
    device, worlds = Failing(failing, FULL), pairs(7)
    assert found(matcher(device), worlds) == found(matcher(None), worlds) != []
    assert device.released > 0 and not device.failed
    assert device.calls["finish"] >= 2, "the device goes on with what fits"
    (text,) = warnings_of(caplog)
    assert "ANABRANCH_GPU_MB" in text


def test_a_full_memory_makes_the_budget_smaller() -> None:
    device, worlds = Failing({"start": {3}}, FULL, memory=Cache(1 << 20)), pairs(3)
    for world in worlds:
        assert found(matcher(device), [world]) == found(matcher(None), [world])
    assert 0 < device.memory.budget < 1 << 10
    assert device.memory.nbytes <= device.memory.budget


@pytest.mark.parametrize("failing", [{"start": {2}}, {"finish": {1}}, {"upload": {5}}], ids=str)
def test_a_device_that_fails_is_given_up(
    failing: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(search, "_PAIRS", 1)
    device, worlds = Failing(failing, "an illegal memory access was encountered"), pairs(6)
    assert found(matcher(device), worlds) == found(matcher(None), worlds)
    assert "illegal memory access" in device.failed
    before = dict(device.calls)
    assert found(matcher(device), worlds) == found(matcher(None), worlds)
    assert device.calls == before, "it is not asked again"
    (text,) = warnings_of(caplog)
    assert "illegal memory access" in text


def test_a_call_that_asks_for_the_gpu_stops_if_it_fails() -> None:
    device = Failing({"start": {1}}, "an illegal memory access was encountered")
    with pytest.raises(AnabranchError, match=r"device='gpu'.*illegal memory access.*'auto'"):
        found(matcher(device, "gpu"), pairs(2))


def test_a_call_that_asks_for_the_gpu_stops_where_another_query_has_lost_it() -> None:
    device, worlds = Failing({"start": {1}}, "an illegal memory access was encountered"), pairs(2)
    assert found(matcher(device), worlds) == found(matcher(None), worlds)
    with pytest.raises(AnabranchError, match=r"device='gpu'.*illegal memory access.*'auto'"):
        found(matcher(device, "gpu"), worlds)
    assert found(matcher(device), worlds) == found(matcher(None), worlds)


def test_a_gpu_that_a_query_of_this_process_has_lost_is_not_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken_torch(monkeypatch, RuntimeError("never asked"))
    sys.modules["torch"].cuda.get_device_capability = lambda number: (9, 0)
    device = Failing({}, "", failed="RuntimeError: an illegal memory access was encountered")
    monkeypatch.setattr(choice, "_opened", lambda number: device)
    assert choice.Choice("correlate", "auto").open() is device
    with pytest.raises(AnabranchError, match=r"device='gpu'.*illegal memory access.*'auto'"):
        choice.Choice("correlate", "gpu").open()
    device.failed = ""
    assert choice.Choice("correlate", "gpu").open() is device


def test_a_part_that_does_not_fit_is_uploaded_later() -> None:
    device, (world,) = Failing({"part": {1}}, FULL), pairs(1)
    matching = matcher(device)
    assert found(matching, [world])
    part = world.left.slice(1, 4)
    matching.inherit(world.left, 1, part)
    again = [Pair(part, world.right, (0, 0))]
    assert found(matching, again) == found(matcher(None), again)
