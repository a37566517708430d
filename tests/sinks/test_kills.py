"""Every sink is killed between any two of its commits; its target then equals the batch answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import StateMismatch
from anabranch.spark.sinks.sink import Batch
from tests.sinks.stories import (
    SCRIPT,
    in_utc,
    installed,
    killed_everywhere,
    needed,
    replayed_through_kills,
    same,
)
from tests.spark.feeds import PATIENCE, Feed, scripted
from tests.spark.processes import driver

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    from scripts.services.postgres import server

    installed("psycopg")
    running = server()
    dsn = needed(running.__enter__)
    yield dsn
    running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    from scripts.services.kafka import broker

    installed("confluent_kafka")
    running = broker()
    servers = needed(running.__enter__)
    yield servers
    running.__exit__(None, None, None)


def lake(folder: Path) -> dict[str, str]:
    """A catalogue for pyiceberg in one file."""
    place = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    return {**place, "warehouse": f"file://{folder}/lake"}


# ---------------------------------------------------------------- the sinks alone, at every step


def test_parquet(tmp_path: Path) -> None:
    call = {"path": str(tmp_path / "table"), "app": "pairs"}
    steps = ["consumed", "staged", "noted", "moved 0"]
    want = replayed_through_kills(tmp_path, "parquet", call, steps)
    same(pq.read_table(call["path"]).to_pylist(), want)


def test_delta(tmp_path: Path) -> None:
    installed("deltalake")
    from deltalake import DeltaTable

    call = {"path": str(tmp_path / "table"), "app": "pairs"}
    want = replayed_through_kills(tmp_path, "delta", call, ["consumed", "ready"])
    table = DeltaTable(call["path"])
    same(table.to_pyarrow_table().to_pylist(), want)
    assert len(table.history()) == 6


def test_iceberg(tmp_path: Path) -> None:
    installed("pyiceberg", "sqlalchemy")
    from pyiceberg.catalog import load_catalog

    call = {"table": "lake.news.pairs", "app": "pairs", "catalog": lake(tmp_path)}
    want = replayed_through_kills(tmp_path, "iceberg", call, ["table made", "consumed", "ready"])
    table = load_catalog("lake", **lake(tmp_path)).load_table("news.pairs")
    same(table.scan().to_arrow().to_pylist(), want)


def test_postgres(tmp_path: Path, postgres: str) -> None:
    call = {"dsn": postgres, "table": "alone", "app": "pairs"}
    want = replayed_through_kills(tmp_path, "postgres", call, ["consumed", "ready"])
    got = selected(postgres, "alone")
    assert {type(row["s"]) for row in got} == {dict}
    same(plain(got), plain(want))


def test_kafka(tmp_path: Path, kafka: str) -> None:
    call = {"servers": kafka, "topic": "alone", "app": "alone"}
    steps = ["consumed", "half sent", "ready"]
    want = replayed_through_kills(tmp_path, "kafka", call, steps)
    same(plain([json.loads(value) for value in committed(kafka, "alone")]), plain(want))


def test_kafka_without_maven(tmp_path: Path) -> None:
    """The broker inside librdkafka keeps what was aborted, so no kill is inside a transaction."""
    from scripts.services.kafka import mock_broker

    installed("confluent_kafka")
    with mock_broker("alone", "anabranch.progress.alone") as servers:
        call = {"servers": servers, "topic": "alone", "app": "alone"}
        want = replayed_through_kills(tmp_path, "kafka", call, ["consumed"])
        same(plain([json.loads(value) for value in committed(servers, "alone")]), plain(want))


# ---------------------------------------------------------------- what else ends a batch


def played(number: int) -> Any:
    """A batch for the way through the driver, without Spark."""
    from tests.sinks import replay

    return replay.Played(pa.Table.from_pylist(replay.rows(number), schema=replay.SCHEMA))


def sink_of(name: str, **call: Any) -> Any:
    from tests.sinks import replay

    sink = getattr(ab.sinks, name)(**call, via="driver")
    sink.target.shaped = lambda frame: replay.shaped(name, frame)
    return sink


def test_postgres_by_a_user_who_may_make_no_table(tmp_path: Path, postgres: str) -> None:
    import psycopg

    sink_of("postgres", dsn=postgres, table="theirs", app="owner")(played(0), 0)
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE ROLE writer LOGIN")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        rights = "GRANT SELECT, INSERT, UPDATE ON theirs, anabranch_progress TO writer"
        connection.execute(rights)
    theirs = postgres.replace("user=anabranch", "user=writer")
    sink_of("postgres", dsn=theirs, table="theirs", app="writer")(played(1), 0)
    assert len(selected(postgres, "theirs")) == 100


def test_two_queries_that_begin_at_once_share_the_table_of_progress(postgres: str) -> None:
    import psycopg

    from anabranch.spark.sinks import postgres_table

    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE SCHEMA fresh")
    dsn = f"{postgres} options='-c search_path=fresh'"
    with psycopg.connect(dsn) as first, ThreadPoolExecutor() as pool:
        first.execute(postgres_table._PROGRESS)  # not yet committed
        sink = sink_of("postgres", dsn=dsn, table="second", app="second")
        second = pool.submit(sink, played(0), 0)
        while not waiting(postgres):
            assert not second.done(), second.exception()
        first.commit()
        second.result(30)
    assert len(selected(dsn, "second")) == 50


def waiting(dsn: str) -> bool:
    """Whether a connection waits for another one's transaction."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool(found.fetchall())


def test_kafka_ends_a_batch_that_takes_too_long(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same codes as if another query had begun, so the error names both causes."""

    def slowly(batch: Any, step: str) -> None:
        if step == "ready":
            time.sleep(25)  # the broker looks every ten seconds

    options = {"transaction.timeout.ms": "1000"}
    call = {"servers": kafka, "topic": "slow", "app": "slow", "options": options}
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "reached", slowly)
        with pytest.raises(StateMismatch, match=r"not sent within transaction\.timeout\.ms"):
            sink_of("kafka", **call)(played(0), 0)
    sink_of("kafka", **call)(played(0), 0)
    assert len(committed(kafka, "slow")) == 50


# ---------------------------------------------------------------- with Spark


def test_parquet_by_spark(tmp_path: Path) -> None:
    call = {"path": str(tmp_path / "table"), "app": "pairs", "via": "spark"}
    steps = ["consumed", "staged", "noted", "moved 0"]
    want = killed_everywhere(tmp_path, "parquet", call, steps, "--result", "distinct")
    same(pq.read_table(call["path"]).to_pylist(), want)


def test_through_connect(tmp_path: Path) -> None:
    """The sink travels to the server; Spark's commit is what is lost."""
    call = {"path": str(tmp_path / "table"), "app": "rows"}
    Feed(tmp_path).add(scripted(2, rows=(8, 8), seed=21))
    given = (json.dumps(call), "--sink", "parquet", "--result", "distinct", "--remote", "local[2]")
    with driver(tmp_path, *given, script=SCRIPT) as run:
        run.finish()
    (tmp_path / "out.checkpoint/commits/1").unlink()
    with driver(tmp_path, *given, "--batch", script=SCRIPT) as run:
        run.finish()
    want = pq.read_table(tmp_path / "batch").to_pylist()
    same(pq.read_table(call["path"]).to_pylist(), want)
    assert len(want) == 16


def test_pairs_to_delta(tmp_path: Path) -> None:
    installed("deltalake")
    from deltalake import DeltaTable

    call = {"path": str(tmp_path / "table"), "app": "pairs"}
    want = killed_everywhere(tmp_path, "delta", call, [])
    same(DeltaTable(call["path"]).to_pyarrow_table().to_pylist(), want)


def test_rows_to_iceberg(tmp_path: Path) -> None:
    installed("pyiceberg", "sqlalchemy")
    from pyiceberg.catalog import load_catalog

    call = {"table": "lake.news.rows", "app": "rows", "catalog": lake(tmp_path)}
    want = killed_everywhere(tmp_path, "iceberg", call, [], "--result", "distinct")
    table = load_catalog("lake", **lake(tmp_path)).load_table("news.rows")
    same(table.scan().to_arrow().to_pylist(), want)


@pytest.mark.parametrize(
    ("via", "steps"), [("driver", []), ("spark", ["consumed", "stage made", "staged", "ready"])]
)
def test_rows_to_postgres(tmp_path: Path, postgres: str, via: str, steps: list[str]) -> None:
    from scripts.services.jars import fetched

    table = f"rows_{via}"
    call = {"dsn": postgres, "table": table, "app": "rows", "via": via}
    options = ["--result", "distinct"]
    if via == "spark":
        jars = ",".join(map(str, needed(lambda: fetched("postgres"))))
        options += ["--conf", json.dumps({"spark.jars": jars})]
    want = killed_everywhere(tmp_path, "postgres", call, steps, *options)
    same(plain(selected(postgres, table)), plain(want))


@pytest.mark.parametrize(
    ("via", "steps"), [("driver", []), ("spark", ["consumed", "half sent", "ready"])]
)
def test_rows_to_kafka(tmp_path: Path, kafka: str, via: str, steps: list[str]) -> None:
    topic = f"rows-{via}"
    call = {"servers": kafka, "topic": topic, "app": topic, "key": ["id", "day"], "via": via}
    want = killed_everywhere(tmp_path, "kafka", call, steps, "--result", "distinct")
    got = [json.loads(value) for value in committed(kafka, topic)]
    same(plain(got), plain(want))


DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def with_jars(name: str, **settings: str) -> list[str]:
    """Options of a driver that has the jars of a set."""
    from scripts.services.jars import fetched

    jars = ",".join(map(str, needed(lambda: fetched(name))))
    return ["--result", "distinct", "--conf", json.dumps({"spark.jars": jars, **settings})]


def test_delta_by_spark(tmp_path: Path) -> None:
    installed("deltalake")
    from deltalake import DeltaTable

    from scripts.services.jars import python_with

    options, python = with_jars("delta", **DELTA), needed(lambda: python_with("4.2"))
    call = {"path": str(tmp_path / "table"), "app": "rows", "via": "spark"}
    steps = ["consumed", "ready"]
    want = killed_everywhere(tmp_path, "delta", call, steps, *options, python=python)
    same(DeltaTable(call["path"]).to_pyarrow_table().to_pylist(), want)


def test_iceberg_by_spark(tmp_path: Path) -> None:
    from scripts.services.jars import python_with

    settings = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "lake"),
    }
    options, python = with_jars("iceberg", **settings), needed(lambda: python_with("4.1"))
    call = {"table": "lake.news.rows", "app": "rows", "via": "spark"}
    read = [*options, "--read", "lake.news.rows"]
    steps = ["table made", "consumed", "ready"]  # the table is made once, by the first batch
    want = killed_everywhere(tmp_path, "iceberg", call, steps, *read, python=python)
    same(pq.read_table(tmp_path / "read").to_pylist(), want)


def test_iceberg_in_two_catalogues_of_one_name(tmp_path: Path) -> None:
    """A small batch is in the one of pyiceberg; Spark's must not get the large one."""
    from scripts.services.jars import python_with

    installed("pyiceberg", "sqlalchemy")
    settings = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "another"),
    }
    options, python = with_jars("iceberg", **settings), needed(lambda: python_with("4.1"))
    call = {"table": "lake.news.rows", "app": "rows", "catalog": lake(tmp_path), "small": 10}
    given = (json.dumps(call), "--sink", "iceberg", *options)
    feed = Feed(tmp_path).add(scripted(1, rows=(5, 5), seed=21))
    with driver(tmp_path, *given, script=SCRIPT, python=python) as run:
        run.finish()
    feed.add(scripted(2, rows=(20, 20), seed=21)[1:])
    for _ in range(2):  # the error stays
        with driver(tmp_path, *given, script=SCRIPT, python=python) as run:
            assert run.process.wait(PATIENCE) != 0
            assert "lake.news.rows means two targets" in run.tail()
    assert not list((tmp_path / "another").rglob("*.parquet"))


# ---------------------------------------------------------------- reading back


def selected(dsn: str, table: str) -> list[dict[str, Any]]:
    """All rows of a table; and no other table is left."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        left = connection.execute("SELECT 1 FROM pg_tables WHERE tablename LIKE '%stage%'")
        assert left.fetchall() == []
        cursor = connection.execute(f"SELECT * FROM {table}")
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def committed(servers: str, topic: str) -> list[bytes]:
    """All records of a topic that belong to committed transactions."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
    from confluent_kafka import KafkaError as E

    given = {"bootstrap.servers": servers, "group.id": "tests", "enable.partition.eof": True}
    consumer = Consumer({**given, "isolation.level": "read_committed"})
    parts = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in parts])
    found, ended = [], 0
    while ended < len(parts):
        message = consumer.poll(30)
        assert message is not None, "the topic was not read to its end"
        if message.error() is None:
            found.append(message.value())
        else:
            assert message.error().code() == E._PARTITION_EOF, message.error()
            ended += 1
    consumer.close()
    return found


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON says them, where a null may be left out and an instant is a text."""
    from datetime import date, datetime
    from decimal import Decimal

    def simple(value: Any) -> Any:
        if isinstance(value, dict):
            return {n: simple(v) for n, v in sorted(value.items()) if v is not None}
        if isinstance(value, list):
            return [simple(inner) for inner in value]
        if isinstance(value, str) and value[4:5] == "-":
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp() if value.tzinfo else value.isoformat()[:10]
        if isinstance(value, date):
            return value.isoformat()
        return float(value) if isinstance(value, Decimal | int) else value

    return [{"row": sorted(simple(row).items())} for row in in_utc(rows)]
