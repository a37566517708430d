"""`ab.video.archive`: each key frame is in its folder once, whatever the query does and suffers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.spark.feeds import settings
from tests.spark.processes import driver
from tests.spark.video_driver import news
from tests.video.films import film, segmented

START = "2024-05-01"


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same film on two channels, cut in two ways."""
    folder = tmp_path_factory.mktemp("channels")
    for name, cuts in (("north", (20, 50, 77)), ("south", (33, 70))):
        segmented(folder / "channels" / name, film([30, 40, 35]), cuts)
    return folder


def live(spark: Any, folder: Path) -> Any:
    path = str(folder / "channels")
    return ab.video.frames(spark, path, start=START, closed="all", max_files=1, picture=None)


def archived(spark: Any, folder: Path) -> list[str]:
    rows = spark.read.parquet(str(folder / "keyframes")).select("id", "ts", "features")
    return sorted(map(str, rows.collect()))


def wanted(spark: Any, folder: Path) -> list[str]:
    table = ab.video.table(spark, str(folder / "channels"), start=START, picture=None)
    return sorted(map(str, ab.video.shots(table).select("id", "ts", "features").collect()))


def run(stream: Any, folder: Path, take: Any = lambda rows, number: rows.count()) -> Any:
    writer = stream.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_query_that_uses_it_twice_has_each_row_once(
    spark: Any, channels: Path, tmp_path: Path
) -> None:
    """Both sides of a `correlate` decode the film, and write in tasks of different numbers."""
    with settings(spark, shuffle__partitions=2):
        keys = ab.video.shots(live(spark, channels)).select("id", "channel", "ts", "features")
        kept = ab.video.archive(keys, tmp_path / "keyframes")
        alike = ab.cosine("features") >= 0.9
        pairs = ab.correlate(kept, kept, where=alike, window="5 s", watermark="10 seconds")
        run(pairs, tmp_path)
    assert archived(spark, tmp_path) == wanted(spark, channels)


def test_a_batch_that_is_split_in_another_way_when_repeated_leaves_each_row_once(
    spark: Any, tmp_path: Path
) -> None:
    """It fails once its files are written; the restart has another number of tasks."""
    for n in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": range(10 * n, 10 * n + 10)}), tmp_path / f"in/{n}.parquet")
    failed = []

    def take(rows: Any, number: int) -> None:
        rows.count()
        if number == 1 and not failed:
            failed.append(number)
            raise RuntimeError("the sink is away")

    for parts in (3, 2):
        stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        rows = stream.parquet(str(tmp_path / "in")).repartition(parts, "id")
        kept = ab.video.archive(rows, tmp_path / "keyframes")
        if parts == 3:
            with pytest.raises(StreamingQueryException, match="the sink is away"):
                run(kept, tmp_path, take)
        else:
            run(kept, tmp_path, take)
    found = spark.read.parquet(str(tmp_path / "keyframes")).collect()
    assert Counter(row.id for row in found) == Counter(range(30)) and failed


def test_its_files_keep_what_columns_say_of_themselves(
    spark: Any, channels: Path, tmp_path: Path
) -> None:
    def flat(pictures: Any) -> Any:
        return pictures.reshape(len(pictures), -1, 3).mean(1)

    flat.names = ("red", "green", "blue")  # type: ignore[attr-defined]
    path = str(channels / "channels")
    frames = ab.video.frames(spark, path, start=START, closed="all", picture=(64, 36))
    with settings(spark, shuffle__partitions=1):
        keys = ab.video.describe(ab.video.shots(frames), concepts=flat, views=True)
        run(ab.video.archive(keys, tmp_path / "keyframes"), tmp_path)
    found = spark.read.parquet(str(tmp_path / "keyframes"))
    assert found.count() == 6
    schema = found.schema
    for name in ("features", "vector", "views"):
        assert schema[name].metadata == {"anabranch.layout": "v3"}
    assert schema["concepts"].metadata == {"anabranch.concepts": ["red", "green", "blue"]}
    assert found.dtypes == keys.dtypes
    older = found.withMetadata("vector", {"anabranch.layout": "v2"})
    call: dict[str, Any] = {"where": ab.cosine("vector") >= 0.6, "window": "5 s"}
    assert ab.correlate(found, found, **call).count() > 0
    message = "'vector' of layout v2 and 'vector' of layout v3 do not compare"
    with pytest.raises(InvalidCall, match=message):
        ab.correlate(older, found, **call)
    with pytest.raises(InvalidCall, match="keys have no column 'id'"):
        ab.video.archive(live(spark, channels).drop("id"), tmp_path / "keyframes")


@pytest.mark.slow
def test_a_driver_killed_in_mid_batch_archives_each_key_frame_once(
    spark: Any, channels: Path, tmp_path: Path
) -> None:
    """Killed when its files are written and its topics are not, at three moments."""
    (tmp_path / "channels").symlink_to(channels / "channels")
    for batch in (0, 1, 3):
        with driver(
            tmp_path, "--what", "news", "--hold", str(batch), script="video_driver.py"
        ) as held:
            held.kill_when_held()
    with driver(tmp_path, "--what", "news", script="video_driver.py") as last:
        last.finish()
    assert archived(spark, tmp_path) == wanted(spark, channels)
    table = ab.video.table(spark, str(tmp_path / "channels"), start=START, picture=None)
    (due,) = news(table).filter("event = 'closed'").collect()
    out = spark.read.parquet(str(tmp_path / "out"))
    shown = max(out.filter("provisional").collect(), key=lambda row: row.shots)
    assert sorted(shown.members) == sorted(due.members) and due.shots == 6
