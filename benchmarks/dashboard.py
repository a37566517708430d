"""What a board costs the query that it shows: trigger time without, with one, with 20 open pages.

::

    python -m benchmarks.dashboard [--batches 12] [--rounds 3] [--pages 20] [--points 1000]

The same rows, in the same micro-batches, are correlated in turns under no board, under a board
that nobody looks at, and under one whose pages are all open. The query has a plan log, and the
board already remembers another one of 1,000 micro-batches under the same log, so that it has as
much to read and to say as after hours. Besides, the driver's own work of a micro-batch is timed
alone, by the clock of the process: it is so small that trigger times, which vary by several per
cent from run to run, hardly show it. Writes benchmarks/results/dashboard.json.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.flow.announced import Announced, announce
from anabranch.flow.load import Load
from anabranch.flow.metrics import seconds_of
from anabranch.plans.log import Entry, PlanLog
from anabranch.spark.dashboard.board import Board
from benchmarks.measuring import Row, Screen, machine, ratio

RESULT = Path(__file__).parent / "results" / "dashboard.json"
ROWS, WIDTH, SECOND = 2000, 64, 1_000_000
START = 1_700_000_000 * SECOND
SCHEMA = "id long, ts timestamp, v array<float>"


def write_inputs(folder: Path, batches: int) -> None:
    """One file per side and micro-batch."""
    random = np.random.default_rng(1)
    for side in ("left", "right"):
        (folder / side).mkdir(parents=True)
        for batch in range(batches):
            times = START + batch * SECOND + np.arange(ROWS) * (SECOND // ROWS)
            vectors = random.standard_normal((ROWS, WIDTH)).astype(np.float32)
            table = pa.table(
                {
                    "id": np.arange(ROWS) + batch * ROWS,
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "v": pa.array(list(vectors), pa.list_(pa.float32())),
                }
            )
            pq.write_table(table, folder / side / f"{batch:05d}.parquet")


@contextmanager
def pages(board: Board, count: int) -> Iterator[list[int]]:
    """So many open pages, each of which reads all that it is sent; how many messages each got."""
    host, port = board._server.server_address[:2]
    sockets = [socket.create_connection((str(host), port)) for _ in range(count)]
    got = [0] * count

    def read(number: int) -> None:
        for line in sockets[number].makefile("rb"):
            got[number] += line.startswith(b"data: ")

    threads = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(count)]
    for connection, thread in zip(sockets, threads, strict=True):
        connection.sendall(b"GET /events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        thread.start()
    try:
        yield got
    finally:
        for connection in sockets:
            connection.close()


def remember(board: Board, points: int, control: Path) -> None:
    """Let a board have heard of so many micro-batches of a query with a plan log."""
    log = PlanLog(str(control))
    log.begin(ab.grid(1, 2))
    for epoch in range(1, 20):
        plan = ab.grid(1, 2) if epoch % 2 else ab.broadcast(2)
        log.write(Entry(epoch, epoch, plan, 10 * epoch, (epoch,), {}))
    name = "anabranch_correlate_0ld0"
    call = Announced("Pairs", ab.grid(1, 2), (SECOND, SECOND), SECOND, str(control))
    announce(name, call)
    for batch in range(points):
        loads = [Load(n, rows_left=ROWS, comparisons=ROWS**2, pairs=3).to_json() for n in (0, 1)]
        board._feed.progressed(
            SimpleNamespace(
                id="remembered",
                runId="run",
                name="remembered",
                batchId=batch,
                timestamp=datetime.fromtimestamp(START / SECOND + batch, UTC).isoformat(),
                durationMs={"triggerExecution": 500},
                eventTime={},
                sources=[],
                stateOperators=[],
                observedMetrics={name: {"load": loads}},
            )
        )
    board._take_in()


def run(spark: SparkSession, inputs: Path, board: Board | None) -> list[float]:
    """Trigger seconds of the micro-batches of a run, without the first two."""
    left, right = (
        spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(inputs / side))
        for side in ("left", "right")
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = f"{folder}/checkpoint"
        pairs = ab.correlate(
            left,
            right,
            where=ab.cosine("v") >= 0.55,
            window="4 seconds",
            watermark="1 second",
            plan=ab.grid(1, 2),
            control=f"{folder}/control",
        )
        if board is not None:
            pairs = board.show(pairs)
        query = (
            pairs.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [seconds_of(p) for p in query.recentProgress if p.batchId > 1 and p.numInputRows]


def own_work(board: Board, progress: Any, got: list[int], times: int = 100) -> float:
    """Seconds of one core that a micro-batch takes: heard of, encoded, sent to all open pages.

    Too much rather than too little: the readers of the messages are in this process too.
    """
    names = "id runId name timestamp durationMs eventTime sources stateOperators observedMetrics"
    of = {name: getattr(progress, name) for name in names.split()}
    reports = [SimpleNamespace(**of, batchId=progress.batchId + 1 + n) for n in range(times)]
    began = time.process_time()
    for report in reports:
        before = min(got)
        board._feed.progressed(report)
        board._take_in()
        board._channel.publish(board._message())
        while min(got) == before:
            time.sleep(0.002)
    return (time.process_time() - began) / times


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--points", type=int, default=1000)
    asked = parser.parse_args()
    screen = Screen()
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder.getOrCreate(), workers=2)
    spark.sparkContext.setLogLevel("OFF")
    times: dict[str, list[list[float]]] = {"alone": [], "board": [], "pages": []}
    messages, work = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "in"
        write_inputs(inputs, asked.batches)
        screen.step("warm up")
        run(spark, inputs, None)
        for number in range(asked.rounds):
            for name in times:
                screen.step(f"round {number + 1} of {asked.rounds}: {name}")
                with ab.dashboard(spark) if name != "alone" else nullcontext() as board:
                    if board is not None:
                        remember(board, asked.points, Path(folder) / f"log{number}{name}")
                    if name == "pages" and board is not None:
                        with pages(board, asked.pages) as got:
                            times[name].append(run(spark, inputs, board))
                            messages += min(got)
                            query = list(board._feed.queries.values())[-1]
                            work = own_work(board, query.handle.recentProgress[-1], got)
                    else:
                        times[name].append(run(spark, inputs, board))
    spark.stop()
    usual = statistics.median(statistics.median(t) for t in times["alone"])
    medians = {name: [statistics.median(t) for t in runs] for name, runs in times.items()}
    add = screen.add
    add(Row("trigger", "a micro-batch without a board", usual, "s"))
    add(Row("trigger", "with a board, by without", ratio(medians["board"], medians["alone"])))
    what = f"with {asked.pages} pages open, by without"
    add(Row("trigger", what, ratio(medians["pages"], medians["alone"]), "", 1.02, at_most=True))
    add(Row("driver", "a micro-batch, all pages open", work * 1000, "ms of one core"))
    add(Row("driver", "the same by trigger time", work / usual, "", 0.02, at_most=True))
    add(Row("driver", "messages that every page got", messages / asked.rounds, "per run"))
    screen.table("What a board costs")
    result = {
        "machine": machine(),
        "asked": vars(asked),
        "rows": [r.to_dict() for r in screen.rows],
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
