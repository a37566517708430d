"""A bucket of the cloud after the broker lost messages: what it sent goes first, and once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.address import Broker
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.directives import Directive, Hosted
from anabranch.edge.frames import Down, encode_down
from anabranch.edge.mail import base_of
from anabranch.edge.ownership import Boundary
from anabranch.edge.sections import Results, Section
from anabranch.flow.blocks import decode_batch
from anabranch.spark import follow_stream
from anabranch.spark.follow_stream import Bucket, Cloud

SCHEMA = pa.schema([("view", pa.string()), ("left_n", pa.int64()), ("place", pa.string())])
NEAR = Definition("near", "pairs", (10, 10), None, deliver=("cloud", "inputs"))
HOSTED = Hosted(0, View("near(ann,bob)", "near", (0, 1)), (Boundary(0, "cloud"),))
STREAMS = tuple((k, Stream(f"gps[{who}]", who, {})) for k, who in enumerate(["ann", "bob"]))
BEGIN = Directive(0, True, STREAMS, (NEAR,), (HOSTED,))


class Kept:
    """A value or a list in Spark's state."""

    def __init__(self) -> None:
        self.value: Any = None
        self.values: list[Any] = []

    def get(self) -> Any:
        return self.value if self.value is not None or not self.values else iter(self.values)

    def update(self, value: Any) -> None:
        self.value = value

    def put(self, values: Sequence[Any]) -> None:
        self.values = list(values)

    def appendList(self, values: Sequence[Any]) -> None:
        self.values += values


class Handle:
    def getValueState(self, *_: Any) -> Kept:
        return Kept()

    def getListState(self, *_: Any) -> Kept:
        return Kept()


def rows(stream: int, n: int, t: int) -> Section:
    return Section(stream, 0, np.array([n]), np.array([t]))


def taken(bucket: Bucket, seq: int, *frames: Down) -> list[tuple[int, str]]:
    """Results of a micro-batch: number of the left row, and where it was found."""
    contents = [encode_down(frame) for frame in frames]
    arrived = pd.DataFrame({"seq": range(seq, seq + len(frames)), "data": contents})
    blocks = [
        one for out in bucket.handleInputRows((0,), iter([arrived]), None) for one in out["block"]
    ]
    tables = [decode_batch(block).to_pylist() for block in blocks]
    return [(row["left_n"], row["place"]) for table in tables for row in table]


def test_a_bucket_sends_again_what_it_sent_and_takes_no_result_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[list[int]] = []

    async def note(broker: Broker, bucket: int, found: Sequence[tuple[int, Results]]) -> None:
        sent.append([frame for frame, _ in found])

    monkeypatch.setattr(follow_stream, "_send_back", note)
    bucket = Bucket(Cloud(SCHEMA, str(tmp_path), Broker("tls://hub:4222", None)))
    bucket.init(Handle())  # type: ignore[arg-type]
    first = Down(0, 5, -1, (BEGIN, rows(0, 3, 100), rows(1, 8, 105)))
    assert taken(bucket, 1, first) == [(3, "cloud")] and sent == [[0]]
    one = np.array([4])
    found = Results(0, (one, one), (one, one), np.zeros(1, int), np.zeros(1))
    theirs = Down(1, 6, -1, (), (found,), {"origins": [["bob", 7, 1]]})
    assert taken(bucket, 2, theirs) == [(4, "bob")] and sent == [[0]]
    base = base_of(1)
    again = (rows(0, 3, 100), rows(1, 8, 105), rows(1, 9, 106))
    both = {"origins": [["bob", 7, 1], ["bob", 8, 1]], "after": 0}
    recovered = Down(base, base, -1, again, (found, found), both)
    # One row of theirs is new, and one result of bob's; what was sent goes before that.
    assert taken(bucket, base + 1, first, recovered) == [(3, "cloud"), (4, "bob")]
    assert sent[1:] == [[0, base]]
    assert taken(bucket, base + 3, Down(base + 1, base + 1, -1)) == [] and len(sent) == 2
