"""Random policies and events of `assemble`, in process, against the twin."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.job import AssembleJob
from anabranch.assembly.packing import EventPacking
from anabranch.errors import BadRow, InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.testing import Workers
from scripts.reliability.odd import NOW, Odd
from tests.assembly.twin import Twin

__all__ = ["Case", "check", "draw"]

_FAR = 1 << 61
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A policy, and events of some streams in micro-batches."""

    closing: Any
    batches: list[list[Row]]
    streams: int
    columns: tuple[str, str, str]  # of key, time and what is kept
    delay: int
    drop: bool
    buckets: int
    max_open: int | None

    def is_bad(self, row: Row) -> bool:
        """Whether an event must be rejected."""
        return row["t"] is None or not 0 < row["t"] <= _FAR or row["key"] is None


def draw(seed: int) -> Case:
    """The case of a seed."""
    odd = Odd(f"assemble {seed}")
    unit = odd.pick([1, 1000, 1_000_000])
    span = lambda most: f"{unit * (1 + odd.below(most))} us"  # noqa: E731
    remember = {"remember": f"{unit * odd.below(20)} us"}
    learning = {"remember": span(20)}  # what is forgotten at once is never learned
    policies = [
        lambda: ab.close.count(1 + odd.below(4), span(20), **remember),
        lambda: ab.close.gap(span(10), **remember),
        lambda: ab.close.after(span(15), **remember),
        lambda: ab.close.learned(span(15), risk=odd.pick([0.001, 0.2, 0.6]), after=1 + odd.below(4),
                                 cap=odd.pick([2, 5, 1000]), **learning),
    ]  # fmt: skip
    closing = odd.pick(policies)()
    if odd.chance(0.3):
        closing = ab.close.until("ends", span(5), otherwise=closing)
    number, batches, streams = 0, [], 1 + odd.below(3)
    for _ in range(1 + odd.below(5)):
        rows = []
        for _ in range(odd.pick([0, 1, 5, 15])):
            number += 1
            t = odd.time(40, far=0.01)
            if t is not None and 0 <= t - NOW <= 40:
                t += (t - NOW) * (unit - 1)
            took = odd.pick([None, 0, unit * odd.below(20), -5])
            rows.append(
                {
                    "t": t,
                    "key": None if odd.chance(0.02) else odd.below(6),
                    "took": took,
                    "stream": odd.below(streams),
                    "ends": odd.chance(0.2),
                    "kept": number,
                }
            )
        batches.append(rows)
    names = odd.names(3)
    return Case(closing, batches, streams, (names[0], names[1], names[2]), odd.below(30) * unit,
                odd.chance(0.8), 1 + odd.below(3), odd.pick([None, None, 2, 6]))  # fmt: skip


def check(seed: int) -> str:
    """Run a case; what became of it."""
    case = draw(seed)
    bad = sum(case.is_bad(row) for batch in case.batches for row in batch)
    try:
        got, rejected = _run(case)
    except BadRow as error:
        assert not case.drop and bad, f"no row is bad, yet: {error}"
        return "bad row, named"
    assert rejected == bad, f"{rejected} rows rejected, {bad} are bad"
    want = _answer(case)
    lost = [row for row in want if row not in got]
    extra = [row for row in got if row not in want]
    counts = [Counter(repr(sorted(row.items())) for row in rows) for rows in (got, want)]
    assert counts[0] == counts[1], f"lost {lost[:1]}, extra {extra[:1]}"
    told = sorted(kept for row in got for kept in row["items"])
    events = sorted(row["kept"] for batch in case.batches for row in batch if not case.is_bad(row))
    assert told == events, "every event comes out once"
    return "exact"


def _clocks(case: Case) -> list[int]:
    """The watermark of each micro-batch, and of two after the last."""
    clocks, newest, clock = [], 0, 0
    for batch in case.batches:
        clocks.append(clock)
        newest = max([newest, *(row["t"] for row in batch if not case.is_bad(row))])
        clock = max(clock, (newest // 1000 - -(-case.delay // 1000)) * 1000) if newest else 0
    return [*clocks, _FAR, _FAR]


def _event(row: Row) -> Row:
    key = row["key"]
    h1 = int(mix(np.array([key], np.int64))[0])
    kind = int(mix(np.array([key % 2], np.int64))[0])
    end = max(row["t"], row["t"] + (row["took"] or 0))
    return {"key": (h1, key), "kind": kind, "t": row["t"], "end": end, "stream": row["stream"],
            "ends": row["ends"], "tie": row["kept"], "kept": row["kept"]}  # fmt: skip


def _answer(case: Case) -> list[Row]:
    share = None if case.max_open is None else max(1, -(-case.max_open // case.buckets))
    marked = case.closing.marker is not None
    twins = [Twin(case.closing, share) for _ in range(case.buckets)]
    found = []
    for batch, clock in zip([*case.batches, [], []], _clocks(case), strict=True):
        shares: list[list[Row]] = [[] for _ in twins]
        for row in batch:
            if not case.is_bad(row):
                event = _event(row)
                event["ends"] &= marked
                home = (event["kind"] if case.closing.learns else event["key"][0]) % (1 << 64)
                shares[(home >> 33) % case.buckets].append(event)
        for twin, mine in zip(twins, shares, strict=True):
            found += twin.step(mine, clock)
    return [
        {
            "key": row["key"][1],
            **{name: row[name] for name in ("seq", "revision", "opened", "closed", "reason",
                                            "count", "first", "last", "streams")},
            "duration": (row["end"] - row["first"]) / 1e6,
            "items": [item["kept"] for item in row["items"]],
        }
        for row in found
    ]  # fmt: skip


def _run(case: Case) -> tuple[list[Row], int]:
    key, time, kept = case.columns
    schema = {key: "bigint", time: "timestamp", kept: "bigint", "ends": "boolean"}
    call, problems = plan_assembly(
        [schema] * case.streams, key=key, time=time, keep=kept, close=case.closing,
        watermark=f"{case.delay} us", max_open=case.max_open,
        bad_rows="drop" if case.drop else "fail",
    )  # fmt: skip
    if call is None:
        raise InvalidCall("assemble", problems)
    packings = [EventPacking(call, n, case.buckets, True) for n in range(case.streams)]
    workers = Workers(AssembleJob(call, case.buckets, True))
    found: list[Row] = []
    for batch, clock in zip([*case.batches, [], []], _clocks(case), strict=True):
        inbox: dict[int, list[Block]] = {}
        for stream, packing in enumerate(packings):
            mine = [row for row in batch if row["stream"] == stream]
            if mine:
                for bucket, cell in packing.pack(_batch(mine)).cells.items():
                    inbox.setdefault(bucket, []).append(Block.decode(cell))
        for bucket in sorted({*inbox, *workers.heads}):
            for made in workers.step(bucket, inbox.get(bucket, []), clock):
                found += [_read(row) for row in made.to_pylist()]
    return found, sum(load.rejected for load in workers.loads)


def _read(row: Row) -> Row:
    (kept,) = {name for item in row["items"] for name in item}
    return {
        "key": row["k0"],
        **{name: row[name] for name in ("seq", "revision", "opened", "closed", "reason", "count")},
        "first": row["first_ts"],
        "last": row["last_ts"],
        "duration": row["duration"],
        "streams": row["streams"],
        "items": [item[kept] for item in row["items"]],
    }


def _batch(rows: list[Row]) -> pa.RecordBatch:
    keys = np.array([row["key"] or 0 for row in rows], np.int64)
    times = [row["t"] for row in rows]
    ends = [
        None if row["took"] is None or row["t"] is None else _sum(row["t"], row["took"])
        for row in rows
    ]
    columns = {
        "t": pa.array(times, pa.int64()),
        "end": pa.array(ends, pa.int64()),
        "h1": mix(keys),
        "h2": keys,
        "kind": mix(keys % 2),
        "tie": pa.array([row["kept"] for row in rows], pa.int64()),
        "ends": pa.array([row["ends"] for row in rows]),
        "k0": pa.array([row["key"] for row in rows], pa.int64()),
        "c0": pa.array([row["kept"] for row in rows], pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _sum(t: int, took: int) -> int:
    return max(-(2**63), min(2**63 - 1, t + took))
