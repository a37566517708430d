"""What a target knows of the micro-batches that it holds, and what follows from it.

Spark runs a micro-batch again only if it was killed before it noted that the batch was done, and
it never begins a batch before the one before is noted. A target that holds batch 7 of a query
will therefore be given batch 7 once more, or a later one, and never an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.errors import InvalidCall, StateMismatch

__all__ = ["Progress", "app_problems", "is_new", "refuse_elsewhere", "refuse_other_columns"]

_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Progress:
    """The newest batch of an app that a target holds, and its query ("" if unknown)."""

    batch: int
    query: str = ""


def app_problems(app: object) -> list[str]:
    """What is wrong with the name of an app.

    Examples
    --------
    >>> app_problems("news-pairs"), app_problems("a/b")
    ([], ["app must be a name of at most 100 letters, digits, '.', '_' and '-', got 'a/b'; one \
name for each query and target"])
    """
    if isinstance(app, str) and _APP.fullmatch(app):
        return []
    return [
        "app must be a name of at most 100 letters, digits, '.', '_' and '-', "
        f"got {app!r}; one name for each query and target"
    ]


def is_new(app: str, batch: int, query: str, done: Progress | None) -> bool:
    """Whether a target still lacks a batch; raises where another query has used the name.

    Examples
    --------
    >>> [is_new("pairs", 7, "", done) for done in (None, Progress(6), Progress(7))]
    [True, True, False]
    >>> is_new("pairs", 0, "", Progress(7))
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: app='pairs' has written up to batch 7, and this query is at \
batch 0: it has another checkpoint than the one before, or another query writes under the same \
name. Give it an app= of its own, or go back to the checkpoint. If an older checkpoint was \
restored, its batches may hold other rows now: restore the target as of then too, or write to a \
new one under a new app=
    """
    if done is None:
        return True
    if query and done.query and query != done.query:
        raise StateMismatch(
            f"app={app!r} belongs to query {done.query}, and this is query {query}: it has "
            "another checkpoint than the one before, or another query writes under the same name. "
            "Give it an app= of its own, or go back to the checkpoint"
        )
    if batch < done.batch:
        raise StateMismatch(
            f"app={app!r} has written up to batch {done.batch}, and this query is at batch "
            f"{batch}: it has another checkpoint than the one before, or another query writes "
            "under the same name. Give it an app= of its own, or go back to the checkpoint. If an "
            "older checkpoint was restored, its batches may hold other rows now: restore the "
            "target as of then too, or write to a new one under a new app="
        )
    return batch > done.batch


def refuse_elsewhere(app: str, place: str, other: Progress | None) -> None:
    """Raise if a target that knows nothing of an app is known to hold some, by another way to it.

    Batches would go to two targets of one name, by their size, and each would lack the others.

    Examples
    --------
    >>> refuse_elsewhere("pairs", "lake.news.pairs", None)
    >>> refuse_elsewhere("pairs", "lake.news.pairs", Progress(7))
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: lake.news.pairs means two targets: the driver's package and \
Spark reach one each, of which only the other has batches of app='pairs', up to 7. Let both name \
the same one, or choose the other with via=
    """
    if other is not None:
        raise StateMismatch(
            f"{place} means two targets: the driver's package and Spark reach one each, of which "
            f"only the other has batches of app={app!r}, up to {other.batch}. Let both name the "
            "same one, or choose the other with via="
        )


def refuse_other_columns(
    verb: str, place: str, there: Mapping[str, str] | None, given: Mapping[str, str]
) -> None:
    """Raise, with every difference, if a result does not have the columns of its target.

    Examples
    --------
    >>> refuse_other_columns("sinks.delta", "pairs", {"a": "int", "b": "int"}, {"a": "string"})
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: sinks.delta cannot start, 2 problems:
      1. column 'a' is int in pairs, and string in the result: cast it, or write to a new target
      2. column 'b' of pairs is not in the result: select it, or write to a new target
    """
    if there is None:
        return
    problems = []
    for name in {**there, **given}:
        if name not in given:
            problems.append(
                f"column {name!r} of {place} is not in the result: select it, or write to a new "
                "target"
            )
        elif name not in there:
            problems.append(
                f"column {name!r} is not in {place}, which has {', '.join(there)}: drop it, or add "
                "it there first"
            )
        elif there[name] != given[name]:
            problems.append(
                f"column {name!r} is {there[name]} in {place}, and {given[name]} in the result: "
                "cast it, or write to a new target"
            )
    if problems:
        raise InvalidCall(verb, problems)
