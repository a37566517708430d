"""What the benchmark of recall counts: shots of the same film, and films that are held out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.video_recall import Way, held_out_films, judged, moving

# Two films of two key frames each, of other shots, and a still.
FILM = np.array(["a", "a", "b", "b", "c"])
SHOT = np.array([0, 1, 0, 1, 0])
ALIKE = np.array(
    [
        [0.9, 0.6, 0.1, 0.1, 0.1],  # other shots of a film are more alike than two films
        [0.6, 0.5, 0.1, 0.1, 0.1],
        [0.1, 0.1, 0.9, 0.3, 0.1],
        [0.1, 0.1, 0.3, 0.4, 0.1],
        [0.1, 0.1, 0.1, 0.1, 0.9],
    ]
)
WAY = Way(lambda pictures: pictures, lambda ones, others: others)
OF = {"": ALIKE, "jpeg": ALIKE}


def pictures() -> Any:
    same = FILM[:, None] == FILM
    return SimpleNamespace(film=FILM, different=~same, other_shots=same & (SHOT[:, None] != SHOT))


def test_other_shots_of_a_film_are_distractors_if_asked_for() -> None:
    of = pictures()
    plain = judged(WAY, OF, of.different, None)
    assert (plain.threshold, plain.recall["jpeg"]) == (0.1, 1.0)
    harder = judged(WAY, OF, of.different | of.other_shots, None)
    assert (harder.threshold, harder.recall["jpeg"]) == (0.6, 0.6)
    assert judged(WAY, OF, of.other_shots, 0.3).false == 0.5


def test_a_film_that_is_held_out_has_no_say_in_its_threshold() -> None:
    of = pictures()
    assert moving(of) == ["a", "b"]
    found = held_out_films(WAY, OF, of)
    # Without a the threshold is 0.3, and a's own shots match falsely; without b it is 0.6.
    assert found.threshold == pytest.approx(0.45)
    assert found.recall["jpeg"] == 3 / 4  # 0.9, 0.5; 0.9 and not 0.4
    # Two of all pairs, either way about, that have one at least of what is held out.
    pairs = 2 * (2 * 2 * 3 + 2)
    assert found.false == pytest.approx(2 / pairs)
