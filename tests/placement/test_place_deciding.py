"""The benchmark of decisions follows a fleet whose views go where they are told."""

from __future__ import annotations

from benchmarks.place_deciding import Fleet, measured, table


def test_every_view_begins_once_and_moves_when_rates_change() -> None:
    fleet = Fleet(60)
    assert all(view.place is not None for view in fleet.views.values())
    assert fleet.decide()[1] == []  # nothing has changed
    found = measured(60, 30)
    cases = found["cases"]
    assert found["views"] == len(fleet.views) and next(iter(cases)) == "nothing"
    assert cases["nothing"]["moves"] == 0 < cases["moving"]["moves"]


def test_a_median_above_the_goal_is_said_to_be() -> None:
    case = {"least": 1.0, "most": 90.0, "moves": 0}
    found = {"devices": 2, "views": 1, "cases": {"a": {**case, "median": 51.0}}}
    assert "| a | 1.0 | 51.0 | 90.0 | 0 | **missed** |" in table(found)
