"""A whole example of docs/connect.md, run as it stands: ``page.py TITLE FOLDER``.

Only the session, addresses and folders are those of the test. Rows are put where the example reads
them; what it has written is read back, and printed as the last line: pairs of ids.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[2] / "docs/connect.md"
SCHEMA = "id long, ts timestamp, title string, v array<float>"
SIDES = ("news-a", "news-b")
Row = dict[str, Any]


def examples() -> dict[str, str]:
    """The programs of the page, by title."""
    part = PAGE.read_text().partition("## Whole examples\n")[2].partition("\n## ")[0]
    return {
        title: re.findall(r"```python\n(.*?)```", text, re.S)[0]
        for title, text in (one.split("\n", 1) for one in part.split("### ")[1:])
    }


def program(title: str, places: Mapping[str, str]) -> str:
    """The program with the places of a test, and without its session."""
    code = re.sub(
        r"^spark = ab\.configure\(.*?workers=8\)$", "", examples()[title], flags=re.M | re.S
    )
    for place, here in places.items():
        assert place in code, place
        code = code.replace(place, here)
    return code


def rows() -> tuple[list[Row], list[Row]]:
    """Two channels that report on ten stories, a row every five seconds."""
    draw = np.random.default_rng(17)
    stories = draw.normal(size=(10, 16))
    start = datetime(2026, 3, 1, 10, tzinfo=UTC)

    def channel(name: str) -> list[Row]:
        told = draw.integers(0, len(stories), size=60)
        vectors = (stories[told] + draw.normal(scale=0.05, size=(60, 16))).astype(np.float32)
        return [
            {
                "id": n,
                "ts": start + timedelta(seconds=5 * n),
                "title": f"story {told[n]}, {name}",
                "v": vectors[n].tolist(),
            }
            for n in range(60)
        ]

    return channel("a"), channel("b")


def expected() -> list[list[int]]:
    """The pairs within a minute whose vectors point the same way, by comparing all with all."""
    left, right = rows()
    times = [np.array([row["ts"].timestamp() for row in side]) for side in (left, right)]
    units = [np.array([row["v"] for row in side]) for side in (left, right)]
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in units]
    near = np.abs(times[0][:, None] - times[1][None, :]) <= 60
    return np.argwhere(near & (units[0] @ units[1].T >= 0.95)).tolist()  # type: ignore[no-any-return]


def frames(spark: Any) -> dict[str, Any]:
    """The rows as tables of Spark, by name."""
    sides = rows()
    return {
        name: spark.createDataFrame([tuple(row.values()) for row in side], SCHEMA).coalesce(1)
        for name, side in zip(SIDES, sides, strict=True)
    }


def write_json(spark: Any, folder: str) -> None:
    for name, frame in frames(spark).items():
        frame.write.json(f"{folder}/data/{name}")


def write_delta(spark: Any, folder: str) -> None:
    for name, frame in frames(spark).items():
        frame.write.format("delta").save(f"{folder}/data/{name}")


def write_iceberg(spark: Any, folder: str) -> None:
    spark.sql("CREATE NAMESPACE lake.news")
    for name, frame in frames(spark).items():
        frame.writeTo(f"lake.news.{name[-1]}").using("iceberg").create()


def write_jdbc(spark: Any, url: str) -> None:
    for name, frame in frames(spark).items():
        frame.write.jdbc(
            url, name.replace("-", "_"), properties={"driver": "org.postgresql.Driver"}
        )


def send(spark: Any, servers: str, value: Callable[[], Any]) -> None:
    for name, frame in frames(spark).items():
        records = frame.select(value().alias("value")).write.format("kafka")
        records.option("kafka.bootstrap.servers", servers).option("topic", name).save()


def main() -> None:
    """Put the rows there, run the example, and print what it has written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("title")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--places", type=json.loads, default={}, help="of the page, and here")
    parser.add_argument("--at", default="", help="the broker or the database")
    parser.add_argument("--conf", type=json.loads, default={})
    options = parser.parse_args()
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro, to_avro
    from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

    from tests.spark.sessions import new_session

    title, folder = options.title, str(options.folder)
    code = program(title, options.places)
    spark = new_session(options.folder, "local[2]", settings=options.conf)
    names: dict[str, Any] = {"spark": spark}
    everything = F.struct("*")
    described = {"descFilePath": f"{folder}/data/news.desc"}

    def records(decode: Callable[[Any], Any]) -> list[Any]:
        topic = spark.read.format("kafka").option("kafka.bootstrap.servers", options.at)
        topic = topic.option("kafka.isolation.level", "read_committed").option("subscribe", "pairs")
        return topic.load().select(decode(F.col("value")).alias("r")).select("r.*").collect()

    avro = re.search(r'ROW = """(.*?)"""', code, re.S)
    feeds: dict[str, Callable[[], None]] = {
        "Kafka with JSON to Kafka": lambda: send(spark, options.at, lambda: F.to_json(everything)),
        "Kafka with Avro to Kafka": lambda: send(
            spark,
            options.at,
            lambda: to_avro(F.struct("id", "title", "ts", "v"), avro[1] if avro else ""),
        ),
        "Kafka with Protobuf to Kafka": lambda: send(
            spark, options.at, lambda: to_protobuf(everything, "news.Row", **described)
        ),
        "Delta to Delta": lambda: write_delta(spark, folder),
        "Iceberg to Iceberg": lambda: write_iceberg(spark, folder),
        "Files to PostgreSQL": lambda: write_json(spark, folder),
        "Tables of PostgreSQL": lambda: write_jdbc(spark, options.at),
    }
    pair = "left_id long, right_id long, score double"
    union = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [
            {"name": name, "type": [kind, "null"]}
            for name, kind in (("left_id", "long"), ("right_id", "long"), ("score", "double"))
        ],
    }
    reads: dict[str, Callable[[], list[Any]]] = {
        "Kafka with JSON to Kafka": lambda: records(
            lambda value: F.from_json(value.cast("string"), pair)
        ),
        "Kafka with Avro to Kafka": lambda: records(
            lambda value: from_avro(value, json.dumps(union))
        ),
        "Kafka with Protobuf to Kafka": lambda: records(
            lambda value: from_protobuf(value, "news.Pair", **described)
        ),
        "Delta to Delta": lambda: spark.read.format("delta").load(f"{folder}/lake/pairs").collect(),
        "Iceberg to Iceberg": lambda: spark.table("lake.news.pairs").collect(),
        "Files to PostgreSQL": list,  # the test reads the table
        "Tables of PostgreSQL": lambda: spark.read.parquet(f"{folder}/lake/pairs").collect(),
    }
    feeds[title]()
    exec(code, names)
    print(json.dumps(sorted([row.left_id, row.right_id] for row in reads[title]())))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
