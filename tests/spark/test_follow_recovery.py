"""A bucket of the cloud after the broker lost messages: what it sent goes first, and once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.address import Broker
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.directives import Directive, Hosted
from anabranch.edge.frames import Down, encode_down
from anabranch.edge.mail import KEPT, base_of
from anabranch.edge.ownership import Boundary
from anabranch.edge.sections import Results, Section
from anabranch.errors import StateMismatch
from anabranch.flow import stored
from anabranch.flow.blocks import decode_batch
from anabranch.flow.cache import CACHE
from anabranch.spark import follow_stream
from anabranch.spark.follow_stream import Bucket, Cloud
from anabranch.spark.processor import Processor
from tests.spark.states import Map, Value

SCHEMA = pa.schema([("view", pa.string()), ("left_n", pa.int64()), ("place", pa.string())])
NEAR = Definition("near", "pairs", (10, 10), None, deliver=("cloud", "inputs"))
HOSTED = Hosted(0, View("near(ann,bob)", "near", (0, 1)), (Boundary(0, "cloud"),))
STREAMS = tuple((k, Stream(f"gps[{who}]", who, {})) for k, who in enumerate(["ann", "bob"]))
BEGIN = Directive(0, True, STREAMS, (NEAR,), (HOSTED,))


class Up:
    """The broker's UP of the newest generation, as far as a bucket sends to it."""

    def __init__(self) -> None:
        self.generation = 0
        self.sent: list[list[int]] = []  # frames of each call

    async def send_back(
        self,
        broker: Broker,
        bucket: int,
        found: Sequence[tuple[int, Results]],
        before: int,
        kept: Callable[[], list[tuple[int, Results]]],
    ) -> int:
        if self.generation > before:
            found = [*kept(), *found]
        self.sent.append([frame for frame, _ in found])
        return self.generation


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch) -> Up:
    made = Up()
    monkeypatch.setattr(follow_stream, "_send_back", made.send_back)
    return made


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    made = Bucket(Cloud(SCHEMA, str(tmp_path), Broker("tls://hub:4222", None)))
    made.begin(None, Value(), Map())  # type: ignore[arg-type]
    return made


def kept(bucket: Bucket) -> list[tuple[int, Results]]:
    return bucket._kept(bucket._noted())


def rows(stream: int, n: int, t: int) -> Section:
    return Section(stream, 0, np.array([n]), np.array([t]))


def taken(bucket: Bucket, seq: int, *frames: Down) -> list[tuple[int, str]]:
    """Results of a micro-batch: number of the left row, and where it was found."""
    contents = [encode_down(frame) for frame in frames]
    arrived = pd.DataFrame({"seq": range(seq, seq + len(frames)), "data": contents})
    blocks = [one for out in bucket.take((0,), iter([arrived]), None) for one in out["block"]]
    tables = [decode_batch(block).to_pylist() for block in blocks]
    return [(row["left_n"], row["place"]) for table in tables for row in table]


FIRST = Down(0, 5, -1, (BEGIN, rows(0, 3, 100), rows(1, 8, 105)))
SECOND = Down(1, 6, -1, (rows(0, 4, 101),))
BASE = base_of(1)


def test_a_bucket_sends_again_what_it_sent_and_takes_no_result_twice(
    bucket: Bucket, up: Up
) -> None:
    assert taken(bucket, 1, FIRST) == [(3, "cloud")] and up.sent == [[0]]
    one = np.array([4])
    found = Results(0, (one, one), (one, one), np.zeros(1, int), np.zeros(1))
    theirs = Down(1, 6, -1, (), (found,), {"origins": [["bob", 7, 1]]})
    assert taken(bucket, 2, theirs) == [(4, "bob")] and up.sent == [[0]]
    again = (rows(0, 3, 100), rows(1, 8, 105), rows(1, 9, 106))
    both = {"origins": [["bob", 7, 1], ["bob", 8, 1]], "after": 0}
    recovered = Down(BASE, BASE, -1, again, (found, found), both)
    up.generation = 1
    # One row of theirs is new, and one result of bob's; what was sent goes before that.
    assert taken(bucket, BASE + 1, FIRST, recovered) == [(3, "cloud"), (4, "bob")]
    assert up.sent[1:] == [[0, BASE]]
    assert taken(bucket, BASE + 3, Down(BASE + 1, BASE + 1, -1)) == [] and len(up.sent) == 2


def test_a_micro_batch_of_the_old_stream_sends_to_the_new_one_all_that_was_sent(
    bucket: Bucket, up: Up
) -> None:
    """It was planned, and is repeated after the recovery: what it sends is not the first."""
    taken(bucket, 1, FIRST)
    up.generation = 1
    assert taken(bucket, 2, SECOND) == [(4, "cloud")] and up.sent[1:] == [[0, 1]]
    recovered = Down(BASE, BASE, -1, (rows(1, 9, 106),), extras={"after": 1})
    taken(bucket, BASE + 1, FIRST, SECOND, recovered)
    assert up.sent[2:] == [[BASE]]  # the rest is there


def test_a_bucket_that_sent_nothing_for_long_keeps_nothing(
    bucket: Bucket, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1e9]
    monkeypatch.setattr(follow_stream.time, "time", lambda: now[0])
    taken(bucket, 1, FIRST)
    assert len(kept(bucket)) == 1
    now[0] += 2 * KEPT + 1
    taken(bucket, 2, Down(1, 6, -1))
    assert kept(bucket) == []
    assert taken(bucket, 3, Down(2, 7, -1, (rows(0, 4, 101),))) == [(4, "cloud")]
    assert len(kept(bucket)) == 1


def test_an_evaluator_is_read_back_only_where_another_process_wrote_it(
    bucket: Bucket, up: Up, tmp_path: Path
) -> None:
    """And an attempt that failed leaves nothing behind: the next one reads what was stored."""
    assert taken(bucket, 1, FIRST) == [(3, "cloud")]
    assert taken(bucket, 2, Down(1, 6, -1)) == [] and bucket._pieces._state.reads == 0
    before = bucket._head.get(), Map(bucket._pieces._state)
    assert taken(bucket, 3, Down(2, 7, -1, (rows(0, 4, 101),))) == [(4, "cloud")]
    bucket._head.held, bucket._pieces._state = before  # of an attempt that did not count
    assert taken(bucket, 3, Down(2, 7, -1, (rows(0, 4, 101),))) == [(4, "cloud")]
    assert bucket._pieces._state.reads == 1
    elsewhere = Bucket(bucket.cloud)
    elsewhere.begin(None, bucket._head, bucket._pieces._state)  # type: ignore[arg-type]
    CACHE.disown(bucket._owner)
    assert taken(elsewhere, 4, Down(3, 8, -1, (rows(0, 5, 102),))) == [(5, "cloud")]
    assert bucket._pieces._state.reads == 2


def test_a_large_evaluator_lies_in_parts(
    bucket: Bucket, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 64)
    assert taken(bucket, 1, FIRST) == [(3, "cloud")]
    assert bucket._noted().parts > 2
    CACHE.disown(bucket._owner)
    assert taken(bucket, 2, SECOND) == [(4, "cloud")]
    monkeypatch.setattr(stored, "PART_BYTES", 1 << 19)
    assert taken(bucket, 3, Down(2, 7, -1)) == [] and bucket._noted().parts == 1
    assert sorted(bucket._pieces._state) == [(0,), (1,), (2,)]  # it, and what was sent twice


def test_a_gap_is_named_on_one_line_first(
    bucket: Bucket, up: Up, capfd: pytest.CaptureFixture[str]
) -> None:
    processor = Processor(bucket)
    processor._begun = True
    contents = pd.DataFrame({"seq": [1], "data": [encode_down(Down(4, 5, -1, (BEGIN,)))]})
    with pytest.raises(StateMismatch, match="lacks frames between -1 and 4"):
        list(processor.handleInputRows((0,), iter([contents]), None))
    assert capfd.readouterr().err.startswith("StateMismatch: bucket 0 lacks frames")
