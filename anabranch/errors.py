"""What can go wrong, by who can put it right.

`InvalidCall` is the caller's to fix before anything runs, `BadRow` is about the data, and
`StateMismatch` is about a checkpoint that does not belong to the query that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

__all__ = [
    "AnabranchError",
    "BadRow",
    "InvalidCall",
    "StateMismatch",
    "UnfitOperator",
    "changed_settings",
    "extra",
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


class UnfitOperator(InvalidCall, TypeError):
    """An operator of Python between values that it is not for."""


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
    # Of one stream there is no left and no right.
    one = stored.get("streams") == present.get("streams") == "one"
    said = {n: n.removeprefix("left.") if one else n for n in names}
    before, now = (
        ", ".join(f"{said[n]}={of[n]!r}" if n in of else f"no {said[n]}" for n in names)
        for of in (stored, present)
    )
    them = "it" if len(names) == 1 else "them"
    return (
        f"this checkpoint was begun with {before}, and the call now says {now}: put {them} back, "
        "or begin a new checkpoint"
    )


@contextmanager
def extra(name: str, what: str, package: str) -> Iterator[None]:
    """Import inside the block what an extra of Anabranch brings, or say how to get it.

    `package` is the name that is imported; the absence of any other module is reported as it is.

    Examples
    --------
    >>> with extra("emd", "a ground of points", "no_such_package"):
    ...     import no_such_package
    Traceback (most recent call last):
        ...
    anabranch.errors.AnabranchError: a ground of points needs the package no_such_package: \
pip install 'anabranch[emd]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise AnabranchError(
            f"{what} needs the package {package}: pip install 'anabranch[{name}]'"
        ) from error


def renamed(**now: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Reject a call whose arguments there are not, or that lacks some, in words of its own.

    `now` says what former names are called, or what to write instead of them.

    Examples
    --------
    >>> @renamed(late="watermark", master="side= names the other side")
    ... def correlate(left: str, *, watermark: str = "", side: str = "") -> str:
    ...     return watermark
    >>> correlate("l", late="10 seconds")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: correlate cannot start: late= is now called watermark=
    >>> correlate("l", master="left")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: correlate cannot start: there is no master=: side= names the \
other side
    >>> correlate(water="10 seconds")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: correlate cannot start, 2 problems:
      1. there is no water=; there is left=, watermark=, side=
      2. left= is missing
    >>> correlate("l", "10 seconds")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: correlate cannot start: 2 arguments without a name, and it takes \
1: name the others; there is left=, watermark=, side=
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        known = signature(function).parameters
        verb = function.__qualname__.removesuffix(".__init__")
        inside = function.__module__.rpartition(".")[2]
        if inside in ("close", "sinks"):  # the namespaces of the package
            verb = f"{inside}.{verb}"
        elif "video" in function.__module__.split("."):
            verb = f"video.{verb}"

        @wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            problems = _argument_problems(known, now, args, kwargs)
            if problems:
                raise InvalidCall(verb, problems)
            return function(*args, **kwargs)

        return checked

    return decorate


def _argument_problems(
    known: Mapping[str, Parameter],
    now: Mapping[str, str],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> list[str]:
    own = [name for name in known if name != "self"]
    listed = ", ".join(f"{name}=" for name in own)
    problems = []
    for name in kwargs:
        if name in known:
            continue
        if name not in now:
            problems.append(f"there is no {name}=; there is {listed}")
        elif now[name].isidentifier():
            problems.append(f"{name}= is now called {now[name]}=")
        else:
            problems.append(f"there is no {name}=: {now[name]}")
    plain = [name for name, of in known.items() if of.kind is Parameter.POSITIONAL_OR_KEYWORD]
    kinds = {name: of.kind for name, of in known.items()}
    if len(args) > len(plain) and Parameter.VAR_POSITIONAL not in kinds.values():
        hidden = "self" in known
        count = len(args) - hidden
        several = "s" if count != 1 else ""
        problems.append(
            f"{count} argument{several} without a name, and it takes {len(plain) - hidden}: "
            f"name the others; there is {listed}"
        )
    given = {*plain[: len(args)], *kwargs}
    twice = [name for name in plain[: len(args)] if name in kwargs]
    problems += [f"{name}= is given twice, by its place and by its name" for name in twice]
    needed = [name for name, of in known.items() if of.default is Parameter.empty]
    missing = [n for n in needed if n not in given and kinds[n] is not Parameter.VAR_POSITIONAL]
    return problems + [f"{name}= is missing" for name in missing]
