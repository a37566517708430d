"""Files as the world has them: nothing stops a read, all of it is counted."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.errors import AnabranchError
from anabranch.video import pictures
from anabranch.video.decoding import Faults, decoded
from anabranch.video.planning import Folder, Limit, Planner
from anabranch.video.rows import Reading
from tests.video.films import film, scene, segmented, write
from tests.video.reads import START, read, rows_and_report

av = pytest.importorskip("av")
FRAMES = film([20, 20])
EARLY = Path("a/0000.ts")


def audio_only(path: Path) -> None:
    with av.open(str(path), "w", format="matroska") as out:
        stream = out.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
        sound.sample_rate = 8000
        out.mux(stream.encode(sound))
        out.mux(stream.encode(None))


def cover(path: Path, film_too: bool) -> None:
    """An attached picture before the film, if there is one."""
    whole = write(path.with_suffix(".whole.mkv"), FRAMES[:10])
    with av.open(str(whole)) as source, av.open(str(path), "w", format="mp4") as out:
        art = out.add_stream("mjpeg", rate=1)
        art.width, art.height, art.pix_fmt = 64, 36, "yuvj420p"
        art.disposition = av.stream.Disposition.attached_pic
        film_ = out.add_stream_from_template(source.streams.video[0]) if film_too else None
        frame = av.VideoFrame(64, 36, "yuvj420p")
        frame.pts = 0
        out.mux(art.encode(frame))
        out.mux(art.encode(None))
        for packet in source.demux(video=0) if film_ is not None else ():
            if packet.pts is not None:
                packet.stream = film_
                out.mux(packet)
    whole.unlink()


def cut(share: float, kind: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        whole = write(path.with_suffix(f".whole.{kind}"), FRAMES)
        data = whole.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])
        whole.unlink()

    return make


MADE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "cannot be opened"),
    "noise": (lambda path: path.write_bytes(random.Random(1).randbytes(5000)), "cannot be opened"),
    "text": (lambda path: path.write_text("not a film\n" * 99), "cannot be opened"),
    "truncated mp4": (cut(0.6, "mp4"), "cannot be opened"),
    "head of a ts": (cut(0.001, "ts"), ""),
    "audio only": (audio_only, "has no video stream"),
    "attached picture": (lambda path: cover(path, False), "has only an attached picture"),
}


@pytest.mark.parametrize("kind", MADE)
def test_what_has_no_frames_is_a_problem_and_the_others_are_read(kind: str, tmp_path: Path) -> None:
    make, reason = MADE[kind]
    segmented(tmp_path / "a", FRAMES, (20,))
    bad = tmp_path / "a/0000x.ts"
    make(bad)
    rows, report = read(tmp_path)
    assert len(rows) == report["frames"] == 40 and report["segments"] == 3
    assert report["bad"] == 1 and report["jumps"] == 0
    assert report["problems"][0].startswith("a/0000x.ts: ") and reason in report["problems"][0]
    with pytest.raises(AnabranchError, match=r"segment a/0000x\.ts: .*bad_rows='fail'"):
        read(tmp_path, Reading(picture=None, fail=True))


def test_a_link_to_nothing_is_a_problem_and_stops_nothing(tmp_path: Path) -> None:
    """Among the segments, as the newest of them, and in place of the recorder's list."""
    segmented(tmp_path / "a", FRAMES, (20,))
    for name in ("0000x.ts", "0002.ts"):
        (tmp_path / "a" / name).symlink_to(tmp_path / "gone.ts")
    (tmp_path / "a/live.csv").symlink_to(tmp_path / "gone.csv")
    rows, report = read(tmp_path)
    assert (len(rows), report["segments"], report["bad"]) == (40, 4, 2)
    assert [problem.split(": ")[:2] for problem in report["problems"]] == [
        [f"a/{name}", "cannot be opened"] for name in ("0000x.ts", "0002.ts")
    ]
    with pytest.raises(AnabranchError, match=r"segment a/0000x\.ts: .*bad_rows='fail'"):
        read(tmp_path, Reading(picture=None, fail=True))
    folder = Folder(str(tmp_path), START, closed="all", keep=0)
    planner = Planner(folder)
    end = planner.latest({}, Limit(bytes=1))
    assert end["a"]["segment"] == "0000.ts"  # sizes are asked of links to nothing too
    (planned, *_) = Planner(folder).between(end, planner.latest(end))
    shutil.copyfile(tmp_path / "a/0000.ts", tmp_path / "gone.ts")
    with pytest.raises(AnabranchError, match="changed after it was planned"):
        rows_and_report([planned], Reading(picture=None))
    planner.forget({"a": {"segment": "0002.ts"}})
    left = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert left == ["0002.ts", "live.csv"]


def test_a_film_behind_an_attached_picture_is_found(tmp_path: Path) -> None:
    cover(tmp_path / "film.mp4", True)
    rows, report = read(tmp_path / "film.mp4")
    assert len(rows) == 10 and report["bad"] == 0


def test_a_cut_transport_stream_gives_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    cut(0.6, "ts")(tmp_path / EARLY)
    rows, report = read(tmp_path)
    assert 10 < len(rows) < 40 and report["bad"] == 0


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video", "mpeg4"])
def test_lost_packets_of_a_transport_stream_are_counted(codec: str, tmp_path: Path) -> None:
    """Decoders conceal the gap and say nothing of it; the container has seen it."""
    if codec not in av.codecs_available:
        pytest.skip(f"this PyAV has no encoder {codec}")
    (tmp_path / "a").mkdir()
    data = write(tmp_path / EARLY, FRAMES, codec=codec).read_bytes()
    assert read(tmp_path)[1]["corrupt"] == 0
    with av.open(str(tmp_path / EARLY)) as opened:
        # Where a key frame begins, what is lost may be all that follows, with some encodings.
        begins = [p.pos for p in opened.demux(video=0) if p.size and not p.is_keyframe]
    lost = {begins[int(len(begins) * share)] for share in (0.3, 0.35, 0.6)}
    parts = ((at, data[at : at + 188]) for at in range(0, len(data), 188))
    (tmp_path / EARLY).write_bytes(b"".join(part for at, part in parts if at not in lost))
    with av.open(str(tmp_path / EARLY)) as opened:
        flagged = sum(packet.is_corrupt for packet in opened.demux(video=0))
    rows, report = read(tmp_path)
    assert report["corrupt"] >= flagged > 0 and report["bad"] == 0
    assert 35 < len(rows) == report["frames"]


def zeroed(path: Path, which: range) -> None:
    """A film that has zeros in the place of these packets."""
    write(path, FRAMES)
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as opened:
        packets = [bytes(packet) for packet in opened.demux(video=0) if packet.size]
    for number in which:
        at = data.index(packets[number])
        data[at : at + len(packets[number])] = bytes(len(packets[number]))
    path.write_bytes(bytes(data))


def test_packets_that_cannot_be_decoded_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    zeroed(tmp_path / "a/0.mkv", range(10, 14))
    rows, report = read(tmp_path)
    assert (len(rows), report["packets"], report["packets_bad"]) == (36, 40, 4)
    assert report["bad"] == 0 and not report["problems"]


def test_a_segment_whose_packets_are_mostly_bad_is_bad_and_its_rows_stay(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    zeroed(tmp_path / "a/0.mkv", range(10, 31))
    rows, report = read(tmp_path)
    assert (len(rows), report["packets_bad"], report["bad"]) == (19, 21, 1)
    assert report["problems"] == ["a/0.mkv: 21 of 40 packets cannot be decoded"]
    with pytest.raises(AnabranchError, match="21 of 40 packets cannot be decoded"):
        read(tmp_path, Reading(picture=None, fail=True))


def flipped(data: bytes, seed: int, count: int) -> bytes:
    found, draw = bytearray(data), random.Random(seed)
    for _ in range(count):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


@pytest.mark.parametrize("kind", ["ts", "mkv", "mp4", "avi"])
@pytest.mark.parametrize("count", [3, pytest.param(250, marks=pytest.mark.slow)])
def test_flipped_bits_stop_nothing(kind: str, count: int, tmp_path: Path) -> None:
    """Whatever is flipped: rows with rising times and ids of their own, or a problem."""
    whole = write(tmp_path / f"whole.{kind}", FRAMES[:25]).read_bytes()
    (tmp_path / "a").mkdir()
    path = tmp_path / f"a/0.{kind}"
    for seed in range(count):
        path.write_bytes(flipped(whole, seed, 1 + seed % 40))
        rows, report = read(tmp_path / "a")
        assert report["segments"] == 1 and (rows or report["bad"] or report["frames"] == 0)
        assert len({row["id"] for row in rows}) == len(rows) <= 60
        order = [(row["run"], row["ts"]) for row in rows]
        assert order == sorted(set(order))
        if rows:  # a flipped timestamp must not move the watermark of all channels by hours
            assert (rows[-1]["ts"] - rows[0]["ts"]).total_seconds() < 600


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ts", "mkv", "mp4", "avi", "mpg"])
def test_truncations_of_every_class_stop_nothing(kind: str, tmp_path: Path) -> None:
    codec = "mpeg2video" if kind == "mpg" else "mpeg4"
    whole = write(tmp_path / f"whole.{kind}", FRAMES[:25], codec=codec).read_bytes()
    (tmp_path / "a").mkdir()
    edges = [*range(0, 64), *range(64, len(whole), max(1, len(whole) // 60)), len(whole) - 1]
    for length in edges:
        (tmp_path / f"a/0.{kind}").write_bytes(whole[:length])
        rows, report = read(tmp_path / "a")
        assert report["segments"] == 1 and len(rows) == report["frames"] <= 25


# ---------------------------------------------------------------- timestamps


class Fake:
    """Frames with these timestamps, in place of a decoder's."""

    def __init__(self, times: list[int | None]) -> None:
        self.times = times

    def __call__(self, container: Any, stream: Any, source: Any, faults: Faults) -> Any:
        for time in self.times:
            frame = av.VideoFrame(32, 18, "yuv420p")
            frame.pts = time
            yield frame


@pytest.mark.parametrize(
    ("times", "at", "missing", "jumps"),
    [
        pytest.param([0, None, 7200], [0, 40, 80], 1, 0, id="one missing"),
        pytest.param([None] * 3, [0, 40, 80], 3, 0, id="all missing"),
        pytest.param([90000, 93600, 0, 3600], [1000, 1040, 1080, 1120], 0, 1, id="backwards"),
        pytest.param([(1 << 33) - 3600, 0, 3600], [95443677, 95443717, 95443757], 0, 1, id="wrap"),
        pytest.param([0, 1 << 32, 7200, 10800], [0, 40, 80, 120], 0, 2, id="one flipped"),
        pytest.param([0, 0, 3600], [0, 0, 40], 0, 0, id="the same twice"),
        pytest.param([0, 0, 0, 0, 3600], [0, 0, 0, 0, 40], 0, 0, id="the same four times"),
        pytest.param([0, 90000, 93600, 450000], [0, 1000, 1040, 5000], 0, 0, id="variable rate"),
    ],
)
def test_timestamps_that_are_no_timestamps(
    times: list[int | None],
    at: list[int],
    missing: int,
    jumps: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write(tmp_path / "a.ts", FRAMES[:3])
    monkeypatch.setattr("anabranch.video.decoding._frames", Fake(times))
    faults = Faults()
    found = list(decoded(str(path), faults))
    assert [shown.at // 1000 for shown in found] == at
    assert (faults.pts_missing, faults.jumps) == (missing, jumps)
    assert [shown.stretch for shown in found][-1] == jumps
    assert len({(shown.stretch, shown.pts) for shown in found}) == len(found)


def test_a_variable_rate_is_kept(tmp_path: Path) -> None:
    times = [0, 1, 2, 10, 11, 30, 31, 32]
    write(tmp_path / "a.mkv", FRAMES[:8], times=times)
    rows, report = read(tmp_path / "a.mkv")
    since = [round((row["ts"] - rows[0]["ts"]).total_seconds() * 25) for row in rows]
    assert since == times and report["jumps"] == 0


# ---------------------------------------------------------------- pictures


def test_a_size_that_changes_is_scaled(tmp_path: Path) -> None:
    """Two resolutions in one transport stream, which libavcodec follows."""
    parts = [
        write(
            tmp_path / f"{n}.ts", scene(n, 10, *size), codec="mpeg2video", first=25 + 10 * n, gop=1
        )
        for n, size in enumerate([(90, 160), (144, 176)])
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / EARLY).write_bytes(b"".join(part.read_bytes() for part in parts))
    rows, report = read(tmp_path / "a", Reading(None, 1, (64, 64)))
    assert report["bad"] == 0 and len(rows) >= 19  # the decoder may lose one at the change
    assert report["changed"] == 1
    assert {len(row["features"]) for row in rows} == {576}
    assert {pictures.decode(row["picture"]).shape for row in rows} == {(36, 64, 3), (52, 64, 3)}


def test_a_form_of_pixels_that_changes_is_counted(tmp_path: Path) -> None:
    forms = ["yuv420p", "yuv422p", "yuv420p"]
    parts = [
        write(
            tmp_path / f"{n}.ts",
            scene(n, 10),
            codec="mpeg2video",
            first=25 + 10 * n,
            gop=1,
            form=of,
        )
        for n, of in enumerate(forms)
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / EARLY).write_bytes(b"".join(part.read_bytes() for part in parts))
    rows, report = read(tmp_path / "a")
    assert report["changed"] == 2 and report["bad"] == 0 and len(rows) >= 28


def test_timestamps_that_wrap_between_segments_are_counted(tmp_path: Path) -> None:
    """They have 33 bits. FFmpeg itself counts on within a minute; these are further apart."""
    (tmp_path / "a").mkdir()
    last = (1 << 33) * 25 // 90_000
    for name, first in (("20240501T000000.ts", last - 100 * 25), ("20240501T000142.ts", 50)):
        write(tmp_path / "a" / name, FRAMES[:25], first=first)
    rows, report = read(tmp_path, start={})
    assert (report["wraps"], report["jumps"], len(rows)) == (1, 0, 50)
    assert {row["run"] for row in rows} == {0, 1000}
    assert (rows[25]["ts"] - rows[0]["ts"]).total_seconds() == 102


@pytest.mark.parametrize("form", ["yuv420p10le", "yuv422p", "yuv444p"])
def test_other_forms_of_pixels(form: str, tmp_path: Path) -> None:
    if "libx264" not in av.codecs_available:
        pytest.skip("this PyAV has no encoder for 10 bits")
    path = write(tmp_path / "a.mkv", FRAMES[:5], codec="libx264", form=form, options={"crf": "1"})
    plain = write(tmp_path / "b.mkv", FRAMES[:5], codec="libx264", options={"crf": "1"})
    one, other = (read(each, Reading(None, 1, (64, 64)))[0] for each in (path, plain))
    for a, b in zip(one, other, strict=True):
        x, y = np.array(a["features"]), np.array(b["features"])
        assert x @ y / np.sqrt((x @ x) * (y @ y)) > 0.99


def test_pictures_are_described_where_a_shot_could_begin(tmp_path: Path) -> None:
    segmented(tmp_path / "a", FRAMES, (15,))
    rows, _ = read(tmp_path, Reading(None, 10**9, (160, 90)))
    assert [n for n, row in enumerate(rows) if row["features"]] == [0, 15, 20]
    for row in rows:
        given = [row[name] is not None for name in ("features", "grey", "phash", "picture")]
        assert len(set(given)) == 1
    assert np.abs(pictures.decode(rows[20]["picture"]).astype(int) - FRAMES[20]).mean() < 12
