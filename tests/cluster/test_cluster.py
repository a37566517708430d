"""All verbs on a real cluster: exact, also when something is killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import anabranch as ab
from anabranch.placement.views import wishes_of
from scripts.services.cluster import Cluster, cluster
from tests.cluster.driver import ALIKE, LEARNED, OF_PAIRS, OF_TABLES, TABLES, VERBS, feed_of
from tests.correlation import twin
from tests.spark import (
    emd_driver,
    follow_world,
    nearest_feed,
    test_groups,
    test_rejects,
    test_spans,
    test_video,
)
from tests.spark.driver import LATE, SPANS, score
from tests.spark.events import alike, collected, events, expected
from tests.spark.feeds import SECOND, Feed, agree, found, happens, scripted, stragglers
from tests.spark.follow_frames import recorded
from tests.spark.modes import MODES, batches_of
from tests.spark.processes import Driver, driver, newest
from tests.spark.test_killed_modes import rows_of

pytestmark = [pytest.mark.services, pytest.mark.spark]
SCRIPT = "../cluster/driver.py"


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of two workers, which drivers of this test can reach and be reached from."""
    with cluster() as made:
        monkeypatch.setenv("SPARK_LOCAL_IP", made.host)
        yield made


def started(run: Cluster, folder: Path, *verbs: str, hold: str | None = None) -> Any:
    waits = ("--hold", hold) if hold else ()
    return driver(folder, *verbs, "--master", run.address, *waits, script=SCRIPT)


def test_all_verbs(spark: Any, tmp_path: Path, running: Cluster) -> None:
    elsewhere = {*OF_PAIRS, *TABLES, "follow", "rejects", "spans_of", "video"}
    feeds = {verb: feed_of(tmp_path, verb) for verb in VERBS if verb not in elsewhere}
    joined, apart = scripted(4, rows=(10, 12), seed=5), emd_driver.batches(4, rows=10, seed=8)
    objects = [*nearest_feed.objects_in_batches(3, rows=20, seed=3), [nearest_feed.closing()]]
    calls = events(4, rows=20, seed=3)
    scripts: dict[str, Any] = {
        "correlate": joined,
        "emd": apart,
        "nearest": [([], made) for made in objects],
        "assemble": calls,
        "groups": [*test_groups.BATCHES, *test_groups.END],
        "selective": [([], made) for made in objects],
    }
    for verb, feed in feeds.items():
        feed.add(scripts[verb])
    with started(running, tmp_path, *feeds) as run:
        figures = run.finish()
    assert {worker.host for worker in running.workers} <= set(figures["hosts"])
    out = {verb: feed.output(spark) for verb, feed in feeds.items()}
    agree(found(out["correlate"]), twin.pairs_in_time(joined, SPANS, score, LATE))
    pairs = {pair: round(value, 9) for pair, value in found(out["emd"]).items()}
    agree(pairs, twin.pairs_in_time(apart, SPANS, emd_driver.score, LATE))
    wanted = nearest_feed.want(objects, nearest_feed.fixed_queries())
    assert nearest_feed.got(out["nearest"]) == wanted
    alike(collected(out["assemble"]), expected(spark, calls, LEARNED, SECOND))
    table = feeds["groups"].tables(spark)[0]
    want = test_groups.closed(ab.groups(ab.correlate(table, **ALIKE), gap="1 second"))
    assert test_groups.closed(out["groups"]) == want and len(want) > 3
    wanted = nearest_feed.want(objects, nearest_feed.lasting_queries())
    assert nearest_feed.got(out["selective"]) == wanted


def test_other_results_of_pairs(spark: Any, tmp_path: Path, running: Cluster) -> None:
    feeds = {name: feed_of(tmp_path, name).add(batches_of(MODES[name])) for name in OF_PAIRS}
    with started(running, tmp_path, *feeds) as run:
        run.finish()
    for name, feed in feeds.items():
        rows = rows_of(MODES[name].query(*feed.tables(spark)))
        assert rows_of(feed.output(spark)) == rows and len(rows) > 10, name


def test_follow(spark: Any, tmp_path: Path, running: Cluster) -> None:
    """Recorded frames: views move between the cloud and devices."""
    rows, folder = follow_world.rows(), tmp_path / "follow"
    hub = recorded(folder / "control", wishes_of(follow_world.views()), rows)
    frames = [(seq, *frame) for seq, frame in enumerate(hub.frames)]
    (folder / "frames").mkdir()
    for number in range(3):
        part = frames[number * len(frames) // 3 : (number + 1) * len(frames) // 3]
        mixed = pd.DataFrame(part[::-1], columns=["seq", "subject", "data"])
        mixed.to_parquet(folder / "frames" / f"{number}.parquet")
    with started(running, tmp_path, "follow") as run:
        run.finish()
    found = feed_of(tmp_path, "follow").output(spark).collect()
    assert follow_world.identities(found) == sorted(follow_world.truth(rows))
    assert {row.place for row in found} == {"cloud", "ann", "bob", "cy"}


def test_verbs_of_tables(spark: Any, tmp_path: Path, running: Cluster) -> None:
    """They give what they give in one process, to the last row."""
    calls = events(4, rows=20, seed=3)
    feeds = {verb: feed_of(tmp_path, verb).add(calls) for verb in OF_TABLES}
    with started(running, tmp_path, *feeds) as run:
        run.finish()
    for verb, feed in feeds.items():
        wanted = sorted(map(str, OF_TABLES[verb](spark, feed).collect()))
        assert sorted(map(str, feed.output(spark).collect())) == wanted and wanted, verb
    placed = feeds["place_pairs"].output(spark).collect()
    assert {(row["a"], row["location"]) for row in placed} == {
        *(("news", "cloud"), ("p", "p"), ("q", "r"))
    }


def test_lists_and_ranks_of_tables(spark: Any, tmp_path: Path, running: Cluster) -> None:
    """`ab.top` of what `nearest` found, and services by what they kept."""
    objects = [*nearest_feed.objects_in_batches(3, rows=20, seed=3), [nearest_feed.closing()]]
    feeds = {
        "top": feed_of(tmp_path, "top").add([([], made) for made in objects]),
        "rank_services": feed_of(tmp_path, "rank_services").add(events(4, rows=20, seed=3)),
    }
    with started(running, tmp_path, *feeds) as run:
        run.finish()
    for verb, feed in feeds.items():
        wanted = sorted(map(str, VERBS[verb][0](spark, feed).collect()))
        assert sorted(map(str, feed.output(spark).collect())) == wanted, verb
        assert len(wanted) > 2, verb


def test_rows_that_are_rejected(spark: Any, tmp_path: Path, running: Cluster) -> None:
    """The executors write them; each is there once, whole, with what decided."""
    batches = test_rejects.spoilt(stragglers()[:4])
    feed = feed_of(tmp_path, "rejects").add(batches)
    with started(running, tmp_path, "rejects") as run:
        run.finish()
    want = test_rejects.twin_rejects(batches, SECOND)
    assert test_rejects.rejected(spark, feed.folder / "rejects") == want
    assert {reason for _, _, reason, _, _ in want} > {"late"}


def test_spans_and_films(spark: Any, tmp_path: Path, running: Cluster) -> None:
    """Messages become traces, and films key frames: as many streams without rows of our own."""
    feeds = {verb: feed_of(tmp_path, verb) for verb in ("spans_of", "video")}
    test_spans.put(feeds["spans_of"].folder / "in")
    films = test_video.of_channels(feeds["video"].folder / "films")
    test_video.listed(films, 4)
    with started(running, tmp_path, *feeds) as run:
        run.finish()
    assert test_spans.ended(feeds["spans_of"].output(spark)) == test_spans.ENDED
    call: dict[str, Any] = {"start": test_video.START, "picture": (64, 36)}
    want = test_video.keys(ab.video.shots(ab.video.table(spark, str(films), **call)))
    assert test_video.keys(feeds["video"].output(spark)) == want
    assert len(want) == 3 * len(test_video.CUTS)


def test_every_verb_of_the_page_runs_on_the_cluster() -> None:
    """Those that need no cluster are named: a checkpoint is rescaled by the driver alone."""
    page = (Path(__file__).parents[2] / "docs/compatibility.md").read_text()
    part = page.partition("| verb | stream |")[2].partition("\n- ")[0]
    verbs = {name for row in part.splitlines() for name in re.findall(r"`ab\.(\w+)", row[:90])}
    assert verbs - set(VERBS) == {"rescale"}


def committed(feed: Feed) -> int:
    """The newest finished micro-batch, -1 if there is none."""
    return newest(feed.folder, "commits")


def exact(spark: Any, feed: Feed, script: list[twin.Batch]) -> None:
    taken = feed.taken(script)
    agree(found(feed.output(spark)), twin.pairs_in_time(taken, SPANS, score, LATE))


#   workers   1, 2 | 1 is killed | 2 | 3 is added | 2, 3 | 2 is killed | 3
def test_workers_are_killed_and_added(spark: Any, tmp_path: Path, running: Cluster) -> None:
    script = scripted(14, rows=(10, 10), seed=13)
    feed = feed_of(tmp_path, "correlate").add(script)
    one, two = running.workers

    def after(run: Driver, batch: int) -> None:
        run.wait_until(lambda: committed(feed) >= batch, f"batch {batch}")

    with started(running, tmp_path, "correlate") as run:
        after(run, 1)
        one.kill()
        after(run, committed(feed) + 2)
        three = running.add()
        happens(lambda: running.executors(three))
        at = committed(feed)
        two.kill()
        run.finish()
    assert running.alive() == [three.host] and at < len(script) - 1
    exact(spark, feed, script)


def test_the_driver_is_killed(spark: Any, tmp_path: Path, running: Cluster) -> None:
    script = scripted(5, rows=(10, 10), seed=12)
    feed = feed_of(tmp_path, "correlate").add(script)
    for at in (2, 3):
        with started(running, tmp_path, "correlate", hold=f"left_id >= {2000 * at}") as run:
            # The file that says so is in the folder of the verb.
            reached = feed.folder / "reached"
            run.wait_until(reached.exists, "the result to hold at")
            run.kill()
            reached.unlink()
            assert committed(feed) < newest(feed.folder, "offsets"), "no batch was interrupted"
        # The cluster takes the cores of a driver back that is gone.
        happens(lambda: not running.state()["activeapps"])
    with started(running, tmp_path, "correlate") as run:
        run.finish()
    exact(spark, feed, script)
