"""Every operation that is forbidden to a device is tried with the real broker, and refused."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from anabranch.edge.broker import Broker
from anabranch.edge.certificates import client_context, issue, make_authority
from anabranch.edge.hub import Hub
from anabranch.edge.streams import Streams

pytestmark = [
    pytest.mark.services,
    # What nats-py leaves open when it is refused.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# All but her own u.alice, and her mailbox.
PUBLISH = [
    "u.bob",
    "d.alice",
    "d.bob",
    "m.alice",
    "in.0",
    "c.0",
    "k",
    "u.alice.x",
    "_INBOX.x",
    "$JS.API.INFO",
]
PUBLISH += ["$JS.API.STREAM.DELETE.UP", "$JS.API.CONSUMER.CREATE.DOWN", "$SYS.REQ.USER.INFO"]
SUBSCRIBE = [">", "*.*", "d.*", "d.bob", "u.alice", "u.>", "in.*", "c.*", "$JS.>", "$SYS.>"]
SUBSCRIBE += ["_INBOX.>", "d.alice.>", "m.*", "m.alice", "k"]


@asynccontextmanager
async def connected(
    broker: Broker, folder: Path | ssl.SSLContext, **more: Any
) -> AsyncIterator[tuple[Client, list[str]]]:
    """A connection, and what the broker complained of."""
    said: list[str] = []

    async def complain(error: Exception) -> None:
        said.append(str(error).lower())

    context = folder if isinstance(folder, ssl.SSLContext) else client_context(folder)
    options = {"allow_reconnect": False, "connect_timeout": 5, "error_cb": complain} | more
    client = await nats.connect(broker.address, tls=context, **options)
    try:
        yield client, said
    finally:
        await client.close()


async def heard(client: Client, subject: str) -> list[Msg]:
    found: list[Msg] = []

    async def keep(message: Msg) -> None:
        found.append(message)

    await client.subscribe(subject, cb=keep)
    await client.flush()
    return found


async def until(holds: Any) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not happen within 5 seconds")


def test_a_device_reaches_its_two_subjects(broker: Broker, alice: Path) -> None:
    async def story() -> None:
        async with connected(broker, broker.hub.cloud) as (cloud, _):
            up = await heard(cloud, "u.*")
            async with connected(broker, alice) as (device, said):
                down = await heard(device, "d.alice")
                await device.publish("u.alice", b"up")
                while not (up and down):
                    await cloud.publish("d.alice", b"down")
                    await asyncio.sleep(0.01)
                assert said == []
        assert [(m.subject, m.data) for m in up] == [("u.alice", b"up")]

    asyncio.run(story())


@pytest.mark.parametrize("subject", PUBLISH)
def test_a_device_publishes_nowhere_else(broker: Broker, alice: Path, subject: str) -> None:
    async def story() -> None:
        async with connected(broker, broker.hub.cloud) as (cloud, _):
            seen = await heard(cloud, ">")
            async with connected(broker, alice) as (device, said):
                while not any(m.data == b"own" for m in seen):
                    await device.publish(subject, b"forged")
                    await device.publish("u.alice", b"own")  # comes after it, if it comes
                    await asyncio.sleep(0.01)
                await until(lambda: any("permissions violation" in text for text in said))
        assert [m.subject for m in seen if m.data == b"forged"] == []

    asyncio.run(story())


REPLIES = ["d.bob", "m.bob", "in.0", "c.0", "k", "u.bob", "$JS.API.STREAM.DELETE.UP"]


def test_no_answer_goes_where_a_device_wants_it(broker: Broker, alice: Path) -> None:
    """An acknowledgement of the broker's would have the server's rights, and pass all others."""

    async def story() -> None:
        async with (
            connected(broker, broker.hub.cloud) as (cloud, _),
            connected(broker, alice) as (device, said),
        ):
            js = cloud.jetstream()
            await Streams.open(js)
            seen = await heard(cloud, ">")
            before = (await js.stream_info("UP")).state.last_seq
            for reply in REPLIES:
                await device.publish("u.alice", b"own", reply)
                refused = {"Nats-Expected-Last-Sequence": "999999"}
                await device.publish("u.alice", b"refused", reply, refused)
                await device.publish("u.alice", b"refused", reply, {"Nats-Rollup": "all"})
            await device.publish("u.alice", b"last")
            while (await js.stream_info("UP")).state.last_seq < before + len(REPLIES) + 1:
                await asyncio.sleep(0.01)
            await until(lambda: any(m.data == b"last" for m in seen))
            await asyncio.sleep(0.2)
            assert [m.subject for m in seen if m.subject in REPLIES] == []
            state = (await js.stream_info("UP")).state
            assert state.last_seq == before + len(REPLIES) + 1
            for name in ("DOWN", "IN"):
                assert (await js.stream_info(name)).state.messages == 0
            assert said == []

    asyncio.run(story())


@pytest.mark.parametrize("subject", SUBSCRIBE)
def test_a_device_listens_nowhere_else(broker: Broker, alice: Path, subject: str) -> None:
    async def story() -> None:
        async with (
            connected(broker, broker.hub.cloud) as (cloud, _),
            connected(broker, alice) as (device, said),
        ):
            foreign = await heard(device, subject)
            own = await heard(device, "d.alice")
            while not own:  # a flush may return before the broker knows the subscription
                for to in ("d.bob", "u.bob", "in.0", "c.0", "_INBOX.a", "d.alice.x", "m.alice"):
                    await cloud.publish(to, b"private")
                await cloud.publish("d.alice", b"own")
                await asyncio.sleep(0.01)
            await until(lambda: any("permissions violation" in text for text in said))
            assert [m.subject for m in foreign] == []

    asyncio.run(story())


def refused(broker: Broker, context: ssl.SSLContext | Path) -> None:
    async def story() -> None:
        with pytest.raises((nats.errors.Error, ssl.SSLError, OSError)):
            async with connected(broker, context) as (client, _):
                await client.publish("u.alice", b"forged")
                await client.flush()  # with TLS 1.3 a client learns of it when it first reads

    asyncio.run(story())


def test_without_a_certificate_nobody_gets_in(broker: Broker, alice: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(alice / "ca.pem")
    refused(broker, context)


def test_a_foreign_certificate_of_the_same_name_is_refused(
    broker: Broker, alice: Path, tmp_path: Path
) -> None:
    make_authority(tmp_path)
    issue(tmp_path, tmp_path / "alice", "alice")
    shutil.copy(alice / "ca.pem", tmp_path / "alice" / "ca.pem")
    refused(broker, tmp_path / "alice")


def test_a_certificate_of_ours_that_nobody_enrolled_is_refused(
    broker: Broker, tmp_path: Path
) -> None:
    issue(broker.hub.folder / "authority", tmp_path / "alice", "alice")
    refused(broker, tmp_path / "alice")


def test_the_servers_certificate_is_no_devices(broker: Broker) -> None:
    refused(broker, broker.hub.folder / "server")


def test_older_tls_is_refused(broker: Broker, alice: Path) -> None:
    context = client_context(alice)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3, "clients of ours insist on it"
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    if "2.9." not in (broker.hub.folder / "broker.log").read_text():  # which cannot be told to
        refused(broker, context)


def test_a_device_does_not_speak_to_a_foreign_hub(
    broker: Broker, alice: Path, tmp_path: Path
) -> None:
    make_authority(tmp_path)
    shutil.copytree(alice, tmp_path / "alice")
    shutil.copy(tmp_path / "ca.pem", tmp_path / "alice" / "ca.pem")
    refused(broker, tmp_path / "alice")


def test_without_tls_nothing_is_understood(broker: Broker) -> None:
    async def story() -> None:
        with pytest.raises((nats.errors.Error, OSError)):
            plain = broker.address.replace("tls://", "nats://")
            await nats.connect(plain, allow_reconnect=False, connect_timeout=2)

    asyncio.run(story())


def test_a_revoked_device_is_off_at_once_and_others_stay(broker: Broker) -> None:
    async def story() -> None:
        (folder,) = broker.hub.enrol("carol")
        lost: list[bool] = []

        async def gone() -> None:
            lost.append(True)

        stays = broker.hub.folder / "devices" / "bob"
        async with connected(broker, stays) as (bob, said):
            await until_in(broker, folder)
            async with connected(broker, folder, disconnected_cb=gone) as (carol, _):
                broker.hub.revoke("carol")
                await until(lambda: lost)
                assert not carol.is_connected
            await bob.publish("u.bob", b"still here")
            await bob.flush()
            assert bob.is_connected and said == []

    asyncio.run(story())
    folder = broker.hub.folder / "devices" / "carol"
    refused(broker, folder)
    shutil.move(folder, folder.with_name("old"))
    broker.hub.enrol("carol")
    asyncio.run(until_in(broker, folder))
    refused(broker, folder.with_name("old"))  # a key that was stolen stays locked out


async def until_in(broker: Broker, folder: Path) -> None:
    """The broker takes a moment to read its users again."""
    for _ in range(100):
        try:
            async with connected(broker, folder):
                return
        except (nats.errors.Error, OSError):
            await asyncio.sleep(0.05)
    pytest.fail("an enrolled device did not get in")


def test_keys_are_readable_by_their_owner_alone(broker: Broker) -> None:
    keys = list(broker.hub.folder.rglob("*.key")) + list(broker.hub.folder.rglob("key.pem"))
    assert len(keys) >= 5
    assert {key.stat().st_mode & 0o077 for key in keys} == {0}


def test_a_device_is_enrolled_once(broker: Broker) -> None:
    from anabranch.errors import AnabranchError

    with pytest.raises(AnabranchError, match="alice enrolled already"):
        broker.hub.enrol("alice")
    with pytest.raises(AnabranchError, match="dave not enrolled"):
        broker.hub.revoke("dave")
    with pytest.raises(AnabranchError, match="an empty folder"):
        Hub.create(broker.hub.folder, ["localhost"])


def test_a_process_that_is_not_the_broker_gets_no_signal(tmp_path: Path) -> None:
    import subprocess

    hub = Hub.create(tmp_path / "hub", ["localhost"])
    with subprocess.Popen(["sleep", "60"]) as other:
        (hub.folder / "broker.pid").write_text(str(other.pid))
        hub.enrol("alice")
        assert other.poll() is None
        other.kill()
