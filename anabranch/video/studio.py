"""Makes what a programme shows: encoded transport-stream segments, by FFmpeg's own encoders."""

from __future__ import annotations

import datetime as dt
import hashlib
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.errors import extra
from anabranch.video import channels, scenes
from anabranch.video import lettering as letters
from anabranch.video.channels import SCENES, SECOND, SEGMENT, STYLES, Programme, Shot, Style
from anabranch.video.clips import cache_folder, fetch
from anabranch.video.lettering import lettering

__all__ = ["record", "recorded", "segment_begin", "segment_name"]

_WIDE, _HIGH = 480, 270  # of footage while it is edited
_FADE = 8  # frames
_LEAST, _MOST = 16, 235  # luma of black and white
_NAME = "%Y%m%dT%H%M%S.ts"
_HITS = 40  # damaged bytes of a segment


def segment_name(begin: int) -> str:
    """The name of a segment by its beginning.

    Examples
    --------
    >>> segment_name(1_736_143_204_000_000)
    '20250106T060004.ts'
    """
    return dt.datetime.fromtimestamp(begin / SECOND, dt.UTC).strftime(_NAME)


def segment_begin(name: str) -> int:
    """When the segment of this name begins.

    Examples
    --------
    >>> segment_begin("20250106T060004.ts")
    1736143204000000
    """
    return int(dt.datetime.strptime(name, _NAME).replace(tzinfo=dt.UTC).timestamp()) * SECOND


def recorded(programme: Programme) -> dict[str, list[Path]]:
    """The segments of a programme by channel, recorded now or earlier; clips are fetched."""
    sources = (channels.__file__, scenes.__file__, letters.__file__, __file__)
    made = "".join(Path(source).read_text() for source in sources)
    name = hashlib.sha256(f"{programme!r}{made}".encode()).hexdigest()[:16]
    final = cache_folder() / "news" / name
    if not final.exists():
        clips = fetch(programme.clips)
        final.parent.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".", dir=final.parent))
        try:
            record(programme, clips, hidden)
            with suppress(OSError):  # somebody else has recorded it meanwhile
                hidden.rename(final)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    return {place.name: sorted(place.glob("*.ts")) for place in sorted(final.iterdir())}


def record(programme: Programme, clips: Mapping[str, Path], folder: Path) -> dict[str, list[Path]]:
    """Write the segments of every channel, and return their paths by channel, in order.

    A segment that the programme damages or misses is damaged, or is not there.
    """
    found = {}
    for style in STYLES:
        shots = programme.of(style.channel)
        if shots:
            place = folder / style.channel
            place.mkdir(parents=True)
            _encode(style, shots, clips, place)
            found[style.channel] = _named(place, shots[0].begin)
    for (channel, number), spoil in (
        (programme.missing, lambda path: path.unlink()),
        (programme.damaged, _damage),
    ):
        if channel in found and number < len(found[channel]):
            spoil(found[channel][number])
    return {channel: [path for path in paths if path.exists()] for channel, paths in found.items()}


def _named(folder: Path, begin: int) -> list[Path]:
    """The segments of a channel under the names of their times."""
    numbered = sorted(folder.glob("[0-9]*.ts"))
    return [
        path.rename(folder / segment_name(begin + n * SEGMENT)) for n, path in enumerate(numbered)
    ]


def _damage(path: Path) -> None:
    data, draw = bytearray(path.read_bytes()), random.Random(path.name)
    for _ in range(_HITS):
        data[draw.randrange(len(data))] ^= 0xFF
    path.write_bytes(data)


def _encode(style: Style, shots: list[Shot], clips: Mapping[str, Path], folder: Path) -> None:
    with extra("video", "a made-up channel", "av"):
        import av
    options = {
        **{"segment_time": f"{SEGMENT / SECOND:g}", "segment_format": "mpegts"},
        "segment_time_delta": "0.02",  # half a frame: times of frames are rounded
        # Times as they are given: the muxer would otherwise add the delay of a decoder.
        **{"reset_timestamps": "0", "segment_format_options": "mpegts_copyts=1"},
    }
    with av.open(str(folder / "%06d.ts"), "w", format="segment", options=options) as output:
        # No key frames but those that begin a segment, each with all that a decoder needs.
        only = {"sc_threshold": "1000000000", "flags": "+bitexact-global_header"}
        stream: Any = output.add_stream(style.codec, rate=style.rate, options=only)
        stream.width, stream.height, stream.pix_fmt = *style.size, "yuv420p"
        stream.bit_rate = style.bit_rate
        stream.codec_context.gop_size = style.rate * SEGMENT // SECOND
        stream.codec_context.thread_count = 1
        for planes in _frames(style, shots, clips):
            frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
            output.mux(stream.encode(frame))
        output.mux(stream.encode())


def _frames(style: Style, shots: list[Shot], clips: Mapping[str, Path]) -> Iterator[np.ndarray]:
    """Every frame of a channel, as planes one below the other."""
    first = shots[0].begin
    for shot in shots:
        begin, end = (-(-(t - first) * style.rate // SECOND) for t in (shot.begin, shot.end))
        overlay = _overlay(style, shot)
        for n in range(begin, end):
            t = n / style.rate - (shot.begin - first) / SECOND
            planes = _planes(style, shot, t, clips)
            if shot.fade:
                light = min(1.0, (n - begin + 1) / _FADE, (end - n) / _FADE)
                _dim(planes, style.size[1], light)
            np.copyto(planes, overlay[0], where=overlay[1])
            yield planes


def _planes(style: Style, shot: Shot, t: float, clips: Mapping[str, Path]) -> np.ndarray:
    wide, high = style.size
    if shot.scene not in SCENES:
        return _graphic(style, shot.scene).copy()
    import av

    picture = _picture(shot, t, clips)
    if shot.mirrored:
        picture = picture[:, ::-1]
    if shot.ruined:
        picture = _ruin(picture)
    y, x = (int(side * style.crop) for side in picture.shape[:2])
    cut = np.ascontiguousarray(picture[y : picture.shape[0] - y, x : picture.shape[1] - x])
    frame = av.VideoFrame.from_ndarray(cut, format="rgb24")
    planes: np.ndarray = frame.reformat(
        wide, high, "yuv420p", interpolation="BILINEAR"
    ).to_ndarray()
    planes[:high] = _curve(style.gamma)[planes[:high]]
    return planes


def _ruin(picture: np.ndarray) -> np.ndarray:
    """The middle of a picture alone, upside down and as a negative: nothing need know it."""
    high, wide = picture.shape[0] // 3, picture.shape[1] // 3
    return 255 - picture[2 * high : high : -1, wide : 2 * wide]


def _picture(shot: Shot, t: float, clips: Mapping[str, Path]) -> np.ndarray:
    """What a scene looks like `t` seconds into a shot; over a still the camera moves slowly."""
    scene = SCENES[shot.scene]
    times, frames = _footage(str(clips[scene.clip]), scene.begin, scene.end)
    if len(frames) > 1:
        at = int(np.searchsorted(times, scene.begin + shot.lead + t, side="right"))
        return frames[max(at - 1, 0)]
    x = int(min(t, 8.0) * _WIDE / 200)
    return frames[0][: _HIGH - _HIGH // 20, x : x + _WIDE - _WIDE // 20]


@lru_cache(maxsize=6)
def _footage(path: str, begin: float, end: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """The frames of a stretch of a clip, cut to 16:9, and their times from the clip's beginning."""
    with extra("video", "a made-up channel", "av"):
        import av
    times, frames, first = [], [], None
    with av.open(path) as opened:
        for frame in opened.decode(video=0):
            first = frame.time if first is None else first
            t = (frame.time or 0.0) - (first or 0.0)
            if begin <= t < end:
                times.append(t)
                frames.append(_edited(av, frame))
            elif t >= end:
                break
    return np.array(times), frames


def _edited(av: Any, frame: Any) -> np.ndarray:
    whole = frame.to_ndarray(format="rgb24")
    high, wide = whole.shape[:2]
    w, h = min(wide, high * 16 // 9), min(high, wide * 9 // 16)
    x, y = (wide - w) // 2, (high - h) // 4  # of what is tall, the head
    cut = av.VideoFrame.from_ndarray(np.ascontiguousarray(whole[y : y + h, x : x + w]))
    scaled: np.ndarray = cut.reformat(_WIDE, _HIGH, interpolation="AREA").to_ndarray()
    return scaled


@cache
def _curve(gamma: float) -> np.ndarray:
    light = np.clip((np.arange(256) - _LEAST) / (_MOST - _LEAST), 0, 1) ** gamma
    return (_LEAST + light * (_MOST - _LEAST)).round().astype(np.uint8)


def _dim(planes: np.ndarray, high: int, light: float) -> None:
    for part, black in ((planes[:high], _LEAST), (planes[high:], 128)):
        part[:] = (black + (part.astype(np.int16) - black) * light).astype(np.uint8)


@lru_cache(maxsize=6)
def _graphic(style: Style, scene: str) -> np.ndarray:
    """An ident, a test card, or black."""
    wide, high = style.size
    planes = np.full((high * 3 // 2, wide), 128, np.uint8)
    planes[:high] = _LEAST
    if scene == "card":
        for n in range(8):
            stripe = slice(n * wide // 8, (n + 1) * wide // 8)
            planes[:high, stripe] = _MOST - n * 28
            planes[high:, stripe] = 60 + (n * 67) % 140
    elif scene == "ident":
        number = STYLES.index(style)
        y, x = np.mgrid[:high, :wide]
        waves = np.sin((y * (number - 1) / high + x * (2 - number) / wide) * (8 + 5 * number))
        planes[:high] = style.luma + (50 * waves).astype(int)
        _colour(planes, style, np.ones((high, wide), bool))
        name = lettering(style.channel, high // 30)
        top, left = (high - name.shape[0]) // 3, (wide - name.shape[1]) // (2 + number)
        planes[top : top + name.shape[0], left : left + name.shape[1]][name] = _MOST
    return planes


def _colour(planes: np.ndarray, style: Style, mask: np.ndarray) -> None:
    """Give the channel's colours to what is under a mask of the luma's size."""
    high, wide = mask.shape
    size = high * wide // 4
    chroma = planes[high:].reshape(-1)
    under = mask[::2, ::2].reshape(-1)
    for n, value in enumerate(style.colours):
        chroma[n * size : (n + 1) * size][under] = value


def _overlay(style: Style, shot: Shot) -> tuple[np.ndarray, np.ndarray]:
    """Logo and caption as planes, and where they cover what is under them."""
    wide, high = style.size
    drawn = np.zeros((high * 3 // 2, wide), np.uint8)
    covered = np.zeros((high, wide), bool)
    boxes = []
    if shot.scene in SCENES:
        boxes.append((lettering(style.channel[0], high // 80), high // 20, wide - wide // 8))
    if shot.caption:
        boxes.append((lettering(shot.caption, high // 110), high - high // 6, wide // 20))
    for text, top, left in boxes:
        pad = high // 60
        box = np.s_[top - pad : top + text.shape[0] + pad, left - pad : left + text.shape[1] + pad]
        covered[box] = True
        drawn[box] = style.luma
        drawn[top : top + text.shape[0], left : left + text.shape[1]][text] = _MOST
    _colour(drawn, style, covered)
    half = covered[::2, ::2].reshape(-1)
    return drawn, np.concatenate([covered, np.concatenate([half, half]).reshape(high // 2, wide)])
