"""What `ab.follow` lets the broker forget: all that the checkpoint has, but for the newest."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from nats.js.errors import NotFoundError

from anabranch.edge.address import Broker
from anabranch.edge.frames import Down, encode_down
from anabranch.edge.wishes import Wishes
from anabranch.errors import StateMismatch
from anabranch.spark.follow_source import Followed, asking
from anabranch.spark.jetstream import Held, JetStream

BORN = datetime(2026, 1, 1, tzinfo=UTC)
FRAME = encode_down(Down(0, 0, -1))


class Stored:
    """A client, its JetStream and the stream IN in one."""

    def __init__(self, *subjects: str, created: datetime = BORN) -> None:
        self.messages = {seq: (subject, FRAME) for seq, subject in enumerate(subjects, 1)}
        self.last, self.created, self.purges = len(subjects), created, 0
        self.generations = ["IN"]

    def jetstream(self, timeout: float) -> Stored:
        return self

    async def close(self) -> None:
        pass

    async def stream_info(self, name: str, subjects_filter: str | None = None) -> Any:
        if name not in self.generations:
            raise NotFoundError
        state = SimpleNamespace(
            first_seq=min(self.messages, default=self.last + 1),
            last_seq=self.last,
            messages=len(self.messages),
            bytes=100 * len(self.messages),
            subjects=dict.fromkeys(subject for subject, _ in self.messages.values()),
        )
        newest = name == self.generations[-1]
        config = SimpleNamespace(name=name, subjects=["in.*" if newest else f"old.{name}"])
        return SimpleNamespace(created=self.created, state=state, config=config)

    async def streams_info(self) -> list[Any]:
        return [await self.stream_info(name) for name in self.generations]

    async def get_last_msg(self, name: str, subject: str) -> Any:
        seq = max(seq for seq, (of, _) in self.messages.items() if of == subject)
        return SimpleNamespace(seq=seq, data=self.messages[seq][1])

    async def purge_stream(self, name: str, seq: int, subject: str) -> None:
        self.purges += 1
        kept = {at: m for at, m in self.messages.items() if m[0] != subject or at >= seq}
        self.messages = kept


def followed(monkeypatch: pytest.MonkeyPatch, stored: Stored, control: Path) -> Any:
    async def connect(self: Broker) -> Stored:
        return stored

    monkeypatch.setattr(Broker, "connect", connect)
    given = {"url": "tls://hub:4222", **asking(str(control), Wishes())}
    return Followed(given).streamReader(None)  # type: ignore[arg-type]


def at(seq: int, **changed: Any) -> dict[str, Any]:
    return {"gen": 0, "seq": seq, "created": BORN.isoformat(), **changed}


def test_what_is_committed_is_forgotten_but_for_the_newest_of_each_bucket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = Stored("in.0", "in.1", "in.0", "in.0", "in.2", "in.2", "in.2")
    source = followed(monkeypatch, stored, tmp_path)
    source.commit(at(5))
    assert sorted(stored.messages) == [2, 4, 6, 7]  # 2 and 4 are the newest of theirs
    assert read(source, 5, 7) == (6, 7)
    source.commit(at(7))
    assert sorted(stored.messages) == [2, 4, 7]
    assert source.latestOffset(at(7)) == at(7)


def read(source: Any, start: int, end: int) -> tuple[int, int]:
    (part,) = source.partitions(at(start), at(end))
    return part.first, part.last


def test_a_stream_that_is_full_is_forgotten_without_a_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark commits when it has begun the next micro-batch, and no row can come for one."""
    stored = Stored("in.0", "in.0", "in.0", "in.0")
    source = followed(monkeypatch, stored, tmp_path)
    assert source.latestOffset(at(0)) == at(4) and len(stored.messages) == 4
    source.latestOffset(at(3))
    assert sorted(stored.messages) == [4]
    purges = stored.purges
    source.latestOffset(at(3))
    source.commit(at(3))
    assert stored.purges == purges  # once is enough


def test_where_spark_does_not_say_where_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = Stored("in.0", "in.0", "in.0", "in.0")
    source = followed(monkeypatch, stored, tmp_path)
    assert source.latestOffset() == at(4)
    assert read(source, 0, 3) == (1, 3)
    assert len(stored.messages) == 4  # it is not in the checkpoint yet
    source.latestOffset()
    assert sorted(stored.messages) == [4]


def test_other_streams_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stored = Stored("in.0", "in.0", "in.0")
    source = followed(monkeypatch, stored, tmp_path)
    source.commit(at(0))
    source.commit(at(2, gen=-1))
    source.commit(at(2, created="another day"))
    source.commit(at(9))
    assert stored.purges == 0
    stored.messages[3] = "in.0", b"of nobody"  # the relay needs the frames before it
    source.commit(at(3))
    assert stored.purges == 0
    plain: Any = JetStream({"url": "tls://hub:4222"}).streamReader(None)  # type: ignore[arg-type]
    plain.commit(at(2))
    assert len(stored.messages) == 3


def test_a_micro_batch_takes_a_part_of_a_full_stream(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = followed(monkeypatch, Stored(), tmp_path)
    held = Held("", 1, 4000, 4000, 1 << 30)
    assert source._most(held, 10_000) == 1000 and source._most(held, 20) == 20
    assert source._most(held, None) is None  # who asks for all gets all
    assert source._most(Held("", 1, 4000, 4000, 1 << 20), 10_000) == 10_000
    assert source._most(Held("", 1, 1, 1, 1 << 30), 10_000) == 1


def test_a_query_goes_on_with_the_streams_of_a_recovery(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = Stored("in.0", "in.1", "in.0")
    reader = followed(monkeypatch, stored, tmp_path)
    assert reader.latestOffset(at(0)) == at(3)
    stored.generations.append("IN-1")
    assert reader.latestOffset(at(9)) == at(3, gen=1)  # also of a checkpoint that was ahead
    [part] = reader.partitions(at(9), at(3, gen=1))
    assert (part.stream, part.first, part.last, part.base) == ("IN-1", 1, 3, 1 << 40)
    with pytest.raises(StateMismatch, match="planned with them and cannot be repeated"):
        reader.partitions(at(3), at(9))
