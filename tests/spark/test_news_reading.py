"""The news read captions and name concepts where that is installed, and say where it is not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av", reason="pip install 'anabranch[video]'")

import av
from pyspark.sql import functions as F

from anabranch.errors import AnabranchError
from anabranch.spark.demo import reading
from anabranch.spark.demo.reading import Readers, readers
from anabranch.video.pictures import encode
from anabranch.video.scoring import Present
from anabranch.video.showing import THUMB, as_shown, thumb


def caption(pictures: Any) -> Any:
    return [[("BRIDGE SHUT IN RIGA", 0.9, (0, 0, 9, 9))] for _ in pictures]


def brightness(pictures: Any) -> Any:
    return pictures.reshape(len(pictures), -1, 3).mean(1)


brightness.names = ("red", "green", "blue")  # type: ignore[attr-defined]


def picture(high: int, wide: int) -> bytes:
    frame = av.VideoFrame.from_ndarray(np.full((high, wide, 3), 99, np.uint8), format="rgb24")
    return encode(frame, (wide, high))


def test_key_frames_have_what_is_read_in_their_pictures(spark: Any) -> None:
    keys = spark.createDataFrame(
        [("a", "north", dt.datetime(2025, 1, 6), [3.0, 4.0], picture(90, 160))],
        "id string, channel string, ts timestamp, features array<float>, picture binary",
    )
    assert Readers().described(keys) is keys
    for text, concepts, names in (
        (caption, None, ["words"]),
        (None, brightness, ["concepts"]),
        (caption, brightness, ["words", "concepts"]),
    ):
        of = Readers(text, concepts)
        found = of.described(keys)
        assert of.names == names and found.columns == [*keys.columns, *names]
        (row,) = found.collect()
        assert "words" not in names or row.words == "BRIDGE SHUT IN RIGA"
        assert "concepts" not in names or np.allclose(row.concepts, 99, atol=3)
    assert Readers(caption).picture == (640, 360) and Readers(None, brightness).picture == THUMB
    # Of black, which has no vector, nothing is read.
    black = keys.withColumn("features", F.array(F.lit(0.0), F.lit(0.0)).cast("array<float>"))
    assert Readers(caption).described(black).count() == 0


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise AnabranchError("it needs the package rapidocr_onnxruntime")

    monkeypatch.setattr(reading.video, "ocr", missing)
    monkeypatch.setattr(reading.video, "lite0", lambda: brightness)
    of = readers()
    assert (of.text, of.concepts) == (None, brightness)
    assert of.said.endswith("Captions are not read: pip install 'anabranch[video-text]'")
    assert "video-text,video-concepts" in Readers().said
    assert Readers(caption, brightness).said == "Captions are read, and concepts found."


def test_topics_on_the_page_have_words_concepts_and_small_pictures() -> None:
    at = dt.datetime(2025, 1, 6, tzinfo=dt.UTC)
    event = {"heat": 1.0, "event": "opened", "began": at, "last": at, "score": 0.9}
    event |= {"words": "BRIDGE SHUT IN RIGA", "concepts": ["bridge", "car"]}
    present = Present()
    present.latest["t"] = {**event, "repeated": 0, "shots": 2}
    present.rows["t"] = {"a"}
    keys = {"a": {"ts": at, "channel": "north", "picture": thumb(picture(360, 640))}}
    (topic,) = as_shown(present, keys, {})
    assert topic["words"] == "BRIDGE SHUT IN RIGA" and topic["concepts"] == ["bridge", "car"]
    small = topic["rows"][0][2]
    assert small is not None and len(small) < len(picture(360, 640))
