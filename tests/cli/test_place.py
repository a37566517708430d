"""``anabranch place`` on an application of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from anabranch.cli import place as placing_cli


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
    options = ["--upload-cost", "1", "--sources", "own", "--out", str(out), "--plot", str(plot)]
    run = CliRunner().invoke(app, ["place", str(views), *options, "--explain", "near_1"])
    assert run.exit_code == 0, run.output
    assert "proved" in run.output and "near_1 runs on ann" in run.output
    table = pd.read_parquet(out).set_index("view")
    assert table["location"].to_dict() == {"near_1": "ann", "near_2": "cy"}
    assert [dict(x) for x in table.loc["near_1", "downloads"]] == [{"stream": "bob", "rate": 2.0}]
    assert plot.stat().st_size > 1000


def test_columns_of_ones_own_are_named_in_errors_and_csv_says_what_crosses_links(
    app: typer.Typer, tmp_path: Path
) -> None:
    table, out = tmp_path / "views.csv", tmp_path / "plan.csv"
    table.write_text("v,i,mbit\na,s1,-3\n")
    options = ["--sources", "own", "--column", "view=v", "--column", "input=i"]
    options += ["--column", "rate=mbit", "--out", str(out)]
    run = CliRunner().invoke(app, ["place", str(table), *options])
    assert run.exit_code == 2 and "mbit must be a number of at least 0" in run.output
    table.write_text("v,i,mbit\na,s1,3\na,s2,5\n")
    run = CliRunner().invoke(app, ["place", str(table), *options])
    assert run.exit_code == 0, run.output
    (row,) = pd.read_csv(out).to_dict("records")
    crossing = [{"stream": "s1", "rate": 3.0}]
    assert (row["view"], row["location"]) == ("a", "s2")
    assert json.loads(row["uploads"]) == json.loads(row["downloads"]) == crossing


def test_former_options_say_the_present_ones(app: typer.Typer, views: Path) -> None:
    for option, now in (("--homes", "--sources"), ("--up=2", "--upload-cost"), ("--down", "--do")):
        run = CliRunner().invoke(app, ["place", str(views), option, "1"])
        assert run.exit_code == 2
        assert f"{option.partition('=')[0]} is now called {now}" in run.output


def test_a_column_that_is_not_there_is_named_by_an_option(app: typer.Typer, tmp_path: Path) -> None:
    table = tmp_path / "views.csv"
    table.write_text("view,input,mbit\na,s1,3\n")
    run = CliRunner().invoke(app, ["place", str(table), "--sources", "own"])
    assert run.exit_code == 2 and "columns=" not in run.output
    assert "it has 'view', 'input', 'mbit'" in run.output and "--column rate=mbit" in run.output


def test_every_argument_of_the_call_has_an_option(app: typer.Typer) -> None:
    import inspect

    import anabranch as ab

    options = {"inputs": "views", "columns": "column", "readers": "reader"}
    taken = {options.get(name, name) for name in inspect.signature(ab.place).parameters}
    assert taken - {"former"} <= set(inspect.signature(placing_cli.place).parameters)


def test_what_is_sent_for_each_view_alone_is_not_shared(app: typer.Typer, tmp_path: Path) -> None:
    table = tmp_path / "views.csv"
    table.write_text("view,input,rate\na,p,10\na,q,2\nb,p,10\nb,q,2\n")
    costs = []
    for option in ("--shared", "--no-shared"):
        run = CliRunner().invoke(app, ["place", str(table), "--sources", "own", option])
        costs += [float(line.split()[1]) for line in run.output.splitlines() if " cost " in line]
    assert costs == [3.0, 6.0]


def test_sources_come_from_a_table(app: typer.Typer, views: Path, tmp_path: Path) -> None:
    sources = tmp_path / "sources.csv"
    sources.write_text("source,device\nann,cloud\nbob,phone\ncy,phone\n")
    out = tmp_path / "plan.parquet"
    run = CliRunner().invoke(
        app, ["place", str(views), "--sources", str(sources), "--out", str(out)]
    )
    assert run.exit_code == 0, run.output
    table = pd.read_parquet(out).set_index("view")
    assert table["location"].to_dict() == {"near_1": "cloud", "near_2": "phone"}


def test_files_that_cannot_be_read_are_told_in_a_sentence(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "bad.parquet").write_text("this is no Parquet")
    (tmp_path / "bad.arrow").write_text("this is no Arrow")
    (tmp_path / "ragged.csv").write_text("view,input,rate\nw,p\n")
    (tmp_path / "hollow.csv").mkdir()
    (tmp_path / "hollow.csv" / "_SUCCESS").touch()
    for name in ("empty.csv", "bad.parquet", "bad.arrow", "ragged.csv", "hollow.csv"):
        run = CliRunner().invoke(app, ["place", str(tmp_path / name), "--sources", "own"])
        assert run.exit_code == 2 and isinstance(run.exception, SystemExit), run.output
        told = "holds no data" if name == "hollow.csv" else f"{name} as {name.split('.')[1]}: "
        assert told in run.output


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_a_folder_of_parts_is_read(app: typer.Typer, tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / f"views.{suffix}"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    (folder / ".part.crc").write_text("crc")
    if suffix == "csv":
        (folder / "part-2.csv").touch()  # Spark's for a partition without rows
    rows = [("w", "ann", 10.0), ("w", "bob", 2.0), ("x", "bob", 1.0)]
    for k, part in enumerate((rows[:2], rows[2:])):
        frame = pd.DataFrame(part, columns=["view", "input", "rate"])
        path = folder / f"part-{k}.{suffix}"
        write = {"csv": frame.to_csv, "parquet": frame.to_parquet, "feather": frame.to_feather}
        write[suffix](path, **({"index": False} if suffix == "csv" else {}))
    out = tmp_path / "plan.parquet"
    run = CliRunner().invoke(app, ["place", str(folder), "--sources", "own", "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert pd.read_parquet(out)["location"].tolist() == ["ann", "cloud"]


@pytest.mark.parametrize("first", ["csv", "parquet"])
def test_ids_may_be_numbers_in_one_file_and_text_in_the_other(
    app: typer.Typer, tmp_path: Path, first: str
) -> None:
    views, sources = tmp_path / f"views.{first}", tmp_path / "sources.csv"
    table = pd.DataFrame({"view": [7, 7], "input": [1, 2], "rate": [10.0, 2.0]})
    if first == "csv":
        table.to_csv(views, index=False)
    else:
        table.to_parquet(views)
    sources.write_text("source,device\n1,P\n2,Q\n")
    run = CliRunner().invoke(
        app, ["place", str(views), "--sources", str(sources), "--explain", "7"]
    )
    assert run.exit_code == 0, run.output
    assert "7 runs on P" in run.output


def test_ids_are_as_they_are_written(app: typer.Typer, tmp_path: Path) -> None:
    views, out = tmp_path / "views.csv", tmp_path / "plan.parquet"
    views.write_text("view,input,rate\nNA,007,10\nNA,08,2\n")
    run = CliRunner().invoke(app, ["place", str(views), "--sources", "own", "--out", str(out)])
    assert run.exit_code == 0, run.output
    plan = pd.read_parquet(out)
    assert plan["view"].tolist() == ["NA"] and plan["location"].tolist() == ["007"]
    views.write_text("view,input,rate\nw,,10\n")
    run = CliRunner().invoke(app, ["place", str(views), "--sources", "own"])
    assert run.exit_code == 2 and "views with no input: 'w'" in run.output


def test_problems_are_told_and_nothing_is_written(app: typer.Typer, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("view,input,rate\nw,p,-3\nw,w,1\n")
    out = tmp_path / "plan.parquet"
    run = CliRunner().invoke(app, ["place", str(bad), "--sources", "own", "--out", str(out)])
    assert run.exit_code == 2
    assert "view 'w' for input 'p' ('-3')" in run.output
    assert not out.exists()
    run = CliRunner().invoke(app, ["place", str(tmp_path / "none.csv"), "--plot", "cost.txt"])
    assert run.exit_code == 2 and "--plot must end in .svg, .png, .pdf" in run.output


def test_wrong_options_are_refused_in_a_sentence(
    app: typer.Typer, views: Path, tmp_path: Path
) -> None:
    """Whatever is typed ends in a sentence and exit status 2, never in a traceback."""
    nested, sources = tmp_path / "nested.parquet", tmp_path / "sources.csv"
    pd.DataFrame({"view": [["w"]], "input": [{"p": 1}], "rate": [1.0]}).to_parquet(nested)
    sources.write_text("a,b\np,P\n")
    folder = tmp_path / "folder.parquet"
    folder.mkdir()
    own = ("--sources", "own")
    for options, text in (
        ([nested, *own], "an id must be text, a number"),
        ([views, "--sources", nested], "no column 'source', 'device'; it has 'view', 'input'"),
        ([views], "--sources is missing"),
        (
            [views, "--sources", sources],
            "sources has no column 'source', 'device'; it has 'a', 'b'",
        ),
        ([views, *own, "--out", folder], "is a folder: name a file"),
        ([views, *own, "--out", "x.txt"], "--out must end in .parquet, .csv, .json"),
        ([views, *own, "--explain", "--5"], "no view '--5'"),
        ([views, *own, "--explain", "³"], "no view '³'"),
        ([views, *own, "--explain", "5"], "no view '5'"),
        ([views, *own, "--upload-cost", "nan"], "upload_cost must be a cost per unit"),
        ([views, *own, "--download-cost", "-1"], "download_cost must be a cost per unit"),
        ([views, *own, "--upload-cost", "x=y"], "--upload-cost must be a number or NAME=NUMBER"),
        ([views, *own, "--capacity", "zoe=1"], "capacity names unknown devices 'zoe'"),
        ([views, *own, "--reader", "near_1"], "--reader must be VIEW=PLACE or VIEW=PLACE=RATE"),
        ([views, *own, "--pin", "near_3=cloud"], "unknown views 'near_3'"),
        ([views, *own, "--core", sources], "--core: cannot read"),
        ([views, *own, "--replan", sources], "it has 'a', 'b'"),
        ([views, *own, "--time-limit", "0"], "time_limit must be a number of seconds above 0"),
    ):
        run = CliRunner().invoke(app, ["place", *map(str, options)])
        assert run.exit_code == 2 and isinstance(run.exception, SystemExit), (options, run.output)
        assert text in run.output
        assert "cost" not in run.output.splitlines()[0]  # nothing is planned and then refused


def test_a_file_that_is_no_text_in_utf_8_is_named(
    app: typer.Typer, views: Path, tmp_path: Path
) -> None:
    text = "view,input,rate\nM\u00fcller,p,2\n"
    contents = {"latin": text.encode("latin-1"), "sixteen": text.encode("utf-16")}
    contents["binary"] = bytes(range(256)) * 9
    contents["late"] = b"view,input,rate\n" + b"a,b,1\n" * 9_000 + b"M\xfcller,p,2\n"
    for name, content in contents.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(content)
        for table, options in ((path, ()), (views, ("--replan", str(path)))):
            words = ["place", str(table), "--sources", "own", *options]
            run = CliRunner().invoke(app, words)
            assert run.exit_code == 2 and isinstance(run.exception, SystemExit), (name, run.output)
            assert f"cannot read {path} as csv: " in run.output
            assert run.output.endswith("; save it as UTF-8\n")
    marked = tmp_path / "marked.csv"  # as some spreadsheets write it
    marked.write_bytes("view,input,rate\n007,p,2\n".encode("utf-8-sig"))
    words = ["place", str(marked), "--sources", "own", "--explain", "007"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0 and "007 runs on p" in run.output


def test_all_problems_are_told_at_once(app: typer.Typer, views: Path) -> None:
    """Those of the options' form, and those that only the tables show."""
    wrong = "--upload-cost zoe=1 --capacity zed=1 --load foo=2 --reader bar=cloud --pin baz=cloud"
    told = ("upload_cost names unknown devices 'zoe'", "capacity names unknown devices 'zed'")
    told += ("load names unknown views 'foo'", "name unknown views 'bar', 'baz'")
    form = "--column nonsense=x --download-cost=x=y --pin near_1 --out x.txt --time-limit 0"
    also = ("--column names unknown columns 'nonsense': there are 'view'", "--download-cost must")
    also += ("--pin must be NAME=VALUE, got 'near_1'", "--out must end in", "time_limit must be")
    for options, texts in ((wrong, told), (f"{wrong} {form}", told + also)):
        run = CliRunner().invoke(app, ["place", str(views), "--sources", "own", *options.split()])
        assert run.exit_code == 2 and isinstance(run.exception, SystemExit), run.output
        assert f"place cannot start, {len(texts)} problems" in run.output
        for text in texts:
            assert text in run.output
    run = CliRunner().invoke(app, ["place", str(views), "--sources", "own", "--column", "ninput=x"])
    assert run.exit_code == 2 and "--column names unknown columns 'ninput'" in run.output


def test_the_command_has_what_python_has(app: typer.Typer, tmp_path: Path) -> None:
    need, shops = tmp_path / "need.csv", tmp_path / "shops.csv"
    need.write_text("board,feed,mbit\nhq,t1,10\nhq,t2,8\nshop,t1,10\nshop,news,1\n")
    shops.write_text("feed,shop\nt1,S1\nt2,S2\nnews,cloud\n")
    names = ("view=board", "input=feed", "rate=mbit", "source=feed", "device=shop")
    always = [str(need), "--sources", str(shops)]
    always += [part for name in names for part in ("--column", name)]
    core = tmp_path / "core.json"
    links = {"links": [["e", "w", 3.0]], "attached": {"S1": "e", "S2": "w"}, "sites": {"news": "e"}}
    core.write_text(json.dumps(links))
    new = tmp_path / "new.csv"
    new.write_text("board,feed,mbit\nhq,t1,0.1\n")

    def planned(*options: str, suffix: str = "json") -> dict[str, str]:
        out = tmp_path / f"plan.{suffix}"
        run = CliRunner().invoke(app, ["place", *always, *options, "--out", str(out)])
        assert run.exit_code == 0, run.output
        if suffix == "json":
            return {row["view"]: row["location"] for row in json.loads(out.read_text())}
        read = pd.read_csv if suffix == "csv" else pd.read_parquet
        return dict(read(out)[["view", "location"]].to_numpy())

    for suffix in ("json", "csv", "parquet"):
        assert planned(suffix=suffix) == {"hq": "S1", "shop": "S1"}
    assert planned("--reader", "hq=cloud")["hq"] == "cloud"
    assert planned("--reader", "hq=cloud=0.1")["hq"] == "S1"
    assert planned("--pin", "hq=S2")["hq"] == "S2"
    assert planned("--capacity", "S1=1", "--load", "hq=2")["hq"] != "S1"
    assert planned("--download-cost", "S1=100") == planned("--download-cost", "S1=100.0")
    assert planned("--upload-cost", "1", "--upload-cost", "S2=9")["hq"] == "S2"
    assert planned("--replan", str(new))["hq"] == "S2"
    assert planned("--core", str(core))["shop"] == "S1"
    assert planned("--without", "S2") == {"shop": "S1"}
    run = CliRunner().invoke(app, ["place", *always, "--traffic"])
    shown = [line.split() for line in run.output.splitlines()[-3:]]
    assert shown == [
        row.split() for row in ("t2 S2 up 8 8", "t2 S1 down 8 4", "news S1 down 1 0.5")
    ]
    new.write_text("board,feed,mbit\nhq,t1,-1\n")
    for option, says in ((("--replan", str(new)), "mbit must be"), (("--without", "S9"), "'S9'")):
        run = CliRunner().invoke(app, ["place", *always, *option])
        assert run.exit_code == 2 and says in run.output
