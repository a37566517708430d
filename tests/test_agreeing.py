"""What benchmarks hold answers against: an engine that loses pairs, or adds some, fails."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.agreeing import agreed, band_of, codes, float64_cosines

RANDOM = np.random.default_rng(1)
LEFT, RIGHT = (RANDOM.standard_normal((60, 8)).astype(np.float32) for _ in range(2))
ALL = np.arange(len(LEFT) * len(RIGHT))
COSINES = float64_cosines(ALL, (LEFT, RIGHT))
THRESHOLD = 0.5
PAIRS = ALL[COSINES >= THRESHOLD]


def check(ours: np.ndarray, theirs: np.ndarray, threshold: float = THRESHOLD) -> int:
    return agreed(ours, theirs, (LEFT, RIGHT), threshold, band_of(8))


def test_the_same_pairs_agree() -> None:
    assert check(PAIRS, PAIRS) == len(PAIRS) > 100


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (PAIRS[:0], PAIRS[:0], "too few"),
        (PAIRS[:0], PAIRS, "too few"),
        (PAIRS[1:], PAIRS, "wrong or missing"),
        (np.sort(np.append(PAIRS, np.argmin(COSINES))), PAIRS, "wrong or missing"),
        (PAIRS, PAIRS[1:], "more than rounding"),
        (PAIRS, PAIRS[:0], "more than rounding"),
    ],
)
def test_an_engine_that_loses_or_adds_a_pair_fails(
    ours: np.ndarray, theirs: np.ndarray, words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        check(ours, theirs)


def test_a_rival_in_float32_may_miss_what_lies_on_the_threshold() -> None:
    edge = float(np.sort(COSINES[PAIRS])[0])
    without = PAIRS[COSINES[PAIRS] > edge]
    assert check(PAIRS, without, edge) == len(PAIRS) - 1


def test_a_pair_that_comes_twice_fails() -> None:
    with pytest.raises(AssertionError, match="twice"):
        codes(np.array([1, 1]), np.array([2, 2]), 9)
