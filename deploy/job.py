"""A query as the recipes of this folder run it: two folders of Parquet in, pairs out.

    python deploy/job.py --left L --right R --out PAIRS --checkpoint C --control D --workers 8

Rows have ``id long, ts timestamp, v array<float>``. With ``--once`` it ends when all files are
processed. Replace the two streams by your own, for example from Kafka.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

import anabranch as ab

SCHEMA = "id long, ts timestamp, v array<float>"


def main() -> None:
    """Run until stopped, or to the end of what is there."""
    parser = argparse.ArgumentParser()
    for name in ("left", "right", "out", "checkpoint", "control"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    spark = ab.configure(SparkSession.builder.getOrCreate(), workers=options.workers)

    def stream(path: str) -> DataFrame:
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 100).parquet(path)

    pairs = ab.correlate(
        stream(options.left),
        stream(options.right),
        where=ab.cosine("v") >= 0.95,
        window="1 minute",
        watermark="30 seconds",
        plan=ab.adaptive(options.workers),
        control=options.control,
    )
    writer = pairs.writeStream.foreachBatch(ab.sinks.parquet(options.out, app="pairs"))
    writer = writer.option("checkpointLocation", options.checkpoint)
    pace = {"availableNow": True} if options.once else {"processingTime": "5 seconds"}
    writer.trigger(**pace).start().awaitTermination()


if __name__ == "__main__":
    main()
