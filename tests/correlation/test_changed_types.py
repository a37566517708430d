"""A restart under columns of other types: what is stored alike goes on, all else is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
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
    return InProcess(schema, schema, workers=1, window="1 day", plan=ab.ssp(1), **call)


def restarted(process: InProcess, kind: pa.DataType, **call: Any) -> InProcess:
    again = begun(kind, **call)
    again._heads, again._stored = dict(process._heads), dict(process._stored)
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
    with pytest.raises(ab.StateMismatch) as refusal:
        restarted(process, new, **KEPT).step(None, table(2, new))
    assert str(refusal.value) == (
        f"this checkpoint holds the kept column 'x' of the left side as {was}, and now it is "
        f"{now}: cast it to {was} before correlate, or begin a new checkpoint"
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
    with pytest.raises(ab.StateMismatch, match="other compared"):
        restarted(process, pa.float64(), where=ab.within("x", 1)).step(None, table(2, pa.float64()))
