"""What a sink decides before it writes, without Spark and without any service."""

from __future__ import annotations

import json
import os
import pickle
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import LongType, StructField, StructType

import anabranch as ab
from anabranch.errors import InvalidCall, StateMismatch
from anabranch.flow.delivery import Progress, is_new, refuse_other_columns
from anabranch.flow.jdbc import jdbc_address, with_own_files
from anabranch.flow.zones import in_utc
from anabranch.spark.sinks.iceberg_table import IcebergTable, _kept, _newest
from anabranch.spark.sinks.kafka_topic import KafkaTopic, _Transaction
from anabranch.spark.sinks.parquet_folder import ParquetFolder
from anabranch.spark.sinks.postgres_table import PostgresTable, postgres_type
from anabranch.spark.sinks.sink import Batch, Sink, Target, Writer


class Session:
    """What a sink asks of a session."""


class Frame:
    """A micro-batch that counts how often it was computed."""

    sparkSession = Session()  # noqa: N815
    columns = ("a",)
    schema = StructType([StructField("a", LongType())])

    def __init__(self, rows: int = 3) -> None:
        self.table = pa.table({"a": list(range(rows))}, schema=pa.schema({"a": pa.int64()}))
        self.computed = self.kept = 0

    def toArrow(self) -> pa.Table:
        self.computed += not self.kept
        return self.table

    def persist(self) -> Frame:
        return self

    def count(self) -> int:
        self.computed += 1
        self.kept = True
        return int(self.table.num_rows)

    def unpersist(self) -> None:
        self.kept = False


class Memory(Target):
    """A target in memory, whose writes may fail."""

    verb = "sinks.memory"
    place = "memory"

    def __init__(self, no_driver: str | None = None, no_spark: str | None = None) -> None:
        self.held: list[tuple[int, str]] = []
        self.done: Progress | None = None
        self.no_driver, self.no_spark = no_driver, no_spark

    def types(self, frame: Any) -> Mapping[str, str]:
        return {"a": "bigint"}

    def driver_problem(self) -> str | None:
        return self.no_driver

    def spark_problem(self, spark: Any) -> str | None:
        return self.no_spark

    @contextmanager
    def open(self, batch: Batch) -> Iterator[Writer]:
        target = self

        class Open(Writer):
            done = target.done

            def write(self, columns: Mapping[str, str]) -> None:
                target.held.append((batch.number, "driver" if batch.table else "spark"))
                target.done = Progress(batch.number)

        yield Open()


def given(target: Target, via: str | None = None, small: int = 10) -> Sink:
    return Sink(target, "pairs", via, small)


def test_a_batch_that_comes_again_is_computed_and_not_written() -> None:
    target, frames = Memory(), [Frame(), Frame(), Frame()]
    for number, frame in zip((4, 4, 5), frames, strict=True):
        given(target)(frame, number)  # type: ignore[arg-type]
    assert [number for number, _ in target.held] == [4, 5]
    assert [frame.computed for frame in frames] == [1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "via", "way"),
    [(3, None, "driver"), (11, None, "spark"), (11, "driver", "driver"), (3, "spark", "spark")],
)
def test_size_decides_unless_the_way_is_given(rows: int, via: str | None, way: str) -> None:
    target, frame = Memory(), Frame(rows)
    given(target, via)(frame, 0)  # type: ignore[arg-type]
    assert target.held == [(0, way)]
    assert frame.computed == 1 and not frame.kept


@pytest.mark.parametrize(("lacks", "way"), [("no_spark", "driver"), ("no_driver", "spark")])
def test_what_there_is_decides_first(lacks: str, way: str) -> None:
    target = Memory(**{lacks: "install it"})
    for number, rows in enumerate((3, 11)):
        given(target)(Frame(rows), number)  # type: ignore[arg-type]
    assert target.held == [(0, way), (1, way)]


def test_a_restored_checkpoint_is_told_to_restore_the_target_too() -> None:
    """Its batches may hold other rows than those that the target has under their numbers."""
    with pytest.raises(StateMismatch, match=r"at batch 4: .* restore the target as of then too"):
        is_new("pairs", Progress(4, "q"), Progress(7, "q"))


def test_no_way_at_all_names_both_remedies() -> None:
    with pytest.raises(InvalidCall, match=r"(?s)install a.*start b"):
        given(Memory("install a", "start b"))(Frame(), 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall) as one:
        given(Memory("install a", "install a"))(Frame(), 0)  # type: ignore[arg-type]
    assert one.value.problems == ("install a",)
    with pytest.raises(InvalidCall, match="install a"):
        given(Memory("install a"), "driver")
    with pytest.raises(InvalidCall, match="via='spark': start b"):
        given(Memory(None, "start b"), "spark")(Frame(), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("frame", "number"), [(Frame(), None), ("x", 0), (Frame(), -1)])
def test_a_sink_says_who_calls_it(frame: Any, number: Any) -> None:
    with pytest.raises(InvalidCall, match="foreachBatch calls a sink with a DataFrame and the num"):
        given(Memory())(frame, number)


def test_what_is_no_folder_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place, why in ((str(file), "is a file, or lies below one"), ("foo://x", "foo://x")):
        with pytest.raises(InvalidCall, match=f"path must be a folder: .*{why}"):
            given(ParquetFolder(place))(Frame(), 0)  # type: ignore[arg-type]


def test_an_empty_batch_is_computed_and_leaves_no_trace() -> None:
    target, frame = Memory(), Frame(0)
    given(target)(frame, 3)  # type: ignore[arg-type]
    assert frame.computed == 1 and target.held == [] and target.done is None


def test_numbers_may_skip_but_not_return() -> None:
    assert is_new("a", Progress(9), Progress(5))
    with pytest.raises(StateMismatch, match="up to batch 5, and this query is at batch 4"):
        is_new("a", Progress(4), Progress(5))


def test_two_queries_under_one_name_are_told_apart() -> None:
    with pytest.raises(StateMismatch, match="belongs to query q1, and this is query q2"):
        is_new("a", Progress(9, "q2"), Progress(5, "q1"))
    assert is_new("a", Progress(9), Progress(5, "q1"))
    assert not is_new("a", Progress(5, "q1"), Progress(5, "q1"))


def test_columns() -> None:
    refuse_other_columns("v", "t", None, {"a": "int"})
    refuse_other_columns("v", "t", {"b": "int", "a": "int"}, {"a": "int", "b": "int"})
    with pytest.raises(InvalidCall) as error:
        refuse_other_columns("v", "t", {"a": "int", "b": "int"}, {"a": "bigint", "c": "int"})
    assert len(error.value.problems) == 3


@pytest.mark.parametrize("app", ["", "a/b", "../up", None, 7, "x" * 101, "a b"])
def test_names_that_are_no_app(app: Any) -> None:
    with pytest.raises(InvalidCall, match="app must be a name"):
        ab.sinks.parquet("folder", app=app)


def test_a_call_names_all_that_is_wrong_with_it() -> None:
    with pytest.raises(InvalidCall) as error:
        ab.sinks.parquet("folder", app="a b", via="jvm", small=-1)
    assert len(error.value.problems) == 3
    for table in ("pairs", "a..c", "a.b.", ".b.c"):
        with pytest.raises(InvalidCall, match=r"catalog\.namespace\.table"):
            ab.sinks.iceberg(table, app="a")
    with pytest.raises(InvalidCall, match=r"named table or schema\.table, got 'a\.\.b'"):
        ab.sinks.postgres("host=db", "a..b", app="a")
    with pytest.raises(InvalidCall, match="jdbc must be a text, got 5"):
        ab.sinks.postgres("host=db", "t", app="a", jdbc=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="topic must be a text"):
        ab.sinks.kafka("broker:9092", None, app="a")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="it has delta, iceberg"):
        _ = ab.sinks.mysql


@pytest.mark.parametrize("name", ["deltalake", "pyiceberg", "psycopg", "confluent_kafka"])
def test_a_missing_package_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.spark.sinks.sink.find_spec", lambda _: None)
    make = {
        "deltalake": lambda: ab.sinks.delta("p", app="a", via="driver"),
        "pyiceberg": lambda: ab.sinks.iceberg("a.b.c", app="a", via="driver"),
        "psycopg": lambda: ab.sinks.postgres("host=db", "t", app="a", via="driver"),
        "confluent_kafka": lambda: ab.sinks.kafka("b", "t", app="a", via="driver"),
    }[name]
    with pytest.raises(InvalidCall, match=rf"{name} not installed: pip install 'anabranch\["):
        make()


def test_sinks_travel_to_a_server() -> None:
    for sink in (
        ab.sinks.delta("p", app="a"),
        ab.sinks.iceberg("a.b.c", app="a", catalog={"type": "sql"}),
        ab.sinks.postgres("host=db", "t", app="a"),
        ab.sinks.kafka("b", "t", app="a", key="id"),
        ab.sinks.parquet("p", app="a"),
    ):
        assert repr(pickle.loads(pickle.dumps(sink))) == repr(sink)


def test_the_newest_summary_of_an_app_counts() -> None:
    def summary(app: str, batch: int) -> dict[str, str]:
        return {"anabranch.app": app, "anabranch.batch": str(batch), "anabranch.query": "q"}

    summaries = [{}, summary("a", 9), summary("b", 12), summary("a", 10)]
    assert _newest("a", summaries) == Progress(10, "q")
    assert _newest("c", summaries) is None
    kept = _kept("a", {"anabranch.a": "12 q", "anabranch.b": "15"})
    assert _newest("a", summaries + kept) == Progress(12, "q")
    assert _kept("c", {}) == _kept("a", {"anabranch.a": "*********(redacted)"}) == []


@pytest.mark.parametrize("name", ["spark.wap.branch", "spark.wap.id"])
def test_iceberg_is_written_by_spark_on_its_main_branch_alone(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where a batch that comes again is looked for."""
    settings = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
    session: Any = SimpleNamespace(conf=settings)
    target = IcebergTable("lake.news.rows", {})
    monkeypatch.setattr(target, "driver_problem", lambda: None)
    assert given(target, "spark")._way(session) == "spark"
    assert given(target)._way(session) is None
    settings[name] = "audit"
    with pytest.raises(InvalidCall, match=f"via='spark': the session sets {name}, .*unset {name}"):
        given(target, "spark")._way(session)
    assert given(target)._way(session) == given(target, "driver")._way(session) == "driver"


def test_records_of_kafka_are_the_same_either_way() -> None:
    """A null value is a tombstone: it deletes its key in a compacted topic."""
    given: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"v"),
        (b"k", None),
        (None, b"v"),
        (b"", b""),
    ]
    keys, values = (pa.array(column, pa.binary()) for column in zip(*given, strict=True))
    table = pa.table({"key": keys, "value": values})

    class Rows(Frame):
        def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[Row]:
            for key, value in given:
                binary = [None if part is None else bytearray(part) for part in (key, value)]
                yield Row("key", "value")(*binary)

    for arrow in (table, None):
        batch = Batch("pairs", 3, "q", Rows(), arrow, len(given))  # type: ignore[arg-type]
        sent = _Transaction(KafkaTopic("b", "t", (), {}), batch, None, None)
        assert list(sent._records()) == given


def test_postgres_types_and_addresses() -> None:
    kinds = ["array<decimal(5,1)>", "array<array<int>>", "struct<a:int>", "array<struct<a:int>>"]
    assert [postgres_type(kind) for kind in kinds] == ["numeric(5,1)[]", "jsonb", "jsonb", "jsonb"]
    pytest.importorskip("psycopg")
    assert PostgresTable("host=/tmp dbname=d", "t", None).url is None
    assert PostgresTable("postgresql://me@db/d", "t", None).url == (
        "jdbc:postgresql://db:5432/d?user=me"
    )


SAFE = "host=a,b port=5432,5433 dbname=d user=me password='p w&x' sslmode=verify-full "


def test_executors_connect_to_postgres_as_the_driver_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("HOME", str(tmp_path))
    dsn = SAFE + "sslrootcert=/ca.pem options='-c search_path=x' application_name=n"
    assert PostgresTable(dsn, "t", None).url == (
        "jdbc:postgresql://a:5432,b:5433/d?user=me&password=p%20w%26x&sslmode=verify-full"
        "&sslrootcert=%2Fca.pem&options=-c%20search_path%3Dx&ApplicationName=n"
    )
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGPORT", "7")
    me = quote(pwd.getpwuid(os.geteuid()).pw_name)  # whatever USER says
    monkeypatch.setenv("USER", "somebody")
    url = f"jdbc:postgresql://db:7/?user={me}&sslmode="
    assert PostgresTable("host=db", "t", None).url == f"{url}verify-full"
    monkeypatch.delenv("PGSSLMODE")
    monkeypatch.setenv("PGREQUIRESSL", "1")
    assert PostgresTable("host=db", "t", None).url == f"{url}require"
    assert PostgresTable("host=db sslmode=disable", "t", None).url == f"{url}disable"
    monkeypatch.setenv("PGUSER", "you")
    assert "?user=you&" in str(PostgresTable("host=db", "t", None).url)
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql/root.crt").touch()
    assert "sslmode=verify-ca&sslrootcert=" in str(PostgresTable("host=db", "t", None).url)
    monkeypatch.setenv("PGSSLCRL", "/revoked.pem")
    assert PostgresTable("host=db", "t", None).url is None


def test_files_that_the_driver_takes_by_itself_are_said_to_java(tmp_path: Path) -> None:
    """They make a connection check who answers: that of executors must not be less safe."""
    folder = tmp_path / ".postgresql"
    folder.mkdir()
    authorities, revoked = folder / "root.crt", folder / "root.crl"
    required = {"host": "db", "sslmode": "require"}
    revoked.touch()
    assert with_own_files(required, tmp_path) == required  # it is not read
    authorities.touch()
    found = with_own_files(required, tmp_path)
    assert found == {**required, "sslrootcert": str(authorities), "sslcrl": str(revoked)}
    assert jdbc_address(found) == (None, ["sslcrl"])
    revoked.unlink()
    address, _ = jdbc_address(with_own_files(required, tmp_path))
    assert address is not None and "sslmode=verify-ca&sslrootcert=" in address
    own = {**required, "sslrootcert": "/ca.pem"}
    assert with_own_files(own, tmp_path) == own
    for mode in ({}, {"sslmode": "prefer"}, {"sslmode": "disable"}):
        assert with_own_files({"host": "db", **mode}, tmp_path) == {"host": "db", **mode}


def test_what_older_drivers_of_java_leave_out_unsaid_is_refused() -> None:
    for name, value in (("channel_binding", "require"), ("sslnegotiation", "direct")):
        assert jdbc_address({"host": "db", name: value}) == (None, [f"{name}={value}"])
    for name, value in (("channel_binding", "prefer"), ("sslnegotiation", "postgres")):
        assert jdbc_address({"host": "db", name: value}) == ("jdbc:postgresql://db:5432/", [])


UNKNOWN = {
    "sslcrl=/revoked.pem": "sslcrl",
    "sslrootcert=system": "sslrootcert=system",
    "target_session_attrs=standby": "target_session_attrs=standby",
    "requirepeer=me sslcertmode=require": "requirepeer, sslcertmode",
    "hostaddr=10.0.0.1": "hostaddr",
    "channel_binding=require": "channel_binding=require",
}


@pytest.mark.parametrize("setting", UNKNOWN)
def test_what_jdbc_cannot_be_given_is_named(setting: str) -> None:
    """It goes through the driver whatever its size, or not at all, and never without it."""
    pytest.importorskip("psycopg")
    dsn = f"host=db {setting}"
    with pytest.raises(InvalidCall, match=f"via='spark': dsn sets {UNKNOWN[setting]}, which JDBC"):
        ab.sinks.postgres(dsn, "t", app="a", via="spark")
    ab.sinks.postgres(dsn, "t", app="a", via="spark", jdbc="jdbc:postgresql://db/d")
    by_size = ab.sinks.postgres(dsn, "t", app="a", small=0)
    assert by_size._way(Session()) == "driver"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dsn", "why"),
    [
        ("news", "a name has no = after it"),
        ("host=db pasword=s3cret", "it has a setting that there is not; did you mean 'password'"),
        ("host=db password=my s3cret=x", "it has a setting that there is not"),
        ("host=db password=my s3cret", "a value with spaces needs quotes"),
        ("host=db password='s3cret", "a quote has no end"),
        ("postgresql://db/news?sslmod=s3cret", "did you mean 'sslmode'"),
        ("postgresql://me:100%s3cret@db/news", "% is written %25"),
        ("postgresql://me:s3cret@[::1/db", "it cannot be read"),
        ("postgresql+psycopg://me:s3cret@db/news", "a name has no = after it"),
    ],
)
@pytest.mark.parametrize("via", [None, "driver", "spark"])
def test_a_dsn_that_is_none_is_named_at_the_call(dsn: str, why: str, via: str | None) -> None:
    """Without what it holds: that may be a password."""
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidCall, match="dsn must be an address of PostgreSQL, ") as raised:
        ab.sinks.postgres(dsn, "t", app="a", via=via)
    assert why in str(raised.value) and "s3cret" not in str(raised.value)


def test_instants_in_utc_at_any_depth() -> None:
    zoned, utc = (pa.timestamp("us", zone) for zone in ("Asia/Tokyo", "UTC"))

    def kinds(time: pa.DataType) -> list[pa.DataType]:
        return [time, pa.list_(time), pa.struct({"t": time}), pa.map_(pa.string(), time)]

    values = [[7], [[7]], [{"t": 7}], [[("k", 7)]]]

    def table(time: pa.DataType) -> pa.Table:
        pairs = zip(values, kinds(time), strict=True)
        return pa.table({str(n): pa.array(v, kind) for n, (v, kind) in enumerate(pairs)})

    assert in_utc(table(zoned)).equals(table(utc))
    local = pa.table({"t": pa.array([7], pa.timestamp("us"))})
    assert in_utc(local) is local


def test_every_sink_of_the_page_can_be_made() -> None:
    page = (Path(__file__).parents[2] / "docs/connect.md").read_text()
    block = page.partition("## Every sink\n")[2].partition("```python\n")[2].partition("```")[0]
    made = [eval(line, {"ab": ab}) for line in block.strip().splitlines()]
    assert [type(sink) for sink in made] == [Sink] * len(ab.sinks.__all__)


NOTE = {"batch": 3, "query": "q", "files": ["part-0.parquet"], "columns": {"a": "bigint"}}
WRONG_NOTES = {
    "torn": '{"batch": 3, "que',
    "a list": "[]",
    "no files": json.dumps({**NOTE, "files": None}),
    "a batch in words": json.dumps({**NOTE, "batch": "3"}),
    "a path": json.dumps({**NOTE, "files": ["../../secret.parquet"]}),
    "an absolute path": json.dumps({**NOTE, "files": ["/secret.parquet"]}),
    "another drive": json.dumps({**NOTE, "files": ["..\\secret.parquet"]}),
    "no Parquet": json.dumps({**NOTE, "files": [".."]}),
}


@pytest.mark.parametrize("what", WRONG_NOTES)
def test_a_note_of_a_parquet_folder_names_only_its_own_files(tmp_path: Path, what: str) -> None:
    notes = tmp_path / "table" / "_anabranch" / "pairs"
    (notes / "batch-0000000003").mkdir(parents=True)
    (notes / "batch-0000000003" / "part-0.parquet").touch()
    secret = tmp_path / "table" / "_anabranch" / "secret.parquet"
    secret.touch()
    target = ParquetFolder(str(tmp_path / "table"))
    note = notes / "0000000003.json"
    note.write_text(WRONG_NOTES[what])
    batch = Batch("pairs", 3, "q", Frame(), None, 0)  # type: ignore[arg-type]
    refused = pytest.raises(StateMismatch, match=r"note .*0000000003.json cannot be read")
    with refused, target.open(batch):
        pass
    assert secret.exists()
    note.write_text(json.dumps(NOTE))
    with target.open(batch) as writer:
        assert writer.done == Progress(3, "q")
    assert [path.name for path in (tmp_path / "table").glob("*.parquet")] == [
        "pairs-0000000003-00000.parquet"
    ]
