"""What the news say of key frames beside their layout: captions and concepts, where extras are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from anabranch import video
from anabranch.errors import AnabranchError
from anabranch.video.showing import THUMB

__all__ = ["Readers", "readers"]

_READABLE = (640, 360)  # pictures that captions can be read in


@dataclass(frozen=True)
class Readers:
    """What reads captions and what names concepts; None is not installed, or not asked for.

    Examples
    --------
    >>> Readers().names, Readers().picture
    ([], (256, 144))
    >>> print(Readers(text=lambda pictures: []).said)
    Captions are read. Concepts are not: pip install 'anabranch[video-concepts]'
    """

    text: Callable[[np.ndarray], Any] | None = None
    concepts: Callable[[np.ndarray], Any] | None = None

    @property
    def names(self) -> list[str]:
        """The columns that key frames have more of."""
        found = {"words": self.text, "concepts": self.concepts}
        return [name for name, of in found.items() if of is not None]

    @property
    def picture(self) -> tuple[int, int]:
        """How large pictures must be."""
        return THUMB if self.text is None else _READABLE

    @property
    def said(self) -> str:
        """What is read and what is not, in words."""
        if not self.names:
            wanted = "pip install 'anabranch[video-text,video-concepts]'"
            return f"Captions and concepts are not read: {wanted}"
        if len(self.names) == 2:
            return "Captions are read, and concepts found."
        if self.text is not None:
            wanted = "pip install 'anabranch[video-concepts]'"
            return f"Captions are read. Concepts are not: {wanted}"
        return "Concepts are found. Captions are not read: pip install 'anabranch[video-text]'"

    def described(self, keys: DataFrame) -> DataFrame:
        """Key frames with what is read in their pictures; black ones are left out."""
        if not self.names:
            return keys
        # No line stands here for ten minutes, and to remember lines would take one more state.
        found: DataFrame = video.describe(keys, text=self.text, concepts=self.concepts, ticker=None)
        return found.select("id", "channel", "ts", "features", "picture", *self.names)


def readers() -> Readers:
    """Those whose packages are installed."""
    return Readers(_if_installed(video.ocr), _if_installed(video.lite0))


def _if_installed(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (AnabranchError, ImportError):
        return None
