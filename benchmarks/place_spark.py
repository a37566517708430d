"""Demand pairs planned by Spark, against the same pairs planned in one process.

    python -m benchmarks.place_spark                   # 8.6M demand edges, local[2]
    python -m benchmarks.place_spark --users 10000     # smaller

The local time starts from arrays; Spark's starts from a cached DataFrame, and its two passes of
checks are timed apart. Costs must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import anabranch as ab
from anabranch.placement import plan_graph
from anabranch.placement.graph import pair_graph
from benchmarks.origin import origin
from papers.race import social


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--down", type=float, default=1.0)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from anabranch.spark.demand_pairs import pair_cost, row_problems

    a, b = social.facebook_like(options.users, int(86 * options.users * 1.033))
    rate_a, rate_b = social.rates("80% never meet, else log-uniform", len(a))
    began = time.perf_counter()
    graph = pair_graph(a, b, rate_a, rate_b, sources=options.users, up=1.0, down=options.down)
    plan = plan_graph(graph)
    local = time.perf_counter() - began
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    table = pa.table({"a": a, "b": b, "rate_a": rate_a, "rate_b": rate_b})
    frame = spark.createDataFrame(table).repartition(8).persist()
    frame.count()
    began = time.perf_counter()
    row_problems(frame)
    checks = time.perf_counter() - began
    began = time.perf_counter()
    placed = ab.place_pairs(frame, upload_cost=1.0, download_cost=options.down)
    placed.write.format("noop").mode("overwrite").save()
    whole = time.perf_counter() - began
    cost = pair_cost(placed, 1.0, options.down)
    assert np.isclose(cost, plan.cost), (cost, plan.cost)
    found = {
        "origin": origin(),
        "users": options.users,
        "edges": 2 * len(a),
        "down": options.down,
        "local_wall_s": local,
        "spark_wall_s": whole,
        "of_which_checks_s": checks,
        "cost": cost,
        "load": os.getloadavg()[0],
    }
    text = json.dumps(found, indent=1)
    name = f"place-spark-{options.users}-{options.down:g}.json"
    (Path(__file__).parent / "results" / name).write_text(text + "\n")
    print(text)
    spark.stop()


if __name__ == "__main__":
    main()
