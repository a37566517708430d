"""Templates: few logical views, many physical ones, equal ones shared."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

import pandas as pd
import pytest

import anabranch as ab
from anabranch.placement import plan_graph
from anabranch.placement.reading import read_changes
from tests.placement import twin

FACEBOOK = Path(__file__).parents[3] / "shared" / "data" / "facebook_combined.txt.gz"
EXAMPLE = Path(__file__).parents[2] / "examples" / "friend_finder.py"

# The paper's friend-finder: locations joined with the social network, then with friends' locations.
ME, THEM = ab.feed("gps", by="user"), ab.feed("gps", by="friend")
NETWORK = ab.feed("friends", by="user", home="cloud")
LOCATED = ab.placement.template("located", {ME: 1.0, NETWORK: 0.01})
NEARBY = ab.placement.template(
    "nearby", {LOCATED: "rate", THEM: "rate_back"}, where="distance < 100 m"
)


def friends(*rows: tuple[str, str, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user", "friend", "rate", "rate_back"])


def test_the_papers_four_users() -> None:
    made = NEARBY.over(friends(("P", "R", 0.5, 0.1), ("P", "Q", 0.2, 0.3), ("Q", "S", 0.9, 0.2)))
    views = set(made.inputs["view"])
    # located(P) is one view although two friends need it.
    assert len(views) == 3 + 2
    assert sum(view.startswith("located") for view in views) == 2
    sources = dict(made.sources.to_numpy())
    assert sources == {
        "gps[P]": "P",
        "gps[Q]": "Q",
        "gps[R]": "R",
        "gps[S]": "S",
        "friends[P]": "cloud",
        "friends[Q]": "cloud",
    }
    plan = ab.place(made, upload_cost=1.0, download_cost=0.5)
    rows = [tuple(row) for row in made.inputs.itertuples(index=False)]
    assert plan.cost == pytest.approx(twin.least_cost(rows, sources, 1.0, 0.5))
    assert any("100 m" in view for view in plan.location)


def test_symmetric_views_of_both_directions_are_one() -> None:
    table = friends(("ann", "bob", 5.0, 2.0), ("bob", "ann", 3.0, 4.0))
    one = (
        ab.placement.template("near", {ME: "rate", THEM: "rate_back"}, symmetric=True)
        .over(table)
        .inputs
    )
    two = ab.placement.template("near", {ME: "rate", THEM: "rate_back"}).over(table).inputs
    assert one["view"].nunique() == 1 and two["view"].nunique() == 2
    # Needed at the largest rate that either asks for.
    assert dict(zip(one["input"], one["rate"], strict=True)) == {"gps[ann]": 5.0, "gps[bob]": 3.0}


def test_filters_tell_views_apart() -> None:
    table = friends(("ann", "bob", 5.0, 2.0))
    near = ab.placement.template("near", {ME: 1.0, THEM: 1.0}, where="distance < 1 km")
    far = ab.placement.template("near", {ME: 1.0, THEM: 1.0}, where="distance < 9 km")
    both = ab.placement.template("both", {near: 1.0, far: 1.0}).over(table).inputs
    assert both["view"].nunique() == 3


def test_bad_templates_are_refused() -> None:
    with pytest.raises(ab.errors.InvalidCall, match="needs home"):
        ab.feed("sn", by=("user", "friend"))
    with pytest.raises(ab.errors.InvalidCall, match=r"made by ab\.feed"):
        ab.placement.template("t", {"gps": 1.0})  # type: ignore[dict-item]
    with pytest.raises(ab.errors.InvalidCall, match="no column 'rate', 'rate_back'"):
        NEARBY.over(pd.DataFrame({"user": ["a"], "friend": ["b"]}))
    with pytest.raises(ab.errors.InvalidCall, match="sources come with the template"):
        ab.place(NEARBY.over(friends(("a", "b", 1.0, 1.0))), {"x": "y"})


def test_whole_numbers_are_one_key_in_any_type() -> None:
    """A left merge leaves floats of integers: user 2 and friend 2.0 are the same."""
    near = ab.placement.template("near", {ME: "rate", THEM: "rate_back"}, symmetric=True)
    rows = [(1, 2, 1.0, 5.0), (2, 3, 4.0, 1.0)]
    table = pd.DataFrame(rows, columns=["user", "friend", "rate", "rate_back"])
    made = near.over(table.astype({"friend": float}))
    pd.testing.assert_frame_equal(made.inputs, near.over(table).inputs)
    assert made.sources["source"].tolist() == ["gps[1]", "gps[2]", "gps[3]"]
    assert made.sources["device"].tolist() == [1, 2, 3]
    assert set(ab.place(made).location) == {"near(gps[1],gps[2])", "near(gps[2],gps[3])"}


def test_different_keys_have_different_names() -> None:
    by_two = ab.feed("f", by=["u", "v"], home="cloud")
    table = pd.DataFrame({"user": ["a", "b"], "u": ["x,y", "x"], "v": ["z", "y,z"]})
    sources = (
        ab.placement.template("t", {by_two: 1.0, ME: 1.0}).over(table).sources["source"].tolist()
    )
    assert sources == ["f[x\\,y,z]", "f[x,y\\,z]", "gps[a]", "gps[b]"]
    # What looks like two streams in a key does not make another view's name.
    tricky = friends(("a],gps[b", "c", 1.0, 1.0), ("a", "b],gps[c", 1.0, 1.0))
    made = ab.placement.template("near", {ME: 1.0, THEM: 1.0}).over(tricky).inputs
    assert made["view"].nunique() == 2
    # A single key keeps its commas.
    plain = ab.placement.template("t", {ME: 1.0}).over(pd.DataFrame({"user": ["x,y"]})).sources
    assert plain["source"].tolist() == ["gps[x,y]"]


def test_keys_that_may_or_may_not_be_the_same_are_refused() -> None:
    near = ab.placement.template("near", {ME: 1.0, THEM: 1.0})
    with pytest.raises(ab.errors.InvalidCall, match="'user' holds number; 'friend' holds text"):
        near.over(pd.DataFrame({"user": [1, 2], "friend": ["2", "3"]}))
    with pytest.raises(ab.errors.InvalidCall, match="'user' holds number and text"):
        near.over(pd.DataFrame({"user": [1, "1"], "friend": [2, 3]}))
    with pytest.raises(ab.errors.InvalidCall, match="'friend' has no key in 1 rows"):
        near.over(pd.DataFrame({"user": [1, 2], "friend": [2.0, None]}))
    with pytest.raises(ab.errors.InvalidCall, match="no device can be called"):
        near.over(pd.DataFrame({"user": ["ann"], "friend": ["cloud"]}))


def test_feeds_of_one_name_must_agree() -> None:
    table = pd.DataFrame({"user": ["a"], "friend": ["b"]})
    elsewhere = ab.feed("gps", by="user", home="cloud")
    with pytest.raises(
        ab.errors.InvalidCall, match="'gps' is in the cloud in one place and on devices"
    ):
        ab.placement.template("t", {ME: 1.0, elsewhere: 2.0}).over(table)
    longer = ab.feed("gps", by=["user", "friend"], home="cloud")
    with pytest.raises(ab.errors.InvalidCall, match="different numbers of columns"):
        ab.placement.template("t", {elsewhere: 1.0, longer: 2.0}).over(table)


@pytest.mark.parametrize("rate", [float("nan"), None, -1.0, "x", float("inf")])
def test_a_bad_rate_is_refused_though_another_row_gives_the_same_view(rate: object) -> None:
    near = ab.placement.template("near", {ME: "rate", THEM: "rate_back"}, symmetric=True)
    table = pd.DataFrame(
        {"user": ["a", "b"], "friend": ["b", "a"], "rate": [rate, 1.0], "rate_back": [1.0, 2.0]}
    )
    with pytest.raises(ab.errors.InvalidCall, match="column 'rate' holds"):
        near.over(table)
    if isinstance(rate, float):
        with pytest.raises(ab.errors.InvalidCall, match="at least 0 and finite"):
            ab.placement.template("near", {ME: rate})


@pytest.fixture(scope="module")
def friend_finder() -> tuple[ab.placement.Placement, str]:
    """The plan of the example on the Facebook graph, and what it prints: 92,000 views, once."""
    if not FACEBOOK.exists():
        pytest.skip("the Facebook graph is not here")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(EXAMPLE.parent))
        plan = runpy.run_path(str(EXAMPLE))["main"](FACEBOOK)
    return plan, printed.getvalue()


def test_friend_finder_on_the_facebook_graph(
    friend_finder: tuple[ab.placement.Placement, str],
) -> None:
    plan, printed = friend_finder
    table = pd.read_csv(FACEBOOK, sep=r"\s+", comment="#", names=["user", "friend"])
    assert len(plan.location) == len(table) + table["user"].nunique()
    assert plan.optimal and "proved optimal" in printed
    assert plan.baseline_cost / plan.cost > 2


@pytest.mark.slow
def test_replanning_the_friend_finder(friend_finder: tuple[ab.placement.Placement, str]) -> None:
    plan, _ = friend_finder
    changed = list(plan.location)[:3]
    rows = [(view, need.stream, 0.7) for view in changed for need in plan.explain(view).needs]
    fresh = plan.graph.with_rates(*read_changes(plan.graph, rows))
    assert plan.replan(rows).cost == pytest.approx(plan_graph(fresh).cost)


def test_the_friend_finder_finds_its_friends_in_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "onadata" / "data"
    data.mkdir(parents=True)
    (tmp_path / "onadata" / "__init__.py").touch()
    rows = [f'{a},{b},"facebook"' for a in range(9) for b in range(a + 1, 9)]
    text = "\n".join(['"from","to","type"', '1,2,"reported"', *rows])
    (data / "schoolfriends_edgelist.csv").write_text(text)
    for place in (EXAMPLE.parent, tmp_path):
        monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr("sys.argv", [str(EXAMPLE)])
    monkeypatch.delenv("EDGE_LIST", raising=False)
    plan = runpy.run_path(str(EXAMPLE), run_name="__main__")["plan"]
    assert len(plan.location) == 36 + 8 and plan.optimal
    assert "runs on" in capsys.readouterr().out
