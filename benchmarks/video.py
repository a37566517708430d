"""Films: frames decoded and described per second of one core, and shots against made-up truth.

::

    python -m benchmarks.video [CLIPS] [--seeds 11 12] [--rounds 3] [--quick]

It writes results/video.json and two parts of docs/video.md; with ``--quick`` it is short and writes
nothing. `CLIPS` is a folder of films, at any depth; by default those of `anabranch.video.clips` are
fetched. From excerpts of them films with known cuts, dissolves, fades and flashes are made and
encoded, one for each seed. Thresholds were chosen with the films of seeds 5 and 7 to 10 in sight;
11 and 12 are unseen, and say how they hold. The detectors of PySceneDetect see the same files.
Rates are of process time on one thread. How many channels a core carries is measured through all
that reads segments, which are opened one by one.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.video import layout, pictures
from anabranch.video.channels import BEGIN, SECOND
from anabranch.video.clips import fetch
from anabranch.video.cutting import Cutter
from anabranch.video.decoding import Faults, decoded
from anabranch.video.planes import planes_of
from anabranch.video.planning import Folder, Planner
from anabranch.video.rows import Reading, rows_of
from anabranch.video.signature import signature
from benchmarks.measuring import Row, Screen, machine
from benchmarks.needs import need
from benchmarks.video_page import PAGE, with_video

RESULTS = Path(__file__).parent / "results"
_FILMS = ("*.mp4", "*.m4v", "*.mpg", "*.avi", "*.mkv")
_CLIPS = ("bikes", "bunny", "night", "phone", "street", "towers")
_SIZE, _LARGE = (160, 90), (1280, 720)
_EVERY = SECOND // 5
_DISSOLVE, _FADE = 12, 8


@dataclass
class Truth:
    """A film of excerpts: where it was cut, and where it changes gradually."""

    frames: list[np.ndarray] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    gradual: list[tuple[int, int]] = field(default_factory=list)

    def add(self, clip: list[np.ndarray], kind: float) -> None:
        """An excerpt behind the others, by a cut, a dissolve or a fade through black."""
        film = self.frames
        if not film:
            film += clip
        elif kind < 0.65:
            self.cuts.append(len(film))
            film += clip
        elif kind < 0.85 and len(clip) > _DISSOLVE + 4:
            begin = len(film) - _DISSOLVE
            for k in range(_DISSOLVE):
                share = (k + 1) / (_DISSOLVE + 1)
                film[begin + k] = (film[begin + k] * (1 - share) + clip[k] * share).astype(np.uint8)
            self.gradual.append((begin, len(film)))
            film += clip[_DISSOLVE:]
        else:
            begin = len(film) - _FADE
            for k in range(_FADE):
                film[begin + k] = (film[begin + k] * (1 - (k + 1) / _FADE)).astype(np.uint8)
            faded = [(clip[k] * ((k + 1) / _FADE)).astype(np.uint8) for k in range(_FADE)]
            self.gradual.append((begin, len(film) + _FADE))
            film += faded + clip[_FADE:]


def clips(folder: Path) -> list[list[np.ndarray]]:
    """The films of a folder, small, at most 400 frames of each."""
    found = []
    for path in sorted(path for kind in _FILMS for path in folder.rglob(kind)):
        frames = []
        for shown in decoded(str(path), Faults()):
            small = shown.frame.reformat(*_SIZE, format="rgb24", interpolation="AREA")
            frames.append(small.to_ndarray())
            if len(frames) == 400:
                break
        if len(frames) >= 60:
            found.append(frames)
    return found


def jumps(frames: Sequence[np.ndarray]) -> np.ndarray:
    """Between which frames of a clip its pixels change at once, by themselves."""
    grey = np.stack([frame.mean(2) for frame in frames])
    steps = np.abs(np.diff(grey, axis=0)).mean((1, 2))
    around = np.array([np.median(steps[max(0, n - 6) : n + 7]) for n in range(len(steps))])
    return np.asarray(steps > 2 * around + 3)


def made(sources: Sequence[list[np.ndarray]], seed: int, count: int) -> Truth:
    """So many excerpts of 20 to 60 frames, with flashes where nothing else happens."""
    draw, truth, last = random.Random(seed), Truth(), -1
    for _ in range(count):
        last = draw.choice([n for n in range(len(sources)) if n != last])
        begin, length = 0, 0
        # Clips have cuts of their own, of which there is no truth: an excerpt has none.
        while not length or jumps(sources[last])[begin : begin + length - 1].any():
            length = min(len(sources[last]) - 1, draw.randint(20, 60))
            begin = draw.randint(0, len(sources[last]) - length - 1)
        clip = [frame.copy() for frame in sources[last][begin : begin + length]]
        truth.add(clip, draw.random())
    for place in draw.sample(range(50, len(truth.frames) - 50), 8):
        calm = min(abs(place - cut) for cut in truth.cuts) > 6
        if calm and not any(a - 6 <= place <= b + 6 for a, b in truth.gradual):
            bright = truth.frames[place].astype(int) + 110
            truth.frames[place] = np.clip(bright, 0, 255).astype(np.uint8)
    return truth


def encoded(frames: Sequence[np.ndarray], path: Path, size: tuple[int, int], crf: int) -> Path:
    """Frames as H.264, a key frame every 50."""
    import av

    with av.open(str(path), "w") as out:
        options = {"preset": "veryfast", "crf": str(crf), "g": "50"}
        stream: Any = out.add_stream("libx264", rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts, picture.time_base = number, Fraction(1, 25)
            out.mux(stream.encode(picture))
        out.mux(stream.encode(None))
    return path


def shots_of(path: Path) -> list[int]:
    """Where ours says that shots begin."""
    shown = list(decoded(str(path), Faults()))
    sigs = b"".join(signature(planes_of(one.frame)) for one in shown)
    matrix = np.frombuffer(sigs, np.uint8).reshape(-1, 320)
    times = np.array([one.at for one in shown])
    # Every frame could be a key frame: what is asked is where shots begin.
    every = np.ones(len(times), bool)
    found = Cutter(1 << 60).take(matrix, times, np.zeros(len(times), int), every, final=True)
    return [one.row for one in found if one.reason != "start"]


def score(found: Sequence[int], truth: Truth) -> tuple[float, float, int]:
    """Recall of cuts and of gradual changes, and how many are neither."""
    used: set[int] = set()
    hits = gradual = 0
    for cut in truth.cuts:
        near = [place for place in found if abs(place - cut) <= 2 and place not in used]
        used.update(near[:1])
        hits += bool(near)
    for begin, end in truth.gradual:
        near = [place for place in found if begin - 4 <= place <= end + 18 and place not in used]
        used.update(near)
        gradual += bool(near)
    return hits / len(truth.cuts), gradual / len(truth.gradual), len(found) - len(used)


def peers() -> dict[str, Any]:
    """The detectors of PySceneDetect."""
    import scenedetect as peer

    kinds = ("Content", "Adaptive", "Histogram", "Hash")
    return {kind.lower(): getattr(peer, f"{kind}Detector") for kind in kinds}


def compare_shots(screen: Screen, seed: int, truth: Truth, path: Path) -> None:
    """Ours and the peers' on the same film."""
    section = f"shots, seed {seed}"
    found = shots_of(path)
    cut, gradual, false = score(found, truth)
    what = f"{len(truth.frames)} frames, {len(truth.cuts)} cuts, {len(truth.gradual)} gradual"
    screen.add(Row(section, "recall of cuts", cut, "", 0.98, note=what))
    screen.add(Row(section, "recall of gradual changes", gradual, "", 0.85))
    screen.add(Row(section, "false", false, "", 4, at_most=True))
    for name, detector in peers().items():
        import scenedetect

        scenes = scenedetect.detect(str(path), detector())
        cut, gradual, false = score([begin.frame_num for begin, _ in scenes][1:], truth)
        note = f"gradual {gradual:.2f}, false {false}"
        screen.add(Row(section, f"PySceneDetect, {name}: recall of cuts", cut, note=note))


def rate_of(path: Path, work: Callable[[Any], Any], rounds: int) -> float:
    """Frames per second of process time, the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        began, count = time.process_time(), 0
        for shown in decoded(str(path), Faults()):
            work(shown.frame)
            count += 1
        best = min(best, (time.process_time() - began) / count)
    return 1 / best


def described(frame: Any) -> None:
    """All that a described frame has, but for its picture."""
    planes = planes_of(frame)
    signature(planes)
    layout.features(planes)
    layout.phash(planes)
    layout.grey_centred(layout.grey(planes))


def pictured(frame: Any) -> None:
    """The same with its picture, as large as it is by default."""
    described(frame)
    pictures.encode(frame, Reading().picture or (640, 360))


def compare_rates(screen: Screen, path: Path, rounds: int) -> None:
    """Decoding alone, with signatures, with all features, and with pictures, at 720p."""
    pictured(next(decoded(str(path), Faults())).frame)
    rates = {
        "decode": rate_of(path, lambda frame: None, rounds),
        "decode and signature": rate_of(path, lambda frame: signature(planes_of(frame)), rounds),
        "decode and all features, picture=None": rate_of(path, described, rounds),
        "decode, all features and the default picture": rate_of(path, pictured, rounds),
    }
    for what, rate in rates.items():
        target = 300.0 if "None" in what else None
        screen.add(Row("720p, one core", what, rate, "frames/s", target))


def segments(frames: Sequence[np.ndarray], folder: Path, seconds: int) -> None:
    """So long a channel of these frames again and again, 720p at 25 a second, in 2 s segments."""
    import av

    place = folder / "north"
    place.mkdir(parents=True)
    options = {"segment_time": "2", "segment_format": "mpegts", "segment_time_delta": "0.02"}
    with av.open(str(place / "%06d.ts"), "w", format="segment", options=options) as out:
        coding = {"preset": "veryfast", "crf": "23", "g": "50", "sc_threshold": "0"}
        stream: Any = out.add_stream("libx264", rate=25, options=coding)
        stream.width, stream.height, stream.pix_fmt = *_LARGE, "yuv420p"
        for number in range(25 * seconds):
            frame = frames[number % len(frames)]
            out.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        out.mux(stream.encode(None))


def carried(folder: Path, seconds: int, rounds: int) -> tuple[float, float]:
    """How many such channels a core carries, and how large their pictures are in bytes."""
    reading, times = Reading(every=_EVERY), []
    sizes: list[int] = []
    for _ in range(rounds + 1):  # the first one warms up
        began, frames, sizes = time.process_time(), 0, []
        planner = Planner(Folder(str(folder), start={"": BEGIN}, closed="all"))
        for planned in planner.between({}, planner.latest({})):
            for batch in rows_of(planned, reading):
                frames += batch.num_rows - batch.column("id").null_count
                sizes += [len(of) for of in batch.column("picture").to_pylist() if of]
        times.append(time.process_time() - began)
        if abs(frames - seconds * SECOND // _EVERY) > 1:
            raise RuntimeError(f"{frames} frames of {seconds} s, one each {_EVERY} us")
    return seconds / min(times), sum(sizes) / len(sizes)


def compare_channels(screen: Screen, folder: Path, frames: Sequence[np.ndarray], of: Size) -> None:
    """How many channels of 720p at 25 frames a second a core carries, segments and all."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        segments(frames, Path(made), of.seconds)
        count, size = carried(Path(made), of.seconds, of.rounds)
    note = f"{of.seconds} s in 2 s segments, every=200 ms"
    screen.add(Row("720p, one core", "channels that are read", count, "channels", 15.0, note=note))
    screen.add(Row("720p, one core", "a picture", size / 1000, "kB"))


@dataclass(frozen=True)
class Size:
    """How much is measured: excerpts of a film, rounds, and seconds of a channel."""

    excerpts: int
    rounds: int
    seconds: int


def main() -> None:
    """Measure, and write the result and the page's parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short, and nothing is written")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    need("benchmarks.video", ["av", "scenedetect"])
    folder = given.clips or fetch(_CLIPS)["bunny"].parent.parent
    of = Size(20, 1, 4) if given.quick else Size(90, given.rounds, 20)
    about, sources, screen = machine(), clips(folder), Screen()
    for seed in given.seeds:
        truth = made(sources, seed, of.excerpts)
        path = encoded(truth.frames, given.scratch / "shots.mp4", _SIZE, 28)
        compare_shots(screen, seed, truth, path)
    large = next(path for path in folder.rglob("bigbuckbunny.mp4"))
    whole = [shown.frame.to_ndarray(format="rgb24") for shown in decoded(str(large), Faults())]
    compare_rates(screen, encoded(whole, given.scratch / "720p.mp4", _LARGE, 23), of.rounds)
    compare_channels(screen, given.scratch, whole, of)
    screen.table("video")
    if given.quick:
        return
    rows = [row.to_dict() for row in screen.rows]
    told = {"machine": about, "seeds": given.seeds, "clips": len(sources), "rows": rows}
    (RESULTS / "video.json").write_text(json.dumps(told, indent=1) + "\n")
    PAGE.write_text(with_video(PAGE.read_text(), told))


if __name__ == "__main__":
    main()
