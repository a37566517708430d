"""When is a trace over? Closing policies compared on the spans of an instrumented shop.

::

    pip install 'anabranch[otel]'
    python examples/trace_policies.py [--seconds 180] [--folder spans]

How many traces were complete when they were decided on, and how long after their last span that
was. A tail sampler in a collector waits for a fixed time, its ``decision_wait``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from shop import run_shop
from traces import LEARNED, POLICY, assembled

import anabranch as ab

FIXED = "fixed wait of {:g} s, as complete as ours"
OURS = "the root and 3 s of grace, or learned"


def judged(spans: DataFrame, close: Any, skip: float, rest: float) -> Any:
    """Shares and waits of the traces that began after `skip` seconds, `rest` before the end."""
    window = spans.agg(F.min("end").alias("a"), F.max("end").alias("b"))
    truth = (
        spans.groupBy("trace_id")
        .agg(F.count("*").alias("spans"), F.max("end").alias("over"), F.min("end").alias("began"))
        .crossJoin(window)
        .filter(f"began >= a + make_dt_interval(0, 0, 0, {skip})")
        .filter(f"began <= b - make_dt_interval(0, 0, 0, {rest})")
    )
    first = assembled(spans, close).filter("seq = 0 AND revision = 0").join(truth, "trace_id")
    wait = F.unix_micros("closed") / 1e6 - F.unix_micros("over") / 1e6
    complete = F.col("count") == F.col("spans")
    return first.agg(
        F.count("*").alias("traces"),
        F.avg(complete.cast("int")).alias("complete"),
        F.median(F.when(complete, wait)).alias("median"),
        F.percentile(F.when(complete, wait), 0.95).alias("p95"),
        F.avg(F.unix_micros("closed") / 1e6 - F.unix_micros("opened") / 1e6).alias("open"),
        F.max(F.unix_micros("over") / 1e6 - F.unix_micros("began") / 1e6).alias("longest"),
    ).first()


def fixed_wait(spans: DataFrame, complete: float, skip: float, rest: float) -> float:
    """The shortest fixed wait, in steps of 0.1 s, that leaves as many traces complete."""
    low, high = 1, 300
    while low < high:
        tenths = (low + high) // 2
        found = judged(spans, ab.close.after(f"{100 * tenths} ms"), skip, rest)
        low, high = (low, tenths) if found["complete"] >= complete else (tenths + 1, high)
    return low / 10


def compared(spark: SparkSession, folder: Path, seconds: float) -> tuple[dict[str, Any], float]:
    """What each policy comes to on the traces of the shop; and the fixed wait that equals ours."""
    run_shop(folder, seconds)
    spans = ab.spans_of(spark.read.format("binaryFile").load(str(folder)), "content").cache()
    print(f"{spans.count()} spans in {len(list(folder.iterdir()))} exports")

    # Learning begins after three times its timeout, and the last traces wait for no end of 30 s.
    skip, rest = 31, 31
    best = judged(spans, POLICY, skip, rest)
    equal = fixed_wait(spans, best["complete"], skip, rest)
    policies = {
        "decision_wait 30 s": ab.close.after("30 seconds"),
        "decision_wait 10 s": ab.close.after("10 seconds"),
        FIXED: ab.close.after(f"{equal} seconds"),
        "the root and 3 s of grace": ab.close.until("is_root", "3 seconds"),
        "learned": LEARNED,
    }
    found = {name: judged(spans, close, skip, rest) for name, close in policies.items()}
    return {**found, OURS: best}, equal


def shown(found: Mapping[str, Any], equal: float) -> str:
    """The figures as a table."""
    ours = found[OURS]
    lines = [
        f"{ours['traces']} traces, the longest of {ours['longest']:.1f} s",
        f"{'':42}{'complete':>9}{'wait after last span':>22}{'open':>8}",
        f"{'':42}{'':>9}{'median':>11}{'95 %':>11}{'mean':>8}",
    ]
    for name, of in found.items():
        waits = f"{of['median']:>9.2f} s{of['p95']:>9.2f} s{of['open']:>6.1f} s"
        lines.append(f"{name.format(equal):42}{of['complete']:>9.2%}{waits}")
    return "\n".join(lines)


def main(folder: Path, seconds: float) -> None:
    """Run the shop and compare policies on its traces."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder.getOrCreate(), workers=2)
    print(shown(*compared(spark, folder, seconds)))
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.folder is None:
        with tempfile.TemporaryDirectory() as place:
            main(Path(place), given.seconds)
    else:
        given.folder.mkdir(parents=True, exist_ok=True)
        main(given.folder, given.seconds)
