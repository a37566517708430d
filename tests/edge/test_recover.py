"""A broker whose store was put back is refused, then recovered: every result comes once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.edge.agent import Agent
from anabranch.edge.broker import Broker
from anabranch.edge.hub import Hub
from anabranch.edge.serving import Cloud
from anabranch.errors import StateMismatch
from anabranch.testing.lab.results import CloudViews
from tests.edge.fleet import friends, kept, quiet, ring, twin
from tests.edge.test_fleet import wander
from tests.sinks.stories import needed

pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NAMES = ["ann", "bob", "cyd", "dan"]


@contextlib.asynccontextmanager
async def serving(broker: Broker, views: CloudViews) -> Any:
    """Relay, keeper and the cloud's views for the length of a block."""
    cloud = Cloud(broker.hub, broker.address, ack_after=0.2)
    tasks = [asyncio.create_task(cloud.run()), asyncio.create_task(views.run())]
    ready = asyncio.create_task(cloud.ready.wait())
    try:
        await asyncio.wait([ready, tasks[0]], timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        yield cloud
    finally:
        left = {*tasks, ready}
        while left:  # again and again: nats-py may swallow it while it connects
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=1)


async def walked(broker: Broker, folder: Path, seed: int) -> None:
    """All devices wander for a while, and the cloud has all that they put."""
    async with contextlib.AsyncExitStack() as stack:
        agents = [
            await stack.enter_async_context(
                Agent(
                    name,
                    broker=broker.address,
                    credentials=broker.hub.folder / "devices" / name,
                    folder=folder / name,
                    flush="0.2 seconds",
                )
            )
            for name in NAMES
        ]
        rngs = [np.random.default_rng([seed, k]) for k in range(len(NAMES))]
        await asyncio.gather(*(wander(*one, 8) for one in zip(agents, NAMES, rngs, strict=True)))
        await quiet(lambda: all(agent._state.epoch >= 0 for agent in agents))
        for agent in agents:
            await agent.drained()
        await asyncio.sleep(1.0)


async def story(broker: Broker, folder: Path) -> tuple[CloudViews, list[tuple[int, int]], str]:
    hub, backup = broker.hub, folder / "backup"
    pairs, views = ring(len(NAMES)), CloudViews(broker)
    async with serving(broker, views) as cloud:
        cloud.keeper.state.add(*friends(NAMES, pairs))
        await walked(broker, folder, 0)
        broker.stop()
        shutil.copytree(hub.folder / "store", backup)
        broker.start()
    async with serving(broker, views) as cloud:
        for view, pair in enumerate(pairs):
            cloud.keeper.state.move(view, NAMES[pair[view % 2]])
        await walked(broker, folder, 1)
        await cloud.relay._write_snapshot()
    broker.stop()
    shutil.rmtree(hub.folder / "store")
    shutil.copytree(backup, hub.folder / "store")
    broker.start()
    with pytest.raises(StateMismatch, match="run `anabranch edge recover`"):
        async with serving(broker, views):
            pass
    running = CliRunner().invoke(app, ["edge", "recover", str(hub.folder)])
    assert running.exit_code == 2 and "stop serving first" in running.output
    broker.stop()
    told = await asyncio.to_thread(CliRunner().invoke, app, ["edge", "recover", str(hub.folder)])
    assert told.exit_code == 0, told.output
    broker.start()
    async with serving(broker, views):
        await walked(broker, folder, 2)
        await walked(broker, folder, 3)
        await asyncio.sleep(2.0)
    return views, pairs, told.output


def test_a_store_that_was_put_back_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.services.nats import server

    program: str = needed(server)
    monkeypatch.setenv("PATH", str(Path(program).parent), prepend=os.pathsep)
    hub = Hub.create(tmp_path / "hub", ["localhost", "127.0.0.1"])
    hub.enrol(*NAMES)
    broker = Broker(hub, "127.0.0.1:0", program=program)
    broker.start()
    try:
        views, pairs, told = asyncio.run(story(broker, tmp_path))
    finally:
        broker.stop()
    assert "generation 1 of the streams is open" in told and "lost: " in told
    assert "LOST FOR GOOD" not in told
    boxes = [kept(tmp_path / name) for name in NAMES]
    truth = twin({k: box[0] for k, box in enumerate(boxes)}, pairs)
    assert sum(truth.values()) > 100 and views.found == truth
    for device, (_, results) in enumerate(boxes):
        due = Counter({i: c for i, c in truth.items() if device in pairs[i[0]]})
        assert results == due
