"""The relay's shell with a broker that only notes what it is asked for."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from nats.js.errors import NotFoundError

from anabranch.edge.appending import send_back
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.frames import Up, decode_output, encode_down, encode_up
from anabranch.edge.mailboxes import Mailboxes
from anabranch.edge.placements import Entry
from anabranch.edge.relay import Relay
from anabranch.edge.relay_state import Message, RelayState
from anabranch.edge.sections import Results, Section
from anabranch.edge.streams import Streams

HELLO = Up(5, -1, -1, -1, extras={"hello": 0})


class Noting:
    """A client and its JetStream in one."""

    def __init__(self) -> None:
        self.purged: list[tuple[str, str | None, int | None]] = []

    def jetstream(self) -> Noting:
        return self

    async def purge_stream(self, name: str, seq: int | None = None, **more: Any) -> bool:
        self.purged.append((name, more.get("subject"), seq))
        return True


def opened(broker: Any, folder: Path) -> Relay:
    """A relay of an empty hub."""
    relay = Relay(broker, folder, 1)
    relay.streams, relay.state = Streams.of(0), RelayState(1)
    relay.mailboxes = Mailboxes(broker, "DOWN", folder / "mailboxes-0")
    return relay


def test_a_relay_that_has_read_nothing_lets_the_broker_forget_nothing(tmp_path: Path) -> None:
    broker = Noting()
    relay = opened(broker, tmp_path)
    asyncio.run(relay._write_snapshot())
    assert broker.purged == []
    relay.state.frame(1, "ann", HELLO)
    relay.state.flush()
    asyncio.run(relay._write_snapshot())
    assert broker.purged == [("UP", None, 2)]


def test_a_snapshot_survives_a_power_cut_before_the_broker_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content, then its name; so do mailboxes beside the broker."""
    broker = Noting()
    relay = opened(broker, tmp_path)
    relay.state.frame(1, "ann", HELLO)
    relay.state.flush()
    relay.mailboxes.keep_beside("ann", 0, 1, b"frame")
    synced: list[str] = []
    fsync = os.fsync

    def noted(number: int) -> None:
        assert not broker.purged
        synced.append(Path(f"/proc/self/fd/{number}").resolve().name)
        fsync(number)

    monkeypatch.setattr("os.fsync", noted)
    asyncio.run(relay._write_snapshot())
    assert synced == ["ann.frames", "mailboxes-0", "relay-0.new", tmp_path.name]
    assert broker.purged


XY = {"xy": "array<double>"}
STREAMS = tuple(Stream(f"gps[{who}]", who, XY, tick=1) for who in ("ann", "bob"))
NEAR = Definition("near", "pairs", (9, 9))
HALF = View("near(ann,bob)", "near", (0, 1), (0.5, 1.0))
FIRST = Entry(0, STREAMS, (NEAR,), ((HALF, "cloud"),))


def turned(relay: Relay, *contents: bytes) -> list[int]:
    """The sizes of what a relay sends to the bucket of a view, of frames that come at once."""
    sizes: list[int] = []
    reply = "$JS.ACK.UP.reader.1.{}.3.1794837900104219000.0"
    messages = [
        SimpleNamespace(subject="u.ann", data=content, reply=reply.format(position))
        for position, content in enumerate(contents, 2)
    ]

    async def some(patience: float) -> list[Any]:
        return messages

    async def append(messages: Sequence[Message]) -> None:
        sizes.extend(len(encode_down(m.frame)) for m in messages if m.subject == "in.0")

    relay._reading = SimpleNamespace(some=some)  # type: ignore[assignment]
    relay._append = append  # type: ignore[method-assign]
    relay.state.entry(1, FIRST)
    relay.state.flush()
    asyncio.run(relay.turn())
    return sizes


def frame(number: int, before: int, vectors: np.ndarray) -> tuple[bytes, int]:
    """A frame of ann's, and the checksum by which the next one follows it."""
    rows = np.arange(len(vectors)) + 10 * number
    section = Section(0, 0, rows + (1 << 32), rows, (vectors,), int(rows[-1]))
    content = encode_up(Up(1, number, 0, -1, (section,), before=before))
    return content, zlib.crc32(content)


def test_large_frames_are_not_gathered(tmp_path: Path) -> None:
    check, contents = 0, []
    for number in range(4):
        content, check = frame(number, check, np.random.default_rng(7).random((2, 50_000)))
        contents.append(content)
    sizes = turned(opened(Noting(), tmp_path), *contents)
    assert len(sizes) == 4 and max(sizes) < 1 << 20


def test_a_frame_that_is_too_large_is_counted(tmp_path: Path) -> None:
    good, check = frame(0, 0, np.ones((2, 9)))
    long, _ = frame(1, check, np.random.default_rng(7).random((2, 200_000)))
    short, _ = frame(1, check, np.ones((2, 200_000)))  # a byte for each number of eight
    assert len(long) > 2 << 20 and len(short) < 1 << 19
    relay = opened(Noting(), tmp_path)
    sizes = turned(relay, good, long, short)
    assert relay.state.counts["frames that cannot be read"] == 2 and len(sizes) == 1


class Answering:
    """A client and its JetStream in one: a stream that holds what was published."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.held: list[bytes] = []

    def jetstream(self) -> Answering:
        return self

    async def find_stream_name_by_subject(self, subject: str) -> str:
        return self.stream

    async def get_last_msg(self, stream: str, subject: str) -> SimpleNamespace:
        if not self.held:
            raise NotFoundError(code=404)
        return SimpleNamespace(data=self.held[-1], seq=len(self.held))

    async def publish(self, subject: str, content: bytes, headers: Any) -> None:
        self.held.append(content)


def test_streams_of_a_later_generation_get_first_what_went_to_the_earlier_ones() -> None:
    one = np.array([1])
    results = Results(0, (one, one), (one, one), one, np.zeros(1))
    sent: Any = (0, [(7, results)], 0, lambda: [(3, results)])
    for stream, generation, parts in (("UP", 0, (7,)), ("UP-12", 12, (3, 7))):
        broker: Any = Answering(stream)
        assert asyncio.run(send_back(broker, *sent)) == generation
        [content] = broker.held
        assert [number >> 16 for number, _ in decode_output(content).parts()] == list(parts)
