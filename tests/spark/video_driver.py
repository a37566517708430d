"""A driver for tests that kill it: frames, key frames or topics into an exactly-once folder.

``--what news`` is the one query of the page: key frames are archived in ``keyframes`` while they
pass, and their topics come out.

Usage: ``python video_driver.py FOLDER [--what keys] [--hold BATCH] [--worker 1,4] [--executor 2]``.
It reads ``channels``, or ``left`` for topics, writes ``out`` and keeps ``out.checkpoint``. With
``--hold`` it stops in the middle of that micro-batch, when frames have been decoded and nothing is
written, makes the file ``reached`` and waits to be killed. In the other batches that are named, the
task that has decoded a segment kills the Python processes that it runs in, or its executor, with
which ``--master`` must start executors of their own. Each is killed once,
and says so with a file ``killed-...``. ``--written`` holds behind what the sink has written and
before the micro-batch is committed. ``--strike worker:pairs:3`` kills at a point of the news: when
a segment has been decoded (``frames``), when a task has archived its key frames (``keys``), or when
it has found its pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

import anabranch as ab
from tests.spark.feeds import Feed
from tests.spark.sessions import new_session
from tests.video.test_topics_on_spark import topics


def killing(folder: Path, kind: str, batches: list[str]) -> Callable[[Any], Iterator[Any]]:
    """A function of ``mapInArrow`` that kills what it runs in, once in each of these batches."""

    def passed(rows: Any) -> Iterator[Any]:
        for batch in rows:
            task = TaskContext.get()
            number = task.getLocalProperty("streaming.sql.batchId") if task else None
            if batch.num_rows and number in batches:
                try:
                    (folder / f"killed-{kind}-{number}").touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    _kill(kind)
            yield batch

    return passed


def striking(folder: Path, strikes: dict[str, str]) -> Callable[[Any], Iterator[Any]]:
    """The same behind all rows of a task, which may be none: what to kill by micro-batch."""

    def passed(rows: Any) -> Iterator[Any]:
        yield from rows
        task = TaskContext.get()
        number = (task.getLocalProperty("streaming.sql.batchId") if task else None) or ""
        if number in strikes:
            try:
                (folder / f"killed-{strikes[number]}-{number}").touch(exist_ok=False)
            except FileExistsError:
                return
            _kill(strikes[number])

    return passed


def _kill(kind: str) -> None:
    """SIGKILL to the executor, or to the Python processes of its tasks, this one last."""
    daemon = os.getppid()
    if kind == "executor":
        os.kill(_parent(daemon), signal.SIGKILL)
        time.sleep(60)  # it ends with its executor
    others = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
    for pid in others:
        if pid != os.getpid() and _parent(pid) == daemon:
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it has ended meanwhile


def found(spark: Any, given: argparse.Namespace) -> Any:
    """What is asked for, as a stream."""
    killers = [("worker", given.worker), ("executor", given.executor)]

    def lethal(rows: Any) -> Any:
        for kind, batches in killers:
            once = killing(given.folder, kind, batches.split(","))
            rows = rows.mapInArrow(once, rows.schema)
        return rows

    if given.what == "topics":
        return topics(lethal(Feed(given.folder).streams(spark)[0]), watermark="3 seconds")

    def struck(rows: Any, point: str) -> Any:
        parted = (strike.split(":") for strike in given.strike.split(",") if strike)
        strikes = {batch: kind for kind, where, batch in parted if where == point}
        return rows.mapInArrow(striking(given.folder, strikes), rows.schema) if strikes else rows

    path, start = str(given.folder / "channels"), "2024-05-01"
    frames = ab.video.frames(spark, path, start=start, closed="all", max_files=1, picture=None)
    decoded = lethal(frames)
    if given.what == "news":
        return news(decoded, given.folder / "keyframes", struck, watermark="2 seconds")
    return ab.video.shots(decoded) if given.what == "keys" else decoded.select("id", "ts", "sig")


def untouched(rows: Any, point: str) -> Any:
    """The same rows."""
    return rows


def news(
    frames: Any,
    archive: Path | None = None,
    at: Callable[[Any, str], Any] = untouched,
    **watermark: str,
) -> Any:
    """Topics of frames; their key frames are archived on the way; `at` is done at each point."""
    keys = ab.video.shots(at(frames, "frames")).select("id", "channel", "ts", "features")
    kept = keys if archive is None else ab.video.archive(keys, archive)
    kept = at(kept, "keys")
    alike = ab.cosine("features") >= 0.9
    pairs = ab.correlate(kept, where=alike, window="5 s", keep=["channel"], **watermark)
    return ab.video.topics(at(pairs, "pairs"), near="2 s", gap="5 s", live=bool(watermark))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--what", choices=("frames", "keys", "topics", "news"), default="keys")
    parser.add_argument("--hold", type=int, default=-1)
    parser.add_argument("--worker", default="")
    parser.add_argument("--executor", default="")
    parser.add_argument("--strike", default="")
    parser.add_argument("--written", action="store_true")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    spark = new_session(given.folder, master=given.master)
    spark.sparkContext.setLogLevel("OFF")
    sink = ab.sinks.parquet(str(given.folder / "out"), app="keys", via="driver")

    def hold() -> None:
        (given.folder / "reached").touch()
        while True:
            time.sleep(1)

    def write(rows: Any, batch: int) -> None:
        if batch == given.hold and not given.written:
            rows.count()
            hold()
        sink(rows, batch)
        if batch == given.hold:
            hold()

    query = (
        found(spark, given)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(given.folder / "out.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"batches": len(query.recentProgress)}))


if __name__ == "__main__":
    main()
