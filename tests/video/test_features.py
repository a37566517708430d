"""Sampling, planes, signatures and the layout: equal to their twins, to the last bit."""

from __future__ import annotations

from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidCall
from anabranch.video import layout, signature
from anabranch.video.calibration import calibrate
from anabranch.video.pictures import decode, encode
from anabranch.video.planes import Planes, area, from_rgb, planes_of, to_rgb
from anabranch.video.sampling import taken
from tests.examples import examples
from tests.video import twin

SEEDS = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(["noise", "smooth", "flat", "black", "steps"])


def picture(seed: int, kind: str, height: int = 72, width: int = 128) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind == "noise":
        return random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind in ("flat", "black"):
        colour = random.integers(0, 256, 3) if kind == "flat" else np.zeros(3)
        return np.broadcast_to(colour, (height, width, 3)).astype(np.uint8)
    coarse = random.integers(0, 256, (4, 5, 3))
    if kind == "steps":
        return np.kron(coarse, np.ones((height // 4 + 1, width // 5 + 1, 1)))[
            :height, :width
        ].astype(np.uint8)
    across = np.linspace(0, 6, width)[None, :, None] * random.random(3)
    down = np.linspace(0, 6, height)[:, None, None] * random.random(3)
    return (127 + 120 * np.sin(across + down)).astype(np.uint8)


# ---------------------------------------------------------------- sampling


@given(
    ticks=st.integers(1, 10_000),
    base=st.integers(-(10**15), 10**15),
    every=st.integers(1, 3_000_000),
    count=st.integers(1, 80),
)
def test_at_a_constant_rate_every_slot_has_one_frame(
    ticks: int, base: int, every: int, count: int
) -> None:
    """Each slot that a frame begins in, or passes, is filled once; cutting changes nothing."""
    duration = ticks * 40
    times = base + np.arange(count) * duration
    chosen = taken(times, duration, every)
    assert chosen.tolist() == [bool(taken(int(t), duration, every)) for t in times]
    slots = (times[chosen] // every).tolist()
    assert len(set(slots)) == len(slots)
    if every >= duration:
        first, last = int((base - duration) // every), int(times[-1] // every)
        assert slots == list(range(first + 1, last + 1))
    else:
        assert chosen.all()


# ---------------------------------------------------------------- planes


@settings(max_examples=examples(30))
@given(SEEDS, st.integers(1, 90), st.integers(1, 90), st.integers(1, 12), st.integers(1, 12))
def test_areas_equal_those_of_matrices(
    seed: int, height: int, width: int, rows: int, columns: int
) -> None:
    random = np.random.default_rng(seed)
    for bits, kind in ((8, np.uint8), (10, np.uint16)):
        plane = random.integers(0, 1 << bits, (height, width)).astype(kind)
        assert np.array_equal(
            area(plane, rows, columns, bits), twin.area(plane, rows, columns, bits)
        )
        mean = area(plane, 1, 1, bits)[0, 0]
        exact = Fraction(int(plane.sum()), plane.size << (bits - 8)) + Fraction(1, 2)
        assert mean == min(255, exact.__floor__())


@pytest.mark.parametrize(
    "form", ["yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuv420p10le", "gray", "rgb24", "nv12"]
)
def test_planes_of_a_frame_are_those_of_its_picture(form: str) -> None:
    av = pytest.importorskip("av")
    colours = picture(5, "smooth", 90, 166)  # lines that end before their buffer does
    frame = av.VideoFrame.from_ndarray(colours, format="rgb24").reformat(format=form, threads=1)
    frame.color_range = 2 if form.startswith(("yuvj", "gray")) else 1
    found, want = planes_of(frame), from_rgb(colours)
    assert (found.y.shape, found.u.shape, found.v.shape) == ((72, 128), (36, 64), (36, 64))
    assert int(np.abs(found.y.astype(int) - want.y).max()) <= 6
    if form == "gray":
        assert (found.u == 128).all() and (found.v == 128).all()
    else:
        assert np.abs(found.u.astype(int) - want.u).max() <= 8
        assert np.abs(found.v.astype(int) - want.v).max() <= 8


@pytest.mark.parametrize("size", [(90, 160), (54, 38), (36, 500)])
def test_a_jpeg_is_read_by_whole_numbers_alone(size: tuple[int, int]) -> None:
    """Equal to the last bit to what the decoder's planes say; FFmpeg's conversion is not."""
    av = pytest.importorskip("av")
    height, width = size
    frame = av.VideoFrame.from_ndarray(picture(9, "noise", *size), format="rgb24")
    jpeg = encode(frame, (width, height))
    coder = av.CodecContext.create("mjpeg", "r")
    (shown,) = [*coder.decode(av.Packet(jpeg)), *coder.decode(None)]
    planes = np.split(shown.to_ndarray().ravel(), [height * width, height * width * 5 // 4])
    y, u, v = (p.reshape(-1, w) for p, w in zip(planes, (width, *[width // 2] * 2), strict=True))
    found = decode(jpeg)
    assert found.dtype == np.uint8 and np.array_equal(found, twin.rgb(y, u, v))


@pytest.mark.parametrize("form", ["yuv420p", "yuvj422p", "yuv444p", "yuv420p10le", "gray", "nv12"])
def test_a_frame_of_any_form_has_its_colours(form: str) -> None:
    av = pytest.importorskip("av")
    colours = picture(5, "smooth", 90, 166)
    if form == "gray":
        colours = np.repeat(colours[:, :, :1], 3, axis=2)
    frame = av.VideoFrame.from_ndarray(colours, format="rgb24").reformat(format=form, threads=1)
    frame.color_range = 2 if form.startswith(("yuvj", "gray")) else 1
    assert np.abs(to_rgb(frame).astype(int) - colours).max() <= 14  # colour has half of both sides


# ---------------------------------------------------------------- layout and signature


@settings(max_examples=examples(10))
@given(SEEDS, KINDS)
def test_features_equal_the_twins_to_the_last_bit(seed: int, kind: str) -> None:
    planes = from_rgb(picture(seed, kind))
    found = layout.features(planes)
    assert found.tobytes() == twin.features(planes.y, planes.u, planes.v).tobytes()
    assert signature.signature(planes) == twin.signature(planes.y, planes.u, planes.v)
    assert np.isfinite(found).all()
    assert kind != "black" or not found.any()


@given(SEEDS, SEEDS, KINDS)
def test_distances_equal_the_twins(one: int, other: int, kind: str) -> None:
    first, second = (signature.signature(from_rgb(picture(s, kind))) for s in (one, other))
    assert signature.distance(first, second) == pytest.approx(twin.distance(first, second))
    assert signature.distance(first, second) == signature.distance(second, first)
    assert signature.distance(first, first) == 0


def test_the_layout_is_version_3() -> None:
    """What is stored must not change its meaning: another number needs another version."""
    rows, columns = np.indices((90, 160))
    colours = [rows * 3 + columns, rows * columns // 40, 255 - columns * 3 // 2]
    planes = from_rgb((np.stack(colours, 2) % 256).astype(np.uint8))
    found = layout.features(planes)
    blocks = np.split(found.astype(float) ** 2, [64, 192, 320, 448])
    assert [round(float(block.sum()), 5) for block in blocks] == [0.94454, 0.36, 0.49, 0.49, 0.49]
    assert (layout.VERSION, layout.SIZE, signature.BYTES) == ("v3", 576, 320)
    assert sha256(found.astype("<f4").tobytes()).hexdigest()[:16] == "732aa48e337dcd15"
    assert sha256(signature.signature(planes)).hexdigest()[:16] == "3d66638ff40c8105"
    assert layout.phash(planes) == 2101727666278582820


def test_a_copy_is_near_and_another_picture_is_not() -> None:
    whole = picture(3, "smooth", 180, 320)
    darker = (whole * 0.8).astype(np.uint8)
    of = [layout.features(from_rgb(each)) for each in (whole, darker, picture(4, "steps"))]
    unit = [each / np.linalg.norm(each) for each in of]
    assert unit[0] @ unit[1] > 0.95 > 0.5 > unit[0] @ unit[2]
    hashes = [layout.phash(from_rgb(each)) for each in (whole, darker)]
    assert (hashes[0] ^ hashes[1]).bit_count() <= 6


@pytest.mark.parametrize(
    ("soft", "least"),
    [
        (lambda y, x: 230 - 28 * ((2 * y - 1) ** 2 + (2 * x - 1) ** 2), 0.85),
        (lambda y, x: 127 * (y + x), 0.6),
        (lambda y, x: 255 * x + 0 * y, 0.8),
    ],
    ids=["vignette", "diagonal", "slope"],
)
def test_a_soft_picture_is_like_its_own_copy(soft: Any, least: float) -> None:
    """All that it has is the arch: what an encoder leaves beside that says nothing about it."""
    rows, columns = np.indices((270, 480))
    levels = np.clip(soft(rows / 270, columns / 480), 0, 255).astype(np.uint8)
    colours = np.repeat(levels[:, :, None], 3, axis=2)
    noisy = np.clip(colours + np.random.default_rng(1).normal(0, 2, (270, 480, 1)), 0, 255)
    copies = [jpeg(colours), noisy.astype(np.uint8)]
    of = [layout.features(from_rgb(each)).astype(float) for each in (colours, *copies)]
    assert all(np.linalg.norm(each[:64]) < 0.1 for each in of)
    unit = [each / np.linalg.norm(each) for each in of]
    assert unit[0] @ unit[1] > least


def jpeg(colours: np.ndarray) -> np.ndarray:
    """Once through a bad encoder."""
    av = pytest.importorskip("av")
    coder = av.CodecContext.create("mjpeg", "w")
    coder.height, coder.width = colours.shape[:2]
    coder.pix_fmt, coder.time_base = "yuvj420p", Fraction(1, 25)
    coder.options = {"qmin": "20", "qmax": "20"}
    frame = av.VideoFrame.from_ndarray(colours, format="rgb24").reformat(format="yuvj420p")
    frame.pts = 0
    packets = [*coder.encode(frame), *coder.encode(None)]
    return decode(b"".join(bytes(packet) for packet in packets))


@given(SEEDS, KINDS)
def test_greys_count_every_pixel(seed: int, kind: str) -> None:
    planes = from_rgb(picture(seed, kind))
    levels = layout.grey(planes)
    centred = layout.grey_centred(levels)
    assert levels.sum() == centred.sum() == 9216
    shift = 128 - int(np.floor(Fraction(int(planes.y.sum()), 9216) + Fraction(1, 2)))
    want = np.bincount(np.clip(planes.y.astype(int) + shift, 0, 255).ravel(), minlength=256)
    assert centred.tolist() == want.tolist()


# ---------------------------------------------------------------- calibrate


def test_calibrate_equals_a_loop_over_pairs() -> None:
    random = np.random.default_rng(2)
    frames = random.normal(size=(12, 5))
    clips = list("aaabbbcccddd")
    copies = {
        "near": frames + random.normal(size=frames.shape) / 9,
        "far": random.normal(size=(12, 5)),
    }

    def cosine(one: Any, other: Any) -> float:
        return float(one @ other / np.sqrt(one @ one) / np.sqrt(other @ other))

    worst = max(
        cosine(frames[i], other[j])
        for other in (frames, *copies.values())
        for i in range(12)
        for j in range(12)
        if clips[i] != clips[j]
    )
    found = calibrate(frames, clips, copies)
    assert found.threshold == pytest.approx(worst)
    for name, each in copies.items():
        hits = [cosine(frame, copy) > worst for frame, copy in zip(frames, each, strict=True)]
        assert found.recall[name] == sum(hits) / 12
    assert found.frames == 12


def test_the_best_views_count_and_copies_apart_do_not_move_the_threshold() -> None:
    random = np.random.default_rng(3)
    frames, copies = random.normal(size=(2, 6, 3, 4))
    clips = list("aabbcc")

    def cosine(one: Any, other: Any) -> float:
        pairs = ((v, w) for v in one for w in other)
        return max(float(v @ w / np.sqrt(v @ v) / np.sqrt(w @ w)) for v, w in pairs)

    def worst(*others: Any) -> float:
        places = [(i, j) for i in range(6) for j in range(6) if clips[i] != clips[j]]
        return max(cosine(frames[i], other[j]) for other in others for i, j in places)

    found = calibrate(frames, clips, {"near": frames, "odd": copies}, apart=["odd"])
    assert found.threshold == pytest.approx(worst(frames))
    alike = [cosine(f, c) > found.threshold for f, c in zip(frames, copies, strict=True)]
    assert found.recall == {"near": 1.0, "odd": sum(alike) / 6}
    assert calibrate(frames, clips, {"odd": copies}).threshold == pytest.approx(
        worst(frames, copies)
    )


def test_calibrate_says_what_is_wrong() -> None:
    rows = np.eye(3)
    for message, call in {
        "clips must name the clip of each of 3 vectors": (rows, ["a"], {}),
        "at least two different clips": (rows, ["a", "a", "a"], {}),
        "must have the shape of vectors, (3, 3), got (2, 3)": (rows, list("abc"), {"x": rows[:2]}),
        "must be rows of vectors or of views, got an array of shape (3,)": (
            rows[0],
            list("abc"),
            {},
        ),
    }.items():
        with pytest.raises(InvalidCall) as error:
            calibrate(*call)
        assert message in str(error.value)


def test_planes_are_compared_by_identity() -> None:
    """Arrays have no single answer to ==."""
    planes = from_rgb(picture(1, "flat"))
    assert planes == planes and planes != Planes(planes.y, planes.u, planes.v)
