"""What was cancelled ends, though something swallowed it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge import serving
from anabranch.edge.serving import Cloud


class Deaf:
    """A relay that swallows one cancellation, as `wait_for` of Python 3.11 may."""

    behind = False
    state = SimpleNamespace(
        reports=list, left={}, counts={}, book=SimpleNamespace(streams=[], views=[])
    )

    def __init__(self, *_: Any, **__: Any) -> None:
        self.turns, self.swallows = 0, True

    async def open(self) -> None:
        pass

    async def turn(self) -> None:
        self.turns += 1
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            if self.swallows:
                self.swallows = False
                return
            raise


class Keeper:
    """One that has nothing to do."""

    state = SimpleNamespace(because=lambda cause: None, without=lambda left: None)

    def __init__(self, *_: Any) -> None:
        pass

    async def open(self) -> None:
        pass

    async def turn(self, now: int) -> None:
        pass


def test_a_hub_ends_though_its_relay_swallows_the_cancellation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    async def connected(*_: Any, **__: Any) -> Any:
        async def close() -> None:
            pass

        return SimpleNamespace(close=close)

    monkeypatch.setattr(serving, "connect", connected)
    monkeypatch.setattr(serving, "Relay", Deaf)
    monkeypatch.setattr(serving, "Keeper", Keeper)
    hub: Any = SimpleNamespace(folder=tmp_path, cloud=tmp_path, control=tmp_path)

    async def story() -> bool:
        cloud = Cloud(hub, "tls://hub:4222")
        task = asyncio.create_task(cloud.run())
        await asyncio.wait_for(cloud.ready.wait(), 10)
        while not cloud.relay.turns:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        return bool(done)

    assert asyncio.run(story())
