"""``anabranch news``: which stories do three channels of real video tell, while they are on air?

Recorded channels appear segment by segment. One query decodes them, finds shots, keeps their key
frames in a folder, correlates them, and makes topics of the pairs. What it finds is compared with
the timetable. Captions are read, and concepts found, where their extras are installed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from anabranch import video
from anabranch.predicates import cosine
from anabranch.spark.correlate import correlate
from anabranch.spark.dashboard.board import Board, dashboard
from anabranch.spark.demo.reading import Readers, readers
from anabranch.spark.demo.stage import DemoFailed, open_page, session, waiting
from anabranch.spark.settings import configure
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
    so_far,
)
from anabranch.video.showing import as_shown, thumb
from anabranch.video.studio import recorded
from anabranch.video.truth import truth

__all__ = ["NewsSettings", "run_news"]

_THRESHOLD = 0.6  # cosine of layouts; the most alike of different scenes here have 0.50
_STALLED_SECONDS = 240.0
_MOST_STARTS = 4
# Spark does little here, and nothing for long: to compile that well takes longer than it lasts, and
# in the first minute more of the processors than all else.
_JAVA = "-XX:TieredStopAtLevel=1"
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
    plain: bool = False


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
    of = Readers() if settings.plain else readers()
    console.print(of.said, soft_wrap=True)
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
        session(settings.workers, folder, log, console, interrupt, _JAVA) as spark,
        dashboard(spark) as board,
    ):
        # A few key frames a second: more tasks would only cost their own time.
        configure(spark, workers=1)
        if settings.page:
            open_page(board.url, console)
        airing = Airing(segments, folder / "air", settings.speed)
        show = _Show(spark, plan, airing, folder, board, of)
        with show.running():
            show.follow(interrupt, console)
        verdict = show.verdict()
    _report(plan, verdict, console)
    if settings.out is not None:
        asked = {name: getattr(settings, name) for name in ("seed", "seconds", "speed", "workers")}
        told = {**asked, "read": of.names, **verdict.to_dict(), "truth": truth(plan)}
        settings.out.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if verdict.problems else 0


class _Show:
    """The query, what it has found so far, and the page that shows it."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Programme,
        airing: Airing,
        folder: Path,
        board: Board,
        of: Readers,
    ) -> None:
        self.spark, self.plan, self.airing = spark, plan, airing
        self.folder, self.board, self.readers = folder, board, of
        self.present = Present()
        self.keys: dict[str, Any] = {}
        # How long after its segments, and after its last frame, two key frames were in one topic on
        # the page; None if those were there before the clock started.
        self.waited: dict[frozenset[str], tuple[float, float] | None] = {}
        self.ages: dict[str, float] = {}  # of each topic on the page, when it was first there
        self._events = 0
        self._query: Any = None
        self._topics: Any = None
        self._batches: dict[int, list[Any]] = {}  # events of topics by micro-batch
        self._looked = 0  # at so many micro-batches
        self._read: set[str] = set()  # files of key frames
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the query and put the channels on air; stop both in the end."""
        self.airing.start()
        while not self.airing.sent and self.airing.error is None:
            time.sleep(0.05)
        try:
            self._topics = self._plan()
            self._start()
            yield
        finally:
            self.airing.stop()
            with suppress(Exception):
                self._query.stop()

    def _start(self) -> None:
        """Start the query, or start it again from its checkpoint.

        Topics come here, so that to look at them takes none of the cores that the query uses.
        """
        self._starts += 1
        writer = self._topics.writeStream.queryName("topics").foreachBatch(self._take)
        self._query = writer.option("checkpointLocation", str(self.folder / "state")).start()

    def _take(self, batch: Any, number: int) -> None:
        """Keep the events of a micro-batch; of one that is repeated, those of the last time."""
        self._batches[number] = batch.collect()

    def _plan(self) -> Any:
        frames = video.frames(
            self.spark, str(self.folder / "air"), picture=self.readers.picture, closed="all"
        )
        found = video.shots(frames).select("id", "channel", "ts", "features", "picture")
        keys = self.readers.described(video.archive(found, self.folder / "keys")).drop("picture")
        window, again = self.plan.window // SECOND, AGAIN // SECOND
        pairs = correlate(
            keys.filter("exists(features, x -> x != 0)"),  # black frames have no direction
            where=cosine("features") >= _THRESHOLD,
            window=f"{max(window, again)} seconds",
            watermark="10 seconds",
            keep=["channel", *self.readers.names],
        )
        # Within a channel they are repetitions, and count if they are soon enough.
        longest = "make_dt_interval(0, 0, 0, IF(left_channel = right_channel, {}, {}))"
        return video.topics(
            pairs.filter(f"right_ts - left_ts <= {longest.format(again, window)}"),
            near=f"{self.plan.near // SECOND} seconds",
            gap=f"{self.plan.gap // SECOND} seconds",
            alone=_THRESHOLD,  # every pair is told, so that each can be scored
            live=True,
        )

    def follow(self, interrupt: Interrupt, console: Console) -> None:
        """Show what is found until everything sent has been through the query."""
        began = time.monotonic()
        while not self._batches:
            self._check(interrupt)
            if time.monotonic() - began > _STALLED_SECONDS:
                raise DemoFailed(f"no micro-batch ended in {_STALLED_SECONDS:.0f} s")
            interrupt.asked.wait(0.2)
        self.airing.go()
        console.print("on air", soft_wrap=True)
        while self.airing.sent < self.airing.total:
            self._check(interrupt)
            self._look(console)
            interrupt.asked.wait(0.02)
        while not self._drained(console):
            self._check(interrupt)
        self._look(console)

    def _drained(self, console: Console) -> bool:
        """Show what is found until the query has processed all; False if it ends before."""
        with ThreadPoolExecutor(1) as thread:
            rest = thread.submit(self._query.processAllAvailable)
            while not rest.done():
                self._look(console)
                time.sleep(0.02)
        return rest.exception() is None  # if it has ended, the check says why

    def _check(self, interrupt: Interrupt) -> None:
        interrupt.check()
        if self.airing.error is not None:
            raise DemoFailed(f"the segments could not be written: {self.airing.error}")
        if not self._query.isActive:
            error = str(self._query.exception())
            # On a busy machine a Python worker may need longer than the 10 s that it is given.
            if "failed to connect back" not in error or self._starts >= _MOST_STARTS:
                raise DemoFailed(f"the query ended: {error}")
            self._start()

    def _look(self, console: Console) -> None:
        """Take in new events of topics, and show them."""
        if self._looked == len(self._batches):
            return
        self._looked = len(self._batches)
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
        came = (row for number in sorted(self._batches) for row in self._batches[number])
        shown = self.present.foreseen(row.asDict() for row in came if row["provisional"])
        if shown.latest:
            self._fetch_keys(shown)
            self._measure(shown)
            note = so_far(self.plan, self._found(), self.airing.closed_until)
            self.board.topics(as_shown(shown, self.keys, self._ages(shown)), note=note)

    def _measure(self, shown: Present) -> None:
        """How long it took for key frames that are in one topic on the page for the first time."""
        for rows in shown.rows.values():
            for pair in map(frozenset, combinations(rows, 2)):
                if pair not in self.waited:
                    closed = self.airing.since_closed(pair)
                    t = max(int(self.keys[key]["ts"].timestamp() * SECOND) for key in pair)
                    aired = self.airing.since_aired(t)
                    self.waited[pair] = None if closed is None else (closed, aired)

    def _ages(self, shown: Present) -> dict[str, float]:
        """How long after its segments each topic was on the page with its first pair."""
        found = {}
        for name, rows in shown.rows.items():
            known = (self.waited.get(frozenset(pair)) for pair in combinations(rows, 2))
            ages = [waited[0] for waited in known if waited is not None]
            if ages:
                found[name] = self.ages.setdefault(name, min(ages))
        return found

    def _found(self) -> list[tuple[Seen, Seen]]:
        """Pairs of known key frames that any topic has been told to have, provisional or not."""
        rows = (row for row in self._told() if row["event"] != "closed")
        named = dict.fromkeys((row["left_id"], row["right_id"]) for row in rows)
        known = (ids for ids in named if set(ids) <= self.keys.keys())
        return [(self._seen(one), self._seen(other)) for one, other in known]

    def _seen(self, key: str) -> Seen:
        row = self.keys[key]
        return Seen(key, row["channel"], int(row["ts"].timestamp() * SECOND))

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
            rows = pq.read_table(path, columns=["id", "channel", "ts", "picture"]).to_pylist()
            self.keys |= {row["id"]: {**row, "picture": thumb(row["picture"])} for row in rows}
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
        waited = [
            found
            for one, other in pairs
            if (found := self.waited.get(frozenset((one.id, other.id)))) is not None
        ]
        return Verdict(
            score_shots(self.plan, keys.values()),
            score_pairs(self.plan, pairs),
            score_topics(self.plan, self.present.rows.values(), keys),
            [closed for closed, _ in waited],
            [aired for _, aired in waited],
        )


def _report(plan: Programme, verdict: Verdict, console: Console) -> None:
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
        since = {"segment closed": verdict.waited, "frame was on air": verdict.aired}
        for what, waited in since.items():
            console.print(
                f"A topic had a pair on the page {percentile(waited, 50):.1f} s after its last "
                f"{what} in the median of {len(waited)}, {percentile(waited, 95):.1f} s in 95 of "
                "100.",
                soft_wrap=True,
            )
    console.print(
        f"Not due: {len(plan.far)} pairs farther apart than the window, any match false; "
        f"and {len(plan.ruined)} of ruined footage, {verdict.pairs.apart} found.",
        soft_wrap=True,
    )
    for line in (verdict.pairs.wrong + verdict.topics.wrong + verdict.shots.wrong)[:20]:
        console.print(f"  {line}", markup=False)
    for line in verdict.problems:
        console.print(f"Not good enough: {line}.", style="red", markup=False)
