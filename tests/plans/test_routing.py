"""The transition rule: whatever plans follow each other, one worker owns each pair."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.owning import owned, owns
from anabranch.plans.hashed import broadcast, grid
from anabranch.plans.plan import Rows
from anabranch.plans.routing import LivePlans, branch, route
from anabranch.plans.segments import segments
from tests.plans.test_plans import lengths, plans


@given(
    st.lists(plans().filter(lambda p: p.needs != "key"), min_size=2, max_size=5),
    st.tuples(lengths, lengths),
    st.integers(0, 10**6),
)
def test_each_pair_is_owned_once_across_plan_changes(sequence, window, seed):
    """Rows stamped with any epoch, routed under all plans up to it (none retired yet)."""
    random = np.random.default_rng(seed)
    n, k = 40, max(plan.workers for plan in sequence)
    sides = []
    for side in (0, 1):
        t = random.integers(0, 3 * max(*window, 1), n) + 10**15
        epoch = random.integers(0, len(sequence), n)
        masks = np.zeros((n, k), np.int64)
        for number in range(len(sequence)):
            rows = np.flatnonzero(epoch == number)
            live = LivePlans(dict(enumerate(sequence[: number + 1])))
            copies = route(live, side, Rows(t[rows], mix(rows + 1000 * side)), window)
            masks[np.repeat(rows, np.diff(copies.offsets)), copies.workers] = copies.masks
        sides.append((t, epoch, masks))
    (t, epoch, masks), (s, right_epoch, right_masks) = sides
    owners = np.zeros((n, n), np.int64)
    for worker in range(k):
        mine = owned(
            epoch[:, None], masks[:, worker, None], right_epoch[None], right_masks[None, :, worker]
        )
        owners += mine & (masks[:, worker, None] != 0) & (right_masks[None, :, worker] != 0)
    apart = t[:, None] - s[None]
    due = (apart >= -window[0]) & (apart <= window[1])
    assert (owners[due] == 1).all()


def test_a_mask_holds_31_plans():
    LivePlans({0: broadcast(1), 30: broadcast(1)})
    with pytest.raises(ValueError, match="retire the oldest"):
        LivePlans({0: broadcast(1), 31: broadcast(1)})
    with pytest.raises(ValueError, match="at least one plan"):
        LivePlans({})


def test_branch_gives_each_worker_its_rows_and_one_lead_per_row():
    ids = np.arange(50)
    block = Block.of(t=ids * 10, columns={"id": ids})
    live = LivePlans({0: grid(2, 2), 1: segments(3, "1 second")})
    copies = route(live, 1, Rows(block.t, mix(ids)), (5, 5))
    seen, leads = [], []
    for worker, part in branch(block, copies, live.epoch):
        assert 0 <= worker < 4
        assert (part.epoch == 1).all()
        seen += part.columns["id"].tolist()
        leads += part.columns["id"][part.columns["lead"]].tolist()
    assert sorted(leads) == ids.tolist()
    assert sorted(seen) == np.repeat(ids, np.diff(copies.offsets)).tolist()


def test_an_empty_block_has_no_branches():
    block = Block.of(t=[], columns={"id": np.arange(0)})
    copies = route(LivePlans({0: segments(3)}), 1, Rows(block.t, mix(np.arange(0))), (5, 5))
    assert list(branch(block, copies, 0)) == []


@numba.njit
def _one_by_one(epoch, mask, right_epoch, right_mask):
    found = np.zeros((len(epoch), len(right_epoch)), np.bool_)
    for i in range(len(epoch)):
        for j in range(len(right_epoch)):
            found[i, j] = owns(epoch[i], mask[i], right_epoch[j], right_mask[j])
    return found


def test_compiled_code_and_arrays_know_the_same_rule():
    epochs = np.repeat(np.arange(6), 64)
    masks = np.tile(np.arange(64), 6)
    want = owned(epochs[:, None], masks[:, None], epochs, masks)
    assert (_one_by_one(epochs, masks, epochs, masks) == want).all()
    assert (want == want.T).all() and 0 < want.sum() < want.size
