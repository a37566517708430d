"""A checkpoint or a target that was brought back: no rows are lost without a word."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import StateMismatch
from anabranch.flow.delivery import Progress
from anabranch.spark.sinks import sink as sinks
from anabranch.spark.sinks.delta_table import _noted
from anabranch.spark.sinks.iceberg_table import Snapshot, _found
from anabranch.spark.sinks.sink import Batch, Sink
from tests.sinks import replay
from tests.sinks.driver import distinct
from tests.sinks.stories import SCRIPT, installed, needed
from tests.sinks.test_decisions import Frame, Memory
from tests.sinks.test_parquet import crashing, run
from tests.spark.feeds import PATIENCE, Feed, scripted
from tests.spark.processes import ROOT, driver

REPLANNED = "holds a batch {} that was planned at another time"

# ---------------------------------------------------------------- by one batch


@pytest.mark.parametrize("via", ["driver", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_checkpoint_from_one_batch_before(spark: Any, tmp_path: Path, via: str) -> None:
    """Its next batch has the number of the target's newest one, and rows that came since."""
    from pyspark.errors import StreamingQueryException

    feed, files = Feed(tmp_path), scripted(3, rows=(5, 5))
    sink = ab.sinks.parquet(str(tmp_path / "out"), app="rows", via=via)
    kept, checkpoint = tmp_path / "kept", tmp_path / "checkpoint"
    feed.add(files[:1])
    run(distinct(spark, feed), tmp_path, sink)
    shutil.copytree(checkpoint, kept)
    feed.add(files[1:2])
    run(distinct(spark, feed), tmp_path, sink)
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    with pytest.raises(StreamingQueryException, match=REPLANNED.format(1)):
        run(distinct(spark, feed), tmp_path, sink)


def test_a_repeated_batch_with_other_values_is_no_other_batch(spark: Any, tmp_path: Path) -> None:
    """What a query draws at random differs when a batch is honestly repeated."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions as F

    feed = Feed(tmp_path).add(scripted(2, rows=(5, 5)))
    out = tmp_path / "out"
    sink = ab.sinks.parquet(str(out), app="rows", via="driver")

    def drawn() -> Any:
        return distinct(spark, feed).withColumn("x", F.rand()).where("x < 0.9")

    with pytest.raises(StreamingQueryException, match="Crash"):
        run(drawn(), tmp_path, crashing(sink, 1))
    written = pq.read_table(out)
    assert run(drawn(), tmp_path, sink).exception() is None
    assert pq.read_table(out).equals(written)


@contextmanager
def target(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """What a sink of this name is called with."""
    if name == "parquet":
        yield {"path": str(folder / "table")}
    elif name == "delta":
        installed("deltalake")
        yield {"path": str(folder / "table")}
    elif name == "iceberg":
        installed("pyiceberg", "sqlalchemy")
        yield {"table": "lake.news.pairs", "catalog": lake(folder)}
    elif name == "kafka":
        from scripts.services.kafka import mock_broker

        installed("confluent_kafka")
        with mock_broker("pairs", "anabranch.progress.pairs") as servers:
            yield {"servers": servers, "topic": "pairs"}
    else:
        from scripts.services.postgres import server

        installed("psycopg")
        running = server()
        dsn = needed(running.__enter__)
        try:
            yield {"dsn": dsn, "table": "pairs"}
        finally:
            running.__exit__(None, None, None)


def lake(folder: Path) -> dict[str, str]:
    """A catalogue for pyiceberg in one file."""
    place = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    return {**place, "warehouse": f"file://{folder}/lake"}


class Written:
    """A sink of which every batch is given to a new object, as after a restart."""

    def __init__(self, name: str, call: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
        self.name, self.call, self.patch = name, call, patch

    def __call__(self, number: int, planned: str = "", app: str = "pairs", **more: Any) -> None:
        self.patch.setattr(sinks, "planned_of", lambda *_: planned)
        written = getattr(ab.sinks, self.name)(**self.call, app=app, via="driver", **more)
        written.target.shaped = lambda frame: replay.shaped(self.name, frame)
        rows = pa.Table.from_pylist(replay.rows(number), schema=replay.SCHEMA)
        written(replay.Played(rows), number)


SERVICES = ("delta", "iceberg", "kafka", "postgres")


@pytest.mark.parametrize(
    "name", ["parquet", *(pytest.param(n, marks=pytest.mark.services) for n in SERVICES)]
)
def test_every_target_notes_how_a_batch_was_planned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with target(name, tmp_path) as call:
        write = Written(name, call, monkeypatch)
        for number, planned in enumerate(("once", "twice")):
            write(number, planned)
            write(number, planned)  # an honest repeat
            with pytest.raises(StateMismatch, match=REPLANNED.format(number)):
                write(number, "at another time")
        write(2)  # where Spark does not say
        write(2, "once")


@pytest.mark.parametrize(
    "note", [Progress(7, "q"), Progress(7), Progress(7, "q", "rows=3"), Progress(7, "", "rows=4")]
)
def test_notes_of_before_are_not_refused(note: Progress) -> None:
    sinks.is_new("pairs", Progress(7, "q", "offsets=a0"), Progress.noted(7, note.origin))


# ---------------------------------------------------------------- where Spark does not say


def test_a_spark_that_lets_nobody_look_is_written_from_all_the_same() -> None:
    from py4j.protocol import Py4JError

    class Guarded:
        @property
        def sparkSession(self) -> Guarded:
            return self

        @property
        def _jsparkSession(self) -> Any:
            raise Py4JError("sharedState([]) is not allowed")

    assert sinks.planned_of(None, "", 3) == "", "without a query nobody looks"
    assert sinks.planned_of(Guarded(), "5a1c", 3) == ""


def test_a_batch_of_another_query_in_the_midst_of_a_start() -> None:
    """Only the first batch of a start may be there already; empty ones before it count too."""
    held = Memory()
    Sink(held, "pairs", None, 10)(Frame(3), 2)  # type: ignore[arg-type]
    another = Sink(held, "pairs", None, 10)
    for number in (0, 1):
        another(Frame(0), number)  # type: ignore[arg-type]
    with pytest.raises(StateMismatch, match=REPLANNED.format(2)):
        another(Frame(3), 2)  # type: ignore[arg-type]


def test_a_repeated_batch_with_another_number_of_rows_is_warned_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Written("parquet", {"path": str(tmp_path / "table")}, monkeypatch)
    write(3)
    with caplog.at_level(logging.WARNING, "anabranch.sinks"):
        write(3)
        assert not caplog.records
        monkeypatch.setattr(replay, "ROWS", 51)
        write(3)
    assert "batch 3 is there already, with rows=50 and not rows=51" in caplog.text


# ---------------------------------------------------------------- targets that went back


def said(ident: int, parent: int | None, batch: int, app: str = "a") -> Snapshot:
    names = {"anabranch.app": app, "anabranch.batch": str(batch), "anabranch.query": "q"}
    return Snapshot(ident, parent, names)


def test_only_ancestors_of_the_current_snapshot_count() -> None:
    line = [said(1, None, 4), said(2, 1, 5), said(3, 2, 6)]
    properties = {"anabranch.a": "6 q"}
    assert _found("a", 3, line, properties) == Progress(6, "q")
    assert _found("a", 1, line, properties) == Progress(4, "q"), "rolled back"
    assert _found("a", 4, [*line, said(4, 1, 5)], properties) == Progress(5, "q"), "and written"
    assert _found("b", 3, line, {"anabranch.b": "6 q"}) is None, "it never wrote what is there"
    assert _found("a", None, line, properties) is None
    expired = [said(9, 8, 0, "b")]  # and 8, which may have been the app's
    assert _found("a", 9, expired, properties) == Progress(6, "q")
    assert _found("a", 9, [*line, *expired], {}) == Progress(6, "q")


@pytest.mark.services
def test_an_iceberg_table_that_was_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with target("iceberg", tmp_path) as call:
        from pyiceberg.catalog import load_catalog

        write = Written("iceberg", call, monkeypatch)
        for number in range(3):
            write(number, "first")
        table = load_catalog("lake", **lake(tmp_path)).load_table("news.pairs")
        kept = table.snapshots()[0].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(kept).commit()
        for number in (0, 1, 2):  # 0 is there
            write(number, "first" if number == 0 else "again")
        rows = table.refresh().scan().to_arrow()
        assert sorted(rows["id"].to_pylist()) == list(range(3 * replay.ROWS))


@pytest.mark.services
def test_a_delta_table_that_was_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its note stays, so a batch that is no longer there must not be skipped."""
    with target("delta", tmp_path) as call:
        from deltalake import DeltaTable

        write = Written("delta", call, monkeypatch)
        for number in range(3):
            write(number, "first")
        DeltaTable(call["path"]).restore(1)
        with pytest.raises(StateMismatch, match="table was restored to version 1, from before it"):
            write(2, "first")
        with pytest.raises(StateMismatch, match="up to batch 2, and this query is at batch 1"):
            write(1, "first")
        write(2, "first", app="pairs-2")
        write(2, "first", app="pairs-2")
        ids = DeltaTable(call["path"]).to_pyarrow_table()["id"].to_pylist()
        assert sorted(ids) == list(range(3 * replay.ROWS))


def test_which_commits_of_a_delta_table_stand() -> None:
    def commit(version: int, batch: int | None = None, to: int | None = None) -> dict[str, Any]:
        by = {} if to is None else {"version": str(to)}
        said = None if batch is None else f"anabranch a {batch} q offsets=b{batch}"
        kind = "WRITE" if batch is not None or to is None else "RESTORE"
        return {
            "version": version,
            "operation": kind,
            "operationParameters": by,
            "userMetadata": said,
        }

    def found(batch: int, *commits: dict[str, Any]) -> Progress | None:
        asked = Batch("a", batch, "q", None, None, 3)  # type: ignore[arg-type]
        return _noted(asked, sorted(commits, key=lambda commit: -commit["version"]))

    written = [commit(version, version) for version in range(5)]
    assert found(4, *written, commit(5)) == Progress(4, "q", "offsets=b4")
    assert found(9, *written) is None
    nameless = {"version": 5, "userMetadata": None}  # a commit that does not say what it did
    assert found(4, *written, nameless) == Progress(4, "q", "offsets=b4")
    assert found(2, *written, commit(5, to=2)) == Progress(2, "q", "offsets=b2")
    with pytest.raises(StateMismatch, match="restored to version 2"):
        found(3, *written, commit(5, to=2), commit(6))
    again = commit(6, 3)
    assert found(3, *written, commit(5, to=2), again) == Progress(3, "q", "offsets=b3")
    # A restore that was itself undone counts no more.
    undone = [commit(5, to=2), commit(6, to=4)]
    assert found(4, *written, *undone) == Progress(4, "q", "offsets=b4")
    by_time = {**commit(5), "operation": "RESTORE", "operationParameters": {"version": None}}
    unsure = "it is not known whether the batch is still there"
    with pytest.raises(StateMismatch, match=f"restored to an older version: {unsure}"):
        found(4, *written, by_time)
    # Its own commit is not among those that are left.
    with pytest.raises(StateMismatch, match=f"restored to version 2: {unsure}"):
        found(9, *written, commit(5, to=2))


# ---------------------------------------------------------------- by the executors


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_by_the_jar_of_a_table(name: str, tmp_path: Path) -> None:
    """A checkpoint from one batch before is refused; with the table, it is continued."""
    settings, python = by_jar(name, tmp_path)
    here = {"delta": {"path": str(tmp_path / "table")}, "iceberg": {"table": "lake.news.rows"}}
    feed, files = Feed(tmp_path), scripted(3, rows=(5, 5))
    kept, checkpoint = tmp_path / "kept", tmp_path / "out.checkpoint"

    def play(app: str, *more: str, fails: str = "") -> str:
        call = {**here[name], "app": app, "via": "spark"}
        options = ["--result", "distinct", "--conf", json.dumps(settings), *more]
        given = (json.dumps(call), "--sink", name, *options)
        with driver(tmp_path, *given, script=SCRIPT, python=python) as run:
            if fails:
                assert run.process.wait(PATIENCE) != 0
                assert fails in run.tail()
            else:
                run.finish()
            return run.log.read_text()

    def bring_back() -> None:
        shutil.rmtree(checkpoint)
        shutil.copytree(kept, checkpoint)

    feed.add(files[:1])
    play("rows")
    shutil.copytree(checkpoint, kept)
    feed.add(files[1:2])
    play("rows")
    (checkpoint / "commits/1").unlink()
    assert "was there already" in play("rows"), "an honest repeat"
    bring_back()
    play("rows", fails=REPLANNED.format(1))
    bring_back()
    go_back(name, tmp_path, settings, python)
    if name == "delta":
        play("rows", fails="table was restored to version 0, from before it")
        bring_back()
    play("rows-2" if name == "delta" else "rows")
    assert asked(COUNT[name].format(tmp_path), tmp_path, settings, python) == "10"


COUNT = {
    "delta": "SELECT count(*) FROM delta.`{}/table`",
    "iceberg": "SELECT count(*) FROM lake.news.rows",
}


def by_jar(name: str, folder: Path) -> tuple[dict[str, str], str]:
    """Settings of a session that has the jar, and the Python of a Spark that it is made for."""
    from scripts.services.jars import fetched, python_with

    if name == "delta":
        settings = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    else:
        extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        settings = {
            "spark.sql.extensions": extensions,
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        }
    jars = ",".join(map(str, needed(lambda: fetched(name))))
    python = needed(lambda: python_with("4.2" if name == "delta" else "4.1"))
    return {"spark.jars": jars, **settings}, python


def go_back(name: str, folder: Path, settings: dict[str, str], python: str) -> None:
    """The table as of the first batch, by its own means."""
    if name == "delta":
        asked(f"RESTORE TABLE delta.`{folder}/table` TO VERSION AS OF 0", folder, settings, python)
        return
    first = "SELECT snapshot_id FROM lake.news.rows.snapshots WHERE summary['anabranch.batch'] = 0"
    ident = asked(first, folder, settings, python)
    call = f"CALL lake.system.rollback_to_snapshot('news.rows', {ident})"
    asked(call, folder, settings, python)


def asked(query: str, folder: Path, settings: dict[str, str], python: str) -> str:
    """The first value of what SQL returns, in a session of its own."""
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from tests.spark.sessions import new_session\n"
        "spark = new_session(Path(sys.argv[1]), 'local[1]', settings=json.loads(sys.argv[2]))\n"
        "print('answer', spark.sql(sys.argv[3]).first()[0])\n"
    )
    command = [python, "-c", script, str(folder), json.dumps(settings), query]
    env = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.rpartition("answer ")[2].strip()
