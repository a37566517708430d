"""A real assembly holds what was predicted from a sample, and the watcher says so."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import anabranch as ab
from papers.dssis.tracing import generate_trace

KEY = ["kind", "instance_ts", "client"]
SCHEMA = "ts timestamp, kind string, instance_ts long, client string, service string"


def test_an_assembly_holds_what_was_predicted(spark: Any, tmp_path: Path) -> None:
    trace = generate_trace(seed=8, instances=6_000, kinds=5_000)
    table = trace.table()
    ts = pc.cast(table["event_ts"], pa.timestamp("us", "UTC"))
    table = table.append_column("ts", ts).select([*KEY, "ts", "service"])
    fit = ab.fit_windows(table, time="ts")
    told = ab.estimate_state(windows=fit, watermark="1 second")
    # Up to a moment at which as many windows open as close.
    elapsed = (trace.event_ts - trace.event_ts[0]) / 1e6
    (tmp_path / "in").mkdir()
    for number, (low, high) in enumerate([(0, 20), (20, 40), (40, 50)]):
        part = table.filter(pa.array(np.logical_and(elapsed >= low, elapsed < high)))
        pq.write_table(part, tmp_path / "in" / f"{number}.parquet")
    stream = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
    )
    instances = ab.assemble(
        stream,
        key=KEY,
        close=ab.close.count(fit.size, fit.duration),
        watermark="1 second",
        keep=["service"],
    )
    query = (
        instances.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        console = Console(file=io.StringIO(), width=100)
        ab.watch(query, console=console, prediction=told)
    finally:
        query.stop()
    assert query.exception() is None
    figures = ab.metrics(query)
    assert figures["open_windows"] == pytest.approx(told.windows, rel=0.15)
    shown = console.file.getvalue()
    assert "windows open" in shown
    assert "open windows, observed" in shown
