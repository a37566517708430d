"""Streaming queries that go on for ever.

A *life* is one query: its call, its checkpoint, its control directory, a sink that keeps every
micro-batch under its number, and the twin that says what must be in the sink (`answers`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.flow.zones import in_utc
from scripts.reliability.answers import ANSWERS, CLOSING, QUERIES
from scripts.reliability.evidence import said
from scripts.reliability.scenes import BUSY
from scripts.reliability.streams import NUMBERS, SECOND, batches, reached, stream

__all__ = [
    "LIVES",
    "PATIENT",
    "PLANS",
    "Life",
    "changed",
    "checked",
    "clocks",
    "committed",
    "unchanged",
]

PATIENT = {"SPARK_AUTH_SOCKET_TIMEOUT": "120"}
"""In the environment: how many seconds processes wait for the JVM where no session tells them."""

_OF_TWO_STREAMS = [
    ab.broadcast(2, "right"),
    ab.segments(2, "30 minutes", "left"),
    ab.grid(2, 1),
    ab.broadcast(2, "left", weights=[1, 3]),
    ab.segments(2, "7 minutes"),
    ab.grid(1, 2),
    ab.broadcast(1),
]
PLANS = {
    "correlate": _OF_TWO_STREAMS,
    "nearest": [ab.broadcast(1), ab.broadcast(2, weights=[1, 3]), ab.broadcast(2)],
    "assemble": [],
    "full": _OF_TWO_STREAMS[::-1],
    "dedupe": [ab.segments(2, "7 minutes"), ab.grid(1, 2), ab.triangle(2)],
    "groups": [],
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

    def going(self, spark: Any, trigger: str, query: Any) -> tuple[Any, str | None]:
        """The query, begun again where Spark could not start a process in time, and why it was.

        On a machine that is too busy Spark waits ten seconds for one, and then gives up: that is no
        answer. Any other end is an error.
        """
        if query.isActive:
            return query, None
        why = str(query.exception())
        if not any(cause in why for cause in BUSY):
            raise RuntimeError(f"{self.verb} has ended: {why}")
        return self.start(spark, trigger), f"{self.verb}: {why.splitlines()[0]}"

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
        got, want = ANSWERS[self.verb](spark, batches(steps), self.results())
        lost, double = want - got, got - want
        assert not lost and not double, (
            f"{self.verb}: {lost.total()} of {want.total()} lost, such as {list(lost)[:2]}; "
            f"{double.total()} too many, such as {list(double)[:2]}"
        )
        return {"batches": steps, "results": want.total()}


def checked(lives: Sequence[Life], spark: Any) -> tuple[dict[str, dict[str, int]], list[str]]:
    """What each life has answered, and what is wrong with it."""
    answers, wrong = {}, []
    for life in lives:
        try:
            answers[life.verb] = life.check(spark)
        except Exception as error:
            wrong.append(f"{life.verb}: {said(error)}")
    return answers, wrong


def changed(lives: Sequence[Life]) -> dict[str, int]:
    """How many plans of each life have replaced another, of the logs that can be read."""
    found = {}
    for life in lives:
        with suppress(Exception):  # its query says why it has ended
            found[life.verb] = life.plans_enacted()
    return found


def unchanged(changes: Mapping[str, int]) -> list[str]:
    """The verbs that have plans, and never changed them."""
    return [verb for verb, count in changes.items() if PLANS[verb] and count < 1]


def committed(checkpoint: Path) -> int:
    """The newest micro-batch that is committed; -1 if none is."""
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    return max(numbers, default=-1)


def clocks(checkpoint: Path, since: float) -> list[float]:
    """By how many seconds the driver's clock was ahead of the disk's, in micro-batches since."""
    found = []
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError, KeyError):  # not yet written, or removed
            written = path.stat().st_mtime
            if written > since:
                told = json.loads(path.read_text().split("\n")[1])["batchTimestampMs"]
                found.append(told / 1000 - written)
    return found


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


def _full(life: Life, left: Any, right: Any) -> Any:
    return ab.correlate(
        left, right, where=ab.cosine("v", dim=2) >= 0.9, window=("2 minutes", "1 minute"),
        watermark="15 minutes", plan=ab.grid(1, 2), control=str(life.control), bad_rows="drop",
        keep=["service"], how="full",
    )  # fmt: skip


def _dedupe(life: Life, left: Any, right: Any) -> Any:
    return ab.dedupe(
        left, where=ab.cosine("v", dim=2) >= 0.9, window="4 minutes", watermark="15 minutes",
        plan=ab.triangle(2), control=str(life.control), bad_rows="drop", keep=["service"],
    )  # fmt: skip


def _groups(life: Life, left: Any, right: Any) -> Any:
    pairs = ab.correlate(
        left, where=ab.cosine("v", dim=2) >= 0.99, window="2 minutes", watermark="15 minutes",
        bad_rows="drop",
    )  # fmt: skip
    return ab.groups(pairs, gap="3 minutes")


_RESULTS: dict[str, Callable[[Life, Any, Any], Any]] = {
    "correlate": _correlate,
    "nearest": _nearest,
    "assemble": _assemble,
    "full": _full,
    "dedupe": _dedupe,
    "groups": _groups,
}
LIVES = tuple(_RESULTS)
"""Two streams, `nearest`, `assemble`, ``how="full"``, `dedupe`, one stream and `groups` of it."""
