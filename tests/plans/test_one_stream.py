"""An adaptive plan of one stream: it ends at the triangle, and does not change without a cause."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.flow.load import Load
from anabranch.plans.controller import Controller, Report
from anabranch.plans.hashed import Broadcast, Grid
from anabranch.plans.log import Entry
from anabranch.plans.plan import Plan
from anabranch.plans.segments import Segments
from anabranch.plans.triangle import Triangle
from tests.plans.test_controller import SECOND, Cluster


@pytest.mark.parametrize("workers", [2, 4, 7, 8, 11])
def test_one_stream_under_a_steady_load_keeps_its_plan(workers: int) -> None:
    """Neither more workers than fit nor another shape are asked for again and again."""
    settings = ab.adaptive(workers)
    first, mark = settings.first_plan(False, True), 10**12
    entries = [Entry(0, 0, first, 0, (0,), {"rule": "start"})]
    controller = Controller(entries, (10**6, 0), 0, settings, one_stream=True)
    for batch in range(80):
        count = controller.now.plan.workers
        mark += 10**7
        loads = tuple(
            Load(
                n,
                watermark=mark,
                rows_left=100 // count,
                copies_left=300 // count,
                comparisons=10**5 // count,
                busy_seconds=1.2,
                compare_seconds=1.1,
            )
            for n in range(count)
        )
        change = controller.handle(Report(batch, 1.0, mark, loads))
        if change is not None:
            controller.written(change.entry(batch + 1))
    plans = [entry.plan for entry in controller._entries]
    assert all(plan.workers <= workers for plan in plans)
    assert len(set(map(str, plans))) <= 2


@pytest.mark.parametrize("start", [Broadcast(8), Broadcast(8, "left"), Grid(4, 2), Grid(2, 4)])
def test_one_stream_leaves_a_grid_for_the_triangle(start: Plan) -> None:
    """Rows of one stream are left and right ones at once, so no sway of one rate is waited for."""
    cluster = Cluster(ab.adaptive(8, start, policies=["shape"]), start, one=True)
    cluster.run(40, left=1000, right=1000)
    (switch,) = cluster.switches
    assert (switch.plan, switch.cause["rule"]) == (Triangle(4), "shape")
    figures = switch.cause["figures"]
    assert figures["instead"] == pytest.approx(4000)
    assert figures["copies"] == pytest.approx(8000 if isinstance(start, Broadcast) else 5000)
    assert cluster.entries[-1].live == (1,), "the plan before has been retired"
    cluster.run(40, left=100, right=100)
    assert len(cluster.switches) == 1


def test_one_stream_goes_from_segments_to_the_triangle() -> None:
    """A micro-batch is much shorter than a segment, so one worker would do half the work."""
    start = Segments(8, 10 * SECOND)
    cluster = Cluster(ab.adaptive(8, start, policies=["kind"]), start, span=SECOND // 10, one=True)
    cluster.run(400, left=1000, right=1000, comparisons=1e9)
    (switch,) = cluster.switches
    assert (switch.plan, switch.cause["rule"]) == (Triangle(4), "kind")


def test_busy_workers_of_one_stream_become_a_triangle_of_more() -> None:
    start = Grid(2, 2)  # with four workers it is better than a triangle
    settings = ab.adaptive(8, start, policies=["shape", "workers"])
    cluster = Cluster(settings, start, span=10 * SECOND, one=True)
    cluster.run(15, left=1000, right=1000, comparisons=6e7)
    (switch,) = cluster.switches
    assert (switch.plan, switch.cause["rule"]) == (Triangle(4), "workers")
