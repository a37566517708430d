"""Calls of `assemble` that cannot run say why, all at once; rows are packed by key or kind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.kernel import AssembleKernel
from anabranch.assembly.packing import EventPacking, result_batch
from anabranch.assembly.store import AssembleNotes
from anabranch.errors import InvalidCall, changed_settings
from anabranch.flow.blocks import Block
from anabranch.flow.instants import BEGINNING
from anabranch.flow.slices import Slices
from anabranch.predicates.columns import Expression

SCHEMA = {"kind": "string", "client": "bigint", "ts": "timestamp", "ms": "double", "m": "map<a,b>"}
GOOD = {"key": ["kind", "client"], "time": "ts", "close": ab.close.gap("8 seconds")}

WRONG = {
    "key must name at least one column, got []": {"key": []},
    "input has no column 'hed' (needed by key); it has kind, client, ts": {"key": ["hed"]},
    "input has no column 'x' (needed by keep)": {"keep": ["x"]},
    "keep must be a column name or a list of them, got 5": {"keep": 5},
    "got ['ts']: inputs are united, so they share the name of their time": {"time": ["ts"]},
    "key must be a column name or a list of them, got [['kind'], 'client']": {
        "key": [["kind"], "client"]
    },
    "keep must be a column name or a list of them, got ['ts', ['ms']]": {"keep": ["ts", ["ms"]]},
    "response must be a column name, got ['ms']": {"response": ["ms"]},
    "key names 'kind' twice": {"key": ["kind", "kind"]},
    "time: input column 'ms' is double, not timestamp; cast it": {"time": "ms"},
    "close must be a policy such as ab.close.count": {"close": "8 seconds"},
    "response column 'kind' is string; it must be a number": {"response": "kind"},
    "key column 'm' is map<a,b>, which is no key": {"key": ["m"]},
    "'client' is not one of the key columns 'kind': an instance must belong to one kind; add": {
        "key": "kind",
        "close": ab.close.learned(kind="client"),
    },
    "'soon' is not a duration": {"watermark": "soon"},
    "watermark must not be negative": {"watermark": "-1 seconds"},
    "max_open must be a whole number of at least 1": {"max_open": 0},
    "clock must be 'event' or 'processing', got 'wall'": {"clock": "wall"},
    "watermark= is about event time": {"clock": "processing", "watermark": "1 second"},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_calls(message: str) -> None:
    found, problems = plan_assembly([SCHEMA], **{**GOOD, **WRONG[message]})
    assert found is None
    assert any(message in problem for problem in problems), problems


def test_all_problems_are_reported_at_once() -> None:
    wrong = {"key": [["kind"]], "time": ["ts"], "keep": [["ms"]], "close": 5, "watermark": "soon"}
    _, problems = plan_assembly([SCHEMA], **wrong)
    assert len(problems) == 5


def settings_of(types: dict[str, str] = SCHEMA, **more: object) -> dict[str, str]:
    call, problems = plan_assembly([types], **{**GOOD, **more})
    assert call is not None, problems
    return call.settings


@pytest.mark.parametrize(
    ("changes", "was", "now"),
    [
        ({"types": {**SCHEMA, "client": "int"}}, "client bigint'", "client int'"),
        ({"key": ["client", "kind"]}, "key='kind string, client", "key='client bigint, kind"),
        ({"keep": "ms"}, "keep='nothing'", "keep='ms double'"),
        ({"close": ab.close.learned()}, "learned by='nothing'", "learned by='kind in 1 parts'"),
        ({"clock": "processing"}, "clock='event'", "clock='processing'"),
        ({"types": {**SCHEMA, "at": "timestamp"}, "time": "at"}, "time='ts'", "time='at'"),
    ],
)
def test_what_splits_open_instances_is_named(changes: dict, was: str, now: str) -> None:
    says = changed_settings(settings_of(), settings_of(**changes))
    assert says is not None
    before, after = says.split(", and the call now says ")
    assert was in before and now in after


def test_the_kind_and_parts_of_a_learned_policy_are_kept() -> None:
    one = settings_of(close=ab.close.learned(kind="client"))
    assert one["learned by"] == "client in 1 parts"
    assert changed_settings(one, settings_of(close=ab.close.learned("1 s", kind="client"))) is None
    assert changed_settings(one, settings_of(close=ab.close.learned(kind="client", spread=2)))
    assert changed_settings(one, settings_of(close=ab.close.learned(kind="kind")))


def test_what_does_not_touch_stored_events_may_change() -> None:
    wider = {**SCHEMA, "more": "int"}
    free = {"close": ab.close.after("1 s"), "watermark": "1 s", "max_open": 5, "response": "ms"}
    assert changed_settings(settings_of(), settings_of(types=wider, **free)) is None


def test_inputs_must_be_alike() -> None:
    _, problems = plan_assembly([SCHEMA, {**SCHEMA, "client": "int", "extra": "int"}], **GOOD)
    assert "column 'client' is int in input 1 but bigint in input 0; cast it" in problems
    assert "input 1 has column 'extra', which input 0 lacks" in problems
    assert plan_assembly([], **GOOD)[1] == [
        "there is no input: give one DataFrame or a list of them"
    ]


@pytest.mark.parametrize("kind", ["string collate UTF8_LCASE", "array<string collate UNICODE_CI>"])
def test_a_key_whose_letters_may_differ_is_refused(kind: str) -> None:
    """By Spark's hash "a" and "A" would be two instances, though Spark takes them for one key."""
    types = {**SCHEMA, "page": kind}
    _, problems = plan_assembly([types], **{**GOOD, "key": "page"})
    assert problems == [
        f"key column 'page' is {kind}, and keys are the same only if all their letters are: cast "
        "it to string, and make them alike before, as with lower()"
    ]


def test_a_result_column_is_no_key() -> None:
    _, problems = plan_assembly([{**SCHEMA, "seq": "int"}], **{**GOOD, "key": ["seq"]})
    assert problems == ["key column 'seq' is also a column of the result: rename it"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ab.close.count(0, "1 s"), "n must be a whole number of at least 1, got 0"),
        (lambda: ab.close.gap("never"), "'never' is not a duration"),
        (lambda: ab.close.after("0 seconds"), "must be longer than 0 seconds"),
        (lambda: ab.close.learned(risk=0), "risk must lie between 1e-9 and 1, got 0"),
        (lambda: ab.close.learned(coverage=2), "coverage must be above 0 and at most 1, got 2"),
        (
            lambda: ab.close.after("1 s", remember="-1 s"),
            "remember must not be negative, got '-1 s'",
        ),
        (lambda: ab.close.gap("30000000 weeks"), "duration must be at most 10950 days"),
        (lambda: ab.close.learned(cap=2**70), "cap must be at most 1,099,511,627,775, got"),
        (lambda: ab.close.learned(remember="0 s"), "remember must be longer than 0 seconds"),
        (
            lambda: ab.close.learned(kind=3),
            "kind: a column is a name, 'v' or 'payload.v', or a Column of Spark",
        ),
        (lambda: ab.close.until(True), "got True; SQL text such as \"status = 'done'\" is one too"),
        (lambda: ab.close.until("last", "-1 s"), "grace must not be negative, got '-1 s'"),
        (lambda: ab.close.until("last", otherwise="30 s"), "otherwise must be a policy such as"),
        (
            lambda: ab.close.until("last", otherwise=ab.close.until("done")),
            "write both as one, ab.close.until('last or done')",
        ),
        (
            lambda: ab.close.until("last", otherwise=ab.close.until(Expression("=(b, 1)", None))),
            "already, =(b, 1): write both as one, ab.close.until(one | other) of two Columns",
        ),
    ],
)
def test_wrong_policies(make: object, message: str) -> None:
    with pytest.raises(InvalidCall) as error:
        make()  # type: ignore[operator]
    assert message in str(error.value)


def batch(n: int, nulls: int = 0) -> pa.RecordBatch:
    t = np.arange(1000, 1000 + n)
    kinds = [None if i < nulls else f"page {i % 7}" for i in range(n)]
    return pa.RecordBatch.from_pydict(
        {
            "t": t,
            "end": pa.array([None if i % 3 else int(x) + 50 for i, x in enumerate(t)], pa.int64()),
            "h1": np.array([hash((i % 7, i % 5)) for i in range(n)], np.int64),
            "h2": np.arange(n) % 35,
            "kind": np.array([hash(("h", i % 7)) for i in range(n)], np.int64),
            "tie": t,
            "k0": kinds,
            "k1": np.arange(n) % 5,
            "c0": t * 1.5,
        }
    )


@pytest.mark.parametrize("learned", [False, True])
def test_packing_keeps_keys_together_and_counts_rejected_rows(learned: bool) -> None:
    close = ab.close.learned() if learned else ab.close.gap("8 seconds")
    call, _ = plan_assembly([SCHEMA] * 2, **{**GOOD, "close": close, "keep": ["ms"]})
    assert call is not None
    packed = EventPacking(call, 1, 4).pack(batch(400, nulls=9))
    assert packed.newest == 1399
    blocks = {number: Block.decode(data) for number, data in packed.cells.items()}
    assert sum(map(len, blocks.values())) == 391
    assert [b.meta.get("rejected", 0) for b in blocks.values()].count(9) == 1
    homes: dict[int, set[int]] = {}
    for number, block in blocks.items():
        assert (np.diff(block.t) >= 0).all()
        for value in block.columns["w"][:, 2 if learned else 0].tolist():
            homes.setdefault(value, set()).add(number)
    assert all(len(home) == 1 for home in homes.values())
    assert len(blocks) > 1


@pytest.mark.parametrize(
    ("watermark", "clock", "hearing"),
    [(None, "event", [0, 1, 2, 3]), ("1 second", "event", [0]), (None, "processing", [0])],
)
def test_every_bucket_hears_of_a_batch_where_late_is_what_the_last_one_passed(
    watermark: str | None, clock: str, hearing: list[int]
) -> None:
    call, _ = plan_assembly([SCHEMA], **GOOD, watermark=watermark, clock=clock, keep=["ms"])
    assert call is not None
    packed = EventPacking(call, 0, 4, streaming=True).pack(batch(1, nulls=1))
    assert sorted(packed.cells) == hearing


def test_rejected_rows_are_reported_even_if_there_are_no_others() -> None:
    call, _ = plan_assembly([SCHEMA], **{**GOOD, "keep": ["ms"]})
    assert call is not None
    packed = EventPacking(call, 0, 4).pack(batch(5, nulls=5))
    assert packed.newest == 0
    assert {n: Block.decode(b).meta["rejected"] for n, b in packed.cells.items()} == {0: 5}


def test_the_result_as_arrow() -> None:
    close = ab.close.count(20, "1 second")
    call, _ = plan_assembly([SCHEMA] * 2, **{**GOOD, "close": close, "keep": ["ms"]})
    assert call is not None
    kernel = AssembleKernel(close, Slices((0, 0), AssembleNotes()))
    for stream in (0, 1):
        for data in EventPacking(call, stream, 1).pack(batch(70)).cells.values():
            kernel.advance([Block.decode(data)], BEGINNING)
    (emitted,) = kernel.advance([], 10_000_000)
    rows = result_batch(call, emitted).to_pylist()
    assert len(rows) == 35 and sum(row["count"] for row in rows) == 140
    one = next(row for row in rows if (row["k0"], row["k1"]) == ("page 0", 0))
    assert one["streams"] == [0, 1] and one["reason"] == "timeout"
    assert one["usual_count"] == 20 and one["count_ratio"] == pytest.approx(4 / 20)
    assert [item["ms"] for item in one["items"]] == [1500.0, 1500.0, 1552.5, 1552.5]
    assert one["first_ts"] == 1000 and one["last_ts"] == 1035
    assert one["duration"] == pytest.approx(50e-6)  # row 0 took 50 µs, row 35 nothing


def test_times_beyond_all_reason_are_rejected() -> None:
    call, _ = plan_assembly([SCHEMA], **{**GOOD, "keep": ["ms"]})
    assert call is not None
    rows = batch(5)
    t = pa.array([1000, 1 << 62, -(1 << 62), None, 2000], pa.int64())
    rows = rows.set_column(rows.schema.get_field_index("t"), "t", t)
    packed = EventPacking(call, 0, 1).pack(rows)
    assert packed.newest == 2000
    block = Block.decode(packed.cells[0])
    assert block.meta["rejected"] == 3 and block.t.tolist() == [1000, 2000]
