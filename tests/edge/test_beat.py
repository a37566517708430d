"""A stream without rows costs a frame a minute: its rate, and how far it is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.agent_state import Effects
from anabranch.edge.frames import decode_up
from tests.edge import test_overlap
from tests.edge.test_overlap import System


def test_a_silent_stream_has_one_frame_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(test_overlap.RATES, "bob", 0)
    system, frames = System("cloud"), []
    said = system.said

    def heard(name: str, effects: Effects) -> None:
        ups: list[Any] = [decode_up(content) for content in effects.send] if name == "bob" else []
        frames.extend((system.now, len(up.sections), "rates" in up.extras) for up in ups)
        said(name, effects)

    monkeypatch.setattr(system, "said", heard)
    system.live(600)
    later = [one for one in frames if one[0] > 100]
    assert 8 <= len(later) <= 9 and {one[1:] for one in later} == {(1, True)}
    marks = [now for now, sections, _ in frames if sections]
    assert max(b - a for a, b in pairwise(marks)) <= 90
