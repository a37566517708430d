"""What smaller options cost, each beside the plain verb or beside what one would write oneself.

::

    python -m benchmarks.asks [--rounds 5] [--only SECTION] [--out FOLDER]

One core, without Spark, in seconds of the processor, in turns: `haversine` against all pairs by
numpy; `dedupe` and rows without a partner against the pairs alone; rows of one time; `differs`
taken apart by value against whole blocks; `|` and `~` against plain terms; `rejects=` against the
same without; `groups` against one call of scipy for all pairs; `close.until` against the same
without; how many spans `spans_of` reads. Writes ``asks.json``; with ``--only`` it replaces those
sections there. `nearest(within=)` is a section of ``benchmarks.nearest``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import anabranch as ab
from anabranch.assembly import close
from anabranch.assembly.closing import Closing
from anabranch.assembly.kernel import AssembleKernel
from anabranch.assembly.store import AssembleNotes
from anabranch.assembly.table import MARK
from anabranch.correlation.filters import apart
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.grouping import Grouping, GroupsJob
from anabranch.correlation.matching import Matcher
from anabranch.correlation.packing import SidePacking
from anabranch.flow.blocks import Block
from anabranch.flow.sides import WHOLE, present_column
from anabranch.flow.slices import Slices
from anabranch.plans.routing import LivePlans
from anabranch.predicates.globe import RADIUS, on_globe
from anabranch.predicates.terms import together
from anabranch.testing import InProcess, Workers, prepare
from anabranch.testing.workers import LivingWorkers
from benchmarks.asks_spans import spans
from benchmarks.correlate_kernel import directions, specification
from benchmarks.measuring import (
    Row,
    Screen,
    beside_earlier,
    by_section,
    in_turns,
    machine,
    rate,
    ratio,
)

RESULTS = Path(__file__).parent / "results"
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def haversine(screen: Screen, rounds: int) -> None:
    """5,000 by 5,000 points of a country, those within a kilometre."""
    count, limit = 5000, 1000.0
    draw = np.random.default_rng(3)
    places = [np.radians(draw.uniform((46, 9), (49, 17), (count, 2))) for _ in range(2)]
    where = together(on_globe(ab.haversine("lat", "lon") <= limit, ("a", "a"), ("p", "p")))
    call = specification({"a": "double", "p": "array<double>"}, where)
    matcher = Matcher(call)

    def ours() -> int:
        blocks = []
        for lat, lon in (place.T for place in places):
            unit = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)
            columns = {
                slot.name: unit if slot.column == "p" else np.degrees(lat)
                for slot in call.left.slots
            }
            blocks.append(Block.of(np.full(count, START), {"id": np.arange(count), **columns}))
        return sum(len(found.left) for found in matcher.matches(Pair(blocks[0], blocks[1], (0, 0))))

    def numpy() -> int:
        (p, east), (q, west) = (place.T for place in places)
        found = 0
        for first in range(0, count, 500):
            some = slice(first, first + 500)
            rise, turn = q - p[some, None], west - east[some, None]
            h = np.sin(rise / 2) ** 2 + np.cos(p[some, None]) * np.cos(q) * np.sin(turn / 2) ** 2
            found += int((2 * RADIUS * np.arcsin(np.sqrt(h)) <= limit).sum())
        return found

    assert ours() == numpy()
    seconds = in_turns({"ours": ours, "numpy": numpy}, rounds)
    faster = ratio(seconds["numpy"], seconds["ours"])
    note = f"{rate(count**2, seconds['ours']):.3g} pairs/s"
    screen.add(Row("haversine", "times as fast as the formula in numpy", faster, note=note))


def stream(files: int, rows: int, coarse: bool = False) -> list[pa.Table]:
    """Micro-batches of 32-dimensional vectors, a second each; or all of one day."""
    found = []
    for number in range(files):
        t = START + number * SECOND + np.arange(rows) * SECOND // rows
        vectors = directions(rows, 32, number).ravel()
        lists = pa.FixedSizeListArray.from_arrays(vectors, 32).cast(pa.list_(pa.float32()))
        moments = np.full(rows, START) if coarse else t
        found.append(
            pa.table(
                {
                    "id": np.arange(rows) + number * rows,
                    "ts": pa.array(moments, pa.timestamp("us", "UTC")),
                    "v": lists,
                }
            )
        )
    return found


def one_stream(screen: Screen, rounds: int) -> None:
    """A window of 16,000 rows: one stream, without its alike ones, and by a second step."""
    files = stream(8, 4000)
    call: dict[str, Any] = {"where": ab.cosine("v") >= 0.75, "window": "4 seconds"}
    call |= {"watermark": "0 seconds", "streaming": True}

    def run(sides: int, **more: Any) -> Callable[[], InProcess]:
        def go() -> InProcess:
            kind = files[0].schema
            process = InProcess(kind, kind if sides == 2 else None, **call, **more)
            process.workers = LivingWorkers(process.workers.job)  # as on Spark
            for table in files:
                process.step(table, table if sides == 2 else None)
            return process

        return go

    line = {"plan": ab.broadcast(2), "fixed": True}
    variants = {
        "twice": run(2, plan=ab.grid(2, 2)),
        "one": run(1, plan=ab.triangle(2)),
        "dedupe": run(1, plan=ab.triangle(2), how="dedupe"),
        "inner": run(2, plan=ab.broadcast(2)),
        "left": run(2, how="left", **line),
        "left, homes": run(2, how="left", plan=ab.broadcast(2)),
    }
    seconds = in_turns(variants, rounds)
    for name, base in (
        ("one", "twice"),
        ("dedupe", "one"),
        ("left", "inner"),
        ("left, homes", "inner"),
    ):
        cost = ratio(seconds[name], seconds[base])
        screen.add(Row("one stream and partners", f"{name} against {base}: cost", cost, "times"))
    table = stream(1, 6000, coarse=True)[0]
    runs = {
        kind: InProcess(table.schema, None if kind == "one" else table.schema, **call)
        for kind in ("one", "twice")
    }
    for kind, process in runs.items():
        process.step(table, None if kind == "one" else table)
    compared = {k: sum(load.comparisons for load in run.loads) for k, run in runs.items()}
    share = compared["one"] / compared["twice"]
    what = "6,000 rows of one time: comparisons against the stream twice"
    screen.add(Row("one stream and partners", what, share, "times", 0.5, at_most=True))


def channels(screen: Screen, rounds: int) -> None:
    """8,000 by 8,000 rows of some channels in turn, each against the others."""
    count, width = 8000, 128
    types = {"v": "array<float>", "c": "bigint"}
    call = specification(types, (ab.cosine("v") >= 0.75) & ab.differs("c"))

    def run(number: int, cost: float) -> Callable[[], int]:
        sides = [
            Block.of(
                np.full(count, START),
                {"id": np.arange(count), "s0": directions(count, width, n), "s1": values},
            )
            for n, values in enumerate((np.arange(count) % number,) * 2)
        ]

        def go() -> int:
            before, apart.PART_NS = apart.PART_NS, cost
            try:
                pair = Pair(sides[0], sides[1], (0, 0))
                return sum(len(found.left) for found in Matcher(call).matches(pair))
            finally:
                apart.PART_NS = before

        return go

    for number in (2, 4, 8, 16):
        variants = {"whole": run(number, np.inf), "apart": run(number, 0)}
        assert variants["whole"]() == variants["apart"]()
        seconds = in_turns(variants, rounds)
        cost = ratio(seconds["apart"], seconds["whole"])
        what = f"{number} channels, taken apart against whole blocks: cost"
        screen.add(Row("differs", what, cost, "times"))


def either(screen: Screen, rounds: int) -> None:
    """4,000 by 4,000 rows: alternatives and opposites against the terms they are made of."""
    count = 4000
    types = {"v": "array<float>", "w": "array<float>", "x": "double"}
    near = [ab.cosine(name, dim=32) >= 0.75 for name in ("v", "w")]

    def run(where: Any) -> Callable[[], int]:
        call = specification(types, where)
        blocks = []
        for side, of in enumerate(call.sides):
            columns: dict[str, Any] = {"id": np.arange(count)}
            for slot in of.slots:
                seed = 10 * side + ord(slot.column)
                vectors = directions(count, 32, seed)
                columns[slot.name] = vectors if slot.kind == "vector" else vectors[:, 0] * 1.0
                if slot.optional:
                    columns[present_column(slot)] = np.ones(count, bool)
            blocks.append(Block.of(np.full(count, START), columns))

        def go() -> int:
            pair = Pair(blocks[0], blocks[1], (0, 0))
            return sum(len(found.left) for found in Matcher(call).matches(pair))

        return go

    variants = {
        "a": run(near[0]),
        "b": run(near[1]),
        "a | b": run(near[0] | near[1]),
        "a & within": run(near[0] & ab.within("x", 1)),
        "a & ~within": run(near[0] & ~ab.within("x", 1)),
    }
    seconds = in_turns(variants, rounds)
    both = [a + b for a, b in zip(seconds["a"], seconds["b"], strict=True)]
    cost = ratio(seconds["a | b"], both)
    screen.add(Row("or and not", "a | b against a and b alone, added: cost", cost, "times"))
    cost = ratio(seconds["a & ~within"], seconds["a & within"])
    screen.add(Row("or and not", "a & ~within against a & within: cost", cost, "times"))


def dead_letters(screen: Screen, rounds: int) -> None:
    """Packing 4,000 rows, of which one in a hundred is bad: dropped, and kept whole as well."""
    table = stream(1, 4000)[0]
    bad = pc.equal(pc.bit_wise_and(table["id"], 127), 0)
    times = pc.if_else(bad, pa.scalar(None, table.schema.field("ts").type), table["ts"])
    table = table.set_column(1, "ts", times)
    where = ab.cosine("v", dim=32) >= 0.75
    call = specification({"v": "array<float>"}, where, bad_rows="drop")
    batch = prepare(call.left, table)
    texts = pa.array([f'{{"id":{n},"v":"{n:0200d}"}}' for n in range(table.num_rows)])
    whole = pa.RecordBatch.from_arrays([*batch.columns, texts], [*batch.schema.names, WHOLE])
    packing, live = SidePacking(call, 0, True), LivePlans({0: ab.grid(2, 2)})

    def run(rows: pa.RecordBatch) -> Callable[[], object]:
        return lambda: [packing.pack(rows, live) for _ in range(10)]

    seconds = in_turns({"counted": run(batch), "kept": run(whole)}, rounds)
    cost = ratio(seconds["kept"], seconds["counted"])
    note = f"{rate(10 * table.num_rows, seconds['kept']):.3g} rows/s"
    what = "rejects=, rows travel whole, against bad_rows='drop': cost of packing"
    screen.add(Row("rejects", what, cost, "times", note=note))


def groups(screen: Screen, rounds: int) -> None:
    """50,000 pairs, in event-time order and with events, against components of all at once."""
    count = 50_000
    draw = np.random.default_rng(4)
    left = np.arange(count) // 2 * 2
    right = left + 1 + draw.integers(0, 3, count)
    t = START + np.arange(count) * 1000

    def ours() -> int:
        workers, opened = Workers(GroupsJob(Grouping(SECOND, True))), 0
        for first in range(0, count, 5000):
            some = slice(first, first + 5000)
            block = Block.of(t[some], {"left": left[some], "right": right[some]})
            for found in workers.step(0, [block], int(t[first]) - 1):
                opened += found.num_rows
        opened += sum(found.num_rows for found in workers.step(0, [], int(t[-1]) + 9 * SECOND))
        return int(opened)

    def scipy() -> int:
        size = int(right.max()) + 1
        graph = coo_array((np.ones(count), (left, right)), shape=(size, size))
        return int(connected_components(graph, directed=False)[0])

    ours()
    seconds = in_turns({"ours": ours, "scipy": scipy}, rounds)
    note = f"{rate(count, seconds['ours']):.3g} pairs/s; scipy has no order, gap, events or state"
    cost = ratio(seconds["ours"], seconds["scipy"])
    screen.add(Row("groups", "cost over scipy's components of all pairs", cost, "times", note=note))


def until(screen: Screen, rounds: int) -> None:
    """20,000 instances of five events, closed by an end marker and by what else there is."""
    count, size = 20_000, 5
    draw = np.random.default_rng(5)
    key = np.repeat(np.arange(count), size)
    began = START + np.arange(count) * 500
    t = np.repeat(began, size) + draw.integers(0, SECOND, count * size)
    last = np.zeros(count * size, bool)
    ends = np.lexsort((t, key))[size - 1 :: size]
    last[ends] = True
    order = np.argsort(t, kind="stable")
    marks = np.where(last, 1 | MARK, 1)
    w = np.stack([key, key * 31, key % 7, t, marks, np.arange(len(t))], axis=1)[order]
    t = t[order]

    def run(closing: Closing) -> Callable[[], int]:
        def go() -> int:
            kernel = AssembleKernel(closing, Slices((0, 0), AssembleNotes()))
            closed = 0
            for first in range(0, len(t), 10_000):
                some = slice(first, first + 10_000)
                block = Block.of(t[some], {"w": w[some]})
                for found in kernel.advance([block], int(t[first]) - 1, False):
                    closed += len(found.windows)
            return closed

        return go

    policies = {
        "after": close.after("2 seconds"),
        "until": close.until("m", "10 ms", otherwise=close.after("2 seconds")),
        "learned": close.learned("2 seconds", risk=0.1),
        "until or learned": close.until("m", "10 ms", otherwise=close.learned("2 s", risk=0.1)),
    }
    variants = {name: run(closing) for name, closing in policies.items()}
    assert all(make() > count // 2 for make in variants.values())
    seconds = in_turns(variants, rounds)
    for name, base in (("until", "after"), ("until or learned", "learned")):
        cost = ratio(seconds[name], seconds[base])
        note = f"{rate(len(t), seconds[name]):.3g} events/s"
        screen.add(Row("assemble", f"{name} against {base}: cost", cost, "times", note=note))


SECTIONS = (haversine, one_stream, channels, either, dead_letters, groups, until, spans)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    names = [section.__name__ for section in SECTIONS]
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--out", type=Path, default=RESULTS)
    call = parser.parse_args(arguments)
    screen, described = Screen(), machine()
    for section in SECTIONS:
        if call.only and section.__name__ not in call.only:
            continue
        screen.step(section.__name__)
        section(screen, call.rounds)
    screen.table("what options cost")
    rows = [row.to_dict() for row in screen.rows]
    result = {"benchmark": "asks", "machine": described, "rounds": call.rounds, "rows": rows}
    result |= {"details": {}}
    call.out.mkdir(parents=True, exist_ok=True)
    path = call.out / "asks.json"
    result = beside_earlier(path, result) if call.only else by_section(result)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
