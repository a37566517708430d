"""A hub with two devices and its broker, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.edge.broker import Broker, running
from anabranch.edge.hub import Hub
from tests.sinks.stories import needed


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
