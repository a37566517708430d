"""Devices, relay and keeper over a real broker: every result once, whatever moves meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.agent import Agent
from anabranch.edge.broker import Broker, running
from anabranch.edge.hub import Hub
from anabranch.edge.outbox import OutboxFull
from anabranch.edge.serving import Cloud
from anabranch.errors import StateMismatch
from anabranch.testing.lab.results import CloudViews
from tests.edge.fleet import friends, kept, quiet, twin, walk
from tests.sinks.stories import needed

pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def wander(agent: Agent, device: str, rng: np.random.Generator, rows: int) -> None:
    for x, y in walk(rng, rows):
        await agent.put(f"gps[{device}]", xy=[float(x), float(y)])
        await asyncio.sleep(rng.uniform(0.1, 0.5))


async def fleet(broker: Broker, folder: Path, count: int, rows: int) -> dict[str, Any]:
    names = [f"d{k}" for k in range(count)]
    rng = np.random.default_rng(count)
    pairs = sorted({tuple(sorted(rng.choice(count, 2, replace=False).tolist())) for _ in names})
    missing = [name for name in names if name not in broker.hub.devices()]
    broker.hub.enrol(*missing)
    cloud = Cloud(broker.hub, broker.address, ack_after=1.0)
    async with contextlib.AsyncExitStack() as stack:
        serving = asyncio.create_task(cloud.run())
        await asyncio.wait_for(cloud.ready.wait(), 20)
        views = CloudViews(broker)
        evaluating = asyncio.create_task(views.run())
        cloud.keeper.state.add(*friends(names, pairs))
        agents = [
            await stack.enter_async_context(
                Agent(
                    name,
                    broker=broker.address,
                    credentials=broker.hub.folder / "devices" / name,
                    folder=folder / name,
                    flush="0.3 seconds",
                )
            )
            for name in names
        ]
        await quiet(lambda: cloud.relay.state.book.epoch >= 0)
        walks = [
            asyncio.create_task(wander(agent, name, np.random.default_rng(k), rows))
            for k, (agent, name) in enumerate(zip(agents, names, strict=True))
        ]
        await quiet(lambda: sum(views.found.values()) > 0)
        moved = sum(
            cloud.keeper.state.move(view, names[pair[view % 2]]) for view, pair in enumerate(pairs)
        )
        await asyncio.gather(*walks)
        book = cloud.relay.state.book
        await quiet(lambda: all(book.has_moved(view) for view in range(len(pairs))))
        await asyncio.sleep(2.0)
        for agent in agents:
            await agent.drained()
    boxes = [kept(folder / name) for name in names]
    truth = twin({k: box[0] for k, box in enumerate(boxes)}, pairs)
    await asyncio.sleep(2.0)
    for task in (serving, evaluating):
        task.cancel()
    return {"truth": truth, "cloud": views.found, "pairs": pairs, "boxes": boxes, "moved": moved}


def is_exact(story: dict[str, Any]) -> None:
    """The cloud and each device have what the twin has, once."""
    assert story["moved"] == len(story["pairs"])
    assert sum(story["truth"].values()) > 100
    assert story["cloud"] == story["truth"]
    for device, (_, results) in enumerate(story["boxes"]):
        due = Counter({i: c for i, c in story["truth"].items() if device in story["pairs"][i[0]]})
        assert results == due


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    from scripts.services.nats import server

    hub = Hub.create(tmp_path / "hub", ["localhost", "127.0.0.1"])
    with running(hub, program=needed(server)) as made:
        yield made


def test_ten_devices_and_one_switch(fresh: Broker, tmp_path: Path) -> None:
    is_exact(asyncio.run(fleet(fresh, tmp_path, 10, 20)))


@pytest.mark.slow
def test_a_hundred_devices_and_one_switch(fresh: Broker, tmp_path: Path) -> None:
    is_exact(asyncio.run(fleet(fresh, tmp_path, 100, 40)))


def test_a_folder_that_was_put_back_stops_its_agent(fresh: Broker, tmp_path: Path) -> None:
    """It went on by some frames, came back as it was, and was put other rows offline."""
    fresh.hub.enrol("ann")
    folder, backup = tmp_path / "ann", tmp_path / "backup"

    async def put(broker: str, rows: int) -> None:
        credentials = fresh.hub.folder / "devices" / "ann"
        options = {"folder": folder, "flush": "0 seconds"}
        async with Agent("ann", broker=broker, credentials=credentials, **options) as agent:
            for k in range(rows):
                await agent.put("gps[ann]", xy=[float(k), rows])
            if broker == fresh.address:
                await quiet(lambda: agent._state.epoch >= 0 or agent._error is not None)
                await agent.drained()

    async def story() -> None:
        cloud = Cloud(fresh.hub, fresh.address, ack_after=0.1)
        serving = asyncio.create_task(cloud.run())
        await asyncio.wait_for(cloud.ready.wait(), 20)
        cloud.keeper.state.add(*friends(["ann", "bob"], [(0, 1)]))
        await put(fresh.address, 2)
        shutil.copytree(folder, backup)
        await put(fresh.address, 2)
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        await put("tls://127.0.0.1:9", 4)
        taken = cloud.relay.state._devices["ann"].next
        with pytest.raises(StateMismatch, match=r"ann must stop: .* begin with an empty one"):
            await put(fresh.address, 0)
        assert cloud.relay.state._devices["ann"].next == taken
        shutil.rmtree(folder)
        await put(fresh.address, 1)  # with an empty one it goes on, as the next incarnation
        assert cloud.relay.state._devices["ann"].incarnation == 2
        serving.cancel()

    asyncio.run(story())


def test_a_device_whose_disk_was_full_misses_nothing(fresh: Broker, tmp_path: Path) -> None:
    """What came from the cloud meanwhile comes again; rows that were refused are not there."""
    fresh.hub.enrol("ann", "bob")
    refused, shown = list[BaseException](), list[dict[str, Any]]()

    def made(name: str) -> Agent:
        credentials = fresh.hub.folder / "devices" / name
        return Agent(
            name,
            broker=fresh.address,
            credentials=credentials,
            folder=tmp_path / name,
            flush="0 seconds",
        )

    async def put(agent: Agent, x: float) -> None:
        several = (agent.put("gps", xy=[x, 0.0]) for _ in range(5))
        found = await asyncio.gather(*several, return_exceptions=True)
        refused.extend(one for one in found if one is not None)

    async def story() -> None:
        cloud = Cloud(fresh.hub, fresh.address, ack_after=0.1)
        serving = asyncio.create_task(cloud.run())
        await asyncio.wait_for(cloud.ready.wait(), 20)
        streams, near, [(view, _)] = friends(["ann", "bob"], [(0, 1)])
        cloud.keeper.state.add(streams, near, [(view, "ann")])
        async with made("ann") as ann, made("bob") as bob:
            ann.on("near", shown.append)
            await quiet(lambda: min(ann._state.epoch, bob._state.epoch) >= 0)
            pages = ann._box._base.execute("PRAGMA page_count").fetchone()[0]
            for step in range(50):
                if step in (10, 40):
                    most = pages if step == 10 else 1_000_000
                    ann._box._base.execute(f"PRAGMA max_page_count = {most}")
                await asyncio.gather(put(ann, float(step)), put(bob, float(step)))
            await asyncio.gather(put(ann, 1e6), put(bob, 1e6))
            last = [agent._state._own[f"gps[{agent.device}]"].following - 1 for agent in (ann, bob)]
            await quiet(lambda: any([one["left_n"], one["right_n"]] == last for one in shown))
            assert ann.connected and cloud.relay.state.counts["frames of a copy"] == 0
        serving.cancel()

    asyncio.run(story())
    (ann_rows, results), (bob_rows, _) = (kept(tmp_path / name) for name in ("ann", "bob"))
    assert len(refused) > 20 and {type(one) for one in refused} == {OutboxFull}
    assert results == twin({0: ann_rows, 1: bob_rows}, [(0, 1)])
