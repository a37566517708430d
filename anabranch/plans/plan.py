"""Plans: two maps, of left rows and of right rows to workers, that meet in exactly one worker.

That one law, for every pair that the window lets join, is all that exactness needs of a plan;
`anabranch.testing.check_plan` tests it for any plan, a user's own included. How a plan spreads its
rows is a matter of cost alone.

=======================  ============================  =====================================
plan                     left row goes to              right row goes to
=======================  ============================  =====================================
``broadcast(k)``         one worker, by hash           all k workers
``grid(a, b)``           the b workers of its row      the a workers of its column
``segments(k, length)``  the worker of its segment     workers of segments its window touches
``keyed(k)``             the worker of its key         the same
``ranges(k)``            the owner of its value        owners of all values within reach
``triangle(g)``          workers of its group          the same, in other roles
=======================  ============================  =====================================

``broadcast`` and ``segments`` are the single and the coupled stream partition of ViCo (sections 2
and 3); ``side="left"`` turns them round.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from anabranch.plans.cells import Cells, cells_html

__all__ = [
    "LEFT",
    "RIGHT",
    "SIDES",
    "Plan",
    "Routes",
    "Routing",
    "Rows",
    "loggable",
    "plan_from_dict",
    "read_back",
]

LEFT, RIGHT, SIDES = 0, 1, ("left", "right")


class Rows(NamedTuple):
    """What plans may know of rows: event times, hashes of ids, hashes of keys, one number each.

    `key` and `value` are None where the predicate has none; see `Plan.needs`.
    """

    t: np.ndarray
    h: np.ndarray
    key: np.ndarray | None = None
    value: np.ndarray | None = None

    def take(self, which: np.ndarray) -> Rows:
        """Some of the rows."""
        key = None if self.key is None else self.key[which]
        value = None if self.value is None else self.value[which]
        return Rows(self.t[which], self.h[which], key, value)


class Routes(NamedTuple):
    """Row i goes to ``workers[offsets[i]:offsets[i + 1]]``, each worker at most once.

    A copy may have *roles* in its worker, two bits; two rows meet there iff they share one. Without
    roles all have the same.
    """

    offsets: np.ndarray
    workers: np.ndarray
    roles: np.ndarray | None = None


class Plan(ABC):
    """Two maps that meet once, over `workers` workers that are numbered from 0.

    A plan of your own is a frozen dataclass with a `name`, `workers` and `route`. It `needs`
    ``"key"`` or ``"value"`` if that field of its rows must be there. Workers report their load by
    `ranges` of the value if it has any.
    """

    name: ClassVar[str]
    needs: ClassVar[str] = ""
    workers: int
    ranges: int = 0

    @abstractmethod
    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        """The workers of each row of `side` (0 left, 1 right) under `window` (microseconds).

        It must answer for a row alone, whatever other rows come with it.
        """

    def may_match(self, left: Rows, right: Rows) -> np.ndarray:
        """Which left rows (down) may match which right rows (across), and therefore must meet.

        The window is not asked here: rows that it keeps apart need not meet under any plan.
        """
        return np.ones((len(left.t), len(right.t)), bool)

    def once(self, side: int) -> bool:
        """Whether every row of `side` goes to exactly one worker, whatever its values.

        Such a worker knows all the partners of the row. A plan that does not say so is not asked.
        """
        return self.workers == 1

    def cells(self) -> Cells:
        """The plan as it is drawn."""
        return Cells.in_a_line(self.workers)

    def _repr_html_(self) -> str:
        return cells_html(str(self), self.name, self.cells())

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `plan_from_dict` reads."""
        values = {of.name: getattr(self, of.name) for of in fields(self) if of.init}  # type: ignore[arg-type]
        return {"plan": self.name, **values}

    @classmethod
    def of_fields(cls, **fields: Any) -> Plan:
        """The plan with these fields, which anybody may have written: raises if they are wrong."""
        return cls(**fields)

    @property
    def fingerprint(self) -> str:
        """Eight characters that tell this plan from any other."""
        return fingerprint_of(self.to_dict())


class Routing:
    """How one verb alone spreads its rows, over `workers` workers: not a plan, and in no log.

    `verb` names the verb, and says what it has that others lack.
    """

    verb: ClassVar[str]
    workers: int

    def cells(self) -> Cells:
        """The routing as it is drawn."""
        return Cells.in_a_line(self.workers)

    def _repr_html_(self) -> str:
        return cells_html(str(self), str(self).partition("(")[0], self.cells())


PlanClass = TypeVar("PlanClass", bound=type[Plan])
_PLANS: dict[str, type[Plan]] = {}


def loggable(cls: PlanClass) -> PlanClass:
    """Let plans of a class be written to a log; every worker that reads one must import it."""
    _PLANS[cls.name] = cls
    return cls


def plan_from_dict(form: Mapping[str, Any]) -> Plan:
    """The plan that `Plan.to_dict` wrote; whoever else wrote it, the plan can be made by a call.

    Examples
    --------
    >>> from anabranch.plans.hashed import broadcast
    >>> plan_from_dict(broadcast(3).to_dict()) == broadcast(3)
    True
    >>> plan_from_dict({"plan": "broadcast", "workers": -1})
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: broadcast cannot start: workers must be a whole number of at \
least 1, got -1
    """
    name = form["plan"]
    if name not in _PLANS:
        raise ValueError(f"unknown plan {name!r}; known: {', '.join(sorted(_PLANS))}")
    values = {field: _frozen(value) for field, value in form.items() if field != "plan"}
    return _PLANS[name].of_fields(**values)


def read_back(plan: Plan) -> Plan | None:
    """The plan as a log would give it back; None if no log can hold it."""
    try:
        return plan_from_dict(json.loads(json.dumps(plan.to_dict())))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def fingerprint_of(form: Mapping[str, Any]) -> str:
    """Eight characters that tell one JSON form from any other."""
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()[:8]


def _frozen(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value
