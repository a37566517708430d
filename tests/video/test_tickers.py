"""Tickers: lines that a channel shows all the time are left out, however key frames come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import BadRow
from anabranch.flow.blocks import Block
from anabranch.testing.workers import LivingWorkers, Workers
from anabranch.video.spelling import agree
from anabranch.video.tickers import LEAST, TIME, KeyPacking, TickersJob
from tests.examples import examples

LINES = ("WATCH US LIVE", "Watch uslive", "FLOOD IN GHENT", "MILL FIRE IN TURKU", "TALKS", "A")
Key = tuple[int, str, list[str]]  # time, channel, lines


def twin(keys: list[Key], lasting: int) -> dict[tuple[str, int], str | None]:
    """What each key frame says, in lines too plain to be wrong."""
    found = {}
    for t, channel, lines in keys:
        recent = [of for u, name, of in keys if name == channel and t - lasting <= u <= t]
        kept = [
            line
            for line in lines
            if not sum(any(agree(line, other) for other in of) for of in recent)
            > max(LEAST, len(recent) / 5)
        ]
        found[channel, t] = " ".join(kept) or None
    return found


def block(keys: list[Key]) -> Block:
    text = [[{"text": line, "score": 0.9, "box": [0.0] * 4} for line in key[2]] for key in keys]
    batch = pa.RecordBatch.from_pydict(
        {
            TIME: pa.array([key[0] for key in keys]),
            "channel": pa.array([key[1] for key in keys]),
            "id": pa.array([f"{key[1]}{key[0]}" for key in keys]),
            "text": pa.array(text),
            "words": pa.array(["?"] * len(keys)),
        }
    )
    (cell,) = KeyPacking(1).pack(batch, None).cells.values()
    return Block.decode(cell)


def test_a_column_of_the_user_may_have_any_name() -> None:
    rows = pa.RecordBatch.from_pydict({TIME: [5], "t": ["mine"], "channel": ["a"]})
    (cell,) = KeyPacking(2).pack(rows, None).cells.values()
    found = Block.decode(cell)
    assert found.t.tolist() == [5] and found.columns["of_keys_t"].to_pylist() == ["mine"]


BAD = [(None, "a", "time is null"), (5, None, "channel is null"), (1 << 62, "a", "73,000 years")]


@pytest.mark.parametrize(("t", "channel", "says"), BAD)
@pytest.mark.parametrize("columns", [("id",), ()])
def test_a_key_frame_without_time_or_channel_is_named(
    t: Any, channel: Any, says: str, columns: tuple[str, ...]
) -> None:
    times, channels = pa.array([4, t], pa.int64()), pa.array(["a", channel])
    rows = {TIME: times, "channel": channels, **dict.fromkeys(columns, pa.array(["x", "y"]))}
    name = "y" if columns else channel
    with pytest.raises(BadRow, match=f"^key frame {name!r}: its .*{says}.*; repair the input"):
        KeyPacking(2).pack(pa.RecordBatch.from_pydict(rows), None)


@st.composite
def evenings(draw: st.DrawFn) -> list[Key]:
    lines = st.lists(st.sampled_from(LINES), max_size=3)
    each = [
        [(t, channel, draw(lines)) for t in range(draw(st.integers(0, 3)), 60, 2)]
        for channel in ("north", "south")
    ]
    return sorted(key for keys in each for key in keys)


@settings(max_examples=examples(15), deadline=None)
@given(evenings(), st.integers(1, 60), st.data())
def test_batching_and_restarts_do_not_matter(
    keys: list[Key], lasting: int, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from([Workers, LivingWorkers]))
    workers: Workers = kind(TickersJob(lasting))
    said: dict[tuple[str, int], str | None] = {}
    rest = list(keys)
    while rest:
        count = data.draw(st.integers(1, 30))
        some, rest = rest[:count], rest[count:]
        # All of a micro-batch come in any order.
        places = data.draw(st.permutations(range(len(some))))
        for found in workers.step(0, [block([some[n] for n in places])], 0):
            for row in found.to_pylist():
                assert row["id"] == f"{row['channel']}{row['id'].removeprefix(row['channel'])}"
                said[row["channel"], int(row["id"].removeprefix(row["channel"]))] = row["words"]
    assert said == twin(keys, lasting)


def test_a_ticker_is_left_out_and_a_caption_that_stays_a_while_is_not() -> None:
    keys: list[Key] = [
        (t, "north", ["WATCH US LIVE", *(["FLOOD IN GHENT"] if 20 <= t < 30 else [])])
        for t in range(60)
    ]
    rows: list[dict[str, Any]] = []
    for found in Workers(TickersJob(600)).step(0, [block(keys)], 0):
        rows += found.to_pylist()
    words = np.array([row["words"] for row in rows], object)
    assert set(words[20:30]) == {"FLOOD IN GHENT"} and set(words[30:]) == {None}
