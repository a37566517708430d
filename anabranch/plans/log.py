"""The numbered, append-only log of plans, and its story.

A control directory holds one small JSON file per entry, written whole and never changed. An entry
says: from micro-batch `first` on, rows are stamped with plan `epoch` and sent under the `live`
plans. A new plan, a retired one, the newest event time of a replaced plan (its *mark*): each is an
entry. The query's driver is the only writer; people ask for a plan with `append`, which leaves a
request that the driver takes up. Routers read the log for the micro-batch they are in, so a
repeated task routes as before.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from anabranch.errors import StateMismatch
from anabranch.flow.folders import Folder
from anabranch.plans.plan import Plan, plan_from_dict
from anabranch.plans.routing import LivePlans

__all__ = ["Entry", "PlanLog", "PlanReader", "Request"]


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
        """The entry that `to_dict` wrote."""
        return cls(
            form["number"],
            form["epoch"],
            plan_from_dict(form["plan"]),
            form["first"],
            tuple(form["live"]),
            form["cause"],
            {int(epoch): mark for epoch, mark in form["marks"].items()},
            form["written"],
        )


@dataclass(frozen=True)
class Request:
    """A plan that somebody asked for by hand."""

    name: str
    plan: Plan
    cause: str


class PlanLog:
    """The plan log in a directory: a local path, or any address that pyarrow's filesystems open.

    Examples
    --------
    >>> import tempfile
    >>> from anabranch.plans.plan import grid, ssp
    >>> log = PlanLog(tempfile.mkdtemp())
    >>> log.entries(), log.current()
    ([], None)
    >>> _ = log.begin(ssp(4), first=0)
    >>> log.current().plan == ssp(4)
    True
    >>> log.append(grid(2, 2), cause="trying a grid")
    >>> [request.cause for request in log.requests()]
    ['trying a grid']
    """

    def __init__(self, path: str) -> None:
        self.path = str(path)
        self._folder = Folder(self.path)
        self._known: list[Entry] = []

    def entries(self) -> list[Entry]:
        """Every entry so far, oldest first."""
        while (form := self._read(_entry_name(len(self._known)))) is not None:
            self._known.append(Entry.from_dict(form))
        return list(self._known)

    def current(self) -> Entry | None:
        """The newest entry, which may hold only from a later micro-batch on."""
        entries = self.entries()
        return entries[-1] if entries else None

    def append(self, plan: Plan, cause: str = "by hand") -> None:
        """Ask the running query for a plan; it takes effect a few micro-batches later."""
        if not isinstance(plan, Plan):
            raise TypeError(f"append takes a plan such as ab.grid(2, 2), got {plan!r}")
        _refuse_unreadable(plan)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
        form = {"plan": plan.to_dict(), "cause": cause}
        self._write(f"requests/{stamp}-{uuid.uuid4().hex[:8]}.json", form)

    def requests(self) -> list[Request]:
        """Plans asked for and not yet taken up, oldest first."""
        found = []
        for name in self._folder.names("requests", ".json"):
            try:
                form = self._read(f"requests/{name}")
                if form is not None:
                    found.append(Request(name, plan_from_dict(form["plan"]), form["cause"]))
            except (ValueError, KeyError, TypeError) as error:
                warnings.warn(
                    f"the request {name} in {self.path} cannot be read and is removed: {error}",
                    stacklevel=2,
                )
                self._folder.delete(f"requests/{name}")
        return found

    def settle(self, request: Request) -> None:
        """Remove a request that has been enacted or refused."""
        self._folder.delete(f"requests/{request.name}")

    def begin(self, plan: Plan, first: int) -> Entry:
        """The first entry of a new log."""
        _refuse_unreadable(plan)
        cause = {"rule": "start", "new": str(plan)}
        return self.write(Entry(0, 0, plan, first, (0,), cause))

    def write(self, entry: Entry) -> Entry:
        """Add an entry; for the query's driver alone."""
        written = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        entry = Entry(**{**entry.__dict__, "number": len(self.entries()), "written": written})
        self._write(_entry_name(entry.number), entry.to_dict())
        self._known.append(entry)
        return entry

    def owner(self) -> str | None:
        """The id of the streaming query that this log belongs to, once it has one."""
        form = self._read("owner.json")
        return None if form is None else str(form["query"])

    def claim(self, query: str, operator: str = "", former: str = "") -> None:
        """Tie the log to one operator of a streaming query, that is to its checkpoint."""
        if self.owner() is None:
            self._write("owner.json", {"query": query, "operator": operator})
        else:
            self.check_owner(query, operator, former)

    def check_owner(self, query: str | None, operator: str = "", former: str = "") -> None:
        """Raise if the log belongs to another streaming query, or to another verb in it.

        `former` is what earlier versions called the operator.
        """
        form = self._read("owner.json")
        if form is None or query is None:
            return
        if form["query"] != query:
            raise StateMismatch(_not_mine(self.path, form["query"], query))
        if operator and form.get("operator") and form["operator"] not in (operator, former):
            raise StateMismatch(
                f"the control directory {self.path} belongs to another verb of this query: give "
                "each its own control path"
            )

    def _read(self, name: str) -> Any:
        content = self._folder.read(name)
        return None if content is None else json.loads(content)

    def _write(self, name: str, form: Mapping[str, Any]) -> None:
        self._folder.write(name, json.dumps(form, indent=1).encode())


class PlanReader:
    """The log as routers read it: which plans are live in a micro-batch."""

    def __init__(self, path: str) -> None:
        self._log = PlanLog(path)
        self._query: str | None = None
        self._checked: set[str] = set()

    def live_at(
        self, batch: int, query: str | None = None, operator: str = "", former: str = ""
    ) -> LivePlans:
        """The plans under which rows of micro-batch `batch` of query `query` are sent."""
        if query != self._query:
            # Another query: its log may be a new one in the place of one that was removed.
            self._log, self._query, self._checked = PlanLog(self._log.path), query, set()
        if operator not in self._checked:
            self._log.check_owner(query, operator, former)
            if self._log.owner() is not None:
                self._checked.add(operator)
        entries = self._log.entries()
        plans = {entry.epoch: entry.plan for entry in entries}
        holding = [entry for entry in entries if entry.first <= batch]
        if not holding:
            raise StateMismatch(
                f"the plan log in {self._log.path} has no entry for micro-batch {batch}: it does "
                "not belong to this checkpoint, or files were removed"
            )
        return LivePlans({number: plans[number] for number in holding[-1].live})


def _refuse_unreadable(plan: Plan) -> None:
    if _read_back(plan) != plan:
        raise ValueError(
            f"{plan!r} cannot be written to a log, for plan_from_dict would not read it: take one "
            "of the library's plans, or run a plan class of your own without control="
        )


def _read_back(plan: Plan) -> Plan | None:
    try:
        return plan_from_dict(json.loads(json.dumps(plan.to_dict())))
    except (ValueError, KeyError, TypeError):
        return None


def _entry_name(number: int) -> str:
    return f"{number:08d}.json"


def _not_mine(path: str, owner: str, query: str) -> str:
    return (
        f"the control directory {path} belongs to query {owner}, this is query {query}: use the "
        "control path that goes with this checkpoint, or a new one for a new checkpoint"
    )


# Readers live as long as the Python worker process and remember what they have read.
_READERS: dict[str, PlanReader] = {}


def reader(path: str) -> PlanReader:
    """The reader of this process for a log."""
    if path not in _READERS:
        _READERS[path] = PlanReader(path)
    return _READERS[path]
