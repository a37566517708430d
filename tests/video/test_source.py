"""Folders, offsets and event time: each frame once, at one time, however a film is cut."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.calls import Check
from anabranch.errors import AnabranchError
from anabranch.video import rows
from anabranch.video.clock import Place, Probe, Said, follow
from anabranch.video.planning import Folder, Limit, Planner
from anabranch.video.rows import Reading
from anabranch.video.segments import channels, closed, list_starts
from anabranch.video.starts import start_text, start_times
from tests.video import reads
from tests.video.films import film, segmented, write
from tests.video.reads import START, read, rows_and_report

SECOND = 1_000_000
CUTS = [(), (20, 50, 77), (1, 2, 40, 104), tuple(range(9, 105, 9))]


def pure(row: dict[str, Any]) -> tuple[Any, ...]:
    """What must not depend on how a film was cut."""
    names = ("ts", "pts", "run", "key", "anchor", "sig")
    return tuple(row[name] for name in names)


def test_any_cutting_gives_the_frames_of_the_whole_film(tmp_path: Path) -> None:
    frames = film([30, 40, 35])
    answers = []
    for number, cuts in enumerate(CUTS):
        folder = tmp_path / str(number) / "north"
        segmented(folder, frames, cuts)
        for every in (None, 200_000):
            rows, report = read(folder, Reading(every, 400_000, None))
            assert report["segments"] == len(cuts) + 1 and report["bad"] == 0
            assert len({row["id"] for row in rows}) == len(rows) == report["frames"]
            answers.append((every, [pure(row) for row in rows]))
            described = {row["ts"]: row["features"] for row in rows if row["features"]}
            answers.append((f"anchors {every}", [described[r["ts"]] for r in rows if r["anchor"]]))
    for kind in {kind for kind, _ in answers}:
        same = [answer for other, answer in answers if other == kind]
        assert all(answer == same[0] for answer in same) and same[0]
    assert next(len(a) for k, a in answers if k is None) == 105
    assert next(len(a) for k, a in answers if k == 200_000) == 21


def test_times_rise_and_begin_where_the_start_says(tmp_path: Path) -> None:
    segmented(tmp_path / "a", film([60]), (25,))
    rows, _ = read(tmp_path / "a")
    times = [row["ts"] for row in rows]
    # Timestamps of the film begin at one second.
    assert times[0] == datetime(2024, 5, 1, 0, 0, 1, tzinfo=UTC)
    assert all(a < b for a, b in pairwise(times))


def test_the_law_catches_the_first_frame_of_each_slot(tmp_path: Path, monkeypatch: Any) -> None:
    """A segment cannot know whether the one before it has filled the slot in which it begins."""
    filled: set[int] = set()

    def first_of_slot(ts: int, length: int, every: int) -> bool:
        slot = ts // every
        new = slot not in filled
        filled.add(slot)
        return new

    def one_segment(*given: Any) -> Any:
        filled.clear()
        yield from rows.rows_of(*given)

    frames = film([30, 40, 35])
    times = {}
    for mutated in (False, True):
        if mutated:
            monkeypatch.setattr(rows, "taken", first_of_slot)
            monkeypatch.setattr(reads, "rows_of", one_segment)
        for cuts in CUTS[:2]:
            folder = tmp_path / f"{mutated}{len(cuts)}" / "north"
            segmented(folder, frames, cuts)
            found, _ = read(folder, Reading(200_000, 400_000, None))
            times[mutated, cuts] = [row["ts"] for row in found]
    assert times[False, CUTS[0]] == times[False, CUTS[1]]
    assert len(times[True, CUTS[0]]) < len(times[True, CUTS[1]])


# ---------------------------------------------------------------- offsets


def test_offsets_name_closed_segments_and_each_is_read_once(tmp_path: Path) -> None:
    segmented(tmp_path / "north", film([40, 40]), (20, 40, 60))
    planner = Planner(Folder(str(tmp_path), START))
    one = planner.latest({}, Limit(files=2))
    assert one["north"]["segment"] == "0001.ts"
    # As Spark does it: the offset is written to its log and read back, by another process.
    two = Planner(Folder(str(tmp_path), START)).latest(json.loads(json.dumps(one)))
    assert two["north"]["segment"] == "0002.ts"  # the last one may be being written
    assert planner.left(one) == {"north": {"segment": "0002.ts", "left": 1}}
    assert planner.left(two) == {"north": {"segment": "0002.ts", "left": 0}}
    assert planner.latest(two) == two and planner.between(two, two) == []
    first, second = planner.between({}, one), planner.between(one, two)
    assert [p.segment.name for p in first + second] == ["0000.ts", "0001.ts", "0002.ts"]
    assert {(p.base, p.run) for p in first + second} == {(START[""], 0)}
    bytes_of_two = sum(p.segment.size for p in first)
    assert planner.latest({}, Limit(bytes=bytes_of_two)) == one
    assert planner.latest({}, Limit(bytes=1))["north"]["segment"] == "0000.ts"
    assert planner.latest({}, goal={"north": "0000.ts"})["north"]["segment"] == "0000.ts"


def test_a_name_before_the_offset_is_counted_and_left_out(tmp_path: Path) -> None:
    segmented(tmp_path / "a", film([60]), (20, 40))
    planner = Planner(Folder(str(tmp_path), START, closed="all"))
    (tmp_path / "a/0002.ts").rename(tmp_path / "held")
    one = planner.latest({})
    (tmp_path / "a/0000x.ts").write_bytes((tmp_path / "a/0000.ts").read_bytes())
    (tmp_path / "held").rename(tmp_path / "a/0002.ts")
    two = planner.latest(one)
    rows, report = rows_and_report(planner.between(one, two), Reading(picture=None))
    assert report["late"] == 1 and {row["segment"] for row in rows} == {"0002.ts"}
    assert planner.latest(two) == two
    (tmp_path / "a/0003.ts").write_bytes((tmp_path / "a/0002.ts").read_bytes())
    _, report = rows_and_report(planner.between(two, planner.latest(two)), Reading(picture=None))
    assert report["late"] == 0


def test_a_late_file_never_enters_a_range_that_is_planned(tmp_path: Path) -> None:
    """It comes after its range was planned, and before that is read, or read again."""
    segmented(tmp_path / "a", film([80]), (20, 40, 60))
    data = (tmp_path / "a/0000.ts").read_bytes()
    (tmp_path / "a/0003.ts").rename(tmp_path / "held")
    planner = Planner(Folder(str(tmp_path), START, closed="all"))
    end = planner.latest({})
    (tmp_path / "a/0000x.ts").write_bytes(data)
    first = planner.between({}, end)
    (tmp_path / "a/0001x.ts").write_bytes(data)
    # Killed before it was done, and started again: the offset is what Spark's log has.
    again = Planner(Folder(str(tmp_path), START, closed="all"))
    logged = json.loads(json.dumps(end))
    second = again.between({}, logged)
    names = ["0000.ts", "0001.ts", "0002.ts"]
    for planned, late in ((first, 1), (second, 2)):
        assert [p.segment.name for p in planned] == names
        assert [p.late for p in planned] == [late, 0, 0]
    plain = [(p.segment, p.base, p.run, p.jump) for p in first]
    assert plain == [(p.segment, p.base, p.run, p.jump) for p in second]
    # Neither is counted again, by either of the two.
    (tmp_path / "held").rename(tmp_path / "a/0003.ts")
    assert [p.late for p in again.between(logged, again.latest(logged))] == [0]
    assert [p.late for p in planner.between(end, planner.latest(end))] == [1]  # 0001x, at last


def test_an_offset_names_the_files_of_its_range_alone(tmp_path: Path) -> None:
    """So it stays small; and times are those of the first planning, whatever a list says since."""
    for name in ("a", "b"):
        segmented(tmp_path / name, film([60]), (20, 40))
    (tmp_path / "b/0002.ts").rename(tmp_path / "held")
    (tmp_path / "a/live.csv").write_text("0000.ts,0,1\n0001.ts,3600,3601\n0002.ts,7200,7201\n")
    planner = Planner(Folder(str(tmp_path), START, closed="all"))
    one = planner.latest({})
    assert [file[0] for file in one["b"]["files"]] == ["0000.ts", "0001.ts"]
    want = planner.between({}, one)
    (tmp_path / "a/live.csv").unlink()
    assert Planner(Folder(str(tmp_path), START, closed="all")).between({}, one) == want
    assert len({p.base for p in want if p.segment.channel == "a"}) == 3
    assert planner.latest(one) == one
    (tmp_path / "held").rename(tmp_path / "b/0002.ts")
    two = planner.latest(one)
    assert [[file[0] for file in two[name]["files"]] for name in two] == [[], ["0002.ts"]]
    assert [p.segment.name for p in planner.between(one, two)] == ["0002.ts"]


def test_a_changed_segment_stops_the_query(tmp_path: Path) -> None:
    segmented(tmp_path / "a", film([40]), (20,))
    planner = Planner(Folder(str(tmp_path), START, closed="all"))
    end = planner.latest({})
    planned = planner.between({}, end)
    with (tmp_path / "a/0001.ts").open("ab") as growing:
        growing.write(b"\0" * 188)
    with pytest.raises(AnabranchError, match=r"segment a/0001\.ts changed after it was planned"):
        rows_and_report(planned, Reading(picture=None))
    (tmp_path / "a/0001.ts").unlink()
    with pytest.raises(AnabranchError, match=r"a/0001\.ts is in the query's offsets and no longer"):
        planner.between({}, end)


def test_done_segments_are_removed_when_they_are_old(tmp_path: Path) -> None:
    segmented(tmp_path / "a", film([60]), (20, 40))
    planner = Planner(Folder(str(tmp_path), START, closed="all", keep=0))
    planner.forget({"a": {"segment": "0001.ts"}})
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["0001.ts", "0002.ts"]
    Planner(Folder(str(tmp_path), START, closed="all", keep=10**10)).forget(
        {"a": {"segment": "0002.ts"}}
    )
    assert len(list((tmp_path / "a").iterdir())) == 2


# ---------------------------------------------------------------- folders


def test_what_is_a_channel(tmp_path: Path) -> None:
    for name in ("a/1.ts", "b/1.mkv", "b/notes.txt", ".c/1.ts"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert list(channels(str(tmp_path))) == ["a", "b"]
    assert list(channels(f"file://{tmp_path}/a")) == ["a"]
    assert channels(str(tmp_path / "b/1.mkv")) == {"1": tmp_path / "b/1.mkv"}
    assert channels(str(tmp_path / "none")) == {}
    assert closed(tmp_path / "b", "all") == ["1.mkv"]


def test_when_a_segment_is_closed(tmp_path: Path) -> None:
    for name in ("a.ts", "b.ts", "c.ts"):
        (tmp_path / name).write_bytes(b"")
    assert closed(tmp_path) == closed(tmp_path, "later") == ["a.ts", "b.ts"]
    assert closed(tmp_path, "list") == []
    (tmp_path / "._c.ts").write_bytes(b"")  # what a Mac leaves behind
    assert closed(tmp_path) == ["a.ts", "b.ts"]
    (tmp_path / ".d.ts").write_bytes(b"")  # renamed when it is complete
    assert closed(tmp_path) == ["a.ts", "b.ts", "c.ts"]
    (tmp_path / "live.csv").write_text("north/a.ts,0.000000,2.080000\nb.ts,2.08,")
    assert closed(tmp_path) == ["a.ts"] and list_starts(tmp_path) == {"a.ts": 0}


def test_a_recorder_by_the_recipe(tmp_path: Path) -> None:
    """FFmpeg's own segment muxer with its list, as the documentation has it."""
    import av

    folder = tmp_path / "north"
    folder.mkdir()
    options = {
        "segment_time": "1",
        "segment_format": "mpegts",
        "segment_list": str(folder / "live.csv"),
        "segment_list_type": "csv",
    }
    whole = write(tmp_path / "whole.mkv", film([80]), codec="mpeg2video", first=25)
    with (
        av.open(str(whole)) as source,
        av.open(str(folder / "%04d.ts"), "w", format="segment", options=options) as out,
    ):
        stream = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.pts is not None:
                packet.stream = stream
                out.mux(packet)
    assert len(closed(folder)) == len(list_starts(folder)) == 4
    rows, report = read(folder, closed="auto")
    assert report["frames"] == len(rows) == 80 and report["jumps"] == 0
    steps = {(b["ts"] - a["ts"]).total_seconds() for a, b in pairwise(rows)}
    assert steps == {0.04}


# ---------------------------------------------------------------- event time


def walked(
    probes: list[Probe], said: list[int | None], start: int | None = 0, how: str = "auto"
) -> list[Place]:
    place, found = None, []
    for number, (probe, begins) in enumerate(zip(probes, said, strict=True)):
        place = follow(place, f"{number}", probe, Said(start, begins), how)
        found.append(place)
    return found


@given(
    lengths=st.lists(st.integers(SECOND, 5 * SECOND), min_size=2, max_size=12),
    first=st.integers(0, 10**9),
    jitter=st.lists(st.integers(-SECOND, 0), min_size=12, max_size=12),
)
def test_names_in_whole_seconds_do_not_shake_the_time_line(
    lengths: list[int], first: int, jitter: list[int]
) -> None:
    """Running or restarted, frames are where the first name and the lengths put them."""
    begins = [sum(lengths[:n]) for n in range(len(lengths))]
    names = [10**15 + at + shake for at, shake in zip(begins, jitter, strict=False)]
    running = [Probe(first + at, n) for at, n in zip(begins, lengths, strict=True)]
    restarted = [Probe(first, n) for n in lengths]
    for probes, how in ((running, "running"), (running, "auto"), (restarted, "restart")):
        places = walked(probes, list(names), None, how)
        if how == "auto" and any(2 * a < b for a, b in pairwise(lengths)):
            continue  # a segment that short may be either
        assert {place.run for place in places} == {0}
        found = [
            place.base + (probe.first or 0) for place, probe in zip(places, probes, strict=True)
        ]
        assert found == [names[0] + at for at in begins]


def test_wraps_and_jumps_begin_new_runs() -> None:
    wrap = (1 << 33) * SECOND // 90_000
    two = 2 * SECOND
    probes = [
        Probe(wrap - two, two),
        Probe(0, two),
        Probe(two, two),
        Probe(50 * two, two),
        Probe(9, two),
    ]
    names: list[int | None] = [0, two, 2 * two, 3 * two + 110 * SECOND, 200 * SECOND]
    places = walked(probes, names, None)
    assert [(p.run, p.jump) for p in places] == [
        (0, ""), (1, "wrap"), (1, ""), (2, "jump"), (3, "jump"),
    ]  # fmt: skip
    assert [p.base + (q.first or 0) for p, q in zip(places, probes, strict=True)] == names


def test_a_gap_in_names_is_a_gap_in_time() -> None:
    two = 2 * SECOND
    places = walked([Probe(0, two)] * 3, [0, two, 60 * SECOND], None, "restart")
    assert [(p.run, p.base) for p in places] == [(0, 0), (0, two), (0, 60 * SECOND)]


def test_an_unreadable_segment_leaves_the_time_line_as_it_is() -> None:
    two = 2 * SECOND
    places = walked([Probe(), Probe(0, two), Probe(), Probe(2 * two, two)], [None] * 4)
    assert [p.began for p in places] == [False, True, True, True]
    assert places[3].base == places[1].base == 0 and places[2].segment == "2"


def test_no_time_at_all_says_which_three_ways_there_are(tmp_path: Path) -> None:
    segmented(tmp_path / "a", film([10]))
    with pytest.raises(AnabranchError, match=r"give start=.*%Y%m%dT%H%M%S; or write creation_time"):
        read(tmp_path, start={})
    (tmp_path / "a/0000.ts").rename(tmp_path / "a/20240501T000000.ts")
    assert read(tmp_path, start={})[0][0]["ts"] == datetime(2024, 5, 1, tzinfo=UTC)
    created = {"creation_time": "2024-05-02T00:00:00.5Z"}
    write(tmp_path / "b.mkv", film([10]), metadata=created)
    found = read(tmp_path / "b.mkv", start={})[0][0]["ts"]
    assert found == datetime(2024, 5, 2, 0, 0, 0, 500_000, tzinfo=UTC)


def test_starts_as_people_say_them() -> None:
    check = Check()
    zoned = {"a": "2024-05-01T02:00:00+02:00", "b": datetime(2024, 5, 1)}
    assert start_times(check, zoned) == {"a": START[""], "b": START[""]}
    times = {"": START[""] + 1, "a": -1}
    assert start_times(check, start_text(times)) == times
    start_times(check, "noon")
    assert check.problems == [
        "start must be a time, for example start='2024-05-01T12:00:00+00:00', a datetime, or a "
        "dict of these by channel; got 'noon'"
    ]
