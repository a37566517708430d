"""The call: what it takes, what it gives back, what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.placement import plan_graph
from anabranch.placement.graph import pair_graph
from tests.placement import twin

ROWS = [("w", "p", 10.0), ("w", "q", 2.0), ("x", "w", 3.0), ("x", "r", 1.0)]
SOURCES = {"p": "P", "q": "Q", "r": "cloud"}


def refused(*args: Any, **more: Any) -> str:
    with pytest.raises(ab.errors.InvalidCall) as error:
        ab.place(*args, **more)
    return str(error.value)


def test_what_is_no_graph_is_named() -> None:
    for wrong in (None, ROWS):
        with pytest.raises(TypeError, match=r"graph must be a ViewGraph, got .*ab\.place"):
            plan_graph(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["tuples", "pandas", "arrow"])
def test_every_form_of_table_gives_the_same_plan(form: str) -> None:
    frame = pd.DataFrame(ROWS, columns=["view", "input", "rate"])
    houses = pd.DataFrame(SOURCES.items(), columns=["source", "device"])
    inputs: Any = {"tuples": ROWS, "pandas": frame, "arrow": pa.Table.from_pandas(frame)}[form]
    sources: Any = {"tuples": SOURCES, "pandas": houses, "arrow": pa.Table.from_pandas(houses)}[
        form
    ]
    plan = ab.place(inputs, sources)
    assert plan.location == {"w": "P", "x": "P"}
    assert (plan.cost, plan.baseline_cost, plan.gap) == (2 + 0.5 * 3, 12.0, 0.0)


def test_rows_of_a_view_may_be_apart_and_ids_may_be_numbers() -> None:
    rows = [(7, 1, 10.0), (8, 2, 1.0), (7, 2, 2.0), (8, 3, 9.0)]
    plan = ab.place(rows, {1: 100, 2: 200, 3: 300}, download_cost=1.0)
    assert plan.location == {7: 100, 8: 300}
    assert plan.table().column("view").to_pylist() == [7, 8]


def test_table_lists_what_crosses_for_each_view() -> None:
    table = ab.place(ROWS, SOURCES).table().to_pylist()
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
        sources = {f"s{u}": f"D{u}" for u in range(4)}
        plan = ab.place(rows, sources, upload_cost=2.0, download_cost=1.0)
        for view in plan.location:
            found = plan.explain(view)
            for option in found.options:
                moved = {**plan.location, view: option.place}
                moved |= dict.fromkeys(option.follows, "cloud")
                assert twin.is_viable(rows, sources, moved)
                extra = twin.cost(rows, sources, moved, 2.0, 1.0) - plan.cost
                assert option.extra == pytest.approx(extra, abs=1e-9)
                assert option.extra >= -1e-9  # the plan is optimal


def test_explain_reads_as_sentences_and_names_what_exists() -> None:
    plan = ab.place(ROWS, SOURCES)
    text = str(plan.explain("w"))
    assert "w runs on P" in text and "with x moving to the cloud" in text
    with pytest.raises(ab.errors.InvalidCall, match="no view 'y'; the plan has 'w', 'x'"):
        plan.explain("y")
    assert "proved optimal" in plan.summary()


def test_explain_marks_what_is_beyond_a_capacity() -> None:
    plan = ab.place(ROWS[:2], {s: SOURCES[s] for s in "pq"}, capacity={"P": 0})
    assert plan.location == {"w": "cloud"} and plan.optimal
    text = str(plan.explain("w"))
    assert "on P the plan would cost -9 (beyond P's capacity)" in text
    assert text.count("capacity") == 1
    assert {o.place: o.fits for o in plan.explain("w").options} == {"P": False, "Q": True}


def test_explanations_under_capacity_never_beat_the_plan_where_they_fit() -> None:
    rng = np.random.default_rng(5)
    beyond = 0
    for _ in range(40):
        rows = [(f"v{k}", f"s{u}", float(rng.integers(0, 9))) for k in range(4) for u in (k % 2, 2)]
        sources = {f"s{u}": f"D{u}" for u in range(3)}
        limits = {f"D{u}": float(rng.integers(0, 3)) for u in range(3)}
        plan = ab.place(rows, sources, upload_cost=1.0, download_cost=0.3, capacity=limits)
        for view in plan.location:
            for option in plan.explain(view).options:
                at = {**plan.location, view: option.place}
                assert option.fits == twin.fits(at, limits, dict.fromkeys(at, 1.0))
                assert option.extra >= -1e-9 or not option.fits
                beyond += option.extra < -1e-9
    assert beyond


@pytest.mark.parametrize("views", [("w", 1), (("w", 1), ("x", 2)), ("w", ("x",)), (2**70, 1)])
@pytest.mark.parametrize("sources", [("p", "q"), (("p", 1), ("q", 1)), ("p", 3)])
def test_tables_hold_ids_of_every_kind(views: Any, sources: Any) -> None:
    rows = [(views[0], sources[0], 9.0), (views[0], sources[1], 1.0), (views[1], views[0], 0.5)]
    plan = ab.place(rows, {sources[0]: "P", sources[1]: ("d", 1)}, download_cost=1.0)
    assert plan.location == dict.fromkeys(views, "P")
    table = plan.table()
    assert list(map(str, table.column("view").to_pylist())) == list(map(str, views))
    assert table.column("uploads").to_pylist()[0] == [{"stream": str(sources[1]), "rate": 1.0}]
    assert plan.traffic().column("stream").to_pylist() == [str(sources[1])] * 2
    assert plan.explain(views[1]).place == "P"
    assert plan.without(("d", 1)).location == {}


def test_lists_of_names_are_told_apart_from_names() -> None:
    plan = ab.place(ROWS, SOURCES)
    with pytest.raises(
        ab.errors.InvalidCall, match=r"unknown devices \['P'\].*name each by itself"
    ):
        plan.without(["P"])
    with pytest.raises(ab.errors.InvalidCall, match=r"no view \['w'\]; the plan has 'w'"):
        plan.explain(["w"])


def test_summaries_of_plans_that_cost_nothing() -> None:
    plan = ab.place([("w", "r", 1.0)], {"r": SOURCES["r"]})
    assert "everything uploaded, proved optimal\n" in plan.summary()
    text = ab.place([("w", "c", 1.0)], {"c": "cloud"}).summary()
    assert text.endswith("planned: nothing, as no data are on devices")


def test_ids_of_another_type_in_sources_are_named() -> None:
    text = refused([("w", "1", 1.0), ("w", "2", 1.0)], {1: "P", 2: "Q"})
    assert "Sources has 1 (int64), inputs have '1' (str): make the ids one type" in text


def test_switchers_take_any_number_and_refuse_what_is_no_time() -> None:
    plan = ab.place(ROWS[:2], {s: SOURCES[s] for s in "pq"}, download_cost=1.0)
    follower = ab.placement.Switcher(plan, move_cost=np.int64(5))  # type: ignore[arg-type]
    for duration in (-1, float("nan"), "1"):
        with pytest.raises(ab.errors.InvalidCall, match="duration must be a time of at least 0"):
            follower.observe([("w", "p", 1.0)], duration=duration)  # type: ignore[arg-type]
    assert follower.best is plan
    with pytest.raises(ab.errors.InvalidCall, match="move_cost must be above 0"):
        ab.placement.Switcher(plan, move_cost=np.int64(0))  # type: ignore[arg-type]


def test_all_problems_come_at_once_with_ids() -> None:
    text = refused(
        [("w", "p", -1.0), ("w", "q", float("nan")), ("w", "z", 1.0), ("p", "q", 1.0)],
        {"p": "P", "q": "Q"},
        upload_cost=-1,
        download_cost={"R": 1.0},
        capacity={"X": 1.0},
        load={"y": 1.0},
    )
    for part in (
        "8 problems",
        "'w' for input 'p' (-1.0)",
        "'w' for input 'q' (nan)",
        "unknown sources 'z'",
        "duplicate ids: 'p'",
        "upload_cost must be a cost",
        "download_cost names unknown devices 'R'",
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
    assert "on several devices: 's'" in refused([("a", "s", 1)], [("s", "S"), ("s", "T")])
    rows, needed = [("p", "P"), ("p", "R"), ("q", "Q"), ("q", "Q")], [("a", "p", 1), ("a", "q", 1)]
    with pytest.raises(ab.errors.InvalidCall) as error:
        ab.place(needed, rows)
    assert error.value.problems == (
        "sources on several devices: 'p': give each source one",
        "sources listed twice: 'q': give each source one row",
    )
    with pytest.raises(ab.errors.InvalidCall) as error:
        ab.place(needed, [*rows[1:3], (None, "P"), (None, "Q")])
    assert error.value.problems == ("2 rows of sources name no source: leave them out",)
    assert "without a device: 's'" in refused([("a", "s", 1)], {"s": None})
    assert "sources is missing" in refused([("a", "s", 1)])
    assert "no column 'rate'" in refused(pd.DataFrame({"view": [1], "input": [2]}), {2: "S"})
    assert "got int" in refused(3, {})
    assert "without capacity" in refused([("a", "s", 1)], {"s": "S"}, load={"a": 1})
    assert "time_limit" in refused([("a", "s", 1)], {"s": "S"}, time_limit=0)
    assert "inf" in refused([("a", "s", float("inf"))], {"s": "S"})


def test_many_offenders_are_counted_not_listed() -> None:
    text = refused([(f"v{k}", f"s{k}", 1.0) for k in range(50)], {})
    assert "'s4' and 45 more" in text and "'s5'" not in text


def test_core_networks_that_are_no_tree_are_refused() -> None:
    ring = [("a", "b", 1.0), ("b", "c", 1.0), ("c", "a", 1.0)]
    with pytest.raises(ab.errors.InvalidCall, match="not a tree"):
        ab.placement.CoreNetwork(ring, {})
    core = ab.placement.CoreNetwork([("a", "b", 1.0)], {"P": "a"})
    text = refused(ROWS, SOURCES, core=core)
    assert "no site for devices 'Q'" in text and "sources in the cloud 'r'" in text


def test_traffic_adds_up_with_a_core_network_too() -> None:
    core = ab.placement.CoreNetwork([("e", "m", 3.0), ("m", "w", 2.0)], {"P": "e", "Q": "w"})
    plan = ab.place([("v", "p", 10.0), ("v", "q", 2.0)], {"p": "P", "q": "Q"}, 1.0, 1.0, core=core)
    rows = plan.traffic().to_pylist()
    assert plan.cost == 14.0 == sum(row["cost"] for row in rows)
    inner = [row for row in rows if row["direction"] == "core"]
    assert {(r["stream"], r["from_site"], r["to_site"], r["cost"]) for r in inner} == {
        ("q", "w", "m", 4.0),
        ("q", "m", "e", 6.0),
    }
    assert all(row["device"] is None for row in inner)
    assert all(row["from_site"] is None for row in rows if row["device"] is not None)


def test_core_networks_with_costs_that_are_none_are_refused() -> None:
    for link in (("e", "w", "3"), ("e", "w", float("nan")), ("e", "w", None), 5):
        with pytest.raises(ab.errors.InvalidCall, match=r"must be \(site, site, cost"):
            ab.placement.CoreNetwork([link], {})  # type: ignore[list-item]


def test_core_network_says_where_cloud_views_run() -> None:
    core = ab.placement.CoreNetwork([("x", "y", 1.0)], {"P": "x", "Q": "y"})
    plan = ab.place([("w", "p", 5.0), ("w", "q", 5.0)], {"p": "P", "q": "Q"}, 1.0, 1.0, core=core)
    assert plan.location == {"w": "cloud"}
    assert plan.cost == 15.0 and plan.optimal
    assert plan.site["w"] in ("x", "y")
    assert plan.table().column("site").to_pylist() == [plan.site["w"]]
    with pytest.raises(ab.errors.InvalidCall, match="core network"):
        plan.replan([("w", "p", 1.0)])


def test_replan_and_failure_refuse_what_does_not_exist() -> None:
    plan = ab.place(ROWS, SOURCES)
    with pytest.raises(ab.errors.InvalidCall, match="no such row: 'w' <- 'r'"):
        plan.replan([("w", "r", 1.0)])
    with pytest.raises(ab.errors.InvalidCall, match="changed twice"):
        plan.replan([("w", "p", 1.0), ("w", "p", 2.0)])
    with pytest.raises(ab.errors.InvalidCall, match="unknown devices 'Z'"):
        plan.without("Z")
    assert plan.without("P").location == {}


def test_inputs_are_not_changed() -> None:
    frame = pd.DataFrame(ROWS, columns=["view", "input", "rate"])
    before = frame.copy()
    plan = ab.place(frame, SOURCES)
    rates = plan.graph.rates.copy()
    plan.replan([("w", "p", 0.5)])
    pd.testing.assert_frame_equal(frame, before)
    assert np.array_equal(plan.graph.rates, rates)


def test_replanning_keeps_what_is_not_touched() -> None:
    """A hard conflict elsewhere is not resolved a second time."""
    rows = [("v", "a", 3.0), ("v", "b", 2.0), ("w", "a", 1.0), ("w", "c", 2.0)]
    rows += [("x", "d", 3.0), ("x", "e", 2.0), ("y", "d", 1.0), ("y", "f", 2.0)]
    plan = ab.place(rows, {s: s.upper() for s in "abcdef"}, upload_cost=3.0, download_cost=1.0)
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


def test_planning_tables_in_memory_does_not_import_spark() -> None:
    code = """if True:
        import sys, pandas as pd, anabranch as ab
        frame = pd.DataFrame({"view": ["w", "w"], "input": ["p", "q"], "rate": [10.0, 2.0]})
        assert ab.place(frame, {"p": "P", "q": "Q"}).location == {"w": "P"}
        import anabranch.placement
        assert "pyspark" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_view_over_everything() -> None:
    """50,000 inputs of one view: worth fetching to the heaviest only if that one is huge."""
    count = 50_000
    rows = pd.DataFrame({"view": "all", "input": np.arange(count), "rate": 1.0})
    sources = pd.DataFrame({"source": np.arange(count), "device": np.arange(count)})
    plan = ab.place(rows, sources, upload_cost=1.0, download_cost=0.5)
    assert plan.location == {"all": "cloud"} and plan.cost == count and plan.optimal
    rows.loc[7, "rate"] = float(count)
    assert ab.place(rows, sources, upload_cost=1.0, download_cost=0.5).location == {"all": 7}


def test_a_core_network_may_be_a_long_chain() -> None:
    """3,000 sites in a row, the links in any order: the stream walks over all of them."""
    sites = 3_000
    links = [(k, k + 1, 1.0) for k in range(sites - 1)]
    links = [links[k] for k in np.random.default_rng(1).permutation(len(links))]
    core = ab.placement.CoreNetwork(links, {"P": 0, "Q": sites - 1})
    plan = ab.place([("w", "p", 5.0), ("w", "q", 2.0)], {"p": "P", "q": "Q"}, 1.0, 1.0, core=core)
    assert plan.location == {"w": "P"} and plan.optimal
    assert plan.cost == 2 + 2 * (sites - 1) + 2


SHOPS = [
    ("hq_board", "till_1", 10.0),
    ("hq_board", "till_2", 8.0),
    ("shop_board", "till_1", 10.0),
    ("shop_board", "loyalty", 1.0),
]
TILLS = {"till_1": "S1", "till_2": "S2", "loyalty": "cloud"}


def test_who_reads_a_view_decides_where_it_runs() -> None:
    """Without readers a board for headquarters costs least in a shop, where nobody sees it."""
    assert ab.place(SHOPS, TILLS).location["hq_board"] == "S1"
    plan = ab.place(SHOPS, TILLS, readers={"hq_board": "cloud", "shop_board": "S1"})
    assert plan.location == {"hq_board": "cloud", "shop_board": "S1"} and plan.optimal
    assert plan.cost == 10.0 + 8.0 + 0.5  # both tills up, loyalty down; the board is read there
    few = ab.place(SHOPS, TILLS, readers={"hq_board": {"cloud": 0.1}})
    assert few.location["hq_board"] == "S1" and few.cost == pytest.approx(8 + 4 + 0.1 + 0.5)
    rows = few.traffic().to_pylist()
    assert {"stream": "hq_board", "device": "S1", "direction": "up"}.items() <= next(
        row for row in rows if row["stream"] == "hq_board"
    ).items()
    assert few.table().num_rows == 2 and len(few.summary()) > 10
    assert "is read in the cloud at 0.1" in str(few.explain("hq_board"))
    both = ab.place(SHOPS, TILLS, readers={"hq_board": ["cloud", "S2"]})
    # Both tills up, and the board, all 18 of it, down to S2 at half the price.
    assert both.optimal and set(both.location.values()) == {"cloud"}
    assert both.cost == pytest.approx(10 + 8 + 18 / 2)


def test_one_capacity_is_that_of_every_device() -> None:
    for one, each in ((1, {None: 1}), (0.5, {None: 0.5}), (1, {"S1": 1, "S2": 1})):
        plans = [ab.place(SHOPS, TILLS, capacity=given, load=1) for given in (one, each)]
        assert plans[0].location == plans[1].location and plans[0].cost == plans[1].cost
    assert set(ab.place(SHOPS, TILLS, capacity=0).location.values()) == {"cloud"}


def test_what_is_pinned_stays() -> None:
    plan = ab.place(SHOPS, TILLS, pin={"hq_board": "S2", "shop_board": "cloud"})
    assert plan.location == {"hq_board": "S2", "shop_board": "cloud"} and plan.optimal
    assert str(plan.explain("hq_board")).startswith("hq_board runs on S2, where it is pinned.")
    assert plan.without("S2").location == {"shop_board": "cloud"}
    assert plan.replan([("hq_board", "till_1", 99.0)]).location["hq_board"] == "S2"
    screen = ab.place(
        SHOPS, TILLS, pin={"hq_board": "wall"}, download_cost={"wall": 0.1}
    )  # a device without a source
    assert screen.location["hq_board"] == "wall"


def test_readers_and_pins_may_name_a_site() -> None:
    core = ab.placement.CoreNetwork(
        [("east", "west", 3.0)], {"S1": "east", "S2": "west"}, {"loyalty": "east"}
    )
    near = ab.place(SHOPS, TILLS, core=core, pin={"hq_board": "west"})
    assert near.site["hq_board"] == "west" and near.location["hq_board"] == "cloud"
    assert ab.place(SHOPS, TILLS, core=core, pin={"hq_board": "east"}).site["hq_board"] == "east"


def test_unknown_names_are_errors_everywhere() -> None:
    for more, text in (
        ({"sources": {**TILLS, "camS1": "S1"}}, "sources names 'camS1', which no view needs"),
        ({"readers": {"hq_bord": "cloud"}}, "unknown views 'hq_bord': the table has 'hq_board'"),
        ({"readers": {"hq_board": "clod"}}, "unknown places 'clod': the devices of sources are"),
        ({"readers": {"hq_board": {"S1": -1}}}, "rates of readers must be at least 0"),
        ({"readers": ["hq_board"]}, "readers must be a dict of views and places"),
        ({"pin": {"nope": "cloud"}}, "unknown views 'nope'"),
        ({"pin": {"hq_board": "S3"}}, "unknown places 'S3'"),
        ({"pin": {"hq_board": None}}, "readers and pin name places"),
        ({"pin": {"hq_board": "S1"}, "capacity": {"S1": 0.5}}, "pin puts more on 'S1' than"),
        ({"upload_cost": {"S3": 1.0}}, "upload_cost names unknown devices 'S3'"),
        ({"download_cost": {"S3": 1.0}}, "download_cost names unknown devices 'S3'"),
        ({"capacity": {"S3": 1.0}}, "capacity names unknown devices 'S3'"),
        ({"capacity": {"S1": 1.0}, "load": {"x": 1.0}}, "load names unknown views 'x'"),
        ({"columns": {"price": "x"}}, "columns names unknown columns 'price'"),
        ({"homes": TILLS}, "homes= is now called sources="),
        ({"up": 1.0, "down": 2.0}, "down= is now called download_cost="),
        ({"dwn": 1.0}, "there is no dwn="),
        (
            {
                "core": ab.placement.CoreNetwork(
                    [("e", "w", 1.0)], {"S1": "e", "S2": "w", "S9": "e"}, {"loyalty": "e"}
                )
            },
            "core names unknown devices or sources 'S9'",
        ),
    ):
        assert text in refused(SHOPS, **{"sources": TILLS, **more})


def test_a_default_stands_for_the_rest() -> None:
    assert ab.place(SHOPS, TILLS, {"S1": 1.0}, {"S2": 0.5}).cost == ab.place(SHOPS, TILLS).cost
    dear = ab.place(SHOPS, TILLS, {None: 4.0, "S1": 1.0})
    assert dear.cost == ab.place(SHOPS, TILLS, {"S1": 1.0, "S2": 4.0}).cost
    heavy = {"capacity": {None: 1.0}, "load": {"hq_board": 2.0}}
    assert ab.place(SHOPS, TILLS, **heavy).location["hq_board"] == "cloud"


def test_columns_and_files_have_names_of_their_own(tmp_path: Path) -> None:
    rows = pd.DataFrame(SHOPS, columns=["board", "feed", "mbit"])
    houses = pd.DataFrame(list(TILLS.items()), columns=["feed", "shop"])
    own = {"view": "board", "input": "feed", "rate": "mbit", "source": "feed", "device": "shop"}
    want = ab.place(SHOPS, TILLS).location
    assert ab.place(rows, houses, columns=own).location == want
    rows.to_csv(tmp_path / "need.csv", index=False)
    houses.to_parquet(tmp_path / "houses.parquet")
    paths = (tmp_path / "need.csv", str(tmp_path / "houses.parquet"))
    assert ab.place(*paths, columns=own).location == want
    text = refused(paths[0], TILLS)
    assert "it has 'board', 'feed', 'mbit'" in text and "name yours with columns=" in text
    assert "no file" in refused(tmp_path / "nothing.csv", TILLS)
    assert ab.place([("w", "p", 3.0), ("w", "q", 1.0)], "own").location == {"w": "p"}


def test_a_switcher_explains_its_account() -> None:
    plan = ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"}, download_cost=1.0)
    follower = ab.placement.Switcher(plan, move_cost=5)
    assert follower.explain() == "every view is where it is best: nothing would move"
    assert follower.observe([("w", "p", 1)]) == []
    assert "staying has cost 2 of the 20 at which they do" in follower.explain()
    with pytest.raises(ab.errors.InvalidCall, match="price= is now called move_cost="):
        ab.placement.Switcher(plan, price=5)  # type: ignore[call-arg]
    with pytest.raises(ab.errors.InvalidCall, match="move_cost names unknown devices 'X'"):
        ab.placement.Switcher(plan, move_cost={"P": 1.0, "Q": 1.0, "X": 1.0})
