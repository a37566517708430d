"""Anchors among the frames that are taken: as often as asked for, however a film is cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.video.rows import Reading
from anabranch.video.sampling import anchored, taken
from tests.video.films import film, segmented
from tests.video.reads import read

SECOND = 1_000_000


@given(
    rate=st.sampled_from([12, 24, 25, 30, 50, 60]),
    every=st.integers(20, 3000).map(lambda ms: 1000 * ms),
    anchors=st.integers(1, 5000).map(lambda ms: 1000 * ms),
    first=st.integers(0, SECOND),
)
def test_an_anchor_comes_whenever_one_is_due(
    rate: int, every: int, anchors: int, first: int
) -> None:
    length = SECOND // rate
    every = max(every, length)
    times = first + length * np.arange(20 * rate)
    sampled = times[taken(times, length, every)]
    chosen = sampled[anchored(sampled, length, every, anchors)]
    if len(chosen) > 1:
        most = max(anchors, every) + every + length
        assert max(b - a for a, b in pairwise(chosen)) <= most
    due = times[-1] // anchors - times[0] // anchors
    assert abs(len(chosen) - min(due, len(sampled))) <= 2
    if anchors % every == 0:  # the frame that would be one if all were taken
        same = taken(sampled, length, anchors)
        assert (same == anchored(sampled, length, every, anchors)).all()


def test_frames_that_last_longer_than_a_slot_are_anchors_when_one_is_due() -> None:
    times = np.arange(20) * SECOND + SECOND // 2  # a frame a second
    assert anchored(times, SECOND, SECOND // 5, SECOND).all()
    assert anchored(times, SECOND, SECOND // 5, 4 * SECOND).sum() == 5


@pytest.mark.parametrize("ms", [300, 333, 400, 700])
def test_a_still_channel_is_not_silent(ms: int, tmp_path: Path) -> None:
    frames = film([130])
    found = []
    for name, cuts in (("a", ()), ("b", (9, 33, 60)), ("c", tuple(range(7, 130, 7)))):
        segmented(tmp_path / name, frames, cuts)
        rows, _ = read(tmp_path / name, Reading(1000 * ms, SECOND, None))
        found.append([row["ts"] for row in rows if row["anchor"]])
    assert found[0] == found[1] == found[2] and len(found[0]) >= 5
    gaps = [(b - a).total_seconds() for a, b in pairwise(found[0])]
    assert 0.3 < min(gaps) <= max(gaps) <= 1 + ms / 1000
