"""Keys of feeds in words: equal keys get equal words, different ones different words.

Streams of a template are known by name, so a name must tell as much as the key. The same user may
be 2 in one column and 2.0 in another, which is what pandas leaves of whole numbers after a left
merge: both are ``2``. Where a key holds a character that names are made of, a backslash is put
before it.
"""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["KeyColumn"]


class KeyColumn:
    r"""A column of keys, each as it is and as a word.

    Parameters
    ----------
    column
        The keys. None may be missing.
    several
        Whether they are a part of longer keys, whose parts are separated by commas.

    Examples
    --------
    >>> keys = KeyColumn(pd.Series([2.0, 3.5, 2.0]))
    >>> keys.words.tolist(), keys.values.tolist(), keys.kinds
    (['2', '3.5', '2'], [2, 3.5, 2], {'number'})
    >>> KeyColumn(pd.Series(["x,y"])).words.tolist()
    ['x,y']
    >>> print(KeyColumn(pd.Series(["x,y"]), several=True).words[0])
    x\,y
    """

    def __init__(self, column: pd.Series, several: bool = False) -> None:
        code, found = pd.factorize(column)
        self.distinct = [_plain(key) for key in found]
        self._code = code
        self._several = several

    @property
    def kinds(self) -> set[str]:
        """Kinds of keys in the column, as people call them."""
        return {_kind(key) for key in self.distinct}

    @property
    def values(self) -> np.ndarray:
        """The keys, whole numbers as integers."""
        return self._spread(self.distinct)

    @property
    def words(self) -> np.ndarray:
        """The keys as they are written in names."""
        words = []
        for key in self.distinct:
            word = str(key).replace("\\", "\\\\").replace("]", "\\]")
            words.append(word.replace(",", "\\,") if self._several else word)
        return self._spread(words)

    def _spread(self, distinct: list[Any]) -> np.ndarray:
        held = np.empty(len(distinct), object)
        held[:] = distinct
        found: np.ndarray = held[self._code]
        return found


def _plain(key: Any) -> Any:
    """The key as a value of Python, and as an integer if it is whole."""
    key = key.item() if isinstance(key, np.generic) else key
    if isinstance(key, (float, Decimal)) and key == key and abs(key) != float("inf"):
        return int(key) if key == int(key) else key
    return key


def _kind(key: Any) -> str:
    if isinstance(key, str):
        return "text"
    if isinstance(key, (Real, Decimal)) and not isinstance(key, bool):
        return "number"
    return type(key).__name__
