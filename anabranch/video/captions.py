"""Text on the screen: what captions say, read by the models of the extra ``video-text``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from anabranch.calls import Check
from anabranch.errors import extra, renamed

__all__ = ["Line", "Reader", "joined", "ocr"]

_LETTERS = 6  # of a word at most, where spaces are lost
_LEAST_SCORE = 0.5


class Line(NamedTuple):
    """A line of text: what it says, how sure that is, and where it is, in pixels."""

    text: str
    score: float
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Reader:
    """Reads captions: a function for ``text=``."""

    part: str = "lower third"
    words: int = 2

    def __call__(self, pictures: np.ndarray) -> list[list[Line]]:
        """The lines of each picture (n, height, width, 3), from top to bottom."""
        return [self._read(picture) for picture in pictures]

    def _read(self, picture: np.ndarray) -> list[Line]:
        top = 0 if self.part == "whole" else picture.shape[0] * 2 // 3
        # The models were trained with blue first.
        found, _ = _engine()(np.ascontiguousarray(picture[top:, :, ::-1]), use_cls=False)
        lines = [
            Line(text, float(score), _box(corners, top))
            for corners, text, score in found or ()
            if float(score) >= _LEAST_SCORE and self._long(text)
        ]
        return sorted(lines, key=lambda line: (line.box[1], line.box[0]))

    def _long(self, text: str) -> bool:
        letters = sum(letter.isalpha() for letter in text)
        return len(text.split()) >= self.words or letters >= _LETTERS * self.words


@renamed()
def ocr(part: str = "lower third", words: int = 2) -> Reader:
    """Reads text on the screen, with the models of the extra ``video-text``.

    About 60 ms for the lower third of a picture, 120 ms for all of it, on one core. It raises at
    once if a package is missing.

    Parameters
    ----------
    part
        ``"lower third"``, where captions are, or ``"whole"``.
    words
        Lines of fewer words are left out; so are clocks and logos.

    Examples
    --------
    >>> keys = ab.video.describe(shots, text=ab.video.ocr())  # doctest: +SKIP
    """
    check = Check()
    part = check.choice("part", part, ("lower third", "whole"))
    words = check.whole("words", words)
    check.refuse("ocr")
    with extra("video-text", "ab.video.ocr", "rapidocr_onnxruntime"):
        import rapidocr_onnxruntime as _  # noqa: F401
    return Reader(part, words)


def joined(lines: list[Line]) -> str | None:
    """All lines as one text; None if there are none.

    Examples
    --------
    >>> joined([Line("BRIDGE SHUT", 0.9, (0, 0, 9, 9)), Line("IN RIGA", 0.8, (0, 9, 9, 18))])
    'BRIDGE SHUT IN RIGA'
    """
    return " ".join(line.text for line in lines) or None


def _box(corners: Any, top: int) -> tuple[float, float, float, float]:
    across, down = zip(*corners, strict=True)
    return (
        *(float(min(across)), float(min(down)) + top),
        *(float(max(across)), float(max(down)) + top),
    )


@cache
def _engine() -> Any:
    """One engine in each process, on one thread: parallelism is Spark's."""
    with extra("video-text", "ab.video.ocr", "rapidocr_onnxruntime"):
        from rapidocr_onnxruntime import RapidOCR
    return RapidOCR(
        # By default a small strip is blown up, and then takes seconds.
        det_limit_type="max",
        intra_op_num_threads=1,
        inter_op_num_threads=1,
    )
