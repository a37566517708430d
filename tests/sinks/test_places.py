"""A batch counts only where its rows are: paths that mean two places, and disks of executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import InvalidCall, StateMismatch
from anabranch.flow.delivery import Progress
from anabranch.spark.sinks import places
from anabranch.spark.sinks.delta_table import DeltaFolder, _BySpark
from anabranch.spark.sinks.parquet_folder import _INSTANTS
from anabranch.spark.sinks.sink import Batch, Sink
from tests.sinks.test_decisions import Frame, Memory


class Settings(dict[str, str]):
    """What a sink asks of a session's settings."""

    set = dict.__setitem__


class Session:
    """A session on a cluster."""

    def __init__(self, master: str = "spark://host:7077") -> None:
        self.conf = Settings({"spark.master": master, _INSTANTS: "INT96"})


class Executed(Frame):
    """A micro-batch that executors write: to the folder itself, or to the same path elsewhere."""

    def __init__(self, rows: int, elsewhere: Path | None, session: Any = None) -> None:
        super().__init__(rows)
        self.sparkSession = session or Session()
        self.elsewhere = elsewhere
        self.asked: list[str] = []
        self.saved: list[str] = []

    @property
    def write(self) -> Executed:
        return self

    def selectExpr(self, *_: str) -> Executed:
        return self

    def parquet(self, place: str) -> None:
        self.asked.append(place)
        here = Path(place.removeprefix("file://"))
        here.mkdir(parents=True)
        (here / "_SUCCESS").touch()  # which the driver writes
        there = here if self.elsewhere is None else self.elsewhere / place.lstrip("/")
        there.mkdir(parents=True, exist_ok=True)
        half = self.table.num_rows // 2
        for n, part in enumerate((self.table.slice(0, half), self.table.slice(half))):
            pq.write_table(part, there / f"part-{n}.snappy.parquet")

    def format(self, _: str) -> Executed:
        return self

    options = option = mode = lambda self, *_, **__: self

    def save(self, place: str) -> None:
        self.saved.append(place)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


def parquet(path: Path) -> Sink:
    sink = ab.sinks.parquet(str(path), app="pairs", via="spark")
    sink.target.types = lambda _: {"a": "bigint"}  # type: ignore[method-assign]
    return sink


def test_rows_on_disks_of_executors_are_not_noted(tmp_path: Path, folder: Path) -> None:
    """The driver finds what it has written itself, which looks like a batch without files."""
    sink = parquet(folder)
    with pytest.raises(StateMismatch, match=r"batch 0 has 5 rows, and the driver finds 0 of .*tab"):
        sink(Executed(5, tmp_path / "executor"), 0)  # type: ignore[arg-type]
    assert list((folder / "_anabranch/pairs").glob("*.json*")) == []
    sink(Executed(5, None), 0)  # type: ignore[arg-type]
    sink(Executed(3, None), 1)  # type: ignore[arg-type]
    assert pq.read_table(folder)["a"].to_pylist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_rows_of_which_a_part_is_elsewhere_are_not_noted(folder: Path) -> None:
    """An executor beside the driver shares its disk, the others do not."""

    class Halved(Executed):
        def parquet(self, place: str) -> None:
            super().parquet(place)
            (Path(place) / "part-1.snappy.parquet").unlink()

    with pytest.raises(StateMismatch, match=r"has 5 rows, and the driver finds 2 of"):
        parquet(folder)(Halved(5, None), 0)  # type: ignore[arg-type]
    assert list(folder.glob("*.parquet")) == []


def delta(frame: Executed, path: str) -> None:
    batch = Batch("pairs", 0, "", frame, None, frame.table.num_rows)  # type: ignore[arg-type]
    _BySpark(DeltaFolder(path, {}), batch).write({"a": "bigint"})


def test_delta_names_no_files_that_only_executors_have(tmp_path: Path, folder: Path) -> None:
    """Its commit names them unseen, so a look at what executors write comes before it."""
    lost = Executed(5, tmp_path / "executor")
    with pytest.raises(StateMismatch, match=r"batch 0 has 5 rows, and the driver finds 0 of"):
        delta(lost, str(folder))
    assert lost.saved == []
    for path in (str(folder), f"file://{folder}"):
        shared = Executed(5, None)
        delta(shared, path)
        assert shared.saved == [path] and len(shared.asked) == 1
        assert list(folder.iterdir()) == [], "what was written to look is removed"


@pytest.mark.parametrize(
    ("master", "path"), [("local[4]", "table"), ("yarn", "hdfs://nn/table"), ("yarn", "s3://b/t")]
)
def test_what_all_share_anyway_is_not_tried(master: str, path: str, tmp_path: Path) -> None:
    frame = Executed(5, tmp_path, Session(master))
    delta(frame, path)
    assert frame.asked == [] and frame.saved == [places.absolute_path(path)]


@pytest.fixture
def hadoop(spark: Any) -> Iterator[Any]:
    """A session of a cluster whose paths without a scheme are those of another filesystem."""
    spark.conf.set("fs.defaultFS", "hdfs://namenode:8020")
    yield spark
    spark.conf.unset("fs.defaultFS")


def test_a_path_that_means_two_places_is_refused(hadoop: Any, folder: Path) -> None:
    rows = hadoop.range(3)
    words = f"write 'hdfs://namenode:8020{folder}', or 'file://{folder}' for a folder"
    for make in (ab.sinks.parquet, ab.sinks.delta):
        for via in (None, "spark"):
            with pytest.raises(InvalidCall, match=words):
                make(str(folder), app="rows", via=via)(rows, 0)
    assert not folder.exists()
    ab.sinks.parquet(f"file://{folder}", app="rows", via="spark")(rows, 0)
    assert sorted(pq.read_table(folder)["id"].to_pylist()) == [0, 1, 2]
    assert places.path_problem(hadoop, "s3://bucket/pairs") is None
    for make in (ab.sinks.parquet, ab.sinks.delta):
        with pytest.raises(InvalidCall, match=r"a%20d' has a %, which the driver reads as"):
            make(f"file://{folder}/a%20d", app="rows", via="spark")(rows, 0)
    assert "hdfs://namenode:8020/.../pairs" in str(places.path_problem(hadoop, "pairs"))


def test_paths_that_mean_one_place(spark: Any) -> None:
    assert places.path_problem(spark, "/data/pairs") is None
    assert places.qualified(spark, "/data/pairs") == "file:/data/pairs"
    assert places.qualified(spark, "s3://bucket/pairs") == "s3://bucket/pairs"
    connect = Session()  # does not say what Hadoop's configuration is
    assert places.path_problem(connect, "/data/pairs") is None
    assert places.qualified(connect, "/data/pairs") is None
    connect.conf["spark.hadoop.fs.defaultFS"] = "dbfs:/"
    assert places.path_problem(connect, "/Volumes/news/pairs") is None
    assert "write 'dbfs:/data/pairs'" in str(places.path_problem(connect, "/data/pairs"))


def test_two_tables_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches are in the one that the driver's package reaches; a large one comes."""
    target = Memory()
    monkeypatch.setattr(Memory, "elsewhere", lambda *_: Progress(7))
    with pytest.raises(StateMismatch, match=r"memory means two targets: .* up to 7\. Let both"):
        Sink(target, "pairs", None, 2)(Frame(3), 8)  # type: ignore[arg-type]
    assert target.held == []
    Sink(target, "pairs", "spark", 2)(Frame(3), 8)  # type: ignore[arg-type]
    Sink(target, "pairs", None, 2)(Frame(3), 9)  # type: ignore[arg-type]
    assert target.held == [(8, "spark"), (9, "spark")]


def test_rows_are_counted_by_what_files_say(tmp_path: Path) -> None:
    from pyarrow import fs

    for rows in (2, 3):
        pq.write_table(pa.table({"a": list(range(rows))}), tmp_path / f"{rows}.parquet")
    assert places.rows_in(fs.LocalFileSystem(), map(str, tmp_path.iterdir())) == 5
    assert places.rows_in(fs.LocalFileSystem(), []) == 0
