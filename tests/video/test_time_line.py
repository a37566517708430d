"""One damaged segment leaves the times of the others, and the watermark, where they are."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from anabranch.video import decoding
from anabranch.video.clock import Place, Probe, Said, follow
from anabranch.video.decoding import probe
from anabranch.video.stamps import Span, span_of, unborne
from tests.video.films import film, write
from tests.video.reads import read
from tests.video.test_hostile import flipped

pytest.importorskip("av")
FRAMES = film([13, 12])
SECOND = 1_000_000
TWO = 2 * SECOND
KINDS = ("ts", "running", "mkv", "mp4", "avi")
# Of the flips that say most of what is not so, those of each kind of file.
LIES = {
    "ts": (67, 233, 63),
    "running": (67, 233, 63),
    "mkv": (67, 37, 137),
    "mp4": (5, 12, 20),
    "avi": (116, 264, 206),
}


class Channel:
    """Four segments of a second, of which the second is damaged."""

    def __init__(self, folder: Path, kind: str, named: bool) -> None:
        self.folder, self.named = folder, named
        self.kind = "ts" if kind == "running" else kind
        folder.mkdir(parents=True)
        step = 25 if kind == "running" else 0
        for n in range(4):
            # Without it, the writer of this kind draws some bytes of a head by lot.
            exact = {"fflags": "+bitexact"} if kind == "mkv" else {}
            write(folder / self.name(n), FRAMES, first=step * n, container_options=exact)
        self.whole = (folder / self.name(1)).read_bytes()

    def name(self, n: int) -> str:
        stem = f"20240501T00000{n}" if self.named else f"{n}"
        return f"{stem}.{self.kind}"

    def times(self, damaged: bytes) -> list[list[datetime]]:
        """By segment, the times of its frames."""
        (self.folder / self.name(1)).write_bytes(damaged)
        rows, _ = read(self.folder, start={} if self.named else {"": 1_714_521_600_000_000})
        return [[row["ts"] for row in rows if row["segment"] == self.name(n)] for n in range(4)]

    def moved(self, damaged: bytes) -> tuple[float, float]:
        """By how many seconds at most frames are earlier and later than those of a whole film."""
        want, got = self.times(self.whole), self.times(damaged)
        assert len(got[2]) == len(got[3]) == len(FRAMES) and got[0] == want[0]
        by = [(a - b).total_seconds() for n in (2, 3) for a, b in zip(got[n], want[n], strict=True)]
        ends = [(got[1][-1] - want[1][-1]).total_seconds()] if got[1] else []
        return min(by), max(by + ends)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lying_segment_moves_no_other(kind: str, named: bool, tmp_path: Path) -> None:
    channel = Channel(tmp_path / "a", kind, named)
    assert channel.moved(channel.whole) == (0, 0)
    for seed in LIES[kind]:
        earlier, later = channel.moved(flipped(channel.whole, seed, 1 + seed % 40))
        # Without names nobody knows how long a segment was that cannot be opened.
        assert (-0.2 if named else -1) <= earlier <= later <= 0.1, seed


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_flipped_moves_no_other_by_more_than_a_second(
    kind: str, named: bool, tmp_path: Path
) -> None:
    """A timestamp is borne out by others within a second; a clock that is wrong throughout is."""
    channel = Channel(tmp_path / "a", kind, named)
    for seed in range(150):
        damaged = flipped(channel.whole, seed, 1 + seed % 40)
        path = channel.folder / channel.name(1)
        path.write_bytes(damaged)
        if kind == "mp4" and probe(str(path)).length > 5 * SECOND:
            continue
        earlier, later = channel.moved(damaged)
        assert -1 <= earlier <= later <= 1.2, seed


@pytest.mark.parametrize("kind", ["ts", "mkv", "mp4", "avi"])  # all packets are read of a ts
def test_of_a_long_film_the_ends_are_read_and_a_head_that_lies_is_not_believed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"film.{kind}"
    write(path, FRAMES * 4, first=0 if kind == "avi" else 50)
    whole, looked = probe(str(path)), []
    by_all = decoding._by_its_packets
    monkeypatch.setattr(decoding, "_LONG", 0)
    monkeypatch.setattr(
        decoding, "_by_its_packets", lambda path: (looked.append(path), by_all(path))[1]
    )
    found = probe(str(path))
    assert (found.first, found.created, found.sure) == (whole.first, whole.created, True)
    assert abs(found.length - whole.length) <= SECOND // 20
    assert bool(looked) == (kind == "ts")
    if kind == "avi":  # its head says how many frames there are
        data, wanted = path.read_bytes(), len(FRAMES) * 4
        at = data.index(wanted.to_bytes(4, "little"), data.index(b"strh"))
        path.write_bytes(data[:at] + (10**6).to_bytes(4, "little") + data[at + 4 :])
        assert probe(str(path)).length == whole.length and looked


@pytest.mark.parametrize("kind", ["ts", "mkv"])
def test_frames_that_come_now_and_then_keep_their_times(kind: str, tmp_path: Path) -> None:
    """As of a camera that sends a frame when something moves, and begins with one."""
    times = [0, *range(75, 125), *range(175, 475, 50), *range(475, 525)]
    frames = (FRAMES * 5)[: len(times)]
    name = f"20240501T000000.{kind}"
    (tmp_path / "a").mkdir()
    write(tmp_path / "a" / name, frames, times=times)
    seen = probe(str(tmp_path / "a" / name))
    assert not seen.doubtful and abs(seen.length - 21 * SECOND) <= SECOND // 20
    rows, _ = read(tmp_path, start={})
    found = [(row["ts"] - rows[0]["ts"]).total_seconds() for row in rows]
    assert found == pytest.approx([at / 25 for at in times], abs=0.002)


def walked(probes: list[Probe], names: list[int | None], start: int | None = 0) -> list[Place]:
    place, found = None, []
    for number, (seen, begins) in enumerate(zip(probes, names, strict=True)):
        place = follow(place, f"{number}", seen, Said(start, begins))
        found.append(place)
    return found


@pytest.mark.parametrize(
    "missing", [Probe(), Probe(0, 0, None, False), Probe(0, TWO // 2, None, False)]
)
def test_behind_a_segment_that_cannot_be_read_the_name_decides(missing: Probe) -> None:
    probes = [Probe(0, TWO), missing, Probe(0, TWO), Probe(0, TWO)]
    places = walked(probes, [n * TWO for n in range(4)], None)
    assert [(of.base, of.run) for of in places[2:]] == [(2 * TWO, 0), (3 * TWO, 0)]
    # A name tells seconds, and time does not go back for what is cut off.
    places = walked(probes, [0, TWO, TWO // 2, 3 * TWO], None)
    assert places[2].base == places[1].end and places[2].run == 0


def test_a_name_that_disagrees_begins_a_run() -> None:
    """However long one of the two says that it is."""
    hour = 3600 * SECOND
    for lengths in ((TWO, hour, TWO), (hour, hour, hour)):
        probes = [Probe(0, length) for length in lengths]
        places = walked(probes, [0, lengths[0], lengths[0] + TWO], None)
        assert places[2].run == 1 and places[2].jump == "jump"
        assert places[2].base == lengths[0] + TWO


def test_what_packets_say_of_a_pause() -> None:
    """It is one in the middle; a single timestamp far away is none, and a rate that varies is."""
    bursts = [0, 4, 8, 300, 600, 604, 608]
    assert span_of(bursts, 4, 100, 1000) == Span(0, 612, False)
    assert span_of([900, 4, 8, 12, 16], 4, 100, 1000) == Span(4, 16, True)
    assert span_of([0, 4, 8, 12, 2000], 4, 100, 1000) == Span(0, 16, True)
    # Frames now and then in the middle, or one at an end, as where a camera begins.
    now_and_then = [*range(0, 200, 4), 400, 600, 800, *range(1000, 1200, 4)]
    assert span_of(now_and_then, 4, 100, 1000) == Span(0, 1200, False)
    assert span_of([0, 300, 304, 308, 312], 4, 100, 1000) == Span(0, 316, False)
    assert span_of([0, 4, 8, 12, 700], 4, 100, 1000) == Span(0, 704, False)
    slides = [0, 500, 1000, 1500, 2100]
    assert span_of(slides, 500, 100, 1000) == Span(0, 2600, False)
    reordered = [0, 16, 8, 4, 12, 32, 24, 20, 28]
    assert span_of(reordered, 4, 10, 1000) == Span(0, 36, False)
    # A frame a second, each eighth shown when it is stored; a head says 25 a second.
    slow = [100 * n for k in range(0, 40, 8) for n in (k + 7, *range(k, k + 7))]
    assert span_of(slow, 4, 100, 1000) == Span(0, 3904, False)
    assert not unborne([7], 100, 1000).any() and span_of([], 4, 100, 1000) == Span(0, 0, False)
