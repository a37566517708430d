"""How much bytes propose before the product takes over, wherever in a block the crowd lies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from anabranch.correlation.filters import choosing
from anabranch.correlation.filters.choosing import Habits
from anabranch.correlation.filters.costs import cost_of_bytes, cost_of_product
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.tiles import Candidates, Pair
from anabranch.flow.blocks import Block
from benchmarks.correlate_filters import crowded
from benchmarks.correlate_kernel import directions

pytestmark = pytest.mark.skipif(
    not available(), reason="this processor has no instructions for bytes"
)
LEFT, RIGHT, THRESHOLD = 500, 12_000, 0.9


def block(vectors: np.ndarray) -> Block:
    return Block.of(np.zeros(len(vectors)), {"id": np.arange(len(vectors)), "s0": vectors})


class Multiplied:
    """What the product has looked at: right rows, and the pairs that it proposed of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.proposed, self.spans = 0, list[tuple[int, int]]()
        product = choosing.product_candidates

        def noted(*call: Any) -> Iterator[Candidates]:
            self.spans.append(call[5] if len(call) > 5 else (0, len(call[0].right)))
            for found in product(*call):
                self.proposed += len(found.left)
                yield found

        patch.setattr(choosing, "product_candidates", noted)

    @property
    def rows(self) -> int:
        """Right rows, each as often as it was looked at."""
        return sum(last - first for first, last in self.spans)


def pairs_of(found: Iterator[Candidates]) -> tuple[set[tuple[int, int]], int]:
    """The pairs, and how many were proposed."""
    proposed = [(int(i), int(j)) for part in found for i, j in zip(*part, strict=True)]
    return set(proposed), len(proposed)


@pytest.mark.parametrize("width", [64, 128, 256, 576])
@pytest.mark.parametrize("clean", [100, 1500, 6000])
def test_a_crowd_behind_clean_rows_is_left_to_the_product(
    width: int, clean: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = crowded(LEFT + RIGHT, width, 0.01)
    right = near[LEFT:].copy()
    right[:clean] = directions(clean, width, 1)
    pair, habits = Pair(block(near[:LEFT]), block(right), (1, 1)), Habits()
    call = (pair, "s0", "cosine", True, THRESHOLD)
    expected, _ = pairs_of(choosing.product_candidates(*call))
    product = Multiplied(monkeypatch)
    found, proposed = pairs_of(choosing.vector_candidates(*call, habits))
    assert found >= expected and len(found) == proposed  # each once
    # What it should cost: the product on the crowd, bytes and next to nothing else on all.
    name, alone = type(available()[0]).__name__, cost_of_product(width, LEFT * RIGHT)
    cost = cost_of_product(width, LEFT * product.rows)
    cost += cost_of_bytes(width, LEFT * RIGHT, proposed - product.proposed, name)
    assert cost <= 1.04 * alone + cost_of_bytes(width, LEFT * RIGHT, 0, name)
    if clean == 6000:  # rows without a crowd are not multiplied, but for a span on the edge
        assert RIGHT - clean <= product.rows <= RIGHT - clean + 4096


@pytest.mark.parametrize("width", [64, 576])
def test_where_nothing_crowds_nothing_is_multiplied(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = Multiplied(monkeypatch)
    vectors = directions(LEFT + RIGHT, width, 0)
    pair = Pair(block(vectors[:LEFT]), block(vectors[LEFT:]), (1, 1))
    found, proposed = pairs_of(
        choosing.vector_candidates(pair, "s0", "cosine", True, THRESHOLD, Habits())
    )
    assert product.spans == [] and len(found) == proposed


def crowded_and_clean() -> tuple[Block, Block, Block]:
    """New rows, stored ones that crowd about the threshold with them, and others that do not."""
    near = crowded(LEFT + RIGHT, 64, 0.01)
    return block(near[:LEFT]), block(near[LEFT:]), block(directions(RIGHT, 64, 1))


def test_a_block_that_crowds_does_not_keep_bytes_from_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new, crowd, clean = crowded_and_clean()
    product, habits = Multiplied(monkeypatch), Habits()

    def multiplied(stored: Block) -> int:
        product.spans.clear()
        call = (Pair(new, stored, (1, 1)), "s0", "cosine", True, THRESHOLD, habits)
        list(choosing.vector_candidates(*call))
        return product.rows

    assert multiplied(clean) == 0
    assert multiplied(crowd) == RIGHT and multiplied(block(directions(RIGHT, 64, 2))) == RIGHT
    for _ in range(3):  # of what has not been tried the crowd tells, not of what has
        assert multiplied(clean) == 0 and multiplied(crowd) == RIGHT


@pytest.mark.parametrize("what", ["ball_search", "work_of"])
def test_what_cannot_be_looked_at_so_is_not_tried_with_every_pair(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(choosing, what, lambda *call: tried.append(what))
    if what == "ball_search":
        for name, value in {"_SEEN_FIRST": 0, "likely_share": lambda *call: 0.0}.items():
            monkeypatch.setattr(choosing, name, value)
    new, _, stored = crowded_and_clean()
    call = (Pair(new, stored, (1, 1)), "s0", "cosine", True, THRESHOLD, Habits())
    for _ in range(10):
        list(choosing.vector_candidates(*call))
    assert tried == [what]
