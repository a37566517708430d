"""A restart under columns of other types: what is stored alike goes on, all else is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.errors import changed_settings
from anabranch.testing import InProcess

BASE = 1_700_000_000_000_000


def table(ident: int, kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "id": [ident],
            "ts": pa.array([BASE + ident], pa.timestamp("us", "UTC")),
            "x": pa.array([5]).cast(kind),
            "y": pa.array([7]),
        }
    )


def begun(kind: pa.DataType, **call: Any) -> InProcess:
    schema = table(0, kind).schema
    return InProcess(schema, schema, workers=1, window="1 day", plan=ab.broadcast(1), **call)


def restarted(process: InProcess, kind: pa.DataType, **call: Any) -> InProcess:
    again = begun(kind, **call)
    again.take_up(process)
    return again


KEPT = {"where": ab.within("y", 0), "keep": ["y", "x"]}
OTHERS = [
    (pa.timestamp("us", "UTC"), pa.int64(), "timestamp", "bigint"),
    (pa.int64(), pa.string(), "bigint", "string"),
    (pa.int32(), pa.int64(), "int", "bigint"),
]


@pytest.mark.parametrize(("old", "new", "was", "now"), OTHERS)
def test_kept_columns_keep_their_types(old: pa.DataType, new: pa.DataType, was: str, now: str):
    process = begun(old, **KEPT)
    process.step(table(1, old), None)
    with pytest.raises(ab.errors.StateMismatch) as refusal:
        restarted(process, new, **KEPT).step(None, table(2, new))
    assert str(refusal.value) == (
        f"this checkpoint was begun with left.keep='y bigint, x {was}', "
        f"right.keep='y bigint, x {was}', and the call now says left.keep='y bigint, x {now}', "
        f"right.keep='y bigint, x {now}': put them back, or begin a new checkpoint"
    )
    same = restarted(process, old, **KEPT)
    same.step(None, table(2, old))
    assert len(same.pairs) == 1


@pytest.mark.parametrize("where", [ab.within("x", 1), ab.same("x") & ab.within("y", 1)])
def test_compared_whole_numbers_may_become_wider(where: ab.Predicate):
    process = begun(pa.int32(), where=where)
    process.step(table(1, pa.int32()), None)
    again = restarted(process, pa.int64(), where=where)
    again.step(None, table(2, pa.int64()))
    assert len(again.pairs) == 1
    with pytest.raises(
        ab.errors.StateMismatch, match=r"where\[0\]=.*: x bigint.* now says .*: x double"
    ):
        restarted(process, pa.float64(), where=ab.within("x", 1)).step(None, table(2, pa.float64()))


SCHEMA = {
    "id": "int",
    "ts": "timestamp",
    "at": "timestamp",
    "x": "int",
    "v": "array<float>",
    "k": "string",
}
WHERE = (ab.cosine("v") >= 0.9) & ab.same("k") & ab.within("x", 2) & ab.custom(len, "x", ["k", "x"])


def settings_of(types: dict[str, str] | None = None, **more: Any) -> dict[str, str]:
    call = {"where": WHERE, "window": "10 seconds", "keep": ["x"], **more}
    found, problems = plan_correlation({**SCHEMA, **(types or {})}, SCHEMA, **call)
    assert found is not None, problems
    return found.settings


def test_of_one_stream_there_is_no_left() -> None:
    begun, now = (
        plan_correlation(SCHEMA, None, where=ab.same("k"), window="1 s", keep=keep)[0]
        for keep in ([], ["x"])
    )
    assert begun is not None and now is not None
    says = changed_settings(begun.settings, now.settings)
    assert says is not None and "no keep, and the call now says keep='x int':" in says


CHANGED = [
    ({"window": "5 seconds"}, "window='10 seconds'", "window='5 seconds'"),
    ({"window": ("10 s", "5 s")}, "window='10 seconds'", "window='10 seconds, 5 seconds'"),
    ({"keep": []}, "left.keep='x int', right.keep='x int'", "no left.keep, no right.keep"),
    ({"time": ("at", "ts")}, "left.time='ts'", "left.time='at'"),
    ({"types": {"id": "string"}}, "left.id='id bigint'", "left.id='id string'"),
    (
        {"types": {"v": "array<double>"}},
        "where[0]='cosine: v array<float>, v array<float>'",
        "where[0]='cosine: v array<double>, v array<float>'",
    ),
    (
        {"where": WHERE.terms[0] & WHERE.terms[1]},
        "where[2]='within: x bigint, x bigint', where[3]='custom: x int, k string, x int'",
        "no where[2], no where[3]",
    ),
    ({"where": (ab.dot("v") > 1) & WHERE.terms[1]}, "where[0]='cosine: v", "where[0]='dot: v"),
]


@pytest.mark.parametrize(("changes", "was", "now"), CHANGED)
def test_a_changed_setting_is_named(changes: dict[str, Any], was: str, now: str):
    says = changed_settings(settings_of(), settings_of(**changes))
    assert says is not None
    before, after = says.split(", and the call now says ")
    assert was in before and now in after


def test_what_stored_rows_do_not_depend_on_may_change():
    other = (ab.cosine("v", dim=3) < 0.5) & ab.same("k") & ab.within("x", 9)
    other &= ab.custom(max, "x", ["k", "x"])
    free = {"watermark": "1 minute", "plan": ab.grid(2, 2), "keep": ["x"]}
    assert (
        changed_settings(settings_of(), settings_of({"id": "bigint"}, where=other, **free)) is None
    )
    assert settings_of(keep=[]) == settings_of({"x": "bigint"}, where=WHERE, keep=[]) | {
        "where[3]": "custom: x int, k string, x int"
    }


def test_a_histogram_belongs_to_its_ground_distance():
    line, circle = (settings_of(where=ab.emd("v", ground=kind) <= 1) for kind in ("line", "circle"))
    assert "emd line-" in line["where[0]"] and "emd circle-" in circle["where[0]"]
    assert changed_settings(line, settings_of(where=ab.emd("v", dim=4) <= 2)) is None


def test_only_what_changes_no_distance_of_an_emd_may_change():
    """Scores and filters are of the next run, as thresholds are; the rest is of stored rows."""
    kept = {"ground": [[0, 0], [0, 1], [1, 0]]}
    begun = settings_of(where=ab.emd("v", **kept) <= 1)
    for free in ({"scores": "bound"}, {"filters": "paper"}):
        assert changed_settings(begun, settings_of(where=ab.emd("v", **kept, **free) <= 1)) is None
    for other in (
        {"ground": [0, 5, 9]},
        {"ground": [[0, 0], [0, 1], [1, 1]]},
        {**kept, "metric": "manhattan"},
        {**kept, "scale": "max"},
        {**kept, "scale": 2},
        {**kept, "normalize": None},
    ):
        says = changed_settings(begun, settings_of(where=ab.emd("v", **other) <= 1))
        assert says is not None and "where[0]='emd points-" in says
    positions = [settings_of(where=ab.emd("v", ground=[0, 5, n]) <= 1) for n in (9, 10)]
    assert "emd line-" in str(changed_settings(*positions))
