"""Every streaming verb over a short feed, to be run when things go wrong.

``adverse.py FOLDER [VERB ...]`` runs all, or these.

The verbs share a session, and a few of their queries run at once. Whatever ends a query is printed
as the last line, by verb.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import anabranch as ab
from anabranch.placement.views import wishes_of
from anabranch.spark.follow_stream import follow_frames
from anabranch.spark.follow_tables import result_columns
from tests.correlation import twin
from tests.neighbours.runs import expected as neighbours
from tests.spark import emd_driver, events, follow_world
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import PATIENCE, SECOND, Feed, agree, found, happens, scripted
from tests.spark.follow_frames import recorded
from tests.spark.modes import MODES, batches_of
from tests.spark.nearest_feed import (
    closing,
    feed_of,
    fixed_queries,
    got,
    objects_in_batches,
    query_frame,
)
from tests.spark.sessions import new_session
from tests.spark.test_killed_modes import rows_of

QUERIES = fixed_queries()
LEARNED = ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms")
FILES = 6  # of frames
AT_ONCE = 3  # queries: the next one starts while another waits for its Python


@dataclass
class Story:
    """A feed, the call over its streams, and what must come out."""

    feed: Feed
    call: Callable[[Any], Any]
    check: Callable[[Any], None]


def correlate(folder: Path, shift: int = 0) -> Story:
    batches = [
        tuple([{**row, "t": row["t"] + shift} for row in side] for side in batch)
        for batch in scripted(5, rows=(15, 15), seed=31)
    ]
    feed = Feed(folder).add(batches)

    def call(spark: Any) -> Any:
        where, window = ab.cosine("v") >= 0.6, ("3 seconds", "2 seconds")
        plan = ab.broadcast(2) if ab.spark.settings.partitions(spark) > 1 else None
        return ab.correlate(
            *feed.streams(spark), where=where, window=window, watermark="3 seconds",
            plan=plan, keep=(["name"], []),
        )  # fmt: skip

    def check(spark: Any) -> None:
        want = twin.pairs_in_time(feed.taken(batches), SPANS, score, LATE)
        agree(found(feed.output(spark)), want)

    return Story(feed, call, check)


def nearest(folder: Path, shift: int = 0) -> Story:
    script = [*objects_in_batches(5, seed=33), [closing()]]
    objects = [[{**thing, "t": thing["t"] + shift} for thing in batch] for batch in script]
    feed = feed_of(folder, objects)

    def call(spark: Any) -> Any:
        asked = query_frame(spark, QUERIES)
        workers = min(2, ab.spark.settings.partitions(spark))
        return ab.nearest(
            feed.streams(spark)[1], asked, by="v", watermark="3 seconds", plan=ab.broadcast(workers)
        )

    def check(spark: Any) -> None:
        flat = [(thing["t"], thing["id"], thing["v"]) for batch in objects for thing in batch]
        end = objects[-1][0]["t"] - 3 * SECOND
        want = [hit for hit in neighbours(flat, QUERIES) if hit[3] <= end]
        assert len(want) > 50
        assert got(feed.output(spark)) == want

    return Story(feed, call, check)


def assemble(folder: Path, shift: int = 0) -> Story:
    batches = [
        tuple([{**row, "t": row["t"] + shift} for row in side] for side in batch)
        for batch in events.events(5, seed=34)
    ]
    feed = Feed(folder, (events.CALL, events.CALL), idle=True).add(batches)

    def call(spark: Any) -> Any:
        plan = ab.keyed(min(2, ab.spark.settings.partitions(spark)))
        return ab.assemble(
            feed.streams(spark), key=["page", "client"], keep=["service", "ms"], response="ms",
            close=LEARNED, watermark="1 second", plan=plan,
        )  # fmt: skip

    def check(spark: Any) -> None:
        buckets = min(2, ab.spark.settings.partitions(spark))
        want = events.expected(spark, feed.taken(batches), LEARNED, SECOND, buckets)
        events.alike(events.collected(feed.output(spark)), want)

    return Story(feed, call, check)


def emd(folder: Path, shift: int = 0) -> Story:
    batches = [
        tuple([{**row, "t": row["t"] + shift} for row in side] for side in batch)
        for batch in emd_driver.batches(5, rows=10, seed=35)
    ]
    feed = Feed(folder, (emd_driver.SCHEMA, emd_driver.SCHEMA)).add(batches)

    def call(spark: Any) -> Any:
        where = ab.emd("h", dim=emd_driver.BINS) <= emd_driver.THRESHOLD
        plan = ab.ranges(min(2, ab.spark.settings.partitions(spark)))
        return ab.correlate(
            *feed.streams(spark), where=where, window=("3 seconds", "2 seconds"),
            watermark="3 seconds", plan=plan,
        )  # fmt: skip

    def check(spark: Any) -> None:
        want = twin.pairs_in_time(feed.taken(batches), SPANS, emd_driver.score, LATE)
        got = found(feed.output(spark)).items()
        agree({pair: round(value, 9) for pair, value in got}, want)

    return Story(feed, call, check)


def follow(folder: Path, shift: int = 0) -> Story:
    """Frames as devices send them, while views move between these and the cloud."""
    rows = [{**row, "t": row["t"] + shift} for row in follow_world.rows()]
    feed = Feed(folder, idle=True)
    if not (folder / "frames").exists():  # by the test, for the driver that comes after
        hub = recorded(folder / "control", wishes_of(follow_world.views()), rows)
        frames = [(seq, *frame) for seq, frame in enumerate(hub.frames)]
        (folder / "frames").mkdir()
        for number in range(FILES):
            part = frames[number * len(frames) // FILES : (number + 1) * len(frames) // FILES]
            mixed = pd.DataFrame(part[::-1], columns=["seq", "subject", "data"])
            path = folder / "frames" / f"{number}.parquet"
            mixed.to_parquet(path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # which say in what order they come

    def call(spark: Any) -> Any:
        frames = spark.readStream.schema("seq long, subject string, data binary")
        frames = frames.option("maxFilesPerTrigger", feed.files).parquet(str(folder / "frames"))
        columns = result_columns(follow_world.views())
        return follow_frames(feed.spoiled(frames), columns, str(folder / "control"))

    def check(spark: Any) -> None:
        found = feed.output(spark).collect()
        assert follow_world.identities(found) == sorted(follow_world.truth(rows))
        assert len(found) > 50 and "cloud" in {row.place for row in found}

    return Story(feed, call, check)


def of_mode(name: str, folder: Path, shift: int = 0) -> Story:
    mode = MODES[name]
    batches = [
        tuple([{**row, "t": row["t"] + shift} for row in side] for side in batch)
        for batch in batches_of(mode)
    ]
    feed = Feed(folder, idle=True).add(batches)

    def call(spark: Any) -> Any:
        return mode.query(*feed.streams(spark), watermark="5 seconds")

    def check(spark: Any) -> None:
        want = rows_of(mode.query(*feed.tables(spark)))
        assert len(want) > 10 and set(want.values()) == {1}
        assert rows_of(feed.output(spark)) == want

    return Story(feed, call, check)


STORIES: dict[str, Callable[..., Story]] = {
    "correlate": correlate,
    "emd": emd,
    "nearest": nearest,
    "assemble": assemble,
    "follow": follow,
} | {name: partial(of_mode, name) for name in ("one", "dedupe", "left", "groups")}


def run(spark: Any, stories: Iterable[Story], at_once: int = AT_ONCE) -> list[str | None]:
    """Process all files there are, some queries at once; what ended each of them, if not that."""
    queries: list[Any] = []
    for story in stories:
        happens(lambda: sum(query.isActive for query in queries) < at_once)
        queries.append(story.feed.start(story.call(spark)))
    ends: list[str | None] = []
    for query in queries:
        try:
            assert query.awaitTermination(PATIENCE), "the query hangs"
            ends.append(None)
        except Exception as error:
            ends.append(str(error))
    return ends


def main() -> None:
    """Run to the end of the input of every verb."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("verbs", nargs="*", default=list(STORIES))
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="queries")
    parser.add_argument("--spoil", help="what happens to the first attempt of tasks")
    pair = lambda text: tuple(text.split("=", 1))  # noqa: E731
    parser.add_argument("--conf", type=pair, action="append", default=[], help="a setting of Spark")
    options = parser.parse_args()
    spark = new_session(options.folder, options.master, settings=dict(options.conf))
    stories = {verb: STORIES[verb](options.folder / verb) for verb in options.verbs}
    for story in stories.values():
        story.feed.spoil = options.spoil
    ends = run(spark, stories.values(), options.at_once)
    spark.stop()
    print(json.dumps(dict(zip(stories, ends, strict=True))))


if __name__ == "__main__":
    sys.exit(main())
