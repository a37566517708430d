"""The call: what it takes, what it gives back, what it refuses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.placement import plan_graph
from anabranch.placement.graph import pair_graph
from tests import placement_twin as twin

ROWS = [("w", "p", 10.0), ("w", "q", 2.0), ("x", "w", 3.0), ("x", "r", 1.0)]
HOMES = {"p": "P", "q": "Q", "r": "cloud"}


def refused(*args: Any, **more: Any) -> str:
    with pytest.raises(ab.InvalidCall) as error:
        ab.place(*args, **more)
    return str(error.value)


@pytest.mark.parametrize("form", ["tuples", "pandas", "arrow"])
def test_every_form_of_table_gives_the_same_plan(form: str) -> None:
    frame = pd.DataFrame(ROWS, columns=["view", "input", "rate"])
    houses = pd.DataFrame(HOMES.items(), columns=["source", "device"])
    inputs: Any = {"tuples": ROWS, "pandas": frame, "arrow": pa.Table.from_pandas(frame)}[form]
    homes: Any = {"tuples": HOMES, "pandas": houses, "arrow": pa.Table.from_pandas(houses)}[form]
    plan = ab.place(inputs, homes)
    assert plan.location == {"w": "P", "x": "P"}
    assert (plan.cost, plan.baseline_cost, plan.gap) == (2 + 0.5 * 3, 12.0, 0.0)


def test_rows_of_a_view_may_be_apart_and_ids_may_be_numbers() -> None:
    rows = [(7, 1, 10.0), (8, 2, 1.0), (7, 2, 2.0), (8, 3, 9.0)]
    plan = ab.place(rows, {1: 100, 2: 200, 3: 300}, down=1.0)
    assert plan.location == {7: 100, 8: 300}
    assert plan.table().column("view").to_pylist() == [7, 8]


def test_table_lists_what_crosses_for_each_view() -> None:
    table = ab.place(ROWS, HOMES).table().to_pylist()
    assert table[0] == {
        "view": "w",
        "location": "P",
        "uploads": [{"stream": "q", "rate": 2.0}],
        "downloads": [{"stream": "q", "rate": 2.0}],
    }
    assert table[1]["downloads"] == [{"stream": "r", "rate": 1.0}] and table[1]["uploads"] == []


def test_explanations_add_up() -> None:
    """The extra cost of each option is the difference of two costs priced from scratch."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        rows = [(f"v{k}", f"s{u}", float(rng.integers(0, 9))) for k in range(5) for u in (k % 3, 3)]
        rows += [("top", f"v{k}", float(rng.integers(0, 9))) for k in range(2)]
        homes = {f"s{u}": f"D{u}" for u in range(4)}
        plan = ab.place(rows, homes, up=2.0, down=1.0)
        for view in plan.location:
            found = plan.explain(view)
            for option in found.options:
                moved = {**plan.location, view: option.place}
                moved |= dict.fromkeys(option.follows, "cloud")
                assert twin.is_viable(rows, homes, moved)
                extra = twin.cost(rows, homes, moved, 2.0, 1.0) - plan.cost
                assert option.extra == pytest.approx(extra, abs=1e-9)
                assert option.extra >= -1e-9  # the plan is optimal


def test_explain_reads_as_sentences_and_names_what_exists() -> None:
    plan = ab.place(ROWS, HOMES)
    text = str(plan.explain("w"))
    assert "w runs on P" in text and "with x moving to the cloud" in text
    with pytest.raises(ab.InvalidCall, match="no view 'y'; the plan has 'w', 'x'"):
        plan.explain("y")
    assert "proved optimal" in plan.summary()


def test_all_problems_come_at_once_with_ids() -> None:
    text = refused(
        [("w", "p", -1.0), ("w", "q", float("nan")), ("w", "z", 1.0), ("p", "q", 1.0)],
        {"p": "P", "q": "Q"},
        up=-1,
        down={"P": 1.0},
        capacity={"X": 1.0},
        load={"y": 1.0},
    )
    for part in (
        "8 problems",
        "'w' for input 'p' (-1.0)",
        "'w' for input 'q' (nan)",
        "unknown sources 'z'",
        "duplicate ids: 'p'",
        "up must be a cost",
        "down gives no cost for devices 'Q'",
        "unknown devices 'X'",
        "unknown views 'y'",
    ):
        assert part in text


def test_shapes_that_cannot_be() -> None:
    assert "depend on themselves" in refused([("a", "b", 1), ("b", "a", 1)], {})
    assert "'b', 'c'" in refused([("b", "c", 1), ("c", "b", 1), ("a", "s", 1)], {"s": "S"})
    assert "listed twice" in refused([("a", "s", 1), ("a", "s", 2)], {"s": "S"})
    assert "views with no input: 'a'" in refused([("a", None, 1)], {"s": "S"})
    assert "inputs is empty" in refused([], {"s": "S"})
    assert "several homes: 's'" in refused([("a", "s", 1)], [("s", "S"), ("s", "T")])
    assert "without a home: 's'" in refused([("a", "s", 1)], {"s": None})
    assert "homes is missing" in refused([("a", "s", 1)])
    assert "no column 'rate'" in refused(pd.DataFrame({"view": [1], "input": [2]}), {2: "S"})
    assert "got int" in refused(3, {})
    assert "load says nothing of views 'a'" in refused(
        [("a", "s", 1), ("b", "s", 1)], {"s": "S"}, capacity={"S": 1}, load={"b": 1}
    )
    assert "without capacity" in refused([("a", "s", 1)], {"s": "S"}, load={"a": 1})
    assert "time_limit" in refused([("a", "s", 1)], {"s": "S"}, time_limit=0)
    assert "inf" in refused([("a", "s", float("inf"))], {"s": "S"})


def test_many_offenders_are_counted_not_listed() -> None:
    text = refused([(f"v{k}", f"s{k}", 1.0) for k in range(50)], {})
    assert "'s4' and 45 more" in text and "'s5'" not in text


def test_core_networks_that_are_no_tree_are_refused() -> None:
    ring = [("a", "b", 1.0), ("b", "c", 1.0), ("c", "a", 1.0)]
    with pytest.raises(ab.InvalidCall, match="not a tree"):
        ab.CoreNetwork(ring, {})
    core = ab.CoreNetwork([("a", "b", 1.0)], {"P": "a"})
    text = refused(ROWS, HOMES, core=core)
    assert "no site for devices ['Q']" in text and "sources in the cloud ['r']" in text


def test_core_network_says_where_cloud_views_run() -> None:
    core = ab.CoreNetwork([("x", "y", 1.0)], {"P": "x", "Q": "y"})
    plan = ab.place([("w", "p", 5.0), ("w", "q", 5.0)], {"p": "P", "q": "Q"}, 1.0, 1.0, core=core)
    assert plan.location == {"w": "cloud"}
    assert plan.cost == 15.0 and plan.optimal
    assert plan.site["w"] in ("x", "y")
    assert plan.table().column("site").to_pylist() == [plan.site["w"]]
    with pytest.raises(ab.InvalidCall, match="core network"):
        plan.replan([("w", "p", 1.0)])


def test_replan_and_failure_refuse_what_does_not_exist() -> None:
    plan = ab.place(ROWS, HOMES)
    with pytest.raises(ab.InvalidCall, match="no such row: 'w' <- 'r'"):
        plan.replan([("w", "r", 1.0)])
    with pytest.raises(ab.InvalidCall, match="changed twice"):
        plan.replan([("w", "p", 1.0), ("w", "p", 2.0)])
    with pytest.raises(ab.InvalidCall, match="unknown devices 'Z'"):
        plan.without("Z")
    assert plan.without("P").location == {}


def test_inputs_are_not_changed() -> None:
    frame = pd.DataFrame(ROWS, columns=["view", "input", "rate"])
    before = frame.copy()
    plan = ab.place(frame, HOMES)
    rates = plan.graph.rates.copy()
    plan.replan([("w", "p", 0.5)])
    pd.testing.assert_frame_equal(frame, before)
    assert np.array_equal(plan.graph.rates, rates)


def test_replanning_keeps_what_is_not_touched() -> None:
    """A hard conflict elsewhere is not settled a second time."""
    rows = [("v", "a", 3.0), ("v", "b", 2.0), ("w", "a", 1.0), ("w", "c", 2.0)]
    rows += [("x", "d", 3.0), ("x", "e", 2.0), ("y", "d", 1.0), ("y", "f", 2.0)]
    plan = ab.place(rows, {s: s.upper() for s in "abcdef"}, up=3.0, down=1.0)
    assert len(plan.components) == 2
    again = plan.replan([("x", "d", 4.0)])
    assert sum(any(c is old for old in plan.components) for c in again.components) == 1


def test_large_networks_agree_with_their_own_bound() -> None:
    """Beyond brute force the bound is the judge: each method's own, and they must meet."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 500, (2, 6000))
    keep = a != b
    rates = 10.0 ** rng.uniform(-3, 0, (2, keep.sum()))
    graph = pair_graph(a[keep], b[keep], *rates, sources=500, down=0.15)
    plan = plan_graph(graph)  # some pairs meet twice, so that downloads are shared
    assert plan.optimal and "device min cut" in plan.methods and plan.components
    assert plan.bound == pytest.approx(plan.cost)
    assert plan.cost < plan.baseline_cost


def test_importing_the_package_imports_neither_spark_nor_solvers() -> None:
    heavy = ("pyspark", "scipy.optimize")
    code = f"import sys, anabranch; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_view_over_everything() -> None:
    """50,000 inputs of one view: worth fetching to the heaviest only if that one is huge."""
    count = 50_000
    rows = pd.DataFrame({"view": "all", "input": np.arange(count), "rate": 1.0})
    homes = pd.DataFrame({"source": np.arange(count), "device": np.arange(count)})
    plan = ab.place(rows, homes, up=1.0, down=0.5)
    assert plan.location == {"all": "cloud"} and plan.cost == count and plan.optimal
    rows.loc[7, "rate"] = float(count)
    assert ab.place(rows, homes, up=1.0, down=0.5).location == {"all": 7}
