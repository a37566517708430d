"""The numbered, append-only log of plans.

A control directory holds one small JSON file per entry, written whole and never changed. An entry
says: from micro-batch `first` on, rows are stamped with plan `epoch` and sent under the `live`
plans. A new plan, a retired one, the newest event time of a replaced plan (its *mark*): each is an
entry. The query's driver is the only one to write entries, the first when it hears of the first
micro-batch; until then rows are sent under the plan of the call, which is plan 0. People ask for a
plan with `append`, which leaves a request that the driver enacts or refuses. Routers read the log
for the micro-batch they are in, so a repeated task routes as before.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from anabranch.errors import StateMismatch, renamed
from anabranch.flow.folders import Folder, last_name, path_problems
from anabranch.flow.numbered import UNREADABLE, Numbered, described
from anabranch.plans.arguments import refuse
from anabranch.plans.drawing import draw_story, story_html
from anabranch.plans.plan import Plan, plan_from_dict, read_back
from anabranch.plans.routing import LivePlans

__all__ = [
    "Entry",
    "PlanLog",
    "PlanReader",
    "Refusal",
    "Request",
    "User",
    "live_at",
    "reader",
    "refuse_unloggable",
]

_READERS = 16  # of logs that one process remembers
_NUMBERS = range(2**53)  # of entries, plans and micro-batches: whole in every reader of JSON
_MARKS = range(-(2**63), 2**63)  # event times
_Made = TypeVar("_Made")
_REMEDY = (
    "bring the directory back as it was, or begin a new checkpoint with a new control directory"
)


@dataclass(frozen=True)
class Entry:
    """What holds from micro-batch `first` on, and why."""

    number: int
    epoch: int
    plan: Plan
    first: int
    live: tuple[int, ...]
    cause: Mapping[str, Any]
    marks: Mapping[int, int] = field(default_factory=dict)
    written: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `from_dict` reads."""
        return {
            "number": self.number,
            "epoch": self.epoch,
            "plan": self.plan.to_dict(),
            "first": self.first,
            "live": list(self.live),
            "cause": dict(self.cause),
            "marks": {str(epoch): mark for epoch, mark in self.marks.items()},
            "written": self.written,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Entry:
        """The entry that `to_dict` wrote; whoever else wrote it, its fields are what they are."""
        live, marks = form["live"], {int(epoch): mark for epoch, mark in form["marks"].items()}
        numbers = {name: [form[name]] for name in ("number", "epoch", "first")}
        numbers |= {"live": live, "marked plans": list(marks)}
        for name, found in numbers.items():
            if not all(type(one) is int and one in _NUMBERS for one in found):
                raise ValueError(f"{name} must be whole numbers from 0 to 2**53, got {found!r}")
        if not all(type(mark) is int and mark in _MARKS for mark in marks.values()):
            raise ValueError(f"marks must be times in microseconds, got {marks!r}")
        if not isinstance(live, list) or form["epoch"] not in live:
            raise ValueError(f"live must be a list that holds {form['epoch']}, got {live!r}")
        cause, written = form["cause"], _text(form, "written")
        if not (isinstance(cause, dict) and isinstance(cause.get("figures", {}), dict)):
            raise ValueError(f"cause must be an object, as its figures, got {cause!r}")
        if written and datetime.fromisoformat(written).tzinfo is None:
            raise ValueError(f"written must be a time with its zone, got {written!r}")
        return cls(
            form["number"],
            form["epoch"],
            plan_from_dict(form["plan"]),
            form["first"],
            tuple(live),
            cause,
            marks,
            written,
        )


@dataclass(frozen=True)
class Request:
    """A plan that somebody asked for by hand."""

    name: str
    plan: Plan
    cause: str


@dataclass(frozen=True)
class Refusal:
    """A request that the query did not enact, and why not."""

    asked: str
    cause: str
    why: str
    written: str

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Refusal:
        """What `PlanLog.refuse` wrote."""
        return cls(*(_text(form, name) for name in ("asked", "cause", "why", "written")))


class User(NamedTuple):
    """Who uses a log: an operator of a streaming query.

    `query` and `operator` stay the same when the query is restarted; `run` is that of this start,
    and `call` that of this operator alone, also among others that do the same.
    """

    query: str | None = None
    operator: str = ""
    run: str | None = None
    call: str = ""


_NOBODY = User()


def _owner_of(form: Mapping[str, Any]) -> User:
    """What `PlanLog.claim` wrote."""
    return User(None if form["query"] is None else _text(form, "query"), _text(form, "operator"))


def live_at(entries: Sequence[Entry], batch: int) -> LivePlans | None:
    """The plans under which rows of a micro-batch are sent; None if no entry holds for it."""
    holding = [entry for entry in entries if entry.first <= batch]
    if not holding:
        return None
    plans = {entry.epoch: entry.plan for entry in entries}
    return LivePlans({number: plans[number] for number in holding[-1].live})


class PlanLog:
    """The plan log in a directory: a local path, or any address that pyarrow's filesystems open.

    To look at a log changes nothing in it.

    Examples
    --------
    >>> import tempfile
    >>> from anabranch.plans.hashed import broadcast, grid
    >>> log = PlanLog(tempfile.mkdtemp())
    >>> log.entries(), log.current()
    ([], None)
    >>> _ = log.begin(broadcast(4))
    >>> log.current().plan == broadcast(4)
    True
    >>> log.append(grid(2, 2), cause="trying a grid")
    >>> [request.cause for request in log.requests()]
    ['trying a grid']
    """

    @renamed()
    def __init__(self, path: str | os.PathLike[str]) -> None:
        refuse("PlanLog", path_problems("path", path))
        self._folder = Folder(path)
        self.path = self._folder.path
        self._entries = Numbered(self._folder, self._entry, "plan log", _REMEDY)
        self._epochs: set[int] = set()  # of the entries read

    def entries(self) -> list[Entry]:
        """Every entry so far, oldest first."""
        return self._entries.read()

    def current(self) -> Entry | None:
        """The newest entry, which may hold only from a later micro-batch on."""
        entries = self.entries()
        return entries[-1] if entries else None

    @renamed()
    def draw(self, path: str | os.PathLike[str] | None = None, *, dark: bool = False) -> Any:
        """The log as a chart of plans over time: see `drawing.draw_story`."""
        return draw_story(self.entries(), path, dark=dark)

    def _repr_html_(self) -> str:
        return story_html(self.entries(), self.path)

    @renamed()
    def append(self, plan: Plan, cause: str = "by hand") -> None:
        """Ask the running query for a plan; it takes effect a few micro-batches later.

        If the query cannot have it, `refused` says why.
        """
        if not isinstance(cause, str):
            raise TypeError(f"cause must be a text, got {cause!r}")
        refuse_unloggable(plan)
        name = last_name(self._folder.names("requests", ".json"), ".json")
        self._write(f"requests/{name}", {"plan": plan.to_dict(), "cause": cause})

    def requests(self) -> list[Request]:
        """Plans asked for and not yet enacted, oldest first."""
        return [found for _, found in self._asked() if isinstance(found, Request)]

    def unreadable(self) -> dict[str, str]:
        """Files among the requests that are none, by name, and what is wrong with each."""
        return {name: found for name, found in self._asked() if isinstance(found, str)}

    def refused(self) -> list[Refusal]:
        """Requests that the query did not enact, oldest first."""
        names = self._folder.names("refused", ".json")
        found = [self._read(f"refused/{name}", Refusal.from_dict) for name in names]
        return [one for one in found if one is not None]

    def begin(self, plan: Plan) -> Entry:
        """The first entry of a new log; for the query's driver alone, as all that follow."""
        refuse_unloggable(plan)
        return self.write(Entry(0, 0, plan, 0, (0,), {"rule": "start", "new": str(plan)}))

    def write(self, entry: Entry) -> Entry:
        """Add an entry."""
        # Look again, lest one be written into a gap.
        number = len(self._entries.read(again=True))
        entry = replace(entry, number=number, written=_now())
        self._entries.write(number, entry.to_dict())
        return entry

    def remove(self, request: Request) -> None:
        """Take a request off that has been enacted."""
        self._folder.delete(f"requests/{request.name}")

    def refuse(self, request: Request | str, why: str) -> None:
        """Take a request off, or what is unreadable by that name, and note why."""
        if isinstance(request, Request):
            name, asked, cause = request.name, str(request.plan), request.cause
        else:
            name, asked, cause = request, f"the request {request}", ""
        note = {"asked": asked, "cause": cause, "why": why, "written": _now()}
        self._write(f"refused/{name}", note)
        self._folder.delete(f"requests/{name}")

    def owner(self) -> str | None:
        """The id of the streaming query that this log belongs to, once it has one."""
        found = self._read("owner.json", _owner_of)
        return None if found is None else str(found.query)

    def claim(self, user: User) -> None:
        """Tie the log to one operator of a streaming query, that is to its checkpoint."""
        if not self.check_owner(user):
            self._write("owner.json", {"query": user.query, "operator": user.operator})

    def check_owner(self, user: User) -> bool:
        """Whether the log belongs to somebody; raises if it is another query, or other verb."""
        owner = self._read("owner.json", _owner_of)
        if owner is None:
            return False
        if user.query is not None and owner.query != user.query:
            raise StateMismatch(
                f"the control directory {self.path} belongs to query {owner.query}, this is "
                f"query {user.query}: use the control path that goes with this checkpoint, or a "
                "new one for a new checkpoint"
            )
        if user.operator and owner.operator and owner.operator != user.operator:
            raise StateMismatch(
                f"the control directory {self.path} belongs to another verb of this query: give "
                "each its own control path"
            )
        return True

    def enter(self, user: User) -> None:
        """Make known who uses the log in this run; raises if another call of the query does.

        Every process of every operator calls this: of two operators, whichever looks last finds
        both. What is left of earlier runs is removed.
        """
        if user.run is None or not user.call:
            return
        mine = f"{user.run}.{user.call}.json"
        if mine not in self._folder.names("users", ".json"):
            self._write(f"users/{mine}", {"operator": user.operator})
        for name in self._folder.names("users", ".json"):
            if not name.startswith(f"{user.run}."):
                self._folder.delete(f"users/{name}")
            elif name != mine:
                raise StateMismatch(
                    f"two calls in this query were given the control directory {self.path}: give "
                    "each its own control path"
                )

    def _asked(self) -> Iterator[tuple[str, Request | str]]:
        """What lies among the requests: each readable, or what is wrong with it."""
        for name in self._folder.names("requests", ".json"):
            content = self._folder.read(f"requests/{name}")
            if content is None:  # just enacted
                continue
            try:
                form = json.loads(content)
                yield name, Request(name, plan_from_dict(form["plan"]), str(form["cause"]))
            except UNREADABLE as error:
                yield name, f"it cannot be read ({described(error)})"

    def _entry(self, form: Mapping[str, Any]) -> Entry:
        """An entry after all that were read, whose live plans they know."""
        entry = Entry.from_dict(form)
        unknown = set(entry.live) - self._epochs - {entry.epoch}
        if unknown:
            raise ValueError(f"no entry has begun the live plans {sorted(unknown)}")
        self._epochs.add(entry.epoch)
        return entry

    def _read(self, name: str, made: Callable[[Any], _Made]) -> _Made | None:
        content = self._folder.read(name)
        try:
            return None if content is None else made(json.loads(content))
        except UNREADABLE as error:
            raise StateMismatch(
                f"{name} in {self.path} cannot be read ({described(error)}): {_REMEDY}"
            ) from error

    def _write(self, name: str, form: Mapping[str, Any]) -> None:
        self._folder.write(name, json.dumps(form, indent=1).encode())


class PlanReader:
    """The log as routers read it: which plans are live in a micro-batch."""

    def __init__(self, path: str) -> None:
        self._log = PlanLog(path)
        self._user: User | None = None
        self._owned = False

    def live_at(self, batch: int, plan: Plan, user: User = _NOBODY) -> LivePlans:
        """The plans under which a user's rows of a micro-batch are sent; `plan` if it is new."""
        if user != self._user:
            # Another run: its log may be a new one in the place of one that was removed.
            self._log, self._owned = PlanLog(self._log.path), False
            self._log.enter(user)
            self._user = user
        self._owned = self._owned or self._log.check_owner(user)
        entries = self._log.entries()
        if not entries:
            return LivePlans({0: plan})
        live = live_at(entries, batch)
        if live is None:
            raise StateMismatch(
                f"the plan log in {self._log.path} has no entry for micro-batch {batch}: it does "
                "not belong to this checkpoint, or files were removed"
            )
        return live


@functools.lru_cache(maxsize=_READERS)
def reader(path: str) -> PlanReader:
    """The reader of this process for a log, which remembers what it has read."""
    return PlanReader(path)


def refuse_unloggable(plan: Plan) -> None:
    """Raise if something is no plan, or one that cannot be written to a log."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a plan such as ab.grid(2, 2), got {plan!r}")
    if read_back(plan) != plan:
        raise ValueError(
            f"{plan!r} cannot be written to a log, for plan_from_dict would not read it: take one "
            "of the library's plans, or run a plan class of your own without control="
        )


def _text(form: Mapping[str, Any], name: str) -> str:
    if not isinstance(form[name], str):
        raise ValueError(f"{name} must be a text, got {form[name]!r}")
    return str(form[name])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
