"""The relay: one writes, damaged frames are counted, a broker that went back is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from nats.aio.client import Client

from anabranch.edge.broker import Broker
from anabranch.edge.frames import Up, encode_up
from anabranch.edge.keeper import Keeper
from anabranch.edge.relay import Relay
from anabranch.edge.streams import Streams, connect
from anabranch.errors import AnabranchError, StateMismatch
from tests.edge.fleet import friends

pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HELLO = encode_up(Up(5, -1, -1, -1, extras={"hello": 0}))


def told(broker: Broker, story: Callable[[Client], Awaitable[None]]) -> None:
    """Run a story with a connection of the cloud's, over empty streams."""

    async def run() -> None:
        client = await connect(broker.address, broker.hub.cloud, "test")
        js = client.jetstream()
        try:
            for name in ("UP", "DOWN", "IN"):
                if name in [stream.config.name for stream in await js.streams_info()]:
                    await js.delete_stream(name)
            await Streams.of(0).make(js)
            await story(client)
        finally:
            await client.close()

    asyncio.run(run())


async def drained(relay: Relay) -> None:
    while await relay.turn():
        pass


def test_a_second_relay_cannot_write(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        one, other = (Relay(client, tmp_path / name, 1) for name in "ab")
        await one.open()
        await other.open()
        await client.jetstream().publish("u.alice", HELLO)
        await drained(one)
        with pytest.raises(AnabranchError, match=r"another relay writes to m\.alice"):
            await drained(other)
        await client.jetstream().publish("u.alice", HELLO)
        await drained(one)  # it is not disturbed

    told(broker, story)


def test_a_relay_continues_where_its_subjects_are(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        js = client.jetstream()
        for _ in range(3):
            await js.publish("u.alice", HELLO)
            relay = Relay(client, tmp_path, 1)
            await relay.open()
            await drained(relay)  # and it is killed, without a snapshot
        messages = (await js.stream_info("DOWN")).state.messages
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        await drained(relay)
        assert (await js.stream_info("DOWN")).state.messages == messages == 3

    told(broker, story)


def test_bytes_that_are_no_frame_are_counted(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        js = client.jetstream()
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        for content in (b"", b"nonsense", b"\x91\x09", HELLO, b"\xc1" * 100):
            await js.publish("u.alice", content)
        await drained(relay)
        assert relay.state.counts["frames that cannot be read"] == 4
        await relay._write_snapshot()
        again = Relay(client, tmp_path, 1)
        await again.open()
        await drained(again)  # the last of them comes again, and does no harm

    told(broker, story)


def test_a_stream_that_went_back_is_refused(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        js = client.jetstream()
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        for _ in range(5):
            await js.publish("u.alice", HELLO)
        await drained(relay)
        await relay._write_snapshot()
        await js.delete_stream("UP")
        await Streams.of(0).make(js)
        with pytest.raises(StateMismatch, match="stream UP went back: it ends at 0"):
            await Relay(client, tmp_path, 1).open()
        (tmp_path / "relay-0.state").unlink()
        for _ in range(2):
            await js.publish("u.alice", HELLO)
        await js.purge_stream("UP", seq=2)
        with pytest.raises(StateMismatch, match="the relay's state is missing"):
            await Relay(client, tmp_path, 1).open()

    told(broker, story)


def test_a_stream_that_was_filled_again_is_refused(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power is lost, and devices are faster than the relay: numbers are there, of others."""
    monkeypatch.setattr("anabranch.edge.relay._SLACK", 0.0)

    async def story(client: Client) -> None:
        js = client.jetstream()
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        for _ in range(3):
            await js.publish("u.alice", HELLO)
        await drained(relay)
        await js.delete_stream("UP")
        await Streams.of(0).make(js)
        with pytest.raises(StateMismatch, match="went back: it ends at 0, and 3 was processed"):
            await Relay(client, tmp_path, 1).open()
        for _ in range(5):
            await js.publish("u.alice", HELLO)
        with pytest.raises(StateMismatch, match="its message 3 is newer than what follows"):
            await Relay(client, tmp_path, 1).open()

    told(broker, story)


def test_an_entry_that_was_written_but_not_published_is_published(
    broker: Broker, tmp_path: Path
) -> None:
    async def story(client: Client) -> None:
        relay = Relay(client, tmp_path, 1)
        state = await relay.open()
        keeper = Keeper(client, state, tmp_path / "control")
        keeper.state.add(*friends(["ann", "bob"], [(0, 1)]))
        entry = keeper.state.next_entry()
        assert entry is not None
        keeper.log.write(entry)  # and it is killed
        other = Keeper(client, state, tmp_path / "control")
        await other.open()
        await drained(relay)
        assert (state.book.epoch, [view.name for view in state.book.views]) == (
            0,
            ["near(ann,bob)"],
        )
        await other.open()  # an entry that was published is not published again
        assert await relay.turn() == 0

    told(broker, story)


def test_a_second_keeper_stops(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        state = await Relay(client, tmp_path, 1).open()
        one, other = (Keeper(client, state, tmp_path / "control") for _ in range(2))
        for keeper in (one, other):
            keeper.state.add(*friends(["ann", "bob"], [(0, 1)]))
        assert await one.turn(0) is not None
        with pytest.raises(StateMismatch, match="another keeper writes it"):
            await other.turn(0)

    told(broker, story)
