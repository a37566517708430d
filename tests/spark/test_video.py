"""Films on Spark: as a table, as a stream across restarts, killed in mid-batch; wrong calls."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import anabranch as ab
from anabranch.errors import InvalidCall
from anabranch.spark.video.source import VideoSource
from tests.spark.feeds import settings
from tests.spark.processes import driver
from tests.video.films import film, scene, segmented

START = "2024-05-01"
CUTS: dict[str, tuple[int, ...]] = {"whole": (), "north": (20, 50, 77), "south": (33, 70)}
NAMES = ("id", "ts", "began", "reason", "phash", "features", "picture")


def keys(frame: Any) -> list[tuple[Any, ...]]:
    """Key frames, but for in which segment they were."""
    rows = frame.select("channel", "pts", *NAMES[1:]).collect()
    return sorted(tuple(map(str, row)) for row in rows)


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same film on three channels, whole and cut in two ways."""
    return of_channels(tmp_path_factory.mktemp("channels"))


def of_channels(folder: Path) -> Path:
    """The folder with a film on each channel, and one that is none."""
    frames = film([30, 40, 35])
    for name, cuts in CUTS.items():
        segmented(folder / name, frames, cuts)
    (folder / "south/0001x.ts").write_bytes(b"not a film")
    return folder


def listed(folder: Path, count: int) -> None:
    """What a recorder's list says when it has closed so many segments of each channel."""
    for name, cuts in CUTS.items():
        edges = [0, *cuts, 105]
        lines = [f"{n:04d}.ts,{edges[n] / 25},{edges[n + 1] / 25}\n" for n in range(len(edges) - 1)]
        (folder / name / "live.csv").write_text("".join(lines[:count]))


def run(stream: Any, folder: Path) -> Any:
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_stream_with_a_restart_gives_the_shots_of_the_table(
    spark: Any, channels: Path, tmp_path: Path
) -> None:
    call: dict[str, Any] = {"start": START, "picture": (64, 36)}
    table = ab.video.table(spark, str(channels), **call)
    want = keys(ab.video.shots(table))
    for first, second in (("whole", "north"), ("whole", "south")):
        alike = [[key[1:] for key in want if key[0] == name] for name in (first, second)]
        assert alike[0] == alike[1] and len(alike[0]) == 3  # however it was cut
    live = tmp_path / "live"
    shutil.copytree(channels, live)
    with settings(spark, shuffle__partitions=1):
        for count in (2, 4):
            listed(live, count)
            frames = ab.video.frames(spark, str(live), max_files=5, **call)
            query = run(ab.video.shots(frames), tmp_path)
    reports = [row for row in _reports(query) if row.segments]
    assert [(row.segments, row.bad) for row in reports] == [(4, 1)]  # 0002, 0003; 0001x, 0002
    assert reports[0].problems[0].startswith("south/0001x.ts: cannot be opened")
    got = keys(spark.read.parquet(str(tmp_path / "out")))
    assert got == want


def _reports(query: Any) -> list[Any]:
    found = []
    for progress in query.recentProgress:
        for name, row in progress.observedMetrics.items():
            if name.startswith("anabranch_video_"):
                found.append(row)
    return found


def test_the_source_is_a_format_of_spark(spark: Any, channels: Path) -> None:
    table = ab.video.table(spark, str(channels / "whole"), start=START, every="200 ms")
    options = {"start": START, "every": "200 ms", "picture": "none"}
    plain = spark.read.format("video").options(**options).load(str(channels / "whole"))
    assert plain.columns == table.columns and plain.count() == 21
    assert table.schema["features"].metadata == {"anabranch.layout": "v3"}


def test_a_folder_without_films_is_an_empty_table(spark: Any, tmp_path: Path) -> None:
    assert ab.video.table(spark, str(tmp_path)).count() == 0


def test_wrong_calls(spark: Any) -> None:
    for message, call in {
        "path must name a film": {"path": ""},
        "every: 'soon' is not a duration": {"every": "soon"},
        "anchors must be longer than 0 seconds": {"anchors": "0 s"},
        "picture must be a width and a height": {"picture": 640},
        "bad_rows must be 'drop' or 'fail', got 'skip'": {"bad_rows": "skip"},
        "bad= is now called bad_rows=": {"bad": "count"},
        "keep= is now called remove_after=": {"keep": "1 hour"},
        "timestamps must be 'auto' or 'running' or 'restart'": {"timestamps": "wall"},
        "closed must be 'auto' or 'list' or 'later' or 'all'": {"closed": "old"},
        "max_files must be a whole number of at least 1": {"max_files": 0},
        "start must be a time": {"start": "noon"},
    }.items():
        with pytest.raises(InvalidCall) as error:
            ab.video.frames(spark, **{"path": "channels", **call})
        assert message in str(error.value)
    with pytest.raises(InvalidCall, match="path: there is no 'nowhere' here"):
        ab.video.table(spark, "nowhere")
    with pytest.raises(InvalidCall, match="frames have no column 'sig'"):
        ab.video.shots(spark.range(1))
    with pytest.raises(InvalidCall, match="frames must be a Spark DataFrame"):
        ab.video.shots([1])


def test_one_query_keeps_key_frames_and_finds_topics_through_a_failure(
    spark: Any, channels: Path, tmp_path: Path
) -> None:
    """A micro-batch that fails after its files are written is repeated, and writes them again."""

    def found(frames: Any, path: str | None, **watermark: str) -> Any:
        keys = ab.video.shots(frames).select("id", "channel", "ts", "features")
        kept = keys if path is None else ab.video.archive(keys, path)
        alike = ab.cosine("features") >= 0.9
        pairs = ab.correlate(kept, where=alike, window="5 s", keep=["channel"], **watermark)
        return ab.video.topics(pairs, near="2 s", gap="5 s", live=bool(watermark))

    folder, batches = str(tmp_path / "keys"), dict[int, list[Any]]()

    def take(rows: Any, number: int) -> None:
        got = rows.collect()
        if number == 1 and number not in batches:
            batches[number] = []
            raise RuntimeError("the sink is away")
        batches[number] = got

    call: dict[str, Any] = {"start": START, "picture": None}
    table = ab.video.table(spark, str(channels), **call)
    with settings(spark, shuffle__partitions=1):
        for ends in ("fails", "completes"):
            frames = ab.video.frames(spark, str(channels), closed="all", max_files=1, **call)
            writer = found(frames, folder, watermark="10 seconds").writeStream.foreachBatch(take)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            if ends == "fails":
                with pytest.raises(StreamingQueryException, match="the sink is away"):
                    query.awaitTermination()
            else:
                query.awaitTermination()
    want = ab.video.shots(table).select("id", "channel", "ts", "features").collect()
    assert sorted(map(str, spark.read.parquet(folder).collect())) == sorted(map(str, want))
    (topic,) = found(table, None).filter("event = 'closed'").collect()
    provisional = [row for n in sorted(batches) for row in batches[n] if row.provisional]
    assert sorted(provisional[-1].members) == sorted(topic.members) and topic.shots == 9
    final = [(r.topic, r.revision) for rows in batches.values() for r in rows if not r.provisional]
    assert len(final) == len(set(final))
    with pytest.raises(InvalidCall, match="keys is a table: write it"):
        ab.video.archive(table, folder)
    with pytest.raises(InvalidCall, match="path must be the path of a directory"):
        ab.video.archive(frames, "")


def test_the_documented_query_goes_through_black(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of the page, word for word, over channels that begin and pause with black."""
    black = [np.zeros((90, 160, 3), np.uint8)] * 30
    frames = [*black, *scene(1, 30), *black, *scene(2, 30), *scene(3, 30)]
    for name, cuts in (("north", (50, 110)), ("south", (40, 90))):
        segmented(tmp_path / "channels" / name, frames, cuts)
    page = Path("docs/video.md").read_text().partition("## Topics: ")[2]
    example = page.partition("```python\n")[2].partition("```")[0]
    live = ab.video.frames(spark, str(tmp_path / "channels"), start=START, closed="all")
    monkeypatch.chdir(tmp_path)
    names = {"ab": ab, "frames": live}
    with settings(spark, shuffle__partitions=1):
        exec(example, names)
        query = run(names["topics"], tmp_path)
    (topic,) = (
        spark.read.parquet(str(tmp_path / "out"))
        .filter("provisional")
        .orderBy("shots")
        .collect()[-1:]
    )
    assert (topic.channels, topic.shots, topic.pairs) == (["north", "south"], 6, 3)
    kept = spark.read.parquet(str(tmp_path / "keyframes"))
    assert sorted(row.id for row in kept.collect()) == sorted(topic.members)
    blank = [
        row.blank
        for progress in query.recentProgress
        for name, row in progress.observedMetrics.items()
        if name.startswith("anabranch_described_")
    ]
    assert sum(blank) >= 2
    # Who compares what shots gives must say what becomes of black.
    shots = ab.video.shots(ab.video.table(spark, str(tmp_path / "channels"), start=START))
    assert shots.filter("NOT exists(features, x -> x != 0)").count() == sum(blank)


def caption(pictures: Any) -> Any:
    return [[("BRIDGE SHUT IN RIGA", 0.9, (0, 0, 9, 9))] for _ in pictures]


def test_key_frames_without_a_picture_are_described_as_far_as_can_be(
    spark: Any, channels: Path
) -> None:
    shots = ab.video.shots(ab.video.table(spark, str(channels), start=START))
    some = shots.withColumn("picture", F.when(F.col("channel") == "north", F.col("picture")))
    rows = ab.video.describe(some, text=caption).collect()
    said = {(row.channel, row.words, row.text is None) for row in rows}
    others = {(name, None, True) for name in ("south", "whole")}
    assert said == {("north", "BRIDGE SHUT IN RIGA", False), *others}
    assert len(rows) == shots.count() and all(row.vector for row in rows)
    without = shots.withColumn("features", F.when(F.col("channel") == "north", F.col("features")))
    assert {row.channel for row in ab.video.describe(without).collect()} == {"north"}


def test_what_is_made_of_pictures_is_refused_where_none_are_kept(
    spark: Any, channels: Path
) -> None:
    shots = ab.video.shots(ab.video.table(spark, str(channels), start=START, picture=None))
    assert ab.video.describe(shots).count() == shots.count() > 0
    for asked in ({"text": caption}, {"views": True}):
        with pytest.raises(InvalidCall, match="frames with picture=None"):
            ab.video.describe(shots, **asked)


def test_a_first_start_on_an_archive_does_not_read_all_of_it_at_once(
    spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "channels/north"
    folder.mkdir(parents=True)
    for n in range(101):
        (folder / f"{n:04d}.ts").write_bytes(b"")  # a segment that cannot be opened is one too
    call: dict[str, Any] = {"start": START, "picture": None, "closed": "all"}
    query = run(ab.video.frames(spark, str(folder.parent), **call).select("id"), tmp_path)
    counts = [
        row.segments
        for progress in query.recentProgress
        for name, row in progress.observedMetrics.items()
        if name.startswith("anabranch_video_")
    ]
    assert [count for count in counts if count] == [100, 1]


def test_limits_of_files_and_bytes_hold_both(tmp_path: Path) -> None:
    folder = tmp_path / "north"
    folder.mkdir()
    for n in range(103):
        (folder / f"{n:04d}.ts").write_bytes(b"x" * 10)

    def reached(**most: str) -> str:
        options = {"path": str(folder), "start": START, "closed": "all", **most}
        schema: Any = StructType()
        stream = VideoSource(options).streamReader(schema)
        offset: Any = stream.latestOffset({}, stream.getDefaultReadLimit())
        return str(offset["north"]["segment"])

    assert reached() == "0099.ts" and reached(max_files="4") == "0003.ts"
    assert reached(max_files="none") == "0102.ts"
    assert reached(max_bytes="25") == reached(max_files="4", max_bytes="25") == "0001.ts"
    assert reached(max_files="none", max_bytes="25") == "0001.ts"


@pytest.mark.slow
def test_a_driver_killed_in_mid_batch_loses_and_doubles_nothing(
    spark: Any, channels: Path, tmp_path: Path
) -> None:
    shutil.copytree(channels, tmp_path / "channels")
    for batch in (0, 1, 3):
        with driver(tmp_path, "--hold", str(batch), script="video_driver.py") as held:
            held.kill_when_held()
    with driver(tmp_path, script="video_driver.py") as last:
        last.finish()
    table = ab.video.table(spark, str(channels), start=START, picture=None)
    assert keys(spark.read.parquet(str(tmp_path / "out"))) == keys(ab.video.shots(table))


KILLS = {"executor": ("3", "5", "8"), "worker": ("2", "4", "6", "7")}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["frames", "keys"])
def test_each_frame_comes_once_through_kills(spark: Any, what: str, tmp_path: Path) -> None:
    """Three of the driver, three of an executor, four of Python workers; twenty with both."""
    frames = film([30, 40, 35, 25])
    for name, shift in (("north", 0), ("south", 5)):
        cuts = tuple(range(13 + shift, 125, 13))
        segmented(tmp_path / "channels" / name, frames, cuts)
    for batch in (0, 1, 2):
        with driver(
            tmp_path, "--what", what, "--hold", str(batch), script="video_driver.py"
        ) as held:
            held.kill_when_held()
    lost = [part for kind, at in KILLS.items() for part in (f"--{kind}", ",".join(at))]
    cluster = ("--master", "local-cluster[2,1,1024]")
    with driver(tmp_path, "--what", what, *lost, *cluster, script="video_driver.py") as last:
        last.finish()
    killed = sorted(path.name for path in tmp_path.glob("killed-*"))
    assert killed == [f"killed-{kind}-{n}" for kind, at in sorted(KILLS.items()) for n in at]
    table = ab.video.table(spark, str(tmp_path / "channels"), start=START, picture=None)
    out = spark.read.parquet(str(tmp_path / "out"))
    if what == "keys":
        assert keys(out) == keys(ab.video.shots(table))
        return
    got = sorted(map(tuple, out.select("id", "ts", "sig").collect()))
    assert got == sorted(map(tuple, table.select("id", "ts", "sig").collect()))
    assert len(got) == 2 * len(frames)


@pytest.mark.slow
def test_a_stream_is_described_as_the_table_is(spark: Any, channels: Path, tmp_path: Path) -> None:
    """With concepts, captions, tickers left out, and views, across a restart."""

    def brightness(pictures: Any) -> Any:
        return pictures.reshape(len(pictures), -1, 3).mean(1)

    def caption(pictures: Any) -> Any:
        said = f"SCENE {int(1000 * pictures.mean())}"  # no other scene's is like it
        return [[(said, 0.9, (0, 0, 9, 9)), ("ALWAYS THE SAME LINE", 0.9, (0, 9, 9, 18))]]

    brightness.names = ("red", "green", "blue")  # type: ignore[attr-defined]
    call: dict[str, Any] = {"start": START, "picture": (64, 36), "anchors": "200 ms"}

    def described(frames: Any) -> Any:
        shots = ab.video.shots(frames, longest="200 ms")
        return ab.video.describe(shots, concepts=brightness, text=caption, views=True)

    def rows(frame: Any) -> list[tuple[str, ...]]:
        names = ("channel", "ts", "words", "concepts", "vector", "views")
        return sorted(tuple(map(str, row)) for row in frame.select(*names).collect())

    want = rows(described(ab.video.table(spark, str(channels), **call)))
    live = tmp_path / "live"
    shutil.copytree(channels, live)
    with settings(spark, shuffle__partitions=1):
        for count in (2, 4):
            listed(live, count)
            run(described(ab.video.frames(spark, str(live), **call)), tmp_path)
    out = spark.read.parquet(str(tmp_path / "out"))
    assert rows(out) == want and len(want) > 40
    said = [row.words for row in out.orderBy("channel", "ts").collect()]
    assert "ALWAYS" in said[0] and "SCENE" in said[12] and "ALWAYS" not in said[12]
    assert {len(row.views) for row in out.collect()} == {3}
