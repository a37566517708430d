"""Drivers killed while they do what waits: the sink holds the table's answer, each row once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.feeds import Feed
from tests.spark.modes import MODES, batches_of, rows_of
from tests.spark.processes import driver


@pytest.mark.slow
@pytest.mark.parametrize("name", MODES)
def test_a_killed_driver_loses_nothing(spark: Any, tmp_path: Path, name: str) -> None:
    mode = MODES[name]
    feed = Feed(tmp_path).add(batches_of(mode))
    for kill in mode.kills.values():
        with driver(tmp_path, "--mode", name, "--hold", kill) as run:
            run.kill_when_held()
    with driver(tmp_path, "--mode", name) as run:
        run.finish()
    want = rows_of(mode.query(*feed.tables(spark)))
    assert rows_of(feed.output(spark)) == want
    assert len(want) > 10 and set(want.values()) == {1}
