"""``anabranch place`` on an application of its own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from anabranch import placing_cli


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)  # so that `place` stays a command of its own
    placing_cli.register(made)
    return made


@pytest.fixture
def views(tmp_path: Path) -> Path:
    rows = [("near_1", "ann", 10.0), ("near_1", "bob", 2.0), ("near_2", "bob", 1.0)]
    rows += [("near_2", "cy", 1.0)]
    path = tmp_path / "views.parquet"
    pd.DataFrame(rows, columns=["view", "input", "rate"]).to_parquet(path)
    return path


def test_plans_a_table(app: typer.Typer, views: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "plan.parquet", tmp_path / "cost.png"
    options = ["--up", "1", "--down", "0.5", "--out", str(out), "--plot", str(plot)]
    run = CliRunner().invoke(app, ["place", str(views), *options, "--explain", "near_1"])
    assert run.exit_code == 0, run.output
    assert "proved" in run.output and "near_1 runs on ann" in run.output
    table = pd.read_parquet(out).set_index("view")
    assert table["location"].to_dict() == {"near_1": "ann", "near_2": "cy"}
    assert [dict(x) for x in table.loc["near_1", "downloads"]] == [{"stream": "bob", "rate": 2.0}]
    assert plot.stat().st_size > 1000


def test_homes_come_from_a_table(app: typer.Typer, views: Path, tmp_path: Path) -> None:
    homes = tmp_path / "homes.csv"
    homes.write_text("source,device\nann,cloud\nbob,phone\ncy,phone\n")
    out = tmp_path / "plan.parquet"
    run = CliRunner().invoke(app, ["place", str(views), "--homes", str(homes), "--out", str(out)])
    assert run.exit_code == 0, run.output
    table = pd.read_parquet(out).set_index("view")
    assert table["location"].to_dict() == {"near_1": "cloud", "near_2": "phone"}


def test_problems_are_told_and_nothing_is_written(app: typer.Typer, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("view,input,rate\nw,p,-3\nw,w,1\n")
    out = tmp_path / "plan.parquet"
    run = CliRunner().invoke(app, ["place", str(bad), "--out", str(out)])
    assert run.exit_code == 2
    assert "view 'w' for input 'p' (-3.0)" in run.output
    assert not out.exists()
    run = CliRunner().invoke(app, ["place", str(tmp_path / "none.csv"), "--plot", "cost.txt"])
    assert run.exit_code == 2 and "2 problems" in run.output
