"""What a board costs the query that it shows: its rows, the board, and 20 open pages.

::

    python -m benchmarks.dashboard [--rounds 8] [--batches 3] [--pages 20] [--points 1000]

In turns of a few micro-batches the query runs as it is, then from `board.show` without a board,
with a board that nobody looks at, and with one whose pages are all open, in a process of their own.
Rows that are shown travel in progress reports whether there is a board or not, so all is held
against both: the query as it is, and the one that shows its rows to nobody. These are two queries
of the same rows, of which one runs at a time and goes on from its checkpoint. The board already
remembers another query of 1,000 micro-batches and its plan log, so that it has as much to read and
to say as after hours. Trigger times on a shared machine vary by more than a board costs, so the
time that the driver's Python computes is measured too, by its own clock: that is where a board
works. What it takes to hear of a micro-batch and to say so is timed alone, of a young query and of
an old one.
Writes benchmarks/results/dashboard.json.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.flow.announced import Announced, announce
from anabranch.flow.load import Load
from anabranch.flow.metrics import seconds_of
from anabranch.plans.log import Entry, PlanLog
from anabranch.spark.dashboard.board import Board
from anabranch.spark.listening import hearer_of
from benchmarks.measuring import Row, Screen, machine, ratio

HERE = Path(__file__).parent
RESULT = HERE / "results" / "dashboard.json"
ROWS, WIDTH, SECOND = 2000, 64, 1_000_000
START = 1_700_000_000_000  # milliseconds
WARM = 8  # micro-batches until windows are full and workers have started
AGAIN = 3  # until a query that goes on is as it was
TURNS = ("bare", "alone", "board", "pages")
SAYS = {"bare": "of the query as it is", "alone": "with board.show and no board"}
AGES = (30, 1000, 5000)  # micro-batches


class Turn(NamedTuple):
    """Some micro-batches in a row: seconds of each, and of the driver's Python for one."""

    triggers: list[float]
    driver: float


class Clock:
    """Hears of every micro-batch of a run."""

    def __init__(self) -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        self.run = ""

    def progressed(self, progress: Any) -> None:
        """A micro-batch has ended."""
        if progress.numInputRows and str(progress.runId) == self.run:
            self.heard.put(progress)

    def ended(self, event: Any) -> None:
        """The run has ended, and should not have."""
        if str(event.runId) == self.run:
            self.heard.put(None)

    def forget(self) -> None:
        """Those that have ended until now."""
        with suppress(queue.Empty):
            while True:
                self.heard.get_nowait()

    def next(self) -> Any:
        """The next one that ends."""
        found = self.heard.get(timeout=300)
        if found is None:
            raise RuntimeError("the query has ended before all turns were over")
        return found


def stream(spark: SparkSession, seed: int) -> DataFrame:
    """The same rows whenever: every micro-batch is a second of event time."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    numbers = f"transform(sequence(1, {WIDTH}), n -> xxhash64(value, n, {seed}) % 1000000)"
    return (
        ticks.option("startTimestamp", START)
        .option("advanceMillisPerBatch", 1000)
        .load()
        .selectExpr("value AS id", "timestamp AS ts", f"CAST({numbers} AS array<float>) AS v")
    )


@contextmanager
def pages(board: Board, count: int, got: list[int]) -> Iterator[None]:
    """So many open pages in another process; `got` has how many messages each got at least."""
    port = str(board._server.server_address[1])
    command = [sys.executable, str(HERE / "open_pages.py"), port, str(count)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        yield
        got.append(int(process.communicate()[0]))


def remembered(batch: int, name: str) -> Any:
    """A report of a query that the board already knows."""
    loads = [Load(n, rows_left=ROWS, comparisons=ROWS**2, pairs=3).to_json() for n in (0, 1)]
    at = datetime.fromtimestamp(START / 1000 + batch, UTC).isoformat()
    return SimpleNamespace(
        id="remembered",
        runId="run",
        name="remembered",
        batchId=batch,
        timestamp=at,
        durationMs={"triggerExecution": 500},
        eventTime={"watermark": at},
        sources=[],
        stateOperators=[],
        observedMetrics={name: {"load": loads}},
    )


def remember(board: Board, points: int, control: Path) -> str:
    """Let a board have heard of so many micro-batches of a query with a plan log; its name."""
    log = PlanLog(str(control))
    log.begin(ab.grid(1, 2))
    for epoch in range(1, 20):
        plan = ab.grid(1, 2) if epoch % 2 else ab.broadcast(2)
        log.write(Entry(epoch, epoch, plan, 10 * epoch, (epoch,), {}))
    name = "anabranch_correlate_0ld0"
    announce(name, Announced("Pairs", ab.grid(1, 2), (SECOND, SECOND), SECOND, str(control)))
    for batch in range(points):
        board._feed.progressed(remembered(batch, name))
    board._take_in()
    return name


def start(spark: SparkSession, folder: Path, shows: bool) -> Any:
    """The query whose micro-batches are timed, as it is or with its rows shown."""
    folder.mkdir(exist_ok=True)
    pairs = ab.correlate(
        stream(spark, 1),
        stream(spark, 2),
        where=ab.cosine("v", dim=WIDTH) >= 0.55,
        window="4 seconds",
        watermark="1 second",
        plan=ab.grid(1, 2),
        control=f"{folder}/control",
    )
    if shows:
        with ab.dashboard(spark) as board:
            pairs = board.show(pairs)
    writer = pairs.writeStream.format("noop").queryName("measured")
    return writer.option("checkpointLocation", f"{folder}/checkpoint").start()


def turn(clock: Clock, batches: int) -> Turn:
    """Time the next micro-batches; the present one has begun before, and does not count."""
    clock.forget()
    clock.next()
    began, triggers = time.process_time(), []
    for _ in range(batches):
        triggers.append(seconds_of(clock.next()))
    return Turn(triggers, (time.process_time() - began) / batches)


class Subject:
    """The query as it is, or with its rows shown: one of the two runs, until the other is asked."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.clock = spark, folder, hearer_of(spark, Clock)
        self.query: Any = None
        self.shows: bool | None = None

    def running(self, shows: bool) -> Clock:
        """Have this one run, and warm; what hears of it."""
        if shows == self.shows:
            return self.clock
        self.__exit__()
        folder, self.shows = self.folder / ("shown" if shows else "bare"), shows
        known = folder.exists()
        self.query = start(self.spark, folder, shows)
        self.clock.run = str(self.query.runId)
        self.clock.forget()
        for _ in range(AGAIN if known else WARM):
            self.clock.next()
        return self.clock

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *exc: object) -> None:
        self.clock.run = ""
        if self.query is not None:
            self.query.stop()


def take_turns(spark: SparkSession, asked: Any, screen: Screen) -> dict[str, list[Turn]]:
    """Two queries, one at a time, and every turn once a round."""
    turns: dict[str, list[Turn]] = {name: [] for name in TURNS}
    got, (bare, *shown) = list[int](), TURNS
    with tempfile.TemporaryDirectory() as folder, Subject(spark, Path(folder)) as subject:
        for number in range(asked.rounds):
            order = [bare, *shown[number % 3 :], *shown[: number % 3]]
            # Every other round ends with the query as it is, which the next one begins with.
            for name in order if number % 2 else order[::-1]:
                screen.step(f"round {number + 1} of {asked.rounds}: {name}")
                clock = subject.running(shows=name != bare)
                with ExitStack() as stack:
                    if name not in SAYS:
                        board = stack.enter_context(ab.dashboard(spark))
                        remember(board, asked.points, Path(folder) / f"log{number}{name}")
                    if name == "pages":
                        stack.enter_context(pages(board, asked.pages, got))
                    turns[name].append(turn(clock, asked.batches))
    if min(got) < asked.batches // 2:  # two micro-batches within half a second are one message
        raise RuntimeError(f"pages got {min(got)} messages of {asked.batches} micro-batches")
    return turns


def own_work(spark: SparkSession, age: int, times: int = 50) -> float:
    """Milliseconds of one core to hear of a micro-batch of so old a query, and to say so."""
    with tempfile.TemporaryDirectory() as folder, ab.dashboard(spark) as board:
        name, took = remember(board, age, Path(folder)), []
        for batch in range(age, age + times):
            began = time.thread_time()
            board._feed.progressed(remembered(batch, name))
            board._take_in()
            board._message()
            took.append(time.thread_time() - began)
        return 1000 * min(took)


def tell(turns: dict[str, list[Turn]], asked: Any, screen: Screen) -> None:
    """The rows of the result."""
    triggers = {name: [statistics.median(t.triggers) for t in turns[name]] for name in TURNS}
    usual = statistics.median(triggers["bare"])
    driver = {name: statistics.median(t.driver for t in turns[name]) for name in TURNS}
    most = f"with {asked.pages} pages open"
    screen.add(Row("trigger", f"a micro-batch {SAYS['bare']}", usual, "s"))
    says = {**SAYS, "board": "with a board", "pages": most}
    for base in SAYS:
        for name in TURNS[TURNS.index(base) + 1 :]:
            by = ratio(triggers[name], triggers[base])
            screen.add(Row("trigger", f"{says[name]}, by that {says[base]}", by))
    low, high = min(triggers["bare"]) / usual, max(triggers["bare"]) / usual
    screen.add(Row("trigger", f"the shortest turn {SAYS['bare']}, by the median", low))
    screen.add(Row("trigger", f"the longest turn {SAYS['bare']}, by the median", high))
    for name, what in says.items():
        unit = "ms of one core per micro-batch"
        screen.add(Row("driver", f"its Python {what}", 1000 * driver[name], unit))
    # By the shortest, for a busy machine stretches triggers and would hide what a board takes.
    shortest = min(time for runs in triggers.values() for time in runs)
    for base, said in SAYS.items():
        more = (driver["pages"] - driver[base]) / shortest
        what = f"more {most} than that {said}, by the shortest trigger time of any turn"
        screen.add(Row("driver", what, more, "", 0.02, at_most=True))


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--points", type=int, default=1000)
    asked = parser.parse_args()
    screen, described = Screen(), machine()
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder.getOrCreate(), workers=2)
    spark.sparkContext.setLogLevel("OFF")
    screen.step("warm up")
    tell(take_turns(spark, asked, screen), asked, screen)
    screen.step("a young query and an old one")
    for age in AGES:
        took = own_work(spark, age)
        screen.add(Row("age", f"a micro-batch heard and said, after {age:,}", took, "ms"))
    spark.stop()
    screen.table("What a board costs")
    rows = [row.to_dict() for row in screen.rows]
    result = {"machine": described, "asked": vars(asked), "rows": rows}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
