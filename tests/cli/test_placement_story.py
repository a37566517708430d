"""`anabranch story` tells placements too."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("msgpack", reason="pip install 'anabranch[edge]'")

from anabranch.cli.main import app
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.placements import Entry, PlacementLog


def test_the_story_of_placements(tmp_path: Path) -> None:
    streams = Stream("gps[ann]", "ann", {}), Stream("gps[bob]", "bob", {})
    near = Definition("near", "pairs", (5, 5))
    views = tuple((View(f"near{k}", "near", (0, 1)), "cloud") for k in range(7))
    why = {"why": "staying in the cloud has cost 6.4 k", "cost": 900.0, "predicted": 300.0}
    log = PlacementLog(tmp_path)
    log.write(Entry(0, streams, (near,), views))
    moves = tuple((k, "bob") for k in range(6))
    log.write(Entry(1, moves=moves, cause={"rule": "rates", "moves": {"near0": why}}))
    log.write(Entry(2, removed=(6,), presumed=((1, 10),)))
    told = CliRunner().invoke(app, ["story", str(tmp_path)])
    assert told.exit_code == 0, told.output
    lines = told.output.splitlines()
    assert lines[0].endswith("UTC): 7 views begin, in the cloud.")
    assert lines[1].endswith("6 views move (rates); 900 a second before, 300 predicted, 67 % less.")
    assert lines[2] == "  near0 from the cloud to bob: staying in the cloud has cost 6.4 k."
    assert lines[3] == "  near1 from the cloud to bob."
    assert lines[7] == "  and 1 more"
    assert lines[8].endswith("1 view ends; silent, and no longer waited for: gps[bob].")
