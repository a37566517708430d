"""All parts of a hub and its query are killed at random moments while views move: all is exact."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from tests.edge.kills import SPARK, VICTIMS, killed
from tests.sinks.stories import needed

KILLS = int(os.environ.get("ANABRANCH_KILLS", "12"))

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("seed", range(int(os.environ.get("ANABRANCH_KILL_RUNS", "1"))))
@pytest.mark.parametrize("victim", list(VICTIMS))
def test_killed_at_random_moments(tmp_path: Path, victim: str, seed: int) -> None:
    from scripts.services.nats import server

    rng = random.Random(f"{victim} {seed}")
    kills = -(-KILLS // 3) if victim in SPARK else KILLS  # each takes ten seconds and more there
    found = killed(tmp_path, needed(server), victim, kills, rng)
    assert found.kills.total() == kills and found.due.total() > 100
    assert found.found == found.due
    for has, due in found.boxes:
        assert has == due
