"""How many copies of key frames are found at precision 1.0, by what was done to them.

``python -m benchmarks.video_recall`` writes results/video-recall.md. The weights of the layout were
chosen with the first set of transformations in mind; the second set was held out. The network is
measured where its extra is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from anabranch.errors import AnabranchError
from anabranch.video.calibration import Calibration, calibrate
from anabranch.video.clips import CLIPS, fetch
from anabranch.video.layout import features, inner
from anabranch.video.lettering import lettering
from anabranch.video.network import lite0
from anabranch.video.planes import from_rgb

RESULT = Path(__file__).parent / "results" / "video-recall.md"
WIDE, HIGH = 480, 270
LATER = 0.2  # seconds
Change = Callable[[np.ndarray], np.ndarray]


def scaled(picture: np.ndarray, wide: int = WIDE, high: int = HIGH) -> np.ndarray:
    """A picture in another size."""
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
    found: np.ndarray = frame.reformat(wide, high, interpolation="AREA", threads=1).to_ndarray()
    return found


def encoded(picture: np.ndarray) -> np.ndarray:
    """Once through a bad JPEG."""
    coder = av.CodecContext.create("mjpeg", "w")
    coder.width, coder.height, coder.pix_fmt = WIDE, HIGH, "yuvj420p"
    coder.time_base = Fraction(1, 25)
    coder.options = {"qmin": "20", "qmax": "20"}
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuvj420p")
    frame.pts = 0
    packets = [*coder.encode(frame), *coder.encode(None)]
    reader = av.CodecContext.create("mjpeg", "r")
    found: np.ndarray = reader.decode(packets[0])[0].to_ndarray(format="rgb24")
    return found


def cropped(share: float) -> Change:
    """So much cut away on each side."""
    y, x = int(HIGH * share), int(WIDE * share)
    return lambda p: scaled(p[y : HIGH - y, x : WIDE - x])


def light(gamma: float = 1.0, plus: float = 0.0, contrast: float = 1.0) -> Change:
    """Another curve of brightness."""
    levels = ((np.arange(256) / 255) ** gamma * 255 - 128) * contrast + 128 + plus
    curve = np.clip(levels, 0, 255).astype(np.uint8)
    return lambda p: curve[p]


def boxed(top: float, left: float, high: float, wide: float, text: str) -> Change:
    """A coloured box with letters: a logo, a caption, a ticker."""
    y, x, h, w = int(top * HIGH), int(left * WIDE), int(high * HIGH), int(wide * WIDE)
    letters = lettering(text, max(1, min(h // 9, w // (6 * len(text)))))

    def put(picture: np.ndarray) -> np.ndarray:
        made = picture.copy()
        made[y : y + h, x : x + w] = (20, 30, 120)
        made[y + 2 : y + 2 + letters.shape[0], x + 4 : x + 4 + letters.shape[1]][letters] = 255
        return made

    return put


def inside(high: float, wide: float) -> Change:
    """Smaller, on black."""
    h, w = int(HIGH * high), int(WIDE * wide)

    def put(picture: np.ndarray) -> np.ndarray:
        made = np.zeros_like(picture)
        y, x = (HIGH - h) // 2, (WIDE - w) // 2
        made[y : y + h, x : x + w] = scaled(picture, w, h)
        return made

    return put


def window(picture: np.ndarray) -> np.ndarray:
    """A small picture of something else in a corner."""
    made = picture.copy()
    made[20:90, 20:140] = scaled(picture[::-1, ::-1], 120, 70)
    return made


def every(*changes: Change) -> Change:
    """One after the other."""

    def put(picture: np.ndarray) -> np.ndarray:
        for change in changes:
            picture = change(picture)
        return picture

    return put


LOGO = boxed(0.05, 0.83, 0.11, 0.13, "NEWS")
CAPTION = boxed(0.78, 0.05, 0.18, 0.9, "BRIDGE SHUT IN RIGA")
TUNED: dict[str, Change] = {
    "jpeg": encoded,
    "scale 0.3": lambda p: scaled(scaled(p, WIDE * 3 // 10, HIGH * 3 // 10)),
    "brightness +40": light(plus=40),
    "gamma 1.5": light(1.5),
    "contrast 0.7": light(contrast=0.7),
    "crop 10 %": cropped(0.1),
    "caption 18 %": CAPTION,
    "logo": LOGO,
    "letterbox": inside(0.76, 1.0),
    "mix": every(light(0.85, 10, 0.9), cropped(0.04), LOGO, CAPTION, encoded),
}
HELD_OUT: dict[str, Change] = {
    "caption 30 %": boxed(0.66, 0.05, 0.3, 0.9, "TALKS BEGIN IN LUND"),
    "ticker on top": boxed(0.0, 0.0, 0.12, 1.0, "ROCKET LEAVES CADIZ"),
    "logo top left": boxed(0.05, 0.04, 0.11, 0.13, "WEST"),
    "picture in picture": window,
    "crop 15 %": cropped(0.15),
    "hard mix": every(
        light(1.3, -20), cropped(0.08), boxed(0.0, 0.0, 0.12, 1.0, "POWER CUT"), CAPTION, encoded
    ),
    "squeeze": inside(0.7, 0.7),
    "mirror": lambda p: np.ascontiguousarray(p[:, ::-1]),
}
APART = ("squeeze", "mirror")  # reported, and not part of the mean


def key_frames() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """A picture each second of every clip, the same a little later, and of which film it is."""
    now, later, film = [], [], []
    for name, path in fetch().items():
        with av.open(str(path)) as opened:
            frames = [f.to_ndarray(format="rgb24") for f in opened.decode(video=0)]
            rate = float(opened.streams.video[0].average_rate or 1)
        step, shift = max(1, round(rate)), round(rate * LATER)
        for at in range(0, max(1, len(frames) - shift), step):
            after = frames[min(at + shift, len(frames) - 1)]
            one, other = scaled(frames[at]), scaled(after)
            if np.abs(one.astype(int) - other).mean() < 25:  # no cut between
                now.append(one)
                later.append(other)
                # Two clips are of one flight over the same town.
                film.append("street" if name == "towers" else name)
    return np.stack(now), np.stack(later), film


def layout(pictures: np.ndarray) -> np.ndarray:
    """Unit vectors of the layout."""
    return unit(np.stack([features(from_rgb(picture)) for picture in pictures]))


def unit(rows: np.ndarray) -> np.ndarray:
    """Vectors of length 1."""
    long = rows.astype(np.float64)
    found: np.ndarray = long / np.linalg.norm(long, axis=1, keepdims=True)
    return found


def methods() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Ways to describe pictures."""
    found: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "layout": layout,
        "layout, three views": lambda p: np.stack(
            [layout(p), *(unit(np.stack(of)) for of in zip(*map(inner, p), strict=True))], axis=1
        ),
    }
    try:
        network = lite0()
    except AnabranchError:
        return found

    def embedding(pictures: np.ndarray) -> np.ndarray:
        return unit(network.embed(pictures))

    return {
        **found,
        "network": embedding,
        "both": lambda p: np.concatenate([layout(p), embedding(p)], axis=1),
        "forty concepts": lambda p: network(p).astype(np.float64),
    }


def measure(ways: dict[str, Callable[[np.ndarray], np.ndarray]]) -> dict[str, Calibration]:
    """Thresholds, and recall by transformation."""
    now, later, film = key_frames()
    copies = {
        "0.2 s later": later,
        **{
            # A mixture is of what comes a little later, as it is on another channel.
            name: np.stack([change(p) for p in (later if "mix" in name else now)])
            for name, change in {**TUNED, **HELD_OUT}.items()
        },
    }
    return {
        way: calibrate(
            describe(now), film, {name: describe(of) for name, of in copies.items()}, APART
        )
        for way, describe in ways.items()
    }


def report(found: dict[str, Calibration]) -> str:
    """A table, one row for each transformation."""
    some = next(iter(found.values()))
    lines = [
        f"{some.frames} key frames of {len(CLIPS)} clips and stills. Recall in per cent at the "
        "least threshold with which no two frames of different films match, copies included. The "
        "weights of the layout were chosen for the first set; the second was held out. Squeeze and "
        "mirror count neither for the threshold nor for the mean. Of three views (whole, inner 84 "
        "and 70 per cent) the best two count. The network is centred by the mean of these clips, "
        "which flatters it a little.",
        "",
        "| | " + " | ".join(found) + " |",
        "|---|" + "---:|" * len(found),
        "| threshold | " + " | ".join(f"{of.threshold:.2f}" for of in found.values()) + " |",
    ]
    for title, names in (("tuned", ["0.2 s later", *TUNED]), ("held out", [*HELD_OUT])):
        for name in names:
            cells = " | ".join(f"{100 * of.recall[name]:.0f}" for of in found.values())
            lines.append(f"| {name} | {cells} |")
        counted = [name for name in names if name not in APART]
        means = " | ".join(
            f"**{100 * np.mean([of.recall[name] for name in counted]):.0f}**"
            for of in found.values()
        )
        lines.append(f"| **{title}, mean of {len(counted)}** | {means} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    RESULT.write_text(report(measure(methods())))
    print(RESULT.read_text())
