"""The same story on two news channels: two Kafka topics in, one topic and one Delta table out.

Start a broker and this beside it:

    JARS=$(python -m scripts.services.jars --paths spark-kafka)
    python -m scripts.services.kafka python examples/kafka_news.py --feed --jars $JARS

Every pair is written once to the topic and once to the table, also if this is killed and started
again with the same --folder. ``--feed`` sends made-up headlines first. Needs
``pip install 'anabranch[sinks,kafka]'`` and Spark's Kafka connector, which Maven does not have for
every Spark: the first line fetches one that runs, and what it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab

ROW = "id long, ts timestamp, title string, v array<float>"


def feed(servers: str, count: int = 200) -> None:
    """Send made-up headlines to both topics; those about the same thing have similar vectors."""
    from confluent_kafka import Producer

    producer, draw, now = Producer({"bootstrap.servers": servers}), random.Random(7), time.time()
    stories = [[draw.gauss(0, 1) for _ in range(16)] for _ in range(20)]
    for n in range(count):
        for topic in ("news-a", "news-b"):
            story = draw.randrange(len(stories))
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - count + n))
            v = [x + draw.gauss(0, 0.05) for x in stories[story]]
            row = {"id": n, "ts": at, "title": f"story {story}, {topic}", "v": v}
            producer.produce(topic, key=str(n), value=json.dumps(row))
    producer.flush(30)


def channel(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """A topic of JSON records as a stream; at most 10,000 records a micro-batch."""
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10_000)
        .load()
    )
    return raw.select(F.from_json(F.col("value").cast("string"), ROW).alias("r")).select("r.*")


def main(options: argparse.Namespace) -> None:
    """Correlate until all that is in the topics has been read."""
    if options.feed:
        feed(options.servers)
    builder: Any = SparkSession.builder.master("local[2]")
    builder = builder.config("spark.jars", options.jars)
    spark = ab.configure(builder.config("spark.sql.session.timeZone", "UTC"), 2).getOrCreate()
    pairs = ab.correlate(
        channel(spark, options.servers, "news-a"),
        channel(spark, options.servers, "news-b"),
        where=ab.cosine("v", dim=16) >= 0.95,
        window="1 minute",
        watermark="10 seconds",
        keep="title",
        bad_rows="drop",
    )
    table = f"{options.folder}/pairs"
    sinks = {
        "topic": ab.sinks.kafka(
            options.servers, "news-pairs", app="news-topic", key=["left_id", "right_id"]
        ),
        "table": ab.sinks.delta(table, app="news-table"),
    }
    queries = [  # one for each sink, with a checkpoint of its own
        pairs.writeStream.foreachBatch(sink)
        .option("checkpointLocation", f"{options.folder}/checkpoint-{name}")
        .trigger(availableNow=True)
        .start()
        for name, sink in sinks.items()
    ]
    for query in queries:
        query.awaitTermination()
    from deltalake import DeltaTable

    found = DeltaTable(table).to_pyarrow_table()
    print(f"{found.num_rows} pairs, for example")
    for pair in found.slice(0, 3).to_pylist():
        print(f"  {pair['score']:.3f}  {pair['left_title']}  =  {pair['right_title']}")
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    servers = os.environ.get("KAFKA_SERVERS", "127.0.0.1:9092")
    parser.add_argument("--servers", default=servers, help="of Kafka; default %(default)s")
    parser.add_argument("--folder", default="news", help="for the table and the checkpoints")
    parser.add_argument("--feed", action="store_true", help="send made-up headlines first")
    parser.add_argument("--jars", required=True, help="Spark's Kafka connector and what it needs")
    main(parser.parse_args())
