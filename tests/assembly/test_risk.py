"""What `ab.close.learned` promises: no more windows than allowed close before their last event."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import anabranch as ab
from anabranch.assembly.kernel import AssembleKernel
from anabranch.assembly.learning import BINS, C_MET, C_MORE, C_REACHED, learn, new_knowledge
from anabranch.assembly.store import AssembleNotes
from anabranch.assembly.table import CAUSES, Column
from anabranch.flow.blocks import Block
from anabranch.flow.slices import Slices
from papers.dssis.arrays import assemble_arrays

Gaps = Callable[[np.random.Generator], np.ndarray]

# Seconds between the events of one instance.
REGIMES: dict[str, Gaps] = {
    "always seven": lambda r: r.exponential(1, 6),
    "any number": lambda r: r.exponential(1, r.geometric(0.1) - 1),
    "a fourth, now and then": lambda r: r.exponential(1, 2 + (r.random() < 0.05)),
    "a slow fourth": lambda r: np.append(r.exponential(0.2, 2), [15.0] * (r.random() < 0.02)),
    "a slow second": lambda r: np.full(int(r.random() < 0.02), 15.0),
    "long tails": lambda r: np.minimum(r.pareto(1.2, 4) * 0.2, 25),
}


def closed_early(gaps: Gaps, risk: float, n: int = 8000) -> tuple[np.ndarray, np.ndarray]:
    """Of the last two thirds of instances: whether each closed too early, and how it closed."""
    random = np.random.default_rng(3)
    t, key = [], []
    for instance in range(n):
        times = 0.5 * instance + np.concatenate([[0.0], np.cumsum(gaps(random))])
        t.append((times * 1e6).astype(np.int64) + 1)
        key.append(np.full(len(times), instance))
    keys = np.concatenate(key)
    closing = ab.close.learned("30 seconds", risk=risk)
    found = assemble_arrays(np.concatenate(t), keys, closing, kind=keys % 20)
    rows = np.bincount(found.column(Column.H2), minlength=n)
    first = found.column(Column.REVISION) == 0
    late = found.column(Column.H2) > n // 3
    return rows[n // 3 :] > 1, found.column(Column.REASON)[first & late]


@pytest.mark.parametrize("risk", [0.05, 0.01])
@pytest.mark.parametrize("regime", REGIMES)
def test_the_risk_is_kept(regime: str, risk: float) -> None:
    early, _ = closed_early(REGIMES[regime], risk)
    # Three deviations of chance; and the share is of instances, which may take the risk twice.
    assert early.mean() < 1.2 * risk + 3 * np.sqrt(risk / len(early))


def test_a_kind_that_is_always_alike_waits_for_nothing() -> None:
    for regime in (REGIMES["always seven"], lambda r: np.empty(0)):
        early, reasons = closed_early(regime, 0.01)
        assert not early.any() and {CAUSES[reason] for reason in reasons} == {"complete"}


def test_silences_are_those_of_the_clock() -> None:
    """In processing time what counts is when events come, not when they say they were made."""
    kernel = AssembleKernel(
        ab.close.learned("900 us", risk=0.01, after=5), Slices((0, 0), AssembleNotes()),
        by_arrival=True
    )  # fmt: skip
    told = []
    for instance in range(200):
        for part in range(3):
            w = np.array([[instance, instance, 7, 0, 1, part]])
            block = Block.of([1000 + 10 * instance + part], {"w": w})
            told.extend(kernel.advance([block], 2000 * instance + 100 * part + 1))
    windows = np.concatenate([step.windows for step in told])
    rows = np.bincount(windows[:, Column.H1], minlength=200)
    assert (rows[20:199] == 1).all() and (windows[20:199, Column.COUNT] == 3).all()


def test_events_of_a_key_in_one_batch_are_taken_together_in_processing_time() -> None:
    kernel = AssembleKernel(
        ab.close.count(5, "9 us"), Slices((0, 0), AssembleNotes()), by_arrival=True
    )
    keys = np.array([1, 2] * 5)
    w = np.stack([keys, keys, keys, 0 * keys, 0 * keys + 1, np.arange(10)], axis=1)
    (found,) = kernel.advance([Block.of(np.arange(10) + 1, {"w": w})], 50)
    assert found.windows[:, [Column.H1, Column.COUNT]].tolist() == [[1, 5], [2, 5]]


def test_an_instance_whose_first_row_was_late_still_gets_its_window() -> None:
    kernel = AssembleKernel(
        ab.close.after("9 us", remember="50 us"), Slices((0, 0), AssembleNotes())
    )

    def row(t: int) -> Block:
        return Block.of([t], {"w": np.array([[5, 5, 5, t, 1, t]])})

    kernel.advance([], 20)
    ((late,),) = (part.windows for part in kernel.advance([row(19)], 20))
    kernel.advance([row(22), row(24)], 20)
    ((whole,),) = (part.windows for part in kernel.advance([], 40))
    assert CAUSES[late[Column.REASON]] == "late" and late[Column.COUNT] == 1
    assert CAUSES[whole[Column.REASON]] == "timeout" and whole[Column.COUNT] == 2
    assert whole[Column.SEQ] == 1 and whole[Column.REVISION] == 0


def test_what_is_learned_is_part_of_the_state_that_is_reported() -> None:
    kernel = AssembleKernel(ab.close.learned("9 us"), Slices((0, 0), AssembleNotes()))
    keys = np.arange(500)
    w = np.stack([keys, keys, keys, keys, 0 * keys + 1, keys], axis=1)
    kernel.advance([Block.of(keys + 1, {"w": w})], 0)
    kernel.advance([], 5000)
    assert kernel.load.open_windows == kernel.load.remembered == 0
    assert kernel.load.state_bytes > 500 * 3 * 32 * 8


def test_what_is_old_fades() -> None:
    """After very many instances a change of all kinds' ways still shows within some thousands."""
    known = new_knowledge({}, 2)
    common = known.common
    for count in (2, 1):
        for _ in range(20_000):
            learn(known, 0, count, 5, 5, 0.5)
        # Of a kind that nobody knows: does a second event come?
        share = common[C_MORE + 1] / common[C_REACHED + 1]
        assert share > 0.9 if count == 2 else share < 0.2
    assert common[C_REACHED : C_MET + BINS].max() < 10_000
