"""What can go wrong, by who can put it right.

`InvalidCall` is the caller's to fix before anything runs, `BadRow` is about the data, and
`StateMismatch` is about a checkpoint that does not belong to the query that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

__all__ = [
    "AnabranchError",
    "BadRow",
    "InvalidCall",
    "StateMismatch",
    "changed_settings",
    "renamed",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class AnabranchError(Exception):
    """Base of every error that Anabranch raises on purpose."""


class InvalidCall(AnabranchError, ValueError):
    """A verb was called wrongly; holds *every* problem found, not only the first.

    Examples
    --------
    >>> print(InvalidCall("correlate", ["window is negative", "no column 'v'"]))
    correlate cannot start, 2 problems:
      1. window is negative
      2. no column 'v'
    """

    def __init__(self, verb: str, problems: Sequence[str]) -> None:
        self.verb = verb
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            text = f"{verb} cannot start: {self.problems[0]}"
        else:
            lines = (f"\n  {n}. {text}" for n, text in enumerate(self.problems, 1))
            text = f"{verb} cannot start, {len(self.problems)} problems:" + "".join(lines)
        super().__init__(text)

    def __reduce__(self) -> tuple[type[InvalidCall], tuple[str, tuple[str, ...]]]:
        return (InvalidCall, (self.verb, self.problems))


class BadRow(AnabranchError, ValueError):
    """A row that cannot be compared reached a query with ``bad_rows="fail"``."""


class StateMismatch(AnabranchError, RuntimeError):
    """State was written by another query, plan or version than the one that reads it."""


def changed_settings(stored: Mapping[str, str], present: Mapping[str, str]) -> str | None:
    """What to say of a checkpoint that was begun under other settings; None if they are alike.

    Examples
    --------
    >>> print(changed_settings({"window": "10 seconds"}, {"window": "5 seconds"}))
    this checkpoint was begun with window='10 seconds', and the call now says window='5 seconds': \
put it back, or begin a new checkpoint
    >>> print(changed_settings({"k": "5", "by": "v"}, {"k": "6", "by": "v", "rows": "9"}))
    this checkpoint was begun with k='5', no rows, and the call now says k='6', rows='9': put them \
back, or begin a new checkpoint
    """
    names = [name for name in {**stored, **present} if stored.get(name) != present.get(name)]
    if not names:
        return None
    before, now = (
        ", ".join(f"{n}={of[n]!r}" if n in of else f"no {n}" for n in names)
        for of in (stored, present)
    )
    them = "it" if len(names) == 1 else "them"
    return (
        f"this checkpoint was begun with {before}, and the call now says {now}: put {them} back, "
        "or begin a new checkpoint"
    )


def renamed(**now: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Refuse arguments by names that there are not: say the present ones of former ones.

    Examples
    --------
    >>> @renamed(late="watermark")
    ... def correlate(*, watermark: str) -> str:
    ...     return watermark
    >>> correlate(late="10 seconds")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: correlate cannot start: late= is now called watermark=
    >>> correlate(water="10 seconds")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: correlate cannot start: there is no water=; there is watermark=
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        known = signature(function).parameters
        listed = ", ".join(f"{name}=" for name in known)

        @wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            wrong = [
                f"{name}= is now called {now[name]}="
                if name in now
                else f"there is no {name}=; there is {listed}"
                for name in kwargs
                if name not in known
            ]
            if wrong:
                raise InvalidCall(function.__qualname__.removesuffix(".__init__"), wrong)
            return function(*args, **kwargs)

        return checked

    return decorate
