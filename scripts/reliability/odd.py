"""Values that programs do not expect: names, numbers, texts, vectors and times, drawn by a seed."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

__all__ = ["NOW", "Odd"]

NOW = 1_700_000_000_000_000
_SECOND = 1_000_000
_YEAR = 31_556_952 * _SECOND

_NAMES = ["v", "V2", "a b", "prix €", "数", "x.y", "a.b.c", "tick`s", "``", "`q`.z", "sel ect",
          "null", "left_id", "t", "id2", "k0", "s0", "h", "key", "whole", "é", "e\u0301", "🦦",
          "'quoted'", '"', "-1", "1e5", "$", "#", "%s", "{}", "\\", "line\nbreak",
          " lead"]  # fmt: skip
_TEXTS = ["", " ", "a", "A", "ab", "abc", "abd", "é", "e\u0301", "ß", "ss", "🦦", "🦦🦦", "\x00",
          "null", "None", "NaN", "'", '"; drop', "数学", "x" * 300, "x" * 299 + "y", "\u202e",
          "İ"]  # fmt: skip
_WHOLE = [0, 1, -1, 2, 3, 7, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**62, -(2**62), 2**63 - 1,
          -(2**63) + 1, -(2**63)]  # fmt: skip
_REAL = [0.0, -0.0, 0.5, 1.0, -1.0, 3.0, 1e-3, 1e15, 5e-324, 1e-310, 1e-160, 1e-100, 1e100, 1e150,
         -1e150, 1e160, 1e300, -1e300, 1.7e308, math.nan, math.inf, -math.inf]  # fmt: skip
_REAL_FLOAT = [0.0, -0.0, 0.5, 1.0, -1.0, 3.0, 1e-3, 1e-40, 1e-45, 1e20, 3e38, -3e38, math.nan,
               math.inf]  # fmt: skip
_FAR = [0, 1, -1, -_YEAR, -2000 * _YEAR, 200 * _YEAR, 7000 * _YEAR, (1 << 61) - NOW - 10**9,
        (1 << 61) + 1, -(1 << 61) - 1, (1 << 63) - 1, -(1 << 63), 1 << 62]  # fmt: skip


class Odd:
    """What a seed draws; most values are plain, so that most rows can be compared."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)

    def chance(self, share: float) -> bool:
        """True in this share of cases."""
        return self.random.random() < share

    def pick(self, of: Any) -> Any:
        """One of these."""
        return self.random.choice(of)

    def below(self, most: int) -> int:
        """A whole number from 0 on, and less than this."""
        return self.random.randrange(most)

    def names(self, count: int) -> list[str]:
        """Names of columns, no two alike to Spark, which does not tell upper from lower case."""
        return self.random.sample(_NAMES, count)

    def text(self) -> str:
        """Short, empty, long, or in any script."""
        if self.chance(0.6):
            return "".join(self.random.choices("abc", k=self.below(5)))
        return str(self.pick(_TEXTS))

    def whole(self, bits: int = 64) -> int:
        """A whole number of so many bits, often small, sometimes as large as it can be."""
        if self.chance(0.7):
            return self.below(20) - 5
        return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, int(self.pick(_WHOLE))))

    def real(self, single: bool = False, tame: float = 0.9) -> float:
        """A real number that `single` precision holds, if it shall; `tame` ones are small."""
        if self.chance(tame):
            value = float(self.below(9) - 4) if self.chance(0.7) else self.random.gauss(0, 2)
        else:
            value = self.pick(_REAL_FLOAT if single else _REAL)
        return struct.unpack("f", struct.pack("f", value))[0] if single else float(value)

    def vector(self, dim: int, single: bool, tame: float = 0.97) -> list[float | None] | None:
        """A vector; a few are null, empty, of another length, huge, tiny, or hold what is odd."""
        if self.chance(0.03):
            return None
        if self.chance(0.03):
            dim = self.pick([0, 1, dim + 1, 2 * dim])
        values: list[float | None] = [self.real(single, tame) for _ in range(dim)]
        if self.chance(0.02):
            values = [0.0] * dim
        if self.chance(0.05):  # all of one size, far from 1
            scale = self.pick([1e-30, 1e30] if single else [1e-140, 1e140])
            values = [None if x is None else self._single(x * scale, single) for x in values]
        if values and self.chance(0.01):
            values[0] = None
        return values

    @staticmethod
    def _single(value: float, single: bool) -> float:
        if not single or not math.isfinite(value):
            return value
        return struct.unpack("f", struct.pack("f", min(3.4e38, max(-3.4e38, value))))[0]

    def time(self, spread: int, far: float = 0.02) -> int | None:
        """Microseconds: about `NOW` as a rule, ties included; or null, or as `far` as it goes."""
        if self.chance(0.01):
            return None
        if self.chance(far):
            away = int(self.pick(_FAR))
            return max(-(2**63), min(2**63 - 1, NOW + away if self.chance(0.5) else away))
        return NOW + self.below(spread + 1)
