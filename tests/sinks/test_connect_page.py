"""The whole examples of docs/connect.md run as they stand, and find what brute force finds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sinks import page
from tests.sinks.stories import installed, needed
from tests.sinks.test_kills import DELTA, selected
from tests.spark.feeds import settings
from tests.spark.processes import ROOT

HERE = {"Files to Parquet", "Rate to Parquet"}
OF_KAFKA = {"Kafka with JSON to Kafka": [], "Kafka with Avro to Kafka": ["spark-avro"]}
ELSEWHERE = {"Kafka with Protobuf to Kafka", "Delta to Delta", "Iceberg to Iceberg"}
OF_POSTGRES = {"Files to PostgreSQL", "Tables of PostgreSQL"}


def test_every_example_of_the_page_is_run() -> None:
    assert set(page.examples()) == HERE | set(OF_KAFKA) | ELSEWHERE | OF_POSTGRES
    text = " ".join(page.examples().values())
    for sink in ("delta", "iceberg", "postgres", "kafka", "parquet"):
        assert f"ab.sinks.{sink}(" in text


def test_versions_of_the_examples_are_those_that_are_fetched() -> None:
    from scripts.services.jars import SETS

    known = {one.rstrip("!") for jars in SETS.values() for one in jars}
    text = "\n".join(page.examples().values())
    named = set(re.findall(r'"spark\.jars\.packages", "([^"]+)"', text))
    assert len(named) == 3 and named <= known


def test_the_rows_have_pairs_to_find() -> None:
    assert 50 < len(page.expected()) < 60 * 60 / 4


def ids(rows: list[Any]) -> list[list[int]]:
    return sorted([row["left_id"], row["right_id"]] for row in rows)


def test_files_to_parquet(spark: Any, tmp_path: Path) -> None:
    page.write_json(spark, str(tmp_path))
    places = {name: f"{tmp_path}{name}" for name in ("/data/", "/lake/", "/chk/")}
    with settings(spark, shuffle__partitions=2):
        exec(page.program("Files to Parquet", places), {"spark": spark})
    found = spark.read.parquet(f"{tmp_path}/lake/pairs").collect()
    assert ids(found) == page.expected()
    assert {row.left_title[:-3] for row in found} == {row.right_title[:-3] for row in found}


def test_rate_to_parquet(spark: Any, tmp_path: Path) -> None:
    places = {name: f"{tmp_path}{name}" for name in ("/lake/", "/chk/")}
    names: dict[str, Any] = {"spark": spark}
    with settings(spark, shuffle__partitions=2):
        exec(page.program("Rate to Parquet", places), names)
        query = names["query"]
        try:
            while not list((tmp_path / "lake").rglob("*.parquet")):
                query.processAllAvailable()
        finally:
            query.stop()
    found = spark.read.parquet(f"{tmp_path}/lake/pairs")
    # Angles of n and 2 m: of 0 and 0 they are the same.
    assert [0, 0] in ids(found.collect()) and found.filter("score < 0.99").count() == 0


# ---------------------------------------------------------------- with services


def jars(*names: str) -> dict[str, str]:
    from scripts.services.jars import fetched

    found = [path for name in names for path in needed(lambda name=name: fetched(name))]
    return {"spark.jars": ",".join(map(str, found))}


def run(
    title: str,
    folder: Path,
    places: dict[str, str],
    conf: dict[str, str],
    at: str = "",
    python: str = sys.executable,
) -> list[list[int]]:
    """The pairs that an example has written, in a process of its own."""
    command = [python, "-m", "tests.sinks.page", title, str(folder), "--at", at]
    command += ["--places", json.dumps(places), "--conf", json.dumps(conf)]
    where = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **where},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[:2000] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.fixture
def servers() -> Iterator[str]:
    from scripts.services.kafka import broker

    installed("confluent_kafka")
    running = broker()
    yield needed(running.__enter__)
    running.__exit__(None, None, None)


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.parametrize("title", OF_KAFKA)
def test_kafka_to_kafka(tmp_path: Path, servers: str, title: str) -> None:
    conf = jars("spark-kafka", *OF_KAFKA[title])
    places = {"broker:9092": servers, "/chk/": f"{tmp_path}/chk/"}
    assert run(title, tmp_path, places, conf, at=servers) == page.expected()


@pytest.mark.services
@pytest.mark.spark
def test_protobuf_to_kafka(tmp_path: Path, servers: str) -> None:
    conf = jars("spark-kafka", "spark-protobuf")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/news.desc").write_bytes(descriptors())
    places = {"broker:9092": servers, "/chk/": f"{tmp_path}/chk/", "/data/": f"{tmp_path}/data/"}
    title = "Kafka with Protobuf to Kafka"
    assert run(title, tmp_path, places, conf, at=servers) == page.expected()


def descriptors() -> bytes:
    """What protoc makes of the page's messages."""
    from google.protobuf import descriptor_pb2, timestamp_pb2

    text = page.PAGE.read_text().partition("```proto\n")[2].partition("```")[0]
    kinds = {"int64": 3, "string": 9, "float": 2, "double": 1, "google.protobuf.Timestamp": 11}
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="news.proto", package="news", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    for name, body in re.findall(r"message (\w+) \{ (.*?) \}", text):
        message = file.message_type.add(name=name)
        fields = re.findall(r"(repeated )?([\w.]+) (\w+) = (\d+);", body)
        for repeated, kind, field, number in fields:
            made = message.field.add(name=field, number=int(number), type=kinds[kind])
            made.label = 3 if repeated else 1
            if kinds[kind] == 11:
                made.type_name = f".{kind}"
    return files.SerializeToString()


def test_the_messages_of_the_page_are_what_protobuf_takes() -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    row = message_factory.GetMessageClass(pool.FindMessageTypeByName("news.Row"))
    made = row(id=7, title="x", v=[1.0, 2.0])
    made.ts.seconds = 5
    again = row.FromString(made.SerializeToString())
    assert (again.id, list(again.v), again.ts.seconds) == (7, [1.0, 2.0], 5)
    pair = message_factory.GetMessageClass(pool.FindMessageTypeByName("news.Pair"))
    assert [field.name for field in pair.DESCRIPTOR.fields] == ["left_id", "right_id", "score"]


@pytest.mark.services
@pytest.mark.spark
def test_delta_to_delta(tmp_path: Path) -> None:
    from scripts.services.jars import python_with

    conf, python = {**jars("delta"), **DELTA}, needed(lambda: python_with("4.2"))
    places = {name: f"{tmp_path}{name}" for name in ("/data/", "/lake/", "/chk/")}
    assert run("Delta to Delta", tmp_path, places, conf, python=python) == page.expected()


@pytest.mark.services
@pytest.mark.spark
def test_iceberg_to_iceberg(tmp_path: Path) -> None:
    from scripts.services.jars import python_with

    catalogue = "spark.sql.catalog.lake"
    conf = {
        **jars("iceberg"),
        catalogue: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalogue}.type": "hadoop",
        f"{catalogue}.warehouse": str(tmp_path / "lake"),
    }
    python, places = needed(lambda: python_with("4.1")), {"/chk/": f"{tmp_path}/chk/"}
    assert run("Iceberg to Iceberg", tmp_path, places, conf, python=python) == page.expected()


@pytest.fixture
def database() -> Iterator[str]:
    from scripts.services.postgres import server

    running = server()
    yield needed(running.__enter__)
    running.__exit__(None, None, None)


@pytest.mark.services
@pytest.mark.spark
def test_files_to_postgres(tmp_path: Path, database: str) -> None:
    installed("psycopg")
    places = {"host=db user=news dbname=news": database}
    places |= {name: f"{tmp_path}{name}" for name in ("/data/", "/chk/")}
    run("Files to PostgreSQL", tmp_path, places, {})
    assert ids(selected(database, "pairs")) == page.expected()


@pytest.mark.services
@pytest.mark.spark
def test_tables_of_postgres(tmp_path: Path, database: str) -> None:
    parts = dict(part.split("=") for part in database.split())
    url = (
        f"jdbc:postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}?user={parts['user']}"
    )
    places = {"jdbc:postgresql://db/news?user=news": url, "/lake/": f"{tmp_path}/lake/"}
    found = run("Tables of PostgreSQL", tmp_path, places, jars("postgres"), at=url)
    assert found == page.expected()
