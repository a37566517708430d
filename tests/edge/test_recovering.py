"""`recover` with a broker in memory: interrupted, on full or empty streams, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from nats.js.errors import APIError, BadRequestError, NotFoundError

from anabranch.edge import recovering
from anabranch.edge.frames import Down, encode_down, own_down
from anabranch.edge.mail import base_of
from anabranch.edge.mailboxes import Mailboxes, beside
from anabranch.edge.placements import Entry, PlacementLog
from anabranch.edge.recovering import Recovered, Recovery
from anabranch.edge.relay import Relay
from anabranch.edge.relay_state import Covered, RelayState
from anabranch.edge.snapshots import snapshot_path, snapshots, write_snapshot
from anabranch.edge.streams import Streams
from anabranch.errors import StateMismatch


class Cut(Exception):
    """The recovery is killed."""


@dataclass
class Held:
    config: Any
    messages: list[tuple[str, bytes, datetime]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(len(content) for _, content, _ in self.messages)


class Broker:
    """A client and its JetStream in one, with the errors of the real one."""

    def __init__(self) -> None:
        self.streams: dict[str, Held] = {}
        self.cut = ""  # the stream whose making is not lived to see
        self.now = datetime(2026, 11, 17, 12, tzinfo=UTC)

    def jetstream(self) -> Broker:
        return self

    async def streams_info(self) -> list[Held]:
        return list(self.streams.values())

    async def stream_info(self, name: str, **_: Any) -> SimpleNamespace:
        if name not in self.streams:
            raise NotFoundError(code=404)
        held = self.streams[name]
        subjects = {subject: 1 for subject, _, _ in held.messages}
        count = len(held.messages)
        state = SimpleNamespace(
            messages=count, bytes=held.bytes, first_seq=1, last_seq=count, subjects=subjects
        )
        return SimpleNamespace(config=held.config, state=state)

    async def get_msg(self, name: str, sequence: int) -> SimpleNamespace:
        if sequence < 1:
            raise BadRequestError(code=400)
        _, content, time = self.streams[name].messages[sequence - 1]
        return SimpleNamespace(data=content, time=time)

    async def add_stream(self, config: Any) -> None:
        if config.name == self.cut:
            raise Cut
        if any(set(held.config.subjects) & set(config.subjects) for held in self.streams.values()):
            raise BadRequestError(code=400, err_code=10065)
        self.streams[config.name] = Held(config)

    async def update_stream(self, config: Any) -> None:
        self.streams[config.name].config = config

    async def delete_stream(self, name: str) -> None:
        del self.streams[name]

    async def publish(self, subject: str, content: bytes) -> SimpleNamespace:
        pattern = f"{subject.partition('.')[0]}.*"
        [held] = [one for one in self.streams.values() if pattern in one.config.subjects]
        if held.bytes + len(content) > held.config.max_bytes:
            raise APIError(code=503, err_code=10077)
        held.messages.append((subject, content, self.now))
        return SimpleNamespace(seq=len(held.messages))


async def all_messages(js: Broker, stream: str, _: str) -> AsyncIterator[SimpleNamespace]:
    for number, (subject, content, _) in enumerate(js.streams[stream].messages, 1):
        metadata = SimpleNamespace(sequence=SimpleNamespace(stream=number))
        yield SimpleNamespace(subject=subject, data=content, metadata=metadata)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(recovering, "all_messages", all_messages)
    made = Broker()
    asyncio.run(Streams.of(0).make(made))  # type: ignore[arg-type]
    return made


def put(broker: Broker, subject: str, *frames: Down) -> None:
    for frame in frames:
        asyncio.run(broker.publish(subject, encode_down(frame)))


def recover(broker: Broker, folder: Path, buckets: int = 2) -> Recovered:
    (folder / "control").mkdir(exist_ok=True)
    return asyncio.run(Recovery(broker, folder, folder / "control", buckets).run())  # type: ignore[arg-type]


def relay_of(generation: int, folder: Path, position: int, covered: int = 0) -> None:
    """The state of a relay that has read UP up to a position."""
    relay = RelayState(2, {"m.ann": Covered(base_of(generation) + covered, 1)}, generation)
    relay.skip(base_of(generation) + position, "messages")
    write_snapshot(snapshot_path(folder, generation), relay)


def names(broker: Broker) -> set[str]:
    return set(broker.streams)


def test_empty_streams_are_recovered(broker: Broker, tmp_path: Path) -> None:
    found = recover(broker, tmp_path)
    assert (found.generation, found.left, found.ended) == (1, 0, None)
    assert names(broker) == {"UP", "DOWN", "IN", "UP-1", "DOWN-1", "IN-1"}


@pytest.mark.parametrize("cut", ["DOWN-1", "IN-1", "UP-1"])
def test_a_recovery_that_was_interrupted_is_finished(
    cut: str, broker: Broker, tmp_path: Path
) -> None:
    relay_of(0, tmp_path, 9, covered=2)
    put(broker, "m.ann", *(Down(number, 1, -1) for number in range(2)))
    broker.cut = cut
    with pytest.raises(Cut):
        recover(broker, tmp_path)
    broker.cut = ""
    found = recover(broker, tmp_path)
    assert found.left == 2 and found.lost == {"m.ann": 1}  # as the first time
    generation = found.generation
    added = {f"{base}-{generation}" for base in ("UP", "DOWN", "IN")}
    assert names(broker) == {"UP", "DOWN", "IN", *added}
    assert set(snapshots(tmp_path)) == {0, generation}
    assert recover(broker, tmp_path).generation == generation + 1


def test_a_generation_that_was_served_is_not_dropped_though_its_up_is_gone(
    broker: Broker, tmp_path: Path
) -> None:
    recover(broker, tmp_path)
    put(broker, "m.ann", Down(base_of(1), base_of(1), -1, extras={"after": -1}))
    relay_of(1, tmp_path, 5)
    del broker.streams["UP-1"]
    found = recover(broker, tmp_path)
    assert (found.generation, found.left, found.lost) == (2, 3, {})  # two buckets' first, too
    assert {"DOWN-1", "IN-1", "UP-2"} <= names(broker)


def test_a_store_of_an_earlier_generation_is_refused_then_recovered(
    broker: Broker, tmp_path: Path
) -> None:
    relay_of(1, tmp_path, 5)
    relay = Relay(broker, tmp_path, 2)  # type: ignore[arg-type]
    with pytest.raises(StateMismatch, match=r"of generation 1 .* of generation 0: .* recover`"):
        asyncio.run(relay.open())
    assert recover(broker, tmp_path).generation == 2


def test_the_end_of_the_store_is_its_newest_message(broker: Broker, tmp_path: Path) -> None:
    put(broker, "in.0", Down(0, 1, -1))
    broker.now = broker.now.replace(hour=15)
    put(broker, "m.ann", Down(0, 1, -1))
    assert recover(broker, tmp_path).ended == broker.now


def test_full_streams_are_recovered(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit of mailboxes is kept beside; buckets have room for more."""
    frames = [Down(number, 1, -1, extras={"x": "y" * 50}) for number in range(4)]
    put(broker, "m.ann", *frames)
    put(broker, "in.0", *frames)
    size = len(encode_down(frames[0]))
    monkeypatch.setattr("anabranch.edge.streams._BYTES", 2 * size)
    assert recover(broker, tmp_path).left == 8
    assert [subject for subject, *_ in broker.streams["DOWN-1"].messages] == ["m.ann"] * 2
    kept = Mailboxes(broker, "DOWN-1", beside(tmp_path, 1))  # type: ignore[arg-type]
    assert kept.numbers("ann") == [2, 3]
    carried = [own_down(content) for _, content, _ in broker.streams["IN-1"].messages]
    assert [down and down.number for down in carried] == [0, 1, 2, 3, base_of(1), base_of(1)]


def test_what_cannot_be_healed_is_refused_before_anything_is_touched(
    broker: Broker, tmp_path: Path
) -> None:
    before = {name: list(held.config.subjects) for name, held in broker.streams.items()}
    put(broker, "in.3", Down(0, 1, -1))
    with pytest.raises(StateMismatch, match="frames for bucket 3, and 2 buckets"):
        recover(broker, tmp_path)
    relay = RelayState(4)
    relay.entry(1, Entry(0))
    relay.flush()
    write_snapshot(snapshot_path(tmp_path, 0), relay)
    with pytest.raises(StateMismatch, match="ends at entry -1, and entry 0 was in use"):
        recover(broker, tmp_path)
    assert before == {name: held.config.subjects for name, held in broker.streams.items()}
    PlacementLog(tmp_path / "control").write(Entry(0))
    assert recover(broker, tmp_path).generation == 1
