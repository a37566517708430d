"""Feeds: what devices put out, one stream for each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.calls import Check, Duration
from anabranch.errors import renamed
from anabranch.placement.graph import CLOUD_NAME

__all__ = ["TYPES", "Feed", "feed"]

TYPES = ("double", "float", "bigint", "int", "boolean", "string", "array<double>", "array<float>")
"""Of the columns that a device can put out."""


@dataclass(frozen=True)
class Feed:
    """A logical input; `by` names the columns of the reference table that hold its key.

    With a `tick`, in microseconds, at most one row of each tick is used. `columns` are names and
    types, for views that are executed.
    """

    name: str
    by: tuple[str, ...]
    home: str | None = None
    tick: int = 0
    columns: tuple[tuple[str, str], ...] = ()


@renamed()
def feed(
    name: str,
    by: str | Sequence[str],
    home: str | None = None,
    *,
    tick: Duration | None = None,
    columns: str | Mapping[str, str] = "",
) -> Feed:
    """A logical input with one stream per value of the columns `by`.

    Each stream lives on the device that its key names; ``home="cloud"`` puts all of them there.
    Streams are named ``name[key]``, or ``name[key,key]`` for several columns. Whole numbers are
    written without a point, whatever the type of their column. A backslash comes before ``]`` and
    backslashes in a key, and before commas in a key of several columns.

    Parameters
    ----------
    name
        Under which devices put rows.
    by
        The column of the reference table that holds the key, or several.
    home
        ``"cloud"`` for data that lives there.
    tick
        Views take at most the first row of each tick, and may ask for fewer (`ab.view`). Without
        it they get every row.
    columns
        Names and types of its rows, for `ab.view`: ``"xy array<double>, speed double"``, or a dict.

    Examples
    --------
    >>> feed("gps", by="user", tick="1 second", columns="xy array<double>")
    Feed(name='gps', by=('user',), home=None, tick=1000000, columns=(('xy', 'array<double>'),))
    """
    keys = tuple(by) if isinstance(by, (list, tuple)) else (by,)
    check = Check()
    if not isinstance(name, str) or not name:
        check.say(f"name must be a word, got {name!r}")
    if not keys or not all(isinstance(key, str) and key for key in keys):
        check.say(f"by must be a column of the reference table, or a list of columns, got {by!r}")
    if home is None and len(keys) > 1:
        check.say('a feed with several keys needs home="cloud": a device is named by one key')
    if home is not None and not (isinstance(home, str) and home == CLOUD_NAME):
        check.say(f'home must be "cloud" or left out, got {home!r}')
    length = 0 if tick is None else check.duration("tick", tick, least=1)
    named = _columns(columns, check.problems)
    check.refuse("feed")
    return Feed(name, keys, home, length, named)


def _columns(given: Any, problems: list[str]) -> tuple[tuple[str, str], ...]:
    """Names and types of columns."""
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, str):
        words = [part.split(None, 1) for part in given.split(",") if part.strip()]
        pairs = [(word[0], word[1].strip() if len(word) > 1 else "") for word in words]
    else:
        problems.append(f"columns must be names and types, such as 'x double', got {given!r}")
        return ()
    wrong = [pair for pair in pairs if not isinstance(pair[0], str) or pair[1] not in TYPES]
    if wrong:
        problems.append(f"columns: {wrong[0]!r} is no name and type; types are {', '.join(TYPES)}")
    # Spark tells no upper from lower case.
    plain = [str(name).lower() for name, _ in pairs] + ["key", "n", "time"]
    clashing = [name for name, _ in pairs if plain.count(str(name).lower()) > 1]
    if clashing:
        which = ", ".join(dict.fromkeys(map(repr, clashing)))
        problems.append(
            f"columns: {which}: names must differ, also from key, n and time, and by more than "
            "upper and lower case"
        )
    return tuple(pairs)
