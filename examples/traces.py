"""Traces of a web application: put together, held to promises, and the services ranked.

::

    pip install 'anabranch[otel]'
    python examples/traces.py

Two instrumented services, a shop and its stock, run here over local HTTP for a minute under load
(`shop.py`). The SDK of OpenTelemetry exports their spans; `ab.spans_of` reads them. On a stream
the same calls take ``spark.readStream`` (or a Kafka topic) and ``watermark="10 seconds"``.
Which policy to choose, `trace_policies.py` measures.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from shop import run_shop

import anabranch as ab

SECONDS = 60
PROMISED = {"/search": "50 ms", "/cart": "100 ms", "/checkout": "2 seconds", "/report": "5 seconds"}
LEARNED = ab.close.learned("10 seconds", risk=0.005)
# Over when the root has come and 3 seconds for what it left behind; or when a trace has what
# traces of its route usually have.
POLICY = ab.close.until("is_root", grace="3 seconds", otherwise=LEARNED)


def assembled(spans: DataFrame, close: Any) -> DataFrame:
    """Traces, by one policy."""
    return ab.assemble(
        spans.withColumn("route", F.col("attributes")["route"]),
        key=["route", "trace_id"],
        time="end",
        close=close,
        keep=["service", "name", "duration", "status"],
    )


# %% [markdown]
# ## Spans become traces
# One row for each trace: how many spans it has, how many are usual, and why it was closed.
# %%
if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    run_shop(folder, SECONDS)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder, workers=2).getOrCreate()
    spans = ab.spans_of(spark.read.format("binaryFile").load(str(folder)), "content").cache()
    print(f"{spans.count()} spans in {len(list(folder.iterdir()))} exports")
    traces = assembled(spans, POLICY).cache()
    traces.select("route", "reason", "count", "usual_count", "duration").orderBy(
        F.desc("opened")
    ).show(5)
    traces.groupBy("route", "reason").count().orderBy("route", "reason").show()
    # %% [markdown]
    # ## Which routes keep what was promised
    # Unknown is broken in `low` and kept in `high`. The root comes before `end` or `complete`.
    # %%
    by = {"service": "route", "complete": "reason IN ('end', 'complete')"}
    kept = ab.sla(traces, PROMISED, period="1 hour", **by).orderBy("service").toPandas()
    shown = ["service", "promised", "instances", "met", "violated", "unknown", "low", "high"]
    print(kept[shown].to_string(index=False))
    ab.rank_services(traces, PROMISED, **by).show(truncate=False)
    # %% [markdown]
    # ## What windows of this kind need
    # Size and timeout from the spans themselves, if neither roots nor learning were at hand.
    # %%
    fit = ab.fit_windows(spans, key=["trace_id"], time="end")
    fit
    # %%
    ab.estimate_state(windows=fit)
    # %%
    spark.stop()
