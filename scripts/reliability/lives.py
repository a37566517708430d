"""The streaming verbs as queries that go on for ever, and what each must have answered by now.

A *life* is one query: its call, its checkpoint, its control directory, a sink that keeps every
micro-batch under its number, and the twin that says what must be in the sink.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.flow.zones import in_utc
from scripts.reliability.streams import NUMBERS, SECOND, START, STEP, batches, reached, stream
from tests.correlation import twin
from tests.neighbours import runs
from tests.spark import events

__all__ = ["LIVES", "Life", "committed"]

DELAY = 900 * SECOND
WINDOW = (1200 * SECOND, 600 * SECOND)
CLOSING = ab.close.learned("20 minutes", risk=0.4, after=4, remember="45 minutes")
QUERIES = [
    {"id": n, "v": [float(3 - n), float(n)], "k": 1 + n % 3, "span": (600 + 300 * n) * SECOND}
    for n in range(4)
]
PLANS = {
    "correlate": [
        ab.broadcast(2, "right"),
        ab.segments(2, "30 minutes", "left"),
        ab.grid(2, 1),
        ab.broadcast(2, "left", weights=[1, 3]),
        ab.segments(2, "7 minutes"),
        ab.grid(1, 2),
        ab.broadcast(1),
    ],
    "nearest": [ab.broadcast(1), ab.broadcast(2, weights=[1, 3]), ab.broadcast(2)],
    "assemble": [],
}


@dataclass
class Life:
    """One verb's query in a folder of its own."""

    verb: str
    folder: Path
    servers: str | None = None  # the broker that it reads from, if it does
    changes: int = 0

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps its state."""
        return self.folder / "checkpoint"

    @property
    def control(self) -> Path:
        """Where its plans are logged."""
        return self.folder / "control"

    @property
    def sink(self) -> Path:
        """Where its results are."""
        return self.folder / "sink"

    def start(self, spark: Any, trigger: str) -> Any:
        """The query, begun or gone on with."""
        self.sink.mkdir(parents=True, exist_ok=True)
        result = _RESULTS[self.verb](self, *(stream(spark, side, self.servers) for side in (0, 1)))
        return (
            result.writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self.checkpoint))
            .queryName(self.verb)
            .trigger(processingTime=trigger)
            .start()
        )

    def _keep(self, frame: Any, batch: int) -> None:
        """Once and for all, however often the micro-batch is run."""
        partial = self.sink / f".{batch:08d}"
        try:
            found = frame.toArrow()
        except Exception as error:
            # Short: Spark searches the trace by a pattern that overflows its stack on a long one.
            said = [line for line in str(error).splitlines() if line.strip() == line]
            raise RuntimeError("\n".join(said)[:2000]) from None
        pq.write_table(in_utc(found), partial)
        partial.rename(self.sink / f"{batch:08d}.parquet")

    def change_plan(self) -> bool:
        """Ask for another plan; whether the verb has plans that change."""
        plans = PLANS[self.verb]
        if plans and self.control.exists():
            plan = plans[self.changes % len(plans)]
            ab.plans.PlanLog(self.control).append(plan, cause="every few micro-batches")
            self.changes += 1
        return bool(plans)

    def plans_enacted(self) -> int:
        """How many plans have replaced another."""
        if not self.control.exists():
            return 0
        return len({entry.epoch for entry in ab.plans.PlanLog(self.control).entries()}) - 1

    def results(self) -> pa.Table:
        """What the sink holds of committed micro-batches."""
        last = committed(self.checkpoint)
        files = sorted(path for path in self.sink.glob("*.parquet") if int(path.stem) <= last)
        assert len(files) == last + 1, f"{self.verb}: {len(files)} results of {last + 1} batches"
        return pa.concat_tables([pq.read_table(path) for path in files])

    def check(self, spark: Any) -> dict[str, int]:
        """Raise unless each result is there once; how many micro-batches and results there were."""
        steps = committed(self.checkpoint) + 1
        offset = json.loads(
            (self.checkpoint / "offsets" / str(steps - 1)).read_text().split("\n")[2]
        )
        assert reached(offset) == steps * NUMBERS, f"{self.verb}: a micro-batch had other rows"
        got, want = _ANSWERS[self.verb](spark, batches(steps), self.results())
        lost, double = want - got, got - want
        assert not lost and not double, (
            f"{self.verb}: {lost.total()} of {want.total()} lost, such as {list(lost)[:2]}; "
            f"{double.total()} too many, such as {list(double)[:2]}"
        )
        return {"batches": steps, "results": want.total()}


def committed(checkpoint: Path) -> int:
    """The newest micro-batch that is committed; -1 if none is."""
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    return max(numbers, default=-1)


def _correlate(life: Life, left: Any, right: Any) -> Any:
    return ab.correlate(
        left, right, where=ab.cosine("v", dim=2) >= 0.6, window=("20 minutes", "10 minutes"),
        watermark="15 minutes", plan=ab.adaptive(2), control=str(life.control), bad_rows="drop",
        keep=["service"],
    )  # fmt: skip


def _nearest(life: Life, left: Any, right: Any) -> Any:
    spark = left.sparkSession
    asked = spark.createDataFrame(
        [(q["id"], q["v"], q["k"], f"{q['span'] // SECOND} seconds") for q in QUERIES],
        "query_id long, v array<double>, k int, window string",
    )
    return ab.nearest(
        left, asked, by=ab.euclidean("v", dim=2), watermark="15 minutes", plan=ab.broadcast(2),
        control=str(life.control), bad_rows="drop",
    )  # fmt: skip


def _assemble(life: Life, left: Any, right: Any) -> Any:
    return ab.assemble(
        [left, right], key=["page", "client"], keep=["service", "ms"], response="ms",
        close=CLOSING, watermark="15 minutes",
    )  # fmt: skip


_RESULTS: dict[str, Callable[[Life, Any, Any], Any]] = {
    "correlate": _correlate,
    "nearest": _nearest,
    "assemble": _assemble,
}

Rows = Sequence[tuple[list[dict[str, Any]], list[dict[str, Any]]]]
Answers = tuple[Counter[Any], Counter[Any]]


def _comparable(row: dict[str, Any]) -> bool:
    return row["v"] is not None and not any(x != x for x in row["v"])


def _pairs(spark: Any, given: Rows, got: pa.Table) -> Answers:
    good = [
        tuple([row for row in side if _comparable(row) and any(row["v"])] for side in batch)
        for batch in given
    ]
    left, right, _ = twin.in_time(good, twin.watermarks(good, DELAY))
    score = twin.when(lambda a, b: twin.cosine(a["v"], b["v"]), lambda s: s >= 0.6)
    left, right = (sorted(rows, key=lambda row: row["t"]) for rows in (left, right))
    times = [row["t"] for row in right]
    want: Counter[Any] = Counter()
    for first in range(0, len(left), 50):  # rows that are near in time, so that it ends
        part = left[first : first + 50]
        low = bisect.bisect_left(times, part[0]["t"] - WINDOW[1])
        high = bisect.bisect_right(times, part[-1]["t"] + WINDOW[0])
        want.update(twin.pairs(part, right[low:high], WINDOW, score).keys())
    return Counter(
        zip(*got.select(["left_id", "right_id"]).to_pydict().values(), strict=True)
    ), want


def _hits(spark: Any, given: Rows, got: pa.Table) -> Answers:
    good = [([row for row in left if _comparable(row)], []) for left, _ in given]
    marks = list(twin.watermarks(good, DELAY))
    objects, _, _ = twin.in_time(good, marks)
    objects = sorted((row["t"], row["id"], row["v"]) for row in objects)
    times = [thing[0] for thing in objects]
    longest = max(query["span"] for query in QUERIES)
    want: Counter[Any] = Counter()
    first = START - 20 * STEP
    while first <= times[-1]:  # an object can enter while it is in the window, and only then
        last = first + 2 * longest
        low, high = (bisect.bisect_left(times, t) for t in (first - longest, last + longest))
        for hit in runs.expected(objects[low:high], QUERIES):
            if first <= hit[2] < last and hit[3] <= marks[-1]:
                want[hit] += 1
        first = last
    got = got.set_column(2, "object_ts", got["object_ts"].cast(pa.int64()))
    got = got.set_column(3, "entered_ts", got["entered_ts"].cast(pa.int64()))
    names = ["query_id", "object_id", "object_ts", "entered_ts", "distance", "rank"]
    return Counter(zip(*got.select(names).to_pydict().values(), strict=True)), want


def _instances(spark: Any, given: Rows, got: pa.Table) -> Answers:
    good: list[Any] = [
        tuple([row for row in side if row["page"] is not None] for side in batch) for batch in given
    ]
    want = events.expected(spark, good, CLOSING, DELAY, buckets=2, idle=False)
    rows = [_plain(row) for row in got.to_pylist()]
    return Counter(map(repr, events.collected(_Collected(rows)))), Counter(map(repr, want))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    names = ("opened", "closed", "first_ts", "last_ts")
    return {**row, **{name: row[name].replace(tzinfo=None) for name in names}}


@dataclass
class _Collected:
    """Rows as a frame would collect them."""

    rows: list[dict[str, Any]]

    def collect(self) -> list[dict[str, Any]]:
        """All of them."""
        return self.rows


_ANSWERS: dict[str, Callable[[Any, Rows, pa.Table], Answers]] = {
    "correlate": _pairs,
    "nearest": _hits,
    "assemble": _instances,
}
LIVES = tuple(_RESULTS)
