"""Results are cut so that every message can be carried, and come back whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.edge.agent_state import AgentState
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.frames import Output, decode_up, encode_output
from anabranch.edge.placements import Entry
from anabranch.edge.relay_state import RelayState
from anabranch.edge.sections import Results, Section
from anabranch.edge.splitting import PART, portions, size_of

TEXT = {"x": "double", "name": "string"}
STREAMS = tuple(Stream(f"gps[{who}]", who, TEXT) for who in ("ann", "bob"))
NEAR = Definition("near", "pairs", (100_000, 100_000), None, (("name",), ("name",)))
FIRST = Entry(0, STREAMS, (NEAR,), ((View("near(ann,bob)", "near", (0, 1)), "ann"),))


def results(rows: int, first: int = 0) -> Results:
    row = np.arange(first, first + rows)
    columns = (np.array([f"{n} " * 50 for n in row], object), np.outer(row, [0.1, 0.3]))
    return Results(0, (row, row), (row, row), row * 0, row / 3, columns)


def test_every_row_is_in_one_part_and_no_part_is_large() -> None:
    whole = [results(10_000), results(0), results(3, 10_000), results(5_000, 10_003)]
    parts = list(portions((), whole))
    assert len(parts) > 5
    for part in parts:
        assert len(encode_output(Output(0, part))) <= size_of(part) + 100 <= PART + 100
    rows = np.concatenate([one.n[0] for part in parts for one in part])
    assert rows.tolist() == list(range(15_003))
    texts = np.concatenate([one.columns[0] for part in parts for one in part])
    assert texts[12_000] == "12000 " * 50


def test_one_result_that_is_larger_than_a_part_is_alone() -> None:
    one = np.array([1])
    large = Results(0, (one,), (one,), one, np.zeros(1), (np.zeros((1, PART)),))
    small = Results(0, (one,), (one,), one, np.zeros(1))
    rows = Section(0, 0, one, one)
    assert list(portions([rows], [small, large, small])) == [(small,), (large,), (small,)]
    assert list(portions([rows], [large])) == [(), (large,)]


def test_a_device_with_many_results_sends_many_frames() -> None:
    """One row of hers meets ten thousand of his, with long names."""
    relay, ann = RelayState(1), AgentState("ann", 1, slack=0, window=1 << 40)
    relay.entry(1, FIRST)
    for content in ann.connect().send:
        relay.frame(2, "ann", decode_up(content))
    [told] = [message.frame for message in relay.flush() if message.subject == "m.ann"]
    ann.receive(told)
    relay.position = 9
    relay.acknowledge("ann")
    [told] = [message.frame for message in relay.flush()]
    rows = np.arange(10_000)
    names = np.array(["b" * 200] * 10_000, object)
    his = Section(1, 0, rows + (1 << 32), rows, (rows * 1.0, names), 10_000)
    ann.receive(replace(told, steps=(his,)))
    ann.put("gps[ann]", 5_000, {"x": 1.0, "name": "a" * 200})
    ann.flush(6_000)
    frames = list(ann._sending.kept.values())
    assert len(frames) > 10 and max(map(len, frames)) < 1 << 19
    for position, content in enumerate(frames, 20):
        relay.frame(position, "ann", decode_up(content))
    [message] = [message for message in relay.flush() if message.subject == "in.0"]
    found = np.concatenate([one.n[1] for one in message.frame.results])
    assert sorted(found.tolist()) == (rows + (1 << 32)).tolist()
    assert not set(relay.counts) - {"frames that were there"}


def test_what_a_frame_says_besides_is_said_once_and_last() -> None:
    ann = AgentState("ann", 1, slack=0)
    ann._seen, ann._outgoing = 0, [results(10_000)]
    frames = [decode_up(content) for _, content in ann.leave().frames]
    assert len(frames) > 3
    assert [up.extras for up in frames] == [{}] * (len(frames) - 1) + [{"bye": True}]
    assert ann._outgoing == []


def test_results_for_devices_are_cut_alike_however_they_come() -> None:
    pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")
    from anabranch.edge.appending import messages_of

    found = [(3, results(5)), (4, results(9_000)), (4, results(7)), (5, results(5))]
    messages = messages_of(found)
    assert len(messages) > 2
    for message in messages:
        both = tuple(one for _, part in message for one in part)
        assert len(encode_output(Output(0, both))) < (1 << 20) + 1000
    numbers = [number for message in messages for number, _ in message]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 3 << 16 and numbers[-1] == 5 << 16 and numbers[1] == 4 << 16
    parts = {number: [len(one.stamp) for one in part] for m in messages for number, part in m}
    again = messages_of(found[1:])  # a micro-batch that is cut otherwise
    assert {n: [len(one.stamp) for one in part] for m in again for n, part in m}.items() <= (
        parts.items()
    )
    assert messages_of([]) == []
