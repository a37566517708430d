"""The demo: find the stories that two simulated news channels both tell, while they are on air.

A thread writes the channels' key frames as parquet files; a streaming query reads and correlates
them; the screen shows what it finds and how far it is. In the end everything found is compared
with what the newsroom planted, and the same join as Spark users write it today runs on a slice
of the same rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from anabranch.calls import count
from anabranch.predicates import cosine
from anabranch.spark.correlate import correlate
from anabranch.spark.dashboard.board import Board, dashboard
from anabranch.spark.demo.broadcast import CHANNELS, Broadcast, Newsroom
from anabranch.spark.demo.constantkey import measure_constant_key_join
from anabranch.spark.demo.stage import DemoFailed, open_page, session, waiting
from anabranch.spark.demo.verdict import Measured, Streamed, Verdict
from anabranch.spark.demo.writer import LiveWriter
from anabranch.spark.watch import Interrupt
from anabranch.spark.watch_batches import STARTING, BatchTable, brief

__all__ = ["DemoSettings", "run_demo"]

_SCHEMA = "id long, ts timestamp, title string, v array<float>"
_SINK = "stories"
_STORY_HEADING = "time     score first on                     later on"
_STALLED_SECONDS = 180.0
_JOIN_SECONDS = 12.0
_JOIN_ROWS = 1200


@dataclass(frozen=True)
class DemoSettings:
    """The knobs of ``anabranch demo``; its help says what they mean."""

    seconds: float
    speed: float
    left_rate: float
    right_rate: float
    stories: int
    seed: int
    workers: int
    compare: bool
    keep_files: bool

    def newsroom(self) -> Newsroom:
        """The newsroom of these settings."""
        return Newsroom(
            duration=self.seconds * self.speed,
            rates=(self.left_rate, self.right_rate),
            stories=self.stories,
            seed=self.seed,
        )


def run_demo(settings: DemoSettings, console: Console | None = None) -> int:
    """Run the demo and return its exit code.

    0 if exactly the stories that are due were found, 1 if not or if it could not run, 130 after
    Ctrl-C.
    """
    console = console or Console(highlight=False)
    newsroom = settings.newsroom()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-demo-"))
    handle, name = tempfile.mkstemp(prefix="anabranch-demo-", suffix=".log")
    os.close(handle)
    log = Path(name)
    failed = True
    try:
        code = _play(settings, newsroom, folder, log, console)
        failed = False
        return code
    except KeyboardInterrupt:
        console.print("Stopped: the query and Spark have ended.")
        failed = False
        return 130
    except Exception as error:
        with log.open("a") as file:
            traceback.print_exc(file=file)
        console.print(f"The demo failed: {brief(error)}", style="red", markup=False, soft_wrap=True)
        console.print(f"Spark's own words are in {log}", markup=False, soft_wrap=True)
        return 1
    finally:
        if settings.keep_files:
            console.print(
                f"Files are in {folder}, Spark's log is {log}", markup=False, soft_wrap=True
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)
            if not failed:
                log.unlink(missing_ok=True)


def _play(
    settings: DemoSettings, newsroom: Newsroom, folder: Path, log: Path, console: Console
) -> int:
    broadcast = newsroom.broadcast()
    _introduce(settings, newsroom, broadcast, console)
    with (
        Interrupt() as interrupt,
        session(settings.workers, folder, log, console, interrupt) as spark,
        dashboard(spark) as board,
    ):
        interrupt.check()
        open_page(board.url, console)
        streamed = _stream(board, spark, settings, newsroom, broadcast, folder, console, interrupt)
        joined: Measured | None = None
        if settings.compare:
            text = "the same join as Spark users write it today, on a slice of the same rows"
            with waiting(console, f"{text}: at most {_JOIN_SECONDS:.0f} s"):
                joined = measure_constant_key_join(
                    spark,
                    newsroom,
                    broadcast,
                    folder / "join",
                    rows=_JOIN_ROWS,
                    seconds=_JOIN_SECONDS,
                    idle=interrupt.check,
                )
    verdict = Verdict(broadcast, newsroom.window, streamed, joined)
    console.print()
    console.print(verdict)
    return 0 if verdict.good else 1


def _stream(
    board: Board,
    spark: SparkSession,
    settings: DemoSettings,
    newsroom: Newsroom,
    broadcast: Broadcast,
    folder: Path,
    console: Console,
    interrupt: Interrupt,
) -> Streamed:
    """Correlate the channels until everything sent has been processed."""
    folders = (folder / "left", folder / "right")
    for each in folders:
        each.mkdir()
    left, right = (spark.readStream.schema(_SCHEMA).parquet(str(each)) for each in folders)
    pairs = correlate(
        left,
        right,
        where=cosine("v") >= newsroom.threshold,
        window=f"{newsroom.window:g} seconds",
        watermark=f"{newsroom.late:g} seconds",
        keep=["title"],
    )
    told = board.show(pairs, "stories").select(
        "left_id",
        "right_id",
        "left_title",
        "right_title",
        "score",
        F.date_format("ts", "HH:mm:ss").alias("clock"),
        ((F.unix_micros("right_ts") - F.unix_micros("left_ts")) / 1e6).alias("gap"),
    )
    writer = LiveWriter(broadcast, folders, settings.speed)
    query = (
        told.writeStream.format("memory")
        .queryName(_SINK)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        writer.start()
        status = _Status(BatchTable(keep=1), writer)
        with _screen(console, status):
            return _follow(spark, query, status, console, interrupt)
    finally:
        # What ended the stream is worth more than how it stopped.
        with waiting(console, "stopping the query"), suppress(Exception):
            writer.stop()
            query.stop()


def _follow(
    spark: SparkSession,
    query: Any,
    status: _Status,
    console: Console,
    interrupt: Interrupt,
) -> Streamed:
    """Show what the query finds until every row that was sent has been through it."""
    done, table, writer = status.done, status.table, status.writer
    began = latest = time.monotonic()
    while done.rows < writer.broadcast.rows:
        interrupt.check()
        if writer.error is not None:
            raise DemoFailed(f"the rows could not be written: {writer.error}")
        warm = table.count > 0
        if fresh := table.update(query):
            latest = time.monotonic()
            if not warm:
                began = latest
                writer.go()
            else:
                done.compared += sum(figures["comparisons"] for figures in fresh)
            done.seconds = latest - began
            done.rows, done.late = table.total["rows_in"], table.total["late_rows"]
            done.comparisons = table.total["comparisons"]
            if not warm and not console.is_terminal:
                console.print("on air", soft_wrap=True)
            # A batch is in the sink before it is in the progress reports.
            for row in spark.table(_SINK).collect()[len(done.found) :]:
                if not done.found:
                    console.print(_STORY_HEADING, style="dim", soft_wrap=True)
                done.found.append((row["left_id"], row["right_id"]))
                console.print(_story(row), soft_wrap=not console.is_terminal, no_wrap=True)
        elif not query.isActive:
            error = query.exception()
            raise DemoFailed(f"the query ended: {brief(error) if error else 'without an error'}")
        elif time.monotonic() - latest > _STALLED_SECONDS:
            raise DemoFailed(f"no batch finished in {_STALLED_SECONDS:.0f} s")
        interrupt.asked.wait(0.2)
    return done


class _Status:
    """The one line that is redrawn in place: what is waited for, then how far the stream is."""

    def __init__(self, table: BatchTable, writer: LiveWriter) -> None:
        self.table = table
        self.writer = writer
        self.done = Streamed()
        self._spinner = Spinner("dots", f"{STARTING} ...")

    @property
    def line(self) -> str:
        """Rows, comparisons and finds so far."""
        sent, done = self.writer.broadcast.rows, self.done
        rate = f", {count(done.compared / done.seconds)}/s" if done.seconds else ""
        return (
            f"on air: {self.writer.rows / sent:4.0%} sent, {done.rows / sent:4.0%} compared, "
            f"{count(done.comparisons)} comparisons{rate}, {len(done.found)} stories found"
        )

    def __rich__(self) -> RenderableType:
        return Text(self.line, style="dim") if self.table.count else self._spinner


def _story(row: Row) -> Text:
    """One line of at most 80 characters: when, how alike, who first, how much later who else."""
    first, second = (0, 1) if row["gap"] >= 0 else (1, 0)
    titles = (row["left_title"], row["right_title"])
    later = f"+{abs(row['gap']):.1f} s"
    return Text.assemble(
        (row["clock"], "dim"),
        (f" {row['score']:.3f} ", "bold green"),
        f"{CHANNELS[first]} ",
        (f"{titles[first]:<22}", "bold"),
        f"{later:>8} {CHANNELS[second]} ",
        (titles[second], "bold"),
    )


def _introduce(
    settings: DemoSettings, newsroom: Newsroom, broadcast: Broadcast, console: Console
) -> None:
    left, right = broadcast.channels
    share = (left.out_of_order * len(left) + right.out_of_order * len(right)) / broadcast.rows
    console.print(
        f"Two news channels: {CHANNELS[0]} sends {len(left):,} key frames, {CHANNELS[1]} "
        f"{len(right):,}, of {left.v.shape[1]} features.\n{newsroom.duration:.0f} s of stream "
        f"time are played in {settings.seconds:g} s; {share:.0%} of the rows come out of order.\n"
        f"Which stories do both channels tell within {newsroom.window:g} s of each other?\n"
    )
    console.print(
        f'  ab.correlate(north, south, where=ab.cosine("v") >= {newsroom.threshold},\n'
        f'               window="{newsroom.window:g} seconds", '
        f'watermark="{newsroom.late:g} seconds", keep=["title"])\n',
        style="cyan",
        markup=False,
    )


@contextmanager
def _screen(console: Console, status: _Status) -> Iterator[None]:
    if console.is_terminal:
        with Live(status, console=console, refresh_per_second=8):
            yield
    else:
        console.print(f"{STARTING} ...", soft_wrap=True)
        yield
        console.print(status.line, soft_wrap=True)
