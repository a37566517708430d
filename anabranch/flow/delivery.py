"""What a target knows of the micro-batches that it holds, and what follows from it.

Spark runs a micro-batch again only if it was killed before it noted that the batch was done, and
it never begins a batch before the one before is noted. A target that holds batch 7 of a query
will therefore be given batch 7 once more, or a later one, and never an earlier one. Unless an older
checkpoint was restored: then batch 7 is planned anew, of whatever has arrived by now. So a target
also notes a digest of how the batch was planned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from anabranch.errors import InvalidCall, StateMismatch

__all__ = [
    "Progress",
    "app_problems",
    "is_new",
    "offsets_mark",
    "refuse_elsewhere",
    "refuse_other_columns",
    "refuse_replanned",
]

_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OFFSETS = "offsets="
_RESTORE = "restore the target as of then too, or write to a new one under a new app="


@dataclass(frozen=True)
class Progress:
    """A batch of an app, as a target notes it: its query and its mark ("" if unknown).

    The mark tells a batch from another one of its number: see `offsets_mark`.
    """

    batch: int
    query: str = ""
    mark: str = ""

    @property
    def origin(self) -> str:
        """Query and mark as one text, which is what notes hold beside the number.

        Examples
        --------
        >>> Progress(7, "5a1c", "offsets=b0").origin, Progress(7).origin
        ('5a1c offsets=b0', '')
        """
        return f"{self.query} {self.mark}".strip()

    @classmethod
    def noted(cls, batch: int, origin: str) -> Progress:
        """What a note says; those of before marks were noted have a query alone.

        Examples
        --------
        >>> Progress.noted(7, "5a1c offsets=b0") == Progress(7, "5a1c", "offsets=b0")
        True
        >>> Progress.noted(7, "5a1c"), Progress.noted(7, "rows=3").mark
        (Progress(batch=7, query='5a1c', mark=''), 'rows=3')
        """
        words = origin.split()
        marks = [word for word in words if "=" in word]
        return cls(batch, next((word for word in words if "=" not in word), ""), "".join(marks[:1]))

    def contradicts(self, other: Progress) -> bool:
        """Whether both have a mark of one kind, and not the same one."""
        mine, its = self.mark.partition("="), other.mark.partition("=")
        return mine[0] == its[0] and mine != its


def offsets_mark(planned: str) -> str:
    """The mark of a micro-batch by what Spark noted of it before it began.

    That is the text of the checkpoint's ``offsets/N``: where each source begins and ends, and
    when it was planned. A repeated batch is read from the same file.

    Examples
    --------
    >>> offsets_mark("v1...")
    'offsets=df4605c306ba3f99'
    """
    return f"{_OFFSETS}{blake2b(planned.encode(), digest_size=8).hexdigest()}"


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


def is_new(app: str, here: Progress, done: Progress | None) -> bool:
    """Whether a target still lacks a batch; raises where another query has used the name.

    Examples
    --------
    >>> [is_new("pairs", Progress(7), done) for done in (None, Progress(6), Progress(7))]
    [True, True, False]
    >>> is_new("pairs", Progress(0), Progress(7))
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
    if here.query and done.query and here.query != done.query:
        raise StateMismatch(
            f"app={app!r} belongs to query {done.query}, and this is query {here.query}: it has "
            "another checkpoint than the one before, or another query writes under the same name. "
            "Give it an app= of its own, or go back to the checkpoint"
        )
    if here.batch < done.batch:
        raise StateMismatch(
            f"app={app!r} has written up to batch {done.batch}, and this query is at batch "
            f"{here.batch}: it has another checkpoint than the one before, or another query writes "
            "under the same name. Give it an app= of its own, or go back to the checkpoint. If an "
            f"older checkpoint was restored, its batches may hold other rows now: {_RESTORE}"
        )
    if here.batch == done.batch and here.mark.startswith(_OFFSETS) and here.contradicts(done):
        refuse_replanned(app, here.batch)
    return here.batch > done.batch


def refuse_replanned(app: str, batch: int) -> None:
    """Raise for a batch whose number the target holds, and which may hold other rows."""
    raise StateMismatch(
        f"app={app!r} holds a batch {batch} that was planned at another time than this one, so "
        "that rows of this one may be in neither: an older checkpoint was restored, or another "
        f"query writes under the same name. If it was restored, {_RESTORE}"
    )


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
