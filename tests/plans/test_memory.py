"""What workers remember of plans: enough to notice a wrong log, and no more."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block
from anabranch.neighbours.tenure import Tenure
from anabranch.plans.memory import PlanMemory, check_newest


def meta(epoch: int, *others: int, newest: int | None = 0, **changed: str) -> dict[str, Any]:
    """What a router writes that holds these plans live and stamps rows with the first."""
    live = sum(1 << (epoch - number) for number in (epoch, *others))
    plans = {str(number): f"plan {number}" for number in (epoch, *others)}
    renamed = {name.removeprefix("plan"): value for name, value in changed.items()}
    return {"epoch": epoch, "live": live, "plans": {**plans, **renamed}, "newest": newest}


def test_rows_that_meet_have_a_plan_in_common():
    memory = PlanMemory()
    memory.observe(meta(0))
    memory.observe(meta(1, 0))
    memory.observe(meta(0))  # from a router that looks late
    with pytest.raises(StateMismatch, match=r"rows of plan 0 .* rows of plan 1 arrive"):
        memory.observe(meta(1))
    memory.forget(0)
    memory.observe(meta(1, newest=5))
    with pytest.raises(StateMismatch, match=r"rows of plan 1 .* rows of plan 0 arrive"):
        memory.observe(meta(0))


def test_blocks_of_one_step_must_have_a_plan_in_common_too():
    memory = PlanMemory()
    memory.observe(meta(3))
    with pytest.raises(StateMismatch, match="not routed under a common plan"):
        memory.observe(meta(2))


def test_a_plan_must_stay_the_same_while_rows_of_it_are_stored():
    memory = PlanMemory()
    memory.observe(meta(1, 0, newest=10))
    with pytest.raises(StateMismatch, match="plan 0 is not the one that this checkpoint was begun"):
        memory.observe(meta(1, 0, plan0="another"))
    memory.forget(10)
    memory.observe(meta(0, plan0="another"))


def test_a_plan_that_is_live_without_rows_is_not_remembered():
    """Routers hold a replaced plan live for some batches after its last row has expired."""
    memory = PlanMemory()
    for number in range(200):
        live = [epoch for epoch in range(number - 3, number) if epoch >= 0]
        memory.observe(meta(number, *live, newest=number * 10))
        memory.observe(meta(number, *live, newest=None))
        memory.forget(number * 10 - 5)
        assert set(memory.newest) == {number}
        assert set(memory.plans) == {number, *live}
    assert len(json.dumps(memory.to_dict())) < 200


def test_a_retired_plan_is_forgotten_though_its_successor_goes_on():
    memory = PlanMemory()
    memory.observe(meta(1, 0, newest=10))
    assert set(memory.plans) == {0, 1}
    memory.observe(meta(1, newest=20))
    assert set(memory.plans) == {1} and memory.live == {1: 1}


blocks = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 255), st.integers(0, 100)), max_size=20
)


@given(blocks, st.integers(0, 100))
def test_it_survives_a_snapshot_and_holds_no_more_than_rows_need(arrivals, limit):
    memory = PlanMemory()
    for epoch, bits, newest in arrivals:
        others = [number for number in range(epoch) if bits >> number & 1]
        try:
            memory.observe(meta(epoch, *others, newest=newest))
        except StateMismatch:
            break
        again = PlanMemory.from_dict(json.loads(json.dumps(memory.to_dict())))
        assert again == memory
    memory.forget(limit)
    assert all(newest > limit for newest in memory.newest.values())
    assert set(memory.newest) == set(memory.live) <= set(memory.plans)
    for number in memory.plans:
        assert any(e >= number and bits >> (e - number) & 1 for e, bits in memory.live.items())


@pytest.mark.parametrize(
    ("known", "live"), [((), (0,)), ((0, 1), ()), ((0, 1), (1,)), ((1,), (2,))]
)
def test_the_newest_plan_may_be_replaced_but_not_lost(known, live):
    check_newest(known, live)


@pytest.mark.parametrize(("known", "live"), [((1,), (0,)), ((0, 1, 5), (3, 4))])
def test_a_lost_log_is_noticed(known, live):
    with pytest.raises(StateMismatch, match="restart with control= and the plan log"):
        check_newest(known, live)


class TestTenure:
    """The same for `nearest`, whose workers learn from plans which queries are theirs."""

    def changes(self, known: dict[str, Any], *plans: int, workers: int = 2) -> list[Any]:
        queries = Block.of(np.zeros(4, np.int64), {"v": np.arange(8.0).reshape(4, 2)})
        about = {str(number): [workers + number % 2, None] for number in plans}
        block = Block.of([], {})
        block.meta["nearest"] = about
        return list(Tenure(0, queries, 0).changes([block], 1000, known))

    def test_a_lost_log_is_noticed(self):
        known: dict[str, Any] = {}
        assert len(self.changes(known, 0)) == 1
        assert len(self.changes(known, 0, 1)) == 1
        assert self.changes(known, 1) == []
        with pytest.raises(StateMismatch, match="restart with control="):
            self.changes(known, 0)

    def test_plans_that_are_retired_are_forgotten(self):
        known: dict[str, Any] = {}
        for number in range(100):
            live = [n for n in range(number - 2, number + 1) if n >= 0]
            assert len(self.changes(known, *live)) == 1
            assert set(known) == set(map(str, live))
        # A router that has not heard that plan 90 is retired changes nothing.
        assert self.changes(known, 90, 99) == []
        assert set(known) == {"99"}
