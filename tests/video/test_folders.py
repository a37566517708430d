"""Folders as the world has them: lists that are none, names that are no text, other people's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError
from anabranch.video.planning import Folder, Planner
from anabranch.video.segments import channels, closed, list_starts, names
from tests.video.films import film, segmented
from tests.video.reads import ROWS_ALONE, START, read, rows_and_report

pytest.importorskip("av")


def three(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a.ts", "b.ts", "c.ts"):
        (folder / name).write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("zebra,1.0\nname,score\n", ["a.ts", "b.ts"], id="of something else"),
        pytest.param("zebra.ts,1.0\n", ["a.ts", "b.ts"], id="of another folder"),
        pytest.param('a.ts,0,1\n"b.ts,1,2\n' + "x" * 200_000 + "\n", ["a.ts"], id="a quote"),
        pytest.param('"' + "x" * 200_000 + "\n", ["a.ts", "b.ts"], id="nothing but a quote"),
        pytest.param('"' + "x" * 200_000 + "\na.ts,0,1\n", ["a.ts"], id="after the quote"),
        pytest.param("a.ts,0,1\nzebra,9\n\0,1\n", ["a.ts"], id="a list with more in it"),
        pytest.param("aa.ts,0,1\n", ["a.ts"], id="a film that was removed"),
        pytest.param("a.ts,nan,1\nb.ts,inf,1\n", ["a.ts", "b.ts"], id="no times"),
    ],
)
def test_only_lines_that_name_segments_close_them(
    text: str, want: list[str], tmp_path: Path
) -> None:
    folder = three(tmp_path / "north")
    (folder / "notes.csv").write_text(text)
    assert closed(folder) == want


def test_names_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    """Films, channels and the list; through an offset as Spark keeps it."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        segmented(folder, film([30]), (10, 20))
        (folder / "0001.ts").rename(folder / os.fsdecode(b"0001\xff.ts"))
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system has names of UTF-8 alone")
    (folder / "live.csv").write_bytes(b"0000.ts,0,1\n0001\xff.ts,1,2\n")
    assert [*channels(str(tmp_path))] == [r"caf\xe9"]
    assert names(folder) == ["0000.ts", r"0001\xff.ts", "0002.ts"]
    assert [*list_starts(folder)] == closed(folder) == ["0000.ts", r"0001\xff.ts"]
    (folder / os.fsdecode(b"0003\xfe.ts")).write_bytes(b"no film")
    rows, report = read(tmp_path)
    assert len(rows) == 30 and len({row["id"] for row in rows}) == 30
    assert rows[10]["id"].startswith(r"caf\xe9/0001\xff.ts/") and rows[10]["channel"] == r"caf\xe9"
    assert report["problems"][0].startswith(r"caf\xe9/0003\xfe.ts: cannot be opened")
    json.dumps([rows[10]["id"], report["problems"]], ensure_ascii=False).encode()
    planner = Planner(Folder(str(tmp_path), START, closed="all", keep=0))
    end = json.loads(json.dumps(planner.latest({})))
    assert len(planner.between({}, end)) == 4
    planner.forget(end)
    assert names(folder) == [r"0003\xfe.ts"]


def test_folders_and_pipes_are_no_films(tmp_path: Path) -> None:
    segmented(tmp_path / "north.ts", film([20]), (10,))
    (tmp_path / "north.ts/0000x.ts").mkdir()
    os.mkfifo(tmp_path / "north.ts/0001x.ts")  # to open it would wait for somebody who writes
    assert [*channels(str(tmp_path))] == ["north.ts"]
    rows, report = read(tmp_path)
    assert (len(rows), report["segments"], report["bad"]) == (20, 2, 0)
    planner = Planner(Folder(str(tmp_path), START, closed="all", keep=0))
    planner.forget({"north.ts": {"segment": "0009.ts"}})
    assert [path.name for path in sorted((tmp_path / "north.ts").iterdir())] == [
        "0000x.ts",
        "0001x.ts",
    ]


def test_a_link_that_leads_round_is_a_bad_film_and_stops_no_channel(tmp_path: Path) -> None:
    segmented(tmp_path / "north", film([20]), (10,))
    (tmp_path / "north/0001x.ts").symlink_to("0001x.ts")
    (tmp_path / "south").symlink_to("south")
    assert [*channels(str(tmp_path))] == ["north"]
    rows, report = read(tmp_path)
    assert (len(rows), report["segments"], report["bad"]) == (20, 3, 1)


def test_two_names_that_are_written_alike_are_refused(tmp_path: Path) -> None:
    """Else the rows of one would come twice, and those of the other never."""
    place = three(tmp_path / "north")
    (place / r"1\xff.ts").write_bytes(b"")
    assert r"1\xff.ts" in names(place)
    try:
        (place / os.fsdecode(b"1\xff.ts")).write_bytes(b"")
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system has names of UTF-8 alone")
    with pytest.raises(AnabranchError, match="two entries whose names are both written"):
        names(place)


def test_a_recorder_may_clean_up_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the very moment: what is to be removed is gone, and so is a whole channel."""
    segmented(tmp_path / "a", film([30]), (10, 20))
    planner = Planner(Folder(str(tmp_path), START, closed="all", keep=0))
    end = planner.latest({})
    of = Path.unlink

    def twice(self: Path, missing_ok: bool = False) -> None:
        of(self)
        of(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", twice)
    planner.forget(end)
    assert names(tmp_path / "a") == ["0002.ts"]
    assert names(tmp_path / "gone") == closed(tmp_path / "gone") == []


@pytest.mark.parametrize("how", ["longer", "as long"])
def test_a_segment_that_changed_while_the_query_was_down_stops_it(how: str, tmp_path: Path) -> None:
    segmented(tmp_path / "a", film([30]), (10, 20))
    folder = Folder(str(tmp_path), START, closed="all")
    end = json.loads(json.dumps(Planner(folder).latest({})))
    path = tmp_path / "a/0001.ts"
    data = path.read_bytes()
    path.write_bytes(data + bytes(188) if how == "longer" else bytes(len(data)))
    os.utime(path, ns=(1, 1))
    planned = Planner(folder).between({}, end)
    with pytest.raises(AnabranchError, match=r"segment a/0001\.ts changed after it was planned"):
        rows_and_report(planned, ROWS_ALONE)


def test_offsets_without_the_state_of_files_are_read(tmp_path: Path) -> None:
    segmented(tmp_path / "a", film([30]), (10, 20))
    folder = Folder(str(tmp_path), START, closed="all")
    end = Planner(folder).latest({})
    want = Planner(folder).between({}, end)
    end["a"]["files"] = [file[:4] for file in end["a"]["files"]]
    del end["a"]["open"]
    assert Planner(folder).between({}, end) == want
    assert Planner(folder).latest(end) == end
