"""Figures of running queries: true totals, no empty batches, one shape for every verb."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pandas as pd
import pytest

import anabranch as ab
from anabranch.errors import InvalidCall
from anabranch.flow.load import AssembleLoad, GroupsLoad, Load
from anabranch.flow.metrics import VERBS
from anabranch.spark.figures import Metrics, WorkerMetrics
from anabranch.spark.listening import hearer_of
from anabranch.spark.totals import Counting, plain_line

ROOT = Path(__file__).parent.parent.parent


def progress(batch: int, verb: str, load: Any) -> Any:
    return SimpleNamespace(
        runId="run",
        batchId=batch,
        durationMs={"triggerExecution": 500},
        eventTime={"watermark": "2024-01-01T00:00:00.000Z"},
        observedMetrics={f"anabranch_{verb}_1a2b": {"load": [load.to_json()]}},
    )


def query(*reports: Any) -> Any:
    return SimpleNamespace(runId="run", recentProgress=list(reports))


class Session:
    """What can be listened to, and referred to weakly."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append)


def test_an_empty_timer_batch_is_never_the_newest() -> None:
    work = Load(0, rows_left=5, rows_right=2, comparisons=10, pairs=3, state_rows=7)
    timer = Load(0, state_rows=4)
    found = ab.metrics(query(progress(0, "correlate", work), progress(1, "correlate", timer)))
    assert (found["batch"], found["rows_in"], found["comparisons"]) == (0, 7, 10)
    assert found["state_rows"] == 4  # of now
    assert found["watermark"] == "2024-01-01T00:00:00.000Z"


def test_a_hundred_empty_timer_batches_hide_nothing() -> None:
    """All that Spark remembers; the session's listener remembers the last work."""
    work = progress(0, "correlate", Load(0, rows_left=5, comparisons=10, pairs=3, state_rows=7))
    timers = [progress(n, "correlate", Load(0, state_rows=4)) for n in range(1, 101)]
    session: Any = Session()
    hearer_of(session, Counting)
    (listener,) = session.listeners
    for report in (work, *timers):
        listener.onQueryProgress(SimpleNamespace(progress=report))
    found = ab.metrics(query(*timers))
    assert (found["batch"], found["pairs"], found["state_rows"]) == (0, 3, 4)
    assert found["total"]["pairs"] == 3


def test_zeros_are_never_the_newest_work() -> None:
    timers = [progress(n, "correlate", Load(0, state_rows=4)) for n in range(5, 105)]
    for report in timers:
        report.runId = "unheard"
    unheard = SimpleNamespace(runId="unheard", recentProgress=timers)
    found = ab.metrics(unheard)
    assert found["state_rows"] == 4
    assert (found["batch"], found["pairs"], found["workers"]) == (None, 0, [])
    assert "no micro-batch has done work yet" in found._repr_html_()  # type: ignore[attr-defined]


def test_the_keys_are_there_before_anything_has_happened() -> None:
    for verb, load in (("correlate", Load(0)), ("assemble", AssembleLoad(0)), ("groups", None)):
        report = progress(0, verb, load or Load(0))
        if load is None:  # named, but no worker has said a word
            report.observedMetrics = {f"anabranch_{verb}_1a2b": {"load": []}}
        report.runId = "idle"
        found = ab.metrics(SimpleNamespace(runId="idle", recentProgress=[report]))
        assert found.keys() == documented(verb, "batch") and found["batch"] is None
        assert found["total"] == dict.fromkeys(documented(verb, "total"), 0)
    silent = ab.metrics(SimpleNamespace(runId="silent", recentProgress=[]))
    common = set.intersection(*(documented(verb, "batch") for verb in VERBS))
    assert silent.keys() == common and silent["verb"] is silent["batch"] is None
    assert silent["total"]["rows_in"] == silent["rows_in"] == silent["state_rows"] == 0


def documented(verb: str, where: str) -> set[str]:
    """The keys that the documentation lists for a verb: in the batch, its totals or its workers."""
    text = (ROOT / "docs" / "spark.md").read_text().partition("\n## Metrics\n")[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.M)
    assert table is not None
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].splitlines()[2:]]
    return {
        key
        for keys, verbs, places, _ in rows
        if (verbs == "all" or verb in verbs) and where in places.split(", ")
        for key in re.findall(r"`(\w+)`", keys)
    }


def test_the_types_name_the_documented_keys() -> None:
    for kind, where, more in ((Metrics, "batch", {"also"}), (WorkerMetrics, "workers", set())):
        named = {key for verb in VERBS for key in documented(verb, where)}
        assert get_type_hints(kind).keys() == named | more


def test_every_verb_delivers_the_documented_keys() -> None:
    work = Load(
        0, rows_left=5, rows_right=2, comparisons=10, pairs=3, rejected=2, late=1, matched=6
    )
    held = AssembleLoad(0, rows=9, instances=2, late=1, rejected=3)
    tied = GroupsLoad(0, rows=9, opened=2, grown=5, closed=1, rejected=3, open_groups=4)
    loads = {"assemble": held, "groups": tied}
    found = {verb: ab.metrics(query(progress(0, verb, loads.get(verb, work)))) for verb in VERBS}
    for verb, figures in found.items():
        assert figures["verb"] == verb
        assert figures.keys() == documented(verb, "batch")
        assert figures["total"].keys() == documented(verb, "total")
        (worker,) = figures["workers"]
        assert worker.keys() == documented(verb, "workers")
        shared = worker.keys() & figures.keys()
        assert shared >= figures["total"].keys()
        assert {name: worker[name] for name in shared} == {name: figures[name] for name in shared}
        assert figures["rows_in"] == (12 if verb in loads else 9)
    assert (found["groups"]["groups_grown"], found["groups"]["open_groups"]) == (5, 4)
    assert "pairs" not in found["dedupe"] and found["dedupe"]["duplicates"] == 6
    assert found["nearest"]["hits"] == 3 and "pairs" not in found["nearest"]
    assert (found["assemble"]["late_rows"], found["assemble"]["rejected_rows"]) == (1, 3)
    both = progress(0, "correlate", work)
    both.observedMetrics |= progress(0, "assemble", held).observedMetrics
    several = ab.metrics(query(both))
    assert several["verb"] == "correlate" and several["also"][0]["instances"] == 2


def test_totals_outlive_what_spark_remembers() -> None:
    """Spark forgets; the listener has counted, and what it has not heard of yet is added once."""
    session: Any = Session()
    assert hearer_of(session, Counting) is hearer_of(session, Counting)
    (listener,) = session.listeners
    reports = [progress(n, "correlate", Load(0, rows_left=1, pairs=2)) for n in range(250)]
    for report in reports[:240]:
        listener.onQueryProgress(SimpleNamespace(progress=report))
    found = ab.metrics(query(*reports[150:]))
    assert found["total"]["pairs"] == 2 * 250 and found["total"]["rows_in"] == 250
    assert ab.metrics(query(*reports[150:])) == found


def test_what_stopped_a_query_is_said_on_one_line(caplog: Any) -> None:
    trace = (
        "org.apache.spark.SparkException: Job aborted\nTraceback (most recent call last):\n  File"
        "\nanabranch.errors.StateMismatch: this checkpoint was begun with window='10 seconds', and "
        "the call now says window='5 seconds': put it back, or begin a new checkpoint\n\tat org"
    )
    line = plain_line(trace)
    assert line is not None and line.startswith("StateMismatch: this checkpoint was begun with win")
    with caplog.at_level(logging.ERROR, "anabranch"):
        Counting().ended(SimpleNamespace(id="7", exception=trace))
        Counting().ended(SimpleNamespace(id="8", exception=None))
    assert [r.getMessage() for r in caplog.records] == [f"query 7 stopped: {line}"]


def test_metrics_of_what_is_no_query(spark: Any) -> None:
    for wrong, name in ((spark.range(1), "pyspark.DataFrame"), (5, "int"), (None, "NoneType")):
        with pytest.raises(InvalidCall, match=f"takes the running query, .*got {name}"):
            ab.metrics(wrong)
    with pytest.raises(InvalidCall, match=r"left must be a Spark DataFrame, got pandas\.DataFrame"):
        ab.correlate(pd.DataFrame(), spark.range(1))


@pytest.mark.slow
def test_a_restart_under_another_window_is_named(spark: Any, tmp_path: Path, caplog: Any) -> None:
    rows = spark.sql(
        "SELECT id, timestamp_seconds(1700000000 + id) AS ts, id % 3 AS k FROM range(9)"
    )
    rows.write.parquet(str(tmp_path / "rows"))

    def run(window: str) -> Any:
        stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
        found = ab.correlate(
            stream, stream, where=ab.same("k"), window=window, watermark="1 second"
        )
        started = (
            found.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination(300)
        return started

    first = run("10 seconds")
    figures = ab.metrics(first)
    assert figures["verb"] == "correlate" and figures["total"]["rows_in"] == 18
    assert figures["watermark"].startswith("2023-11-14T22:13:")
    rows.write.mode("append").parquet(str(tmp_path / "rows"))
    with caplog.at_level(logging.ERROR, "anabranch"):
        with pytest.raises(Exception, match="window='10 seconds', and the call now says window='5"):
            run("5 seconds")
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert any(
        "StateMismatch: this checkpoint was begun with window='10 seconds'" in r.getMessage()
        for r in caplog.records
    )


def test_a_run_that_reports_is_not_forgotten_beside_many_others() -> None:
    heard = Counting()
    for number in range(200):
        for run in ("long", f"short {number}"):
            report = progress(number, "correlate", Load(0, rows_left=1))
            report.runId = run
            heard.progressed(report)
    assert heard.runs["long"].totals["correlate"]["rows_in"] == 200
