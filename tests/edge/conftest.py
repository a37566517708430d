"""A hub with two devices and its broker, on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.edge.broker import Broker, running
from anabranch.edge.hub import Hub
from tests.sinks.stories import installed, needed

if os.environ.get("CI"):  # elsewhere the modules of this folder are skipped without them
    installed("nats", "msgpack", extra="edge")


@pytest.fixture(scope="module", params=["newest", "debian"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    from scripts.services.nats import debian_server, server

    program: str = needed(server if request.param == "newest" else debian_server)
    hub = Hub.create(tmp_path_factory.mktemp("hub"), ["localhost", "127.0.0.1"])
    hub.enrol("alice", "bob")
    with running(hub, program=program) as made:
        yield made


@pytest.fixture
def alice(broker: Broker) -> Path:
    """Her credentials."""
    return broker.hub.folder / "devices" / "alice"
