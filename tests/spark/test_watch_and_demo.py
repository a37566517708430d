"""The watcher on scripted and on real queries, and the demo from end to end."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.main import app
from anabranch.flow.load import Load
from anabranch.spark.demo import stage
from anabranch.spark.demo.broadcast import Newsroom
from anabranch.spark.demo.writer import write_rows

SMALL = Newsroom(duration=150, rates=(20, 12), stories=15, seed=3)
SCHEMA = "id long, ts timestamp, title string, v array<float>"


@pytest.fixture(scope="module")
def sent():
    return SMALL.broadcast()


def plain(**options):
    return Console(file=io.StringIO(), width=100, **options)


class AtOnce:
    """A thread that has done its work when it is started."""

    def __init__(self, target, args, daemon):
        assert daemon, "a page that stays open would keep the demo from ending"
        self.start = lambda: target(*args)


@pytest.mark.parametrize(
    ("platform", "variables", "opened"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
        ("darwin", {"SSH_CONNECTION": "elsewhere"}, False),
    ],
)
def test_the_page_is_opened_where_there_is_a_display(monkeypatch, platform, variables, opened):
    pages = []
    monkeypatch.setattr(stage.webbrowser, "open", pages.append)
    monkeypatch.setattr(stage, "threading", SimpleNamespace(Thread=AtOnce))
    monkeypatch.setattr(stage, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(stage, "os", SimpleNamespace(environ=variables))
    console = plain(force_terminal=True)
    stage.open_page("http://127.0.0.1:1/", console)
    assert pages == ["http://127.0.0.1:1/"] * opened
    assert "http://127.0.0.1:1/" in console.file.getvalue()


# ---------------------------------------------------------------- watching a scripted query


def progress(batch, loads, seconds=2.0, rows=1, run="run"):
    name = "anabranch_correlate_1" if loads is not None else "something_else"
    return SimpleNamespace(
        runId=run,
        batchId=batch,
        timestamp=f"{batch}-{len(loads or ())}",
        numInputRows=rows,
        durationMs={"triggerExecution": int(seconds * 1000)},
        observedMetrics={name: {"load": [load.to_json() for load in loads or ()]}},
    )


class ScriptedQuery:
    """A query whose reports the test writes."""

    def __init__(self):
        self.recentProgress = []
        self.isActive = True
        self.error = None

    @property
    def lastProgress(self):
        return self.recentProgress[-1] if self.recentProgress else None

    def exception(self):
        return self.error


def two_workers(comparisons, pairs, **others):
    return [
        Load(0, rows_left=10, copies_left=10, copies_right=8, comparisons=comparisons, pairs=pairs,
             state_rows=100, state_bytes=1_000_000, busy_seconds=0.5, **others),
        Load(1, rows_right=8, copies_left=0, copies_right=9, state_rows=50,
             state_bytes=500_000, busy_seconds=0.1),
    ]  # fmt: skip


def test_a_table_counts_every_batch_once():
    from anabranch.spark.watch_batches import BatchTable

    query, table = ScriptedQuery(), BatchTable(keep=2)
    assert table.update(query) == [] and "waiting" in table.caption
    query.recentProgress = [progress(0, two_workers(1000, 3)), progress(1, [])]
    assert [figures["batch"] for figures in table.update(query)] == [0]
    assert table.update(query) == []
    # The trigger that found nothing had the number of the batch that comes now.
    query.recentProgress += [progress(1, two_workers(5000, 1, late=2))]
    query.recentProgress += [progress(2, [Load(0, rows_left=1, copies_left=1, state_rows=7)])]
    assert [figures["batch"] for figures in table.update(query)] == [1, 2]
    assert [figures["batch"] for figures in table.batches] == [1, 2]
    assert table.total == {
        "rows_in": 37, "comparisons": 6000, "pairs": 4, "late_rows": 2, "rejected_rows": 0,
        "unmatched_rows": 0,
        "duplicates": 0,
        "seconds": 6.0,
    }  # fmt: skip
    # A worker without news still holds what it held.
    assert table.batches[-1]["state_rows"] == 57
    assert table.batches[0]["copies_per_row"] == 1.5
    assert (
        table.caption == "3 batches: 37 rows, 6.0k comparisons (1.0k/s), 4 pairs, 2 late; running"
    )


def test_batches_without_data_that_say_nothing_are_not_shown():
    from anabranch.spark.watch_batches import BatchTable

    query, table = ScriptedQuery(), BatchTable()
    silent, unmatched = [Load(0, state_rows=7)], [Load(0, unmatched=2)]
    query.recentProgress = [progress(0, two_workers(1, 0)), progress(1, silent)]
    query.recentProgress += [progress(2, unmatched)]
    assert len(table.update(query)) == 3  # they are counted all the same
    assert [line.split(":")[0] for line in table.take_lines()] == ["batch 0", "batch 2"]


def test_the_first_seconds_say_what_is_waited_for():
    query, console = ScriptedQuery(), plain()
    ab.watch(query, seconds=0.01, console=console)
    said = "waiting for the first batch: starting Python workers (10 to 30 s the first time)"
    assert console.file.getvalue().splitlines()[0] == f"{said} ..."


def test_a_query_of_nearest_is_watched_in_its_own_words():
    from anabranch.spark.watch_batches import BatchTable

    query, table = ScriptedQuery(), BatchTable()
    query.recentProgress = [progress(0, two_workers(1000, 3))]
    report = query.recentProgress[0].observedMetrics
    report["anabranch_nearest_1"] = report.pop("anabranch_correlate_1")
    table.update(query)
    assert table.caption == "batch 0: 18 objects, 1.0k comparisons (500/s), 3 hits, 0 late; running"
    assert table.take_lines()[0].startswith(
        "batch 0: 18 objects in, 1.0k comparisons, 500/s, 3 hits"
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    assert "objects" in console.file.getvalue() and "pairs" not in console.file.getvalue()


def test_a_query_of_dedupe_is_watched_in_its_own_words():
    from anabranch.spark.watch_batches import BatchTable

    query, table = ScriptedQuery(), BatchTable()
    query.recentProgress = [progress(0, [Load(0, rows_left=9, unmatched=5, matched=3, late=1)])]
    report = query.recentProgress[0].observedMetrics
    report["anabranch_dedupe_1"] = report.pop("anabranch_correlate_1")
    table.update(query)
    assert table.caption == (
        "batch 0: 9 rows, 0 comparisons (0/s), 5 rows, 1 late, 3 duplicates; running"
    )
    (line,) = table.take_lines()
    assert "9 rows in" in line and "5 rows out" in line and "1 late, 3 duplicates, state" in line
    assert "partner" not in line


def test_a_query_of_groups_is_watched_in_its_own_words():
    from anabranch.flow.load import GroupsLoad

    query, console = ScriptedQuery(), plain()
    load = GroupsLoad(0, rows=9, opened=2, grown=5, closed=1, late=3, dropped=4, open_groups=7)
    query.recentProgress = [progress(0, [load])]
    report = query.recentProgress[0].observedMetrics
    report["anabranch_groups_1"] = report.pop("anabranch_correlate_1")
    query.isActive = False
    ab.watch(query, console=console)
    line, caption = console.file.getvalue().splitlines()
    words = "9 pairs in, 2 groups opened, 5 grown, 0 merged, 1 closed, 3 late, 4 dropped"
    assert line == f"batch 0: {words}, 7 open, 0 pairs waiting, state 0.0 MB"
    assert caption == f"1 batches: {words}; the query has ended"
    screen = Console(file=io.StringIO(), width=100, force_terminal=True)
    ab.watch(query, console=screen)
    assert "waiting" in screen.file.getvalue() and "merged" in screen.file.getvalue()


def test_a_restarted_query_counts_on():
    from anabranch.spark.watch_batches import BatchTable

    query, table = ScriptedQuery(), BatchTable()
    query.recentProgress = [progress(5, two_workers(10, 0))]
    table.update(query)
    query.recentProgress = [progress(5, two_workers(10, 0), run="second")]
    assert len(table.update(query)) == 1


def test_the_table_fits_80_columns_and_shows_rejects_only_if_there_are():
    from anabranch.spark.watch_batches import BatchTable

    query, table = ScriptedQuery(), BatchTable()
    query.recentProgress = [progress(100, two_workers(123_456_789, 1234))]
    table.update(query)
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    text = console.file.getvalue()
    assert "…" not in text and "jected" not in text
    for cell in ("100", "18", "123M", "62M", "1.2k", "1.50", "150", "1.5", "0.50 0.30"):
        assert cell in text
    query.recentProgress += [progress(101, two_workers(1, 0, rejected=6))]
    table.update(query)
    console.print(table)
    assert "jected" in console.file.getvalue()
    assert "6 rejected" in table.caption


def test_a_query_without_a_correlation_is_told_so():
    from anabranch.spark.watch_batches import BatchTable

    query, table = ScriptedQuery(), BatchTable()
    query.recentProgress = [progress(0, None)]
    table.update(query)
    assert (
        "is one of ab.correlate, ab.dedupe, ab.nearest, ab.assemble, ab.groups in it?"
        in table.caption
    )


def test_watching_a_failed_query_names_the_error_and_raises_nothing():
    query = ScriptedQuery()
    query.isActive = False
    query.error = "[STREAM_FAILED] Query\n  anabranch.errors.BadRow: left row 7 is too short\n at"
    console = plain()
    ab.watch(query, console=console)
    assert "FAILED: BadRow: left row 7 is too short" in console.file.getvalue()


def test_watch_refuses_what_it_cannot_watch():
    with pytest.raises(ab.errors.InvalidCall) as refused:
        ab.watch(42, seconds=-1)
    assert len(refused.value.problems) == 2


def test_ctrl_c_ends_the_watching_only():
    class Interrupted(ScriptedQuery):
        looks = 0

        @property
        def lastProgress(self):
            self.looks += 1
            if self.looks == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return None

    query, console = Interrupted(), plain()
    before = signal.getsignal(signal.SIGINT)
    ab.watch(query, console=console)
    assert "the query runs on" in console.file.getvalue()
    assert signal.getsignal(signal.SIGINT) is before


# ---------------------------------------------------------------- watching a real query


@pytest.fixture(scope="module")
def finished(spark, sent, tmp_path_factory):
    """A correlation of the small newsroom, three files a side, that has run to its end."""
    folder = tmp_path_factory.mktemp("watched")
    frames = []
    for name, channel in zip(("left", "right"), sent.channels, strict=True):
        (folder / name).mkdir()
        for number, rows in enumerate(np.array_split(np.arange(len(channel)), 3)):
            path = write_rows(channel.table(rows), folder / name, number)
            os.utime(path, (1_700_000_000 + number,) * 2)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        frames.append(reader.parquet(str(folder / name)))
    # Nothing is late however far apart the files are, so that every figure is known.
    pairs = ab.correlate(
        *frames,
        where=ab.cosine("v") >= 0.9,
        window="60 seconds",
        watermark="1 hour",
        keep=["title"],
    )
    query = (
        pairs.writeStream.format("memory")
        .queryName("watched")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    console = plain(force_terminal=True, height=40)
    ab.watch(query, console=console)
    return SimpleNamespace(query=query, live=console.file.getvalue(), spark=spark)


def test_watch_returns_when_the_query_ends(finished):
    assert not finished.query.isActive
    assert "compared" in finished.live and "the query has ended" in finished.live


def test_the_figures_of_a_real_query_are_right(finished, sent):
    from anabranch.spark.watch_batches import BatchTable

    table = BatchTable()
    table.update(finished.query)
    assert [figures["rows_in"] > 0 for figures in table.batches] == [True] * 3
    assert table.total["rows_in"] == sent.rows
    assert table.total["comparisons"] == sent.comparisons(SMALL.window, stragglers=True)
    assert table.total["pairs"] == len(sent.due)
    assert table.total["late_rows"] == 0
    found = finished.spark.table("watched").collect()
    assert {(row["left_id"], row["right_id"]) for row in found} == sent.due
    assert all(row["left_title"] and row["score"] >= 0.9 for row in found)


def test_without_a_terminal_there_is_a_line_per_batch(finished, sent):
    console = plain()
    ab.watch(finished.query, console=console)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 4
    assert all(re.match(r"batch \d+: .* rows in, .* comparisons, ", line) for line in lines[:3])
    assert f"{len(sent.due)} pairs" in lines[3] and lines[3].endswith("the query has ended")


def test_watch_says_why_a_real_query_failed(spark, sent, tmp_path):
    frames = []
    for name, width in (("left", 64), ("right", 63)):
        (tmp_path / name).mkdir()
        table = sent.channels[0].table(slice(0, 20))
        short = pa.array([v[:width] for v in table["v"].to_pylist()], pa.list_(pa.float32()))
        write_rows(table.drop(["v"]).append_column("v", short), tmp_path / name, 0)
        frames.append(spark.readStream.schema(SCHEMA).parquet(str(tmp_path / name)))
    pairs = ab.correlate(
        *frames, where=ab.cosine("v") >= 0.9, window="60 seconds", watermark="1 hour"
    )
    query = (
        pairs.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    console = plain()
    ab.watch(query, console=console)
    assert "the query FAILED: BadRow: " in console.file.getvalue()
    assert "length 6" in console.file.getvalue()


# ---------------------------------------------------------------- the command


def test_help_and_version():
    run = CliRunner().invoke(app, ["--version"])
    assert run.exit_code == 0 and run.output.strip() == f"anabranch {ab.__version__}"
    text = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "120"}).output
    for knob in ("seconds", "speed", "stories", "seed", "workers", "skip-comparison", "keep-files"):
        assert knob in text
    assert CliRunner().invoke(app, ["demo", "--workers", "0"]).exit_code == 2


# It runs for seconds: a compiler that stops early beats one that optimises for hours.
QUICK_JAVA = '--driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" pyspark-shell'


@pytest.mark.spark
def test_the_demo_from_end_to_end(tmp_path):
    knobs = ["--seconds=4", "--left-rate=12", "--right-rate=8", "--stories=12", "--seed=11"]
    run = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "demo", *knobs],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    out = run.stdout

    def figure(name, section):
        found = re.search(rf"^{section}.*?^  {name} +([\d,.]+)", out, re.DOTALL | re.MULTILINE)
        assert found is not None, out
        return int(found[1].replace(",", ""))

    truth = Newsroom(duration=32, rates=(12, 8), stories=12, seed=11).broadcast()
    assert figure("planted", "Stories") == 12
    assert figure("due", "Stories") == figure("found", "Stories") == len(truth.due) > 0
    assert figure("missed", "Stories") == figure("false", "Stories") == 0
    assert figure("rows", "The stream") == truth.rows
    assert "every pair of rows within the window, once" in out
    assert len(re.findall(r"^\d\d:\d\d:\d\d +0\.9", out, re.MULTILINE)) == len(truth.due)
    joined = re.search(r"pairs +(\d+) +ab.correlate found (\d+) among these rows", out)
    assert joined is not None and joined[1] == joined[2]
    # What it waits for, the finds, one line of how far it is; no line a batch.
    assert "starting Python workers (10 to 30 s the first time)" in out
    assert "batch " not in out
    assert re.search(rf"^on air: 100% sent, 100% compared, .* {len(truth.due)} stories", out, re.M)
    # Nothing of Spark's chatter on the screen, and nothing left on the disk.
    assert run.stderr == ""
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("anabranch")] == []


@pytest.mark.slow
@pytest.mark.spark
def test_ctrl_c_stops_the_demo_and_leaves_nothing_behind(tmp_path):
    said = ""
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli.main", "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            said += line
            if line.startswith("on air"):
                run.send_signal(signal.SIGINT)
        assert run.wait(timeout=120) == 130, said
    assert said.rstrip().endswith("Stopped: the query and Spark have ended.")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("anabranch")] == []
