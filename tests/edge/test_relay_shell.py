"""The relay's shell with a broker that only notes what it is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.frames import Up
from anabranch.edge.mailboxes import Mailboxes
from anabranch.edge.relay import Relay
from anabranch.edge.relay_state import RelayState
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
