"""``anabranch news``: which stories do three channels of real video tell, while they are on air?

Recorded channels appear segment by segment. One query decodes them, finds shots and keeps their key
frames in a table. Another reads that, correlates key frames of different channels, and makes topics
of the pairs. What they find is compared with the timetable.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from anabranch import video
from anabranch.predicates import cosine, differs, same
from anabranch.spark.correlate import correlate
from anabranch.spark.dashboard.board import Board, dashboard
from anabranch.spark.demo.stage import DemoFailed, open_page, session, waiting
from anabranch.spark.watch import Interrupt
from anabranch.spark.watch_batches import brief
from anabranch.video.airing import Airing
from anabranch.video.channels import AGAIN, SECOND, Programme, programme
from anabranch.video.clips import fetch, licences
from anabranch.video.scoring import (
    Present,
    Seen,
    Verdict,
    percentile,
    score_pairs,
    score_shots,
    score_topics,
)
from anabranch.video.studio import recorded

__all__ = ["NewsSettings", "run_news"]

_THRESHOLD = 0.6  # cosine of layouts; the most alike of different scenes here have 0.52
_STALLED_SECONDS = 240.0
_MOST_STARTS = 6  # of both queries together
_KEYS = "id string, channel string, ts timestamp, features array<float>, picture binary"


@dataclass(frozen=True)
class NewsSettings:
    """The knobs of ``anabranch news``; its help says what they mean."""

    seconds: float = 96
    speed: float = 2
    seed: int = 7
    workers: int = 2
    page: bool = True
    keep_files: bool = False
    out: Path | None = None


def run_news(settings: NewsSettings, console: Console | None = None) -> int:
    """Run it and return the exit code: 0 if it found what it must and nothing else, 1 if not."""
    console = console or Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="anabranch-news-"))
    log = folder / "spark.log"
    kept = settings.keep_files
    try:
        return _play(settings, folder, log, console)
    except KeyboardInterrupt:
        console.print("Stopped: the queries and Spark have ended.")
        return 130
    except Exception as error:
        kept = True
        with log.open("a") as file:
            traceback.print_exc(file=file)
        console.print(f"The news failed: {brief(error)}", style="red", markup=False, soft_wrap=True)
        return 1
    finally:
        if kept:
            console.print(f"Files and Spark's log are in {folder}", markup=False, soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _play(settings: NewsSettings, folder: Path, log: Path, console: Console) -> int:
    plan = programme(settings.seed, settings.seconds)
    with waiting(console, "fetching real clips, once"):
        fetch(plan.clips)
    for line in licences(plan.clips):
        console.print(f"  {line}", style="dim", markup=False, soft_wrap=True)
    with waiting(console, "recording three channels, once"):
        segments = recorded(plan)
    console.print(
        f"{len(plan.shots)} shots on {len(segments)} channels in {settings.seconds:g} s; "
        f"{len(plan.pairs)} pairs of shots and {len(plan.topics)} topics are due."
    )
    with (
        Interrupt() as interrupt,
        session(settings.workers, folder, log, console, interrupt) as spark,
        dashboard(spark) as board,
    ):
        if settings.page:
            open_page(board.url, console)
        show = _Show(spark, plan, Airing(segments, folder / "air", settings.speed), folder, board)
        with show.running():
            show.follow(interrupt, console)
        verdict = show.verdict()
    _report(verdict, console)
    if settings.out is not None:
        asked = {name: getattr(settings, name) for name in ("seed", "seconds", "speed", "workers")}
        settings.out.write_text(json.dumps({**asked, **verdict.to_dict()}, indent=1) + "\n")
    return 1 if verdict.problems else 0


class _Show:
    """Two queries, what they have found so far, and the page that shows it."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Programme,
        airing: Airing,
        folder: Path,
        board: Board,
    ) -> None:
        self.spark, self.plan, self.airing = spark, plan, airing
        self.folder, self.board = folder, board
        self.present = Present()
        self.keys: dict[str, Any] = {}
        self.waited: dict[frozenset[str], float] = {}  # of pairs, until topics on the page had them
        self._events = 0
        self._on_page: set[frozenset[str]] = set()
        self._queries: dict[str, Any] = {}
        self._frames: dict[str, Any] = {}
        self._batches: dict[int, list[Any]] = {}  # events of topics by micro-batch
        self._read: set[str] = set()  # files of key frames
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the queries and put the channels on air; stop both in the end."""
        self.airing.start()
        while not self.airing.sent and self.airing.error is None:
            time.sleep(0.05)
        try:
            (self.folder / "keys").mkdir()
            self._start("keys", self._keys())
            self._start("topics", self._topics())
            yield
        finally:
            self.airing.stop()
            for query in self._queries.values():
                with suppress(Exception):
                    query.stop()

    def _start(self, name: str, frame: Any) -> None:
        """Start a query, or start it again from its checkpoint.

        Key frames go into files, which the other query reads. Topics come here, so that to look at
        them takes none of the cores that the queries share.
        """
        self._frames[name] = frame
        self._starts += 1
        writer = frame.writeStream.queryName(name).option(
            "checkpointLocation", str(self.folder / f"{name}.state")
        )
        if name == "keys":
            self._queries[name] = writer.format("parquet").start(str(self.folder / name))
        else:
            self._queries[name] = writer.foreachBatch(self._take).start()

    def _take(self, batch: Any, number: int) -> None:
        """Keep the events of a micro-batch; of one that is repeated, those of the last time."""
        self._batches[number] = batch.collect()

    def _keys(self) -> Any:
        frames = video.frames(
            self.spark, str(self.folder / "air"), picture=(256, 144), closed="all"
        )
        return video.shots(frames).select("id", "channel", "ts", "features", "picture")

    def _topics(self) -> Any:
        keys = self.spark.readStream.schema(_KEYS).parquet(str(self.folder / "keys"))
        # Black frames have no direction.
        lively = keys.filter("exists(features, x -> x != 0)")
        alike = cosine("features") >= _THRESHOLD
        call: dict[str, Any] = {"watermark": "10 seconds", "keep": ["channel"]}
        window = f"{self.plan.window // SECOND} seconds"
        pairs = correlate(lively, where=alike & differs("channel"), window=window, **call)
        window = f"{AGAIN // SECOND} seconds"
        repeats = correlate(lively, where=alike & same("channel"), window=window, **call)
        topics = video.topics(
            pairs,
            near=f"{self.plan.near // SECOND} seconds",
            gap=f"{self.plan.gap // SECOND} seconds",
            repeats=repeats,
            alone=_THRESHOLD,  # every pair is told, so that each can be scored
            live=True,
        )
        return topics

    def follow(self, interrupt: Interrupt, console: Console) -> None:
        """Show what is found until everything sent has been through all queries."""
        began = time.monotonic()
        while not any((self.folder / "keys").glob("*.parquet")):
            self._check(interrupt)
            if time.monotonic() - began > _STALLED_SECONDS:
                raise DemoFailed(f"no key frame was found in {_STALLED_SECONDS:.0f} s")
            interrupt.asked.wait(0.2)
        self.airing.go()
        console.print("on air", soft_wrap=True)
        while self.airing.sent < self.airing.total:
            self._check(interrupt)
            self._look(console)
            interrupt.asked.wait(0.5)
        for name in self._queries:
            while True:
                with suppress(Exception):  # if it has ended, the check says why
                    self._queries[name].processAllAvailable()
                    break
                self._check(interrupt)
        self._look(console)

    def _check(self, interrupt: Interrupt) -> None:
        interrupt.check()
        if self.airing.error is not None:
            raise DemoFailed(f"the segments could not be written: {self.airing.error}")
        for name, query in list(self._queries.items()):
            if not query.isActive:
                error = str(query.exception())
                # On a busy machine a Python worker may need longer than the 10 s that it is given.
                if "failed to connect back" not in error or self._starts >= _MOST_STARTS:
                    raise DemoFailed(f"the query {name} ended: {error}")
                self._start(name, self._frames[name])

    def _look(self, console: Console) -> None:
        """Take in new events of topics, and show them."""
        told = self._told()
        final = [row for row in told if not row["provisional"]]
        fresh = final[self._events :]
        self._events += len(fresh)
        for row in fresh:
            event = row.asDict()
            self.present.take_in(event)
            if event["event"] in ("opened", "closed"):
                console.print(
                    f"{event['ts']:%H:%M:%S} {event['event']:<7}topic on "
                    f"{', '.join(event['channels'])}: {event['shots']} shots, best "
                    f"{event['score']:.2f}",
                    markup=False,
                    soft_wrap=True,
                )
        shown = self._shown(told)
        if shown.latest:
            self._fetch_keys(shown)
            self.board.topics(_as_shown(shown, self.keys))
            self._measure(told)

    def _measure(self, told: list[Any]) -> None:
        """How long it took for pairs that are on the page now for the first time."""
        pairs = {
            frozenset((row["left_id"], row["right_id"]))
            for row in told
            if row["event"] in ("opened", "grew")
        }
        for pair in pairs - self._on_page:
            waited = self.airing.since_closed(pair)
            if waited is not None:
                self.waited[pair] = waited
        self._on_page |= pairs

    def _shown(self, told: list[Any]) -> Present:
        """Final topics, and provisional ones of key frames that are in none of those."""
        shown = Present()
        shown.latest, shown.rows = {**self.present.latest}, {**self.present.rows}
        known = {row for rows in self.present.rows.values() for row in rows}
        for row in told:
            if row["provisional"] and not {row["left_id"], row["right_id"]} & known:
                shown.take_in(row.asDict())
        return shown

    def _told(self) -> list[Any]:
        """All events so far, in their order."""
        rows = [row for number in sorted(self._batches) for row in self._batches[number]]
        return sorted(rows, key=lambda row: (row["ts"], row["event"] == "closed", row["revision"]))

    def _fetch_keys(self, shown: Present) -> None:
        """Read what key frames show, if one of them is wanted."""
        if {row for rows in shown.rows.values() for row in rows} <= self.keys.keys():
            return
        for path in sorted((self.folder / "keys").glob("*.parquet")):
            if path.name in self._read:
                continue
            with suppress(pa.ArrowInvalid):  # Spark is writing it
                rows = pq.read_table(path, columns=["id", "channel", "ts", "picture"]).to_pylist()
                self.keys |= {row["id"]: row for row in rows}
                self._read.add(path.name)

    def verdict(self) -> Verdict:
        """Shots, pairs and topics, against the timetable."""
        table = self.spark.read.schema(_KEYS).parquet(str(self.folder / "keys"))
        rows = table.select("id", "channel", F.unix_micros("ts").alias("t")).collect()
        keys = {row["id"]: Seen(*row) for row in rows}
        pairs = [
            (keys[row["left_id"]], keys[row["right_id"]])
            for row in self._told()
            if row["event"] in ("opened", "grew") and not row["provisional"]
        ]
        return Verdict(
            score_shots(self.plan, keys.values()),
            score_pairs(self.plan, pairs),
            score_topics(self.plan, self.present.rows.values(), keys),
            [*self.waited.values()],
        )


def _as_shown(present: Present, keys: dict[str, Any]) -> list[dict[str, Any]]:
    """Topics as the page has them, hottest first: a row of pictures for each channel."""
    found = []
    for name, event in present.latest.items():
        rows = sorted(
            (keys[row] for row in present.rows[name] if row in keys), key=lambda row: row["ts"]
        )
        found.append(
            {
                "topic": name,
                "heat": event["heat"],
                "event": event["event"],
                "words": event["words"],
                "began": event["began"].timestamp(),
                "last": event["last"].timestamp(),
                "score": event["score"],
                "repeated": 2 * event["repeated"] >= event["shots"],
                "rows": [(row["channel"], row["ts"].timestamp(), row["picture"]) for row in rows],
            }
        )
    return sorted(found, key=lambda one: (one["event"] == "closed", -one["heat"]))


def _report(verdict: Verdict, console: Console) -> None:
    """What was found, how long it took, and what is wrong with it."""
    sheet = Table(box=None, padding=(0, 2))
    for name in ("", "found", "missed", "false", "twice"):
        sheet.add_column(name, justify="left" if not name else "right")
    told = {"shots": verdict.shots, "pairs of shots": verdict.pairs, "topics": verdict.topics}
    for name, tally in told.items():
        figures = (tally.found, tally.missed, tally.false, tally.twice)
        sheet.add_row(name, *map(str, figures))
    console.print(sheet)
    if verdict.waited:
        console.print(
            f"A topic had a pair on the page {percentile(verdict.waited, 50):.1f} s after its "
            f"last segment closed in the median of {len(verdict.waited)}, "
            f"{percentile(verdict.waited, 95):.1f} s in 95 of 100."
        )
    for line in (verdict.pairs.wrong + verdict.topics.wrong + verdict.shots.wrong)[:20]:
        console.print(f"  {line}", markup=False)
    for line in verdict.problems:
        console.print(f"Not good enough: {line}.", style="red", markup=False)
