"""What a placement would cost with one view elsewhere is what all its links cost then."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.placement.cost import costs_with, link_costs
from anabranch.placement.graph import ViewGraph


@pytest.mark.parametrize("shared", [True, False])
def test_one_view_elsewhere_costs_what_all_links_do_to_the_last_bit(shared: bool) -> None:
    compared = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        sources, devices, views = rng.integers(2, 8), rng.integers(1, 6), rng.integers(1, 10)
        sizes = rng.integers(1, 3, views)
        inputs = np.concatenate([rng.choice(sources, size, replace=False) for size in sizes])
        graph = ViewGraph(
            np.concatenate([[0], np.cumsum(sizes)]),
            inputs.astype(np.int32),
            rng.choice([0.0, 1.3, 2.7, 5.1], len(inputs)),
            rng.integers(-1, devices, sources).astype(np.int32),
            rng.random(devices),
            rng.random(devices),
            shared=shared,
        )
        location = rng.integers(-1, devices, views).astype(np.int32)
        moved, places = rng.integers(0, views, 4), rng.integers(-1, devices, 4)
        for view, place, found in zip(
            moved.tolist(), places, costs_with(graph, location, moved, places), strict=True
        ):
            there = location.copy()
            there[view] = place
            assert found == float(link_costs(graph, there).sum())
            compared += found > 0
    assert compared > 500
