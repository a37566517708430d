"""What sources have left, by what Spark reports of each: as Spark wrote it, without Spark."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.spark.dashboard.backlog import backlog_of
from anabranch.spark.dashboard.feed import Query
from anabranch.spark.dashboard.view import View, encode
from anabranch.spark.jetstream import Held, JetStreamReader
from tests.dashboard.reports import report


def source(description: str, end: Any, latest: Any, **metrics: str) -> Any:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in (end, latest)]
    return SimpleNamespace(
        description=description, endOffset=texts[0], latestOffset=texts[1], metrics=metrics
    )


KAFKA = source("KafkaV2[Subscribe[news]]", {"news": {"0": 70, "1": 8}}, {"news": {"0": 90, "1": 9}})
RATE = source("RateStreamV2[rowsPerSecond=20, rampUpTimeSeconds=0]", "2", "2")
FILES = source("FileStreamSource[file:/in]", {"logOffset": 2}, None)
AT = {"gen": 1, "created": "2026-03-01T10:00:00+00:00"}


@pytest.mark.parametrize(
    ("given", "left", "silent"),
    [
        ([KAFKA], 21, ()),
        ([RATE], 0, ()),  # read up to its end: nothing is left
        ([FILES], None, ("FileStreamSource",)),
        ([KAFKA, FILES, FILES], 21, ("FileStreamSource",)),
        ([source("jetstream", {**AT, "seq": 40}, {**AT, "seq": 55})], 15, ()),
        (
            [source("jetstream", {**AT, "seq": 40}, {**AT, "gen": 2, "seq": 5})],
            None,
            ("jetstream",),
        ),
        ([source("video", {"north": {}}, {"north": {"left": 3}, "south": {"left": 1}})], 4, ()),
        ([source("autoloader", {"seqNum": 3}, None, numFilesOutstanding="12")], 12, ()),
        ([source("their own", {"index": 3}, {"index": 9})], None, ("their own",)),
        ([source("their own", "three", "nine")], None, ("their own",)),
        ([], None, ()),
    ],
)
def test_what_is_left_is_known_or_said_to_be_unknown(
    given: list[Any], left: float | None, silent: tuple[str, ...]
) -> None:
    assert backlog_of(SimpleNamespace(sources=given)) == (left, silent)


def test_the_page_is_told_which_sources_say_nothing() -> None:
    query = Query("a")
    query.add(report(0, sources=[KAFKA, FILES]))
    (subject,) = json.loads(encode(View().state([query])))["subjects"]
    assert (subject["series"]["backlog"], subject["silent"]) == ([21.0], ["FileStreamSource"])


@pytest.mark.parametrize(
    ("end", "latest", "left"),
    [
        ({"seq": {"0": 3}}, {"seq": {"0": 5}}, 2),  # a topic of that name
        ({"a": {"0": 500, "1": 5}}, {"a": {"0": 3, "1": 50}}, 45),  # partition 0 began anew
        ({"a": {"0": 3}}, {"a": {"0": 4, "1": 6}}, 7),  # partition 1 is new
        ({"a": {"0": 3}}, {}, None),
        ({**AT, "seq": 3}, {**AT, "seq": 9, "created": "later"}, None),
        ({"a": {"0": 3}}, {"a": {"0": float("inf")}}, None),
        (0, 0, 0),
    ],
)
def test_offsets_of_any_shape(end: Any, latest: Any, left: float | None) -> None:
    assert backlog_of(SimpleNamespace(sources=[source("kafka", end, latest)])).left == left


@pytest.mark.parametrize("said", ["null", None, "many"])
def test_figures_that_are_none_are_unknown(said: Any) -> None:
    odd = source("delta", {"v": 1}, {"v": 2})
    odd.metrics = {"numFilesOutstanding": said}
    assert backlog_of(SimpleNamespace(sources=[odd])).left is None


def test_jetstream_reports_its_end_and_where_the_micro_batch_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(AT["created"], 1, 55, 55, 5500)  # type: ignore[arg-type]
    monkeypatch.setattr(JetStreamReader, "_held", lambda self, generation: held)
    reader = JetStreamReader({"url": "nats://hub:4222", "generation": "1"})
    assert reader.reportLatestOffset() is None  # before it has looked
    end = reader.latestOffset({**AT, "seq": 33}, SimpleNamespace(max_rows=7, maxRows=7))
    latest = reader.reportLatestOffset()
    found = backlog_of(SimpleNamespace(sources=[source("jetstream", end, latest)]))
    assert (end["seq"], found.left) == (40, 15)
