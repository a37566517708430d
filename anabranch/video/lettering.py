"""Letters of 5 by 7 dots, for the captions of made-up channels."""

from __future__ import annotations

import numpy as np

__all__ = ["lettering"]

# Columns from left to right, the lowest bit on top.
_GLYPHS = {
    letter: bytes.fromhex(columns)
    for letter, columns in zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ: ",
        (
            *("7c1211127c", "7f49494936", "3e41414122", "7f4141413e", "7f49494941", "7f09090901"),
            *("3e41415173", "7f0808087f", "00417f4100", "2040413f01", "7f08142241", "7f40404040"),
            *("7f021c027f", "7f0408107f", "3e4141413e", "7f09090906", "3e4151215e", "7f09192946"),
            *("2649494932", "03017f0103", "3f4040403f", "1f2040201f", "3f4038403f", "6314081463"),
            *("0304780403", "6159494d43", "0000140000", "0000000000"),
        ),
        strict=True,
    )
}


def lettering(text: str, dot: int = 1) -> np.ndarray:
    """A line of capitals as booleans, each dot that many pixels wide and high.

    Examples
    --------
    >>> for row in lettering("HI"):
    ...     print("".join("#" if dot else "." for dot in row))
    #...#..###.
    #...#...#..
    #...#...#..
    #####...#..
    #...#...#..
    #...#...#..
    #...#..###.
    >>> lettering("HI", 2).shape
    (14, 22)
    """
    columns = b"\0".join(_GLYPHS[letter] for letter in text.upper())
    dots = (np.frombuffer(columns, np.uint8) >> np.arange(7, dtype=np.uint8)[:, None]) & 1
    return dots.astype(bool).repeat(dot, axis=0).repeat(dot, axis=1)
