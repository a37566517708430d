"""The relay: one writes, damaged frames are counted, a broker that went back is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.edge.appending import send_back
from anabranch.edge.broker import Broker
from anabranch.edge.frames import (
    Output,
    Up,
    decode_down,
    decode_output,
    encode_output,
    encode_up,
)
from anabranch.edge.keeper import Keeper
from anabranch.edge.relay import Relay
from anabranch.edge.sections import Results
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


async def sent(client: Client, *contents: bytes, subject: str = "u.alice") -> None:
    """Publish, and wait until UP has it: the broker acknowledges nothing there."""
    js = client.jetstream()
    due = (await js.stream_info("UP")).state.last_seq + len(contents)
    for content in contents:
        await client.publish(subject, content)
    for _ in range(500):
        if (await js.stream_info("UP")).state.last_seq >= due:
            return
        await asyncio.sleep(0.01)
    pytest.fail("UP did not take it within 5 seconds")


async def drained(relay: Relay) -> None:
    while await relay.turn():
        pass


def test_a_second_relay_cannot_write(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        one, other = (Relay(client, tmp_path / name, 1) for name in "ab")
        await one.open()
        await other.open()
        await sent(client, HELLO)
        await drained(one)
        with pytest.raises(AnabranchError, match=r"another relay writes to m\.alice"):
            await drained(other)
        await sent(client, HELLO)
        await drained(one)  # it is not disturbed

    told(broker, story)


def test_a_relay_continues_where_its_subjects_are(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        js = client.jetstream()
        for _ in range(3):
            await sent(client, HELLO)
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
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        await sent(client, b"", b"nonsense", b"\x91\x09", HELLO, b"\xc1" * 100)
        await drained(relay)
        assert relay.state.counts["frames that cannot be read"] == 4
        await relay._write_snapshot()
        again = Relay(client, tmp_path, 1)
        await again.open()
        await drained(again)  # the last of them comes again, and does no harm

    told(broker, story)


def test_what_waits_is_kept_by_a_relay_that_has_read_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    async def story(client: Client) -> None:
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        await sent(client, HELLO)
        await relay._write_snapshot()
        assert (await client.jetstream().stream_info("UP")).state.messages == 1
        await drained(relay)
        await relay._write_snapshot()
        assert (await client.jetstream().stream_info("UP")).state.messages == 0

    told(broker, story)


def test_a_stream_that_acknowledges_does_not_any_more(broker: Broker, tmp_path: Path) -> None:
    """An acknowledgement would go wherever a device asks for it."""

    async def story(client: Client) -> None:
        js = client.jetstream()
        settings = (await js.stream_info("UP")).config
        settings.no_ack = False
        await js.update_stream(settings)
        await sent(client, HELLO)
        await Relay(client, tmp_path, 1).open()
        found = await js.stream_info("UP")
        assert found.config.no_ack and found.state.messages == 1
        assert found.config.max_bytes == settings.max_bytes

    told(broker, story)


STRANGE = [b"", b'{"stream":"UP","seq":1}', b"\xc1" * 9]


def test_messages_of_nobody_are_skipped(broker: Broker, tmp_path: Path) -> None:
    """In every subject that the cloud reads, also as the newest, also after a restart."""

    async def story(client: Client) -> None:
        js = client.jetstream()
        relay = Relay(client, tmp_path, 1)
        state = await relay.open()
        keeper = Keeper(client, state, tmp_path / "control")
        keeper.state.add(*friends(["alice", "bob"], [(0, 1)]))
        await keeper.turn(0)
        await sent(client, HELLO, HELLO)
        await drained(relay)
        assert state.book.epoch == 0
        numbers = {s: c.number for s, c in state.covered.items()}
        for content in STRANGE:
            await sent(client, content, subject="k")
            await sent(client, content, subject="c.0")
            await sent(client, content, subject="c.x")
            await js.publish("m.alice", content)
            await js.publish("in.0", content)
        await drained(relay)
        assert state.counts["messages of the cloud that cannot be read"] == 3 * len(STRANGE)
        again = Relay(client, tmp_path, 1)
        state = await again.open()
        await drained(again)
        assert {s: c.number for s, c in state.covered.items()} == numbers
        await sent(client, HELLO)
        await drained(again)
        assert state.covered["m.alice"].number == numbers["m.alice"] + 1
        assert again.mailboxes.numbers("alice") == list(range(numbers["m.alice"] + 2))

    told(broker, story)


def test_an_entry_that_got_lost_is_published_again(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        relay = Relay(client, tmp_path, 1)
        state = await relay.open()
        keeper = Keeper(client, state, tmp_path / "control")
        keeper.state.add(*friends(["ann", "bob"], [(0, 1)]))
        publish = client.publish
        client.publish = lambda *_, **__: asyncio.sleep(0)  # type: ignore[method-assign]
        assert await keeper.turn(0) is not None
        client.publish = publish  # type: ignore[method-assign]
        for now, epoch in ((1, -1), (4_999_999, -1), (5_000_001, 0), (99_000_000, 0)):
            await keeper.turn(now)
            await asyncio.sleep(0.2)
            await drained(relay)
            assert state.book.epoch == epoch
        assert relay._reading.next == 2  # it was published once

    told(broker, story)


def test_results_are_sent_back_once_and_read_back(broker: Broker, tmp_path: Path) -> None:
    one = np.array([1])
    results = Results(0, (one, one), (one, one), one, np.zeros(1))

    async def story(client: Client) -> None:
        js = client.jetstream()

        async def last() -> tuple[int, bytes]:
            newest = await js.get_last_msg("UP", "c.0")
            return newest.seq or 0, newest.data or b""

        await send_back(client, 0, [(3, results), (4, results)])
        sequence, content = await last()
        assert decode_output(content).batch == 4 << 16 and len(decode_output(content).results) == 2
        await send_back(client, 0, [(3, results), (4, results)])
        assert (await last())[0] == sequence
        await send_back(client, 0, [(4, results), (5, results)])  # cut otherwise
        assert len(decode_output((await last())[1]).results) == 1
        await sent(client, b"nobody's", subject="c.0")
        await send_back(client, 0, [(6, results)])
        assert decode_output((await last())[1]).batch == 6 << 16
        await js.purge_stream("UP")  # as the relay does with what it has
        await send_back(client, 0, [(7, results)])
        assert decode_output((await last())[1]).batch == 7 << 16
        publish = client.publish

        async def overtaken(subject: str, *given: Any, **more: Any) -> None:
            if subject == "c.0":
                client.publish = publish  # type: ignore[method-assign]
                await sent(client, encode_output(Output(8 << 16, ())), subject="c.0")
            await publish(subject, *given, **more)

        client.publish = overtaken  # type: ignore[method-assign]
        with pytest.raises(StateMismatch, match=r"another query writes to c\.0"):
            await send_back(client, 0, [(8, results)])

    told(broker, story)


@pytest.mark.parametrize("why", ["a bound of the mailbox", "a full stream"])
def test_a_device_that_is_away_for_long_stalls_nobody(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """What does not fit is kept beside the broker, over restarts, and comes in order."""
    filling = why == "a full stream"
    monkeypatch.setattr("anabranch.edge.mailboxes.MOST", 1 << 30 if filling else 500)
    monkeypatch.setattr("anabranch.edge.relay._AGAIN", 500)
    monkeypatch.setattr("anabranch.edge.mailboxes._SPARE", 5)

    async def story(client: Client) -> None:
        js = client.jetstream()
        if filling:
            settings = (await js.stream_info("DOWN")).config
            settings.max_bytes = 4_000
            await js.update_stream(settings)
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        for _ in range(80):
            await sent(client, HELLO)
            await drained(relay)
        beside = relay.state.counts["frames kept beside the broker"]
        assert 20 < beside < 80 and relay.state.counts["waits for space"] == 0
        await sent(client, HELLO, subject="u.bob")
        await asyncio.wait_for(drained(relay), 5)
        assert relay.mailboxes.numbers("bob") == [0]
        relay = Relay(client, tmp_path, 1)  # and it is killed
        state = await relay.open()
        await drained(relay)
        assert relay.mailboxes.numbers("alice") == list(range(80))
        assert state.covered["m.alice"].number == 79
        heard = await heard_by(client, "d.alice")
        await sent(client, HELLO)  # who has seen nothing
        for _ in range(100):
            await relay.turn()
        await client.flush()
        assert [decode_down(content).number for content in heard] == list(range(81))
        relay._seen["alice"] = 80  # as its next frame says
        await relay._write_snapshot()
        await sent(client, encode_up(Up(5, -1, -1, 80, extras={"hello": 0})))
        await drained(relay)
        relay._seen["alice"] = 81
        await relay._write_snapshot()
        assert relay.mailboxes.numbers("alice")[-1] == 81
        assert not (tmp_path / "mailboxes-0" / "alice.frames").exists()

    told(broker, story)


async def heard_by(client: Client, subject: str) -> list[bytes]:
    found: list[bytes] = []

    async def keep(message: Msg) -> None:
        found.append(message.data)

    await client.subscribe(subject, cb=keep)
    await client.flush()
    return found


def test_a_stream_that_went_back_is_refused(broker: Broker, tmp_path: Path) -> None:
    async def story(client: Client) -> None:
        js = client.jetstream()
        relay = Relay(client, tmp_path, 1)
        await relay.open()
        for _ in range(5):
            await sent(client, HELLO)
        await drained(relay)
        await relay._write_snapshot()
        await js.delete_stream("UP")
        await Streams.of(0).make(js)
        with pytest.raises(StateMismatch, match="stream UP went back: it ends at 0"):
            await Relay(client, tmp_path, 1).open()
        (tmp_path / "relay-0.state").unlink()
        for _ in range(2):
            await sent(client, HELLO)
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
            await sent(client, HELLO)
        await drained(relay)
        await js.delete_stream("UP")
        await Streams.of(0).make(js)
        with pytest.raises(StateMismatch, match="went back: it ends at 0, and 3 was processed"):
            await Relay(client, tmp_path, 1).open()
        for _ in range(5):
            await sent(client, HELLO)
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
