"""Past the matrix product: bytes and balls against one float32 product, on one core.

The right block is one that a window holds: its bytes, and its balls where they pay, are made once
and used by every batch that comes; making them is timed by itself. Left blocks are new each time.
Vectors without a preferred direction have no near ones: some left rows are right ones, moved a
little, so that thousands of pairs match. The pairs found are those of the float64 decision, and
those of the product but for its rounding.

Other measures and the other direction are compared with the same product: of vectors of length 1 a
distance or a dot product says what the cosine does.

Where rows crowd about the threshold, bytes cannot tell most pairs apart and there are many to
decide, so what is chosen is to cost no more than the product, which then does all the work. There
both blocks are new each time, and the first pairs of a matcher count. Where stored rows meet more
than balls wait for, finding out that these do not pay counts, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import anabranch as ab
from anabranch.correlation.filters import choosing
from anabranch.correlation.filters.balls import likely_share
from anabranch.correlation.filters.choosing import _SEEN_FIRST
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.correlation.matching import Matcher
from anabranch.errors import AnabranchError
from anabranch.flow.blocks import Block
from anabranch.predicates import Predicate
from benchmarks.agreeing import agreed, band_of, codes
from benchmarks.correlate_kernel import directions, one_core, specification, unit
from benchmarks.measuring import Row, Screen, in_turns, rate, ratio

__all__ = ["crowded", "filters", "scenes"]

_THRESHOLD = 0.9
_SCENES = 300
_PLANTED = 1e-5  # of all pairs: near ones, of which two thirds match
_SEED = 30
_SPAN = 60_000_000


def filters(screen: Screen, quick: bool) -> dict[str, Any]:
    """Rows of several kinds, cosine of at least 0.9; of films at least 0.99 as well."""
    kind = type(available()[0]).__name__ if available() else "none"
    screen.step(f"filters: instructions for bytes: {kind}")
    few, many, rounds = (2000, 8000, 3) if quick else (12_000, 48_000, 5)
    found: dict[str, Any] = {"instructions": kind}
    with one_core():
        for name, (make, width, threshold, target) in _DATA.items():
            if quick and make is _films:  # so few frames of it have no pairs
                continue
            rows = (few, many) if width < 500 else (few, many // 2)
            if (data := make(rows, width)) is None:
                screen.miss("filters", f"{name}, d={width}", "its packages are not installed")
                continue
            screen.step(f"filters: {name}, {len(data[0]):,} x {len(data[1]):,}, d={width}")
            goal = None if quick else target
            found[name] = _measure(screen, name, data, rounds, threshold, goal)
        for name, asked in _ASKED.items():
            screen.step(f"filters: {name}, {few:,} x {many:,}, d=64")
            data = _of_length_one(_isotropic((few, many), 64), asked.sign)
            goal = None if quick else _ASKED_GOAL
            found[name] = _measure(screen, name, data, rounds, _THRESHOLD, goal, asked)
        for crowd in _CROWDED:
            screen.step(f"filters: {crowd.name}")
            found[crowd.short] = _beside_product(screen, crowd, quick)
    return found


class _Asked(NamedTuple):
    """A condition that holds where `sign` times the cosine reaches the threshold."""

    where: Callable[[float], Predicate]
    sign: float
    value: Callable[[np.ndarray, np.ndarray], np.ndarray]  # of float64 rows, like a cosine


def _dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found: np.ndarray = (a * b).sum(axis=1)
    return found


def _nearness(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 - np.square(a - b).sum(axis=1) / 2
    return found


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found: np.ndarray = _dots(a, b) / np.sqrt(_dots(a, a) * _dots(b, b))
    return found


_COSINE = _Asked(lambda t: ab.cosine("v") >= t, 1.0, _cosines)
_ASKED = {
    "cosine <=": _Asked(lambda t: ab.cosine("v") <= -t, -1.0, _cosines),
    "dot >=": _Asked(lambda t: ab.dot("v") >= t, 1.0, _dots),
    "dot <=": _Asked(lambda t: ab.dot("v") <= -t, -1.0, _dots),
    "euclidean <=": _Asked(lambda t: ab.euclidean("v") <= math.sqrt(2 - 2 * t), 1.0, _nearness),
    "euclidean >=": _Asked(lambda t: ab.euclidean("v") >= math.sqrt(2 + 2 * t), -1.0, _nearness),
}
_ASKED_GOAL = 2.5


def _of_length_one(data: Data, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """The rows, of which many are near each other or, with a sign of -1, far."""
    assert data is not None
    return sign * unit(data[0]), unit(data[1])


def _measure(
    screen: Screen,
    name: str,
    data: tuple[np.ndarray, np.ndarray],
    rounds: int,
    threshold: float,
    target: float | None,
    asked: _Asked = _COSINE,
) -> dict[str, float]:
    left, right = data
    width = left.shape[1]
    matcher = Matcher(specification({"v": "array<float>"}, asked.where(threshold)))
    stored = _block(right)
    found: list[np.ndarray] = []

    def kernel() -> None:
        parts = list(matcher.matches(Pair(_block(left), stored, (_SPAN, _SPAN))))
        sides = ([part.left for part in parts], [part.right for part in parts])
        found[:] = [np.concatenate([np.empty(0, np.int64), *side]) for side in sides]

    began = time.process_time()
    kernel()
    first = time.process_time() - began
    for _ in range(_SEEN_FIRST // len(left)):  # so that stored rows have met as many as balls need
        kernel()
    a, b = unit(left), unit(right)
    out = np.empty((len(left), len(right)), np.float32)
    seconds = in_turns({"bare": lambda: np.dot(a, b.T, out=out), "kernel": kernel}, rounds)
    rows, columns = np.nonzero(out >= threshold if asked.sign > 0 else out <= -threshold)
    product = codes(rows, columns, len(right))
    matched = codes(found[0], found[1], len(right))
    count = comparisons(Pair(_block(left), stored, (_SPAN, _SPAN)))
    least = min(1000, count // 400_000)

    def value(pairs: np.ndarray, of: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        both = zip(of, np.divmod(pairs, len(right)), strict=True)
        return asked.sign * asked.value(*(side[at].astype(np.float64) for side, at in both))

    agreed(matched, product, (left, right), threshold, band_of(width), least, value)
    rate_of_matches = len(matched) / count
    reached = ratio(seconds["bare"], seconds["kernel"])
    build = (first - np.median(seconds["kernel"])) / len(right) * 1e6
    note = f"{rate(count, seconds['kernel']):.2e}/s, match rate {rate_of_matches:.1e}, first "
    note += f"use {build:.1f} us a stored row"
    screen.add(Row("filters", f"{name}, d={width}", reached, "of bare", target, note=note))
    return {
        "of bare": reached,
        "pairs": len(matched),
        "match rate": rate_of_matches,
        "first use us": build,
    }


class _Crowd(NamedTuple):
    """Rows about the threshold, of which a share matches.

    With `balls` so many new rows come that balls are made of the stored ones.
    """

    share: float
    measure: str = "cosine"
    width: int = 64
    balls: bool = False

    @property
    def short(self) -> str:
        """Its name among the details."""
        more = [self.measure] * (self.measure != "cosine") + [f"d={self.width}"] * (self.width > 64)
        return " ".join(["crowded", f"{self.share:g}", *more, *["balls"] * self.balls])

    @property
    def name(self) -> str:
        """What its row is called."""
        what = f"crowded about the threshold, {self.share:g} of pairs match, d={self.width}"
        if self.measure != "cosine":
            what += f", {self.measure}"
        return what + ", balls tried" * self.balls


_LIMITS: dict[str, Predicate] = {
    "cosine": ab.cosine("v") >= _THRESHOLD,
    "dot": ab.dot("v") >= _THRESHOLD,
    "euclidean": ab.euclidean("v") <= math.sqrt(2 - 2 * _THRESHOLD),
}


def _beside_product(screen: Screen, crowd: _Crowd, quick: bool) -> dict[str, float]:
    """What is chosen against the product alone, deciding included, on the worst of data."""
    few, many, rounds = (1500, 5000, 3) if quick else (4000, 16_000, 5 if crowd.balls else 7)
    parts = 4
    if crowd.balls:  # as many new rows come as stored ones meet before balls are made
        few, parts = (_SEEN_FIRST + few, 8)
    vectors = crowded(few + many, crowd.width, crowd.share)
    counted: dict[str, int] = {}
    tried: list[bool] = []

    def noted(*call: Any) -> Any:
        tried.append(True)
        return likely_share(*call)

    def run(name: str) -> None:
        matcher = Matcher(specification({"v": "array<float>"}, _LIMITS[crowd.measure]))
        stored = [_block(part) for part in np.array_split(vectors[few:], 2 if quick else 4)]
        fresh = [_block(part) for part in np.array_split(vectors[:few], parts)]
        pairs = (Pair(a, b, (_SPAN, _SPAN)) for a in fresh for b in stored)
        counted[name] = sum(len(part.left) for one in pairs for part in matcher.matches(one))

    def product() -> None:
        with mock.patch.object(choosing, "available", tuple):  # as on a processor without them
            run("product")

    with mock.patch.object(choosing, "likely_share", noted):
        seconds = in_turns({"product": product, "chosen": lambda: run("chosen")}, rounds)
    assert counted["product"] == counted["chosen"] > 0, counted
    assert bool(tried) == (crowd.balls and bool(available())), "balls are to be thought of, or not"
    reached = ratio(seconds["product"], seconds["chosen"])
    rate_of_matches = counted["chosen"] / (few * many)
    note = f"match rate {rate_of_matches:.1e}, both blocks new each time"
    screen.add(Row("filters", crowd.name, reached, "of the product alone", 0.95, note=note))
    return {"of the product": reached, "match rate": rate_of_matches}


def crowded(rows: int, width: int, share: float) -> np.ndarray:
    """Rows whose cosines crowd below the threshold, of which so many reach it."""
    random = np.random.default_rng(_SEED)
    apart = unit(random.standard_normal((rows, width - 1)))
    # A cosine is `common` and what is left of 1 times one of about normal spread.
    beyond = NormalDist().inv_cdf(1 - share) / np.sqrt(width - 1)
    common = (_THRESHOLD - beyond) / (1 - beyond)
    columns = (np.full((rows, 1), np.sqrt(common)), np.sqrt(1 - common) * apart)
    return np.concatenate(columns, axis=1).astype(np.float32)


def _block(vectors: np.ndarray) -> Block:
    t = np.sort(np.random.default_rng(_SEED).integers(0, _SPAN, len(vectors)))
    return Block.of(t, {"id": np.arange(len(t)), "s0": vectors})


Data = tuple[np.ndarray, np.ndarray] | None


def _isotropic(rows: tuple[int, int], width: int) -> Data:
    left, right = directions(rows[0], width, _SEED), directions(rows[1], width, _SEED + 1)
    random = np.random.default_rng(_SEED)
    some = min(len(left), int(_PLANTED * len(left) * len(right)))
    # Cosines of about 0.87 to 0.97: two thirds of them are matches.
    apart = random.uniform(0.25, 0.56, (some, 1)).astype(np.float32)
    near = random.choice(len(right), some, replace=False)
    left[:some] = right[near] + apart * directions(some, width, _SEED + 2)
    return left[random.permutation(len(left))], right


def scenes(noise: float) -> Callable[[tuple[int, int], int], Data]:
    def make(rows: tuple[int, int], width: int) -> Data:
        random = np.random.default_rng(_SEED)
        centres = unit(random.standard_normal((_SCENES, width)) * np.arange(1, width + 1) ** -0.5)
        found = []
        for count in rows:
            apart = random.standard_normal((count, width)) * noise / np.sqrt(width)
            found.append((centres[random.integers(0, _SCENES, count)] + apart).astype(np.float32))
        return found[0], found[1]

    return make


def _news(rows: tuple[int, int], width: int) -> Data:
    """Stretches of 40 words of news and reviews, each 8 words after the one before, as vectors.

    A text's vector is the mean of the static vectors of its tokens; all comes with packages.
    """
    try:
        import gensim
        import wordllama
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer
    except ImportError:
        return None
    texts = Path(gensim.__file__).parent / "test" / "test_data"
    lines = (texts / "lee_background.cor").read_text("utf-8").splitlines()
    lines += (texts / "pang_lee_polarity.cor").read_text("utf-8", "replace").splitlines()
    stretches = []
    for words in map(str.split, lines):
        stretches += [" ".join(words[at : at + 40]) for at in range(0, max(1, len(words) - 32), 8)]
    folder = Path(wordllama.__file__).parent
    tokens = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    (table,) = load_file(folder / "weights" / "l2_supercat_256.safetensors").values()
    read = tokens.encode_batch(stretches, add_special_tokens=False)
    vectors = np.stack([table[one.ids].astype(np.float32).mean(axis=0) for one in read if one.ids])
    vectors = vectors[np.random.default_rng(_SEED).permutation(len(vectors))]
    split = min(len(vectors) // 4, rows[0])
    return vectors[:split], vectors[split : split + rows[1]]


@cache
def _films(rows: tuple[int, int], width: int) -> Data:
    """Every frame of six channels that are made of real clips, by their layout.

    Channels show what others have shown: again, cropped, lettered, in other colours.
    """
    try:
        from anabranch.video.channels import programme
        from anabranch.video.decoding import Faults, decoded
        from anabranch.video.layout import features
        from anabranch.video.planes import planes_of
        from anabranch.video.studio import recorded

        segments = [list(recorded(programme(seed, 96.0)).values()) for seed in (7, 8)]
    except (AnabranchError, ImportError):
        return None
    channels = []
    for paths in (channel for plan in segments for channel in plan):
        frames = (one.frame for path in paths for one in decoded(str(path), Faults()))
        vectors = np.stack([features(planes_of(frame)) for frame in frames])
        channels.append(vectors[vectors.any(axis=1)])  # black frames have no direction
    return channels[0][: rows[0]], np.concatenate(channels[1:])[: rows[1]]


_CROWDED = (
    *(_Crowd(share) for share in (0.0003, 0.003, 0.01, 0.03)),
    _Crowd(0.003, width=576),
    _Crowd(0.003, "dot"),
    _Crowd(0.003, "euclidean"),
    _Crowd(0.003, balls=True),
    _Crowd(0.003, "euclidean", balls=True),
    _Crowd(0.003, width=576, balls=True),
)
_DATA: dict[str, tuple[Callable[[tuple[int, int], int], Data], int, float, float | None]] = {
    "isotropic": (_isotropic, 64, _THRESHOLD, 3.0),
    "scenes, noise .25": (scenes(0.25), 64, _THRESHOLD, 8.0),
    "scenes, noise .45": (scenes(0.45), 64, _THRESHOLD, 15.0),
    "isotropic, long": (_isotropic, 576, _THRESHOLD, 2.5),
    "news texts": (_news, 256, _THRESHOLD, 2.5),
    "frames of films": (_films, 576, _THRESHOLD, 2.5),
    "the same frames, 0.99": (_films, 576, 0.99, 2.5),
}
