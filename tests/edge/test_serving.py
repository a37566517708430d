"""The cloud's process: it starts again, and says why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from nats.errors import ConnectionClosedError

from anabranch.edge import serving
from anabranch.edge.serving import Cloud


def test_what_interrupts_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(28, "No space left on device")
    met = iter([full, full, ConnectionClosedError(), full, asyncio.CancelledError()])

    async def fails(self: Any) -> None:
        raise next(met)

    monkeypatch.setattr(Cloud, "_serve", fails)
    monkeypatch.setattr(serving, "_AGAIN", 0)
    hub: Any = None
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Cloud(hub, "tls://hub:4222").run())
    said = capsys.readouterr().err
    assert said.count("serving is interrupted") == 2
    assert said.count("(OSError: [Errno 28] No space left on device); it is tried again") == 1
