"""Groups of rows that pairs connect, as they open, grow, merge and close.

Rows are vertices and pairs are edges. A group is a connected component, and it closes once no pair
of it has come for the length of the gap; a later pair of the same rows opens another one. Pairs are
dealt in the order of time and ids once the watermark has passed them, so groups are a function of
the set of pairs, however they come and how often. Pairs that match are few among those compared, so
they are dealt one by one, by one worker.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from anabranch.calls import describe
from anabranch.errors import AnabranchError
from anabranch.flow.blocks import Block, concat
from anabranch.flow.container import pack, unpack
from anabranch.flow.kernel import Task
from anabranch.flow.lateness import late_until, next_step
from anabranch.flow.load import GroupsLoad
from anabranch.flow.slices import BEGINNING, Notes, Slices

__all__ = ["Group", "Grouping", "Groups", "GroupsJob", "GroupsKernel", "Vertex"]

_ENDLESS = 1 << 62
Vertex = tuple[int, Any]  # of which side, and which id; all of one stream are of side 0
Pair = tuple[int, Any, Any]  # time, left id, right id


@dataclass(frozen=True)
class Grouping:
    """A checked call of `groups`: the gap in microseconds, and whether both ids are of one stream.

    `delay` is the lateness that the call allows, None if the input has a watermark of its own. With
    `live`, what waiting pairs would change is emitted too, marked as provisional.
    """

    gap: int
    one_stream: bool
    delay: int | None = None
    most_pairs: int = 100_000
    types: tuple[str, str] = ("bigint", "bigint")
    live: bool = False

    def words(self, what: str = "Groups of rows") -> str:
        """What it does, or what stands on it, for people.

        Examples
        --------
        >>> Grouping(300_000_000, True).words()
        'Groups of rows that pairs connect; one closes after 5 minutes without a pair'
        """
        return f"{what} that pairs connect; one closes after {describe(self.gap)} without a pair"


class Rows(list[Vertex]):
    """Rows of one group, with its name, so that another name for all of them is one step."""

    def __init__(self, group: str, rows: Iterable[Vertex] = ()) -> None:
        super().__init__(rows)
        self.group = group


@dataclass
class Group:
    """One open group. `first` is the pair that names it."""

    name: str
    first: Pair
    last: int
    rows: Rows
    pairs: int = 1
    revision: int = 1


@dataclass
class Groups:
    """Open groups, to which pairs are dealt in order; what happens is in `events`.

    Examples
    --------
    >>> groups = Groups(gap=10, one_stream=True)
    >>> for pair in [(1, "a", "b"), (2, "c", "d"), (5, "b", "c")]:
    ...     groups.deal(*pair)
    >>> groups.close(15)
    >>> for event in groups.events:
    ...     print(event["group"], event["revision"], event["event"], event["into"])
    1970-01-01T00:00:00.000001Z|a|b 1 opened None
    1970-01-01T00:00:00.000002Z|c|d 1 opened None
    1970-01-01T00:00:00.000002Z|c|d 2 merged 1970-01-01T00:00:00.000001Z|a|b
    1970-01-01T00:00:00.000001Z|a|b 2 grew None
    1970-01-01T00:00:00.000001Z|a|b 3 closed None
    >>> groups.events[-1]["left_members"]
    ['a', 'b', 'c', 'd']
    """

    gap: int
    one_stream: bool
    longest: int = _ENDLESS  # how long after its first pair a group takes in others
    open: dict[str, Group] = field(default_factory=dict)
    of: dict[Vertex, Rows] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    pairs: int = 0  # of all open groups
    dropped: Counter[str] = field(default_factory=Counter)  # pairs that connect nothing, by why
    _deadlines: list[tuple[int, Pair, str]] = field(default_factory=list)

    def take_in(self, pair: tuple[Any, ...]) -> None:
        """Take in the next pair as a kernel has it: time and columns."""
        self.deal(*pair)

    def deal(self, t: int, left: Any, right: Any, beside: Iterable[Vertex] = ()) -> None:
        """Add the next pair; it belongs to the groups of the rows `beside` it too."""
        self.close(t - 1)
        self.pairs += 1
        pair = (t, left, right)
        ends: tuple[Vertex, Vertex] = ((0, left), (0 if self.one_stream else 1, right))
        found = {self.of[end].group for end in (*ends, *beside) if end in self.of}
        known = sorted((self.open[name] for name in found), key=lambda group: group.first)
        if not known:
            name = _name(*pair)
            group = self.open[name] = Group(name, pair, t, Rows(name))
        else:
            group = known[0]
            for other in known[1:]:
                self._merge(other, group, pair)
            group.pairs += 1
            group.revision += 1
            group.last = t
        for end in dict.fromkeys(ends):
            if end not in self.of:
                self.of[end] = group.rows
                group.rows.append(end)
        self._emit(group, "grew" if known else "opened", t, pair)
        heapq.heappush(self._deadlines, (self._deadline(group), group.first, group.name))

    def close(self, now: int) -> None:
        """Close the groups that no pair later than `now` can belong to."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, name = heapq.heappop(self._deadlines)
            group = self.open.get(name)
            if group is None or self._deadline(group) != deadline:
                continue  # it has closed or merged, or has had a later pair
            del self.open[name]
            self.pairs -= group.pairs
            for row in group.rows:
                del self.of[row]
            group.revision += 1
            self._emit(group, "closed", deadline, None)

    def next_close(self) -> int | None:
        """When the next group closes, if no pair comes."""
        return min((self._deadline(group) for group in self.open.values()), default=None)

    def _deadline(self, group: Group) -> int:
        return min(group.last + self.gap, group.first[0] + self.longest)

    def _merge(self, one: Group, into: Group, pair: Pair) -> None:
        one.revision += 1
        self._emit(one, "merged", pair[0], pair, into.name)
        into.pairs += one.pairs
        # The fewer rows move, whoever is older, so that a row moves as often as its group doubles.
        fewer, into.rows = sorted((one.rows, into.rows), key=len)
        into.rows.group = into.name
        for row in fewer:
            self.of[row] = into.rows
            into.rows.append(row)
        del self.open[one.name]

    def _emit(
        self, group: Group, event: str, t: int, pair: Pair | None, into: str | None = None
    ) -> None:
        _, left, right = pair or (t, None, None)
        members = [
            sorted(row[1] for row in group.rows if row[0] == side) if event == "closed" else None
            for side in (0, 1)
        ]
        self.events.append(
            {
                "group": group.name,
                "revision": group.revision,
                "event": event,
                "t": t,
                "into": into,
                "rows": len(group.rows),
                "pairs": group.pairs,
                "began": group.first[0],
                "last": group.last,
                "left_id": left,
                "right_id": right,
                "left_members": members[0],
                "right_members": members[1],
            }
        )

    def form(self) -> dict[str, Any]:
        """Open groups in the types of JSON, for `take_up`."""
        form = [[g.name, g.first, g.last, g.rows, g.pairs, g.revision] for g in self.open.values()]
        return {"open": form}

    def take_up(self, form: Mapping[str, Any]) -> None:
        """Continue with the groups of `form`."""
        for name, first, last, rows, pairs, revision in form["open"]:
            held = Rows(name, map(tuple, rows))
            group = self.open[name] = Group(name, tuple(first), last, held, pairs, revision)
            self.of |= dict.fromkeys(held, held)
            self.pairs += pairs
            self._deadlines.append((self._deadline(group), group.first, name))
        heapq.heapify(self._deadlines)


@dataclass(frozen=True)
class GroupsJob:
    """A call of `groups` as its one worker runs it."""

    grouping: Grouping
    verb: ClassVar[str] = "groups"
    small: ClassVar[bool] = False
    notes: ClassVar[type[Notes]] = Notes
    stays: ClassVar[tuple[int, ...]] = (0,)  # pairs wait until the watermark has passed them
    order: ClassVar[tuple[str, ...]] = ("left", "right")  # of pairs of one time
    facts: ClassVar[tuple[str, ...]] = ()  # further columns of a pair
    named: ClassVar[str] = "group"  # the fact that tells groups apart
    best: ClassVar[str] = ""  # equal pairs count once: the one that has most of this fact

    def groups(self) -> Groups:
        """What pairs are dealt to, before the first one."""
        return Groups(self.grouping.gap, self.grouping.one_stream)

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for open groups to keep their meaning.

        The gap may change: an open group then closes by the new one, from its last pair.
        """
        call = self.grouping
        streams = "one" if call.one_stream else "two"
        return {"streams": streams, "ids": ", ".join(call.types)}

    def kernel(self, slices: Slices[Notes], task: Task) -> GroupsKernel:
        """The worker."""
        return GroupsKernel(self, slices, task.worker)


class GroupsKernel:
    """The one worker: pairs wait in its slices, open groups are in its snapshot."""

    late_until: int | None = None

    def __init__(self, job: GroupsJob, slices: Slices[Notes], worker: int = 0) -> None:
        self.job, self.slices = job, slices
        self.load = GroupsLoad(worker)
        self.groups = job.groups()
        self._changed = False

    @property
    def nbytes(self) -> int:
        """About what open groups take."""
        return 200 * len(self.groups.of)

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in pairs, deal those that the watermark has passed, and close what is due."""
        began = time.perf_counter()
        self.load.watermark = now
        by_last_step, reached = self.job.grouping.delay is None, self.slices.notes.reached
        self.late_until = None if now == BEGINNING else late_until(by_last_step, reached, now)
        for block in arrivals:
            self._take_in(block)
        limit = _ENDLESS if last else now
        most = self.job.grouping.most_pairs
        for pair in self._due(limit):
            self._changed = True
            self.groups.take_in(pair)
            if self.groups.pairs > most:
                raise AnabranchError(
                    f"{self.job.verb}: more than {most:,} pairs are in open groups, which "
                    "one worker holds: raise the threshold of the pairs, or shorten gap=; both may "
                    "change at a restart with the same checkpoint"
                )
        self.groups.close(limit)
        events, self.groups.events = self.groups.events, []
        dropped, self.groups.dropped = self.groups.dropped, Counter()
        self._changed = self._changed or bool(events)
        self.load.count(events, dropped)
        if self.job.grouping.live and arrivals and not last:
            events += self._provisional(arrivals)
        self.slices.merge_small()
        self.slices.notes.reached = max(self.slices.notes.reached, now)
        self.load.open_groups, self.load.waiting_pairs = len(self.groups.open), self.slices.rows
        self.load.state_rows = self.slices.rows + len(self.groups.of)
        self.load.state_bytes = self.slices.nbytes + self.nbytes
        self.load.busy_seconds += time.perf_counter() - began
        if events:
            yield pa.RecordBatch.from_pylist(events)

    def due(self) -> int | None:
        """When a pair can be dealt or a group closes; at every watermark where that says what is
        late.
        """
        found = next_step(self.job.grouping.delay is None, self.slices.notes.reached)
        if found is not None:
            return found
        waiting = [entry.first for entry in self.slices.of(0)]
        closing = self.groups.next_close()
        return min([*waiting, *([] if closing is None else [closing])], default=None)

    def snapshot(self) -> bytes | None:
        """Open groups, if they have changed."""
        if not self._changed:
            return None
        self._changed = False
        return pack({}, self.groups.form())

    def restore(self, data: Any) -> None:
        """Take up open groups."""
        self.groups.take_up(unpack(data)[1])

    def renew(self, fresh: GroupsKernel) -> None:
        """Take slices and call of a fresh kernel, whose gap may be another."""
        self.slices, self.load, self.job = fresh.slices, fresh.load, fresh.job
        if fresh.groups.gap != self.groups.gap:
            fresh.groups.take_up(self.groups.form())
            self.groups = fresh.groups

    def _take_in(self, block: Block) -> None:
        self.load.rows += len(block)
        self.load.rejected += block.meta.get("rejected", 0)
        if alone := block.meta.get("alone", 0):
            self.groups.dropped["without partner"] += alone
        limit = self.late_until
        in_time = np.ones(len(block), bool) if limit is None else block.t > limit
        self.load.late += int((~in_time).sum())
        self.slices.append(0, block.take(np.flatnonzero(in_time)).in_time_order())

    def _provisional(self, arrivals: Sequence[Block]) -> list[dict[str, Any]]:
        """How groups would be now if nothing else came: those of new pairs that still wait."""
        waiting = [*self.slices.reach(0, -_ENDLESS, _ENDLESS)]
        if not waiting:
            return []
        trial = self.job.groups()
        trial.take_up(self.groups.form())
        for pair in self._in_order(concat(waiting)):
            trial.take_in(pair)
        new: set[tuple[Any, ...]] = set()
        for block in arrivals:
            ids = (pa.array(block.columns[end]).to_pylist() for end in ("left", "right"))
            new |= set(zip(*ids, strict=True))
        named = self.job.named
        latest = {e[named]: e for e in trial.events if e["event"] in ("opened", "grew")}
        gone = {e[named] for e in trial.events if e["event"] in ("merged", "closed")}
        touched = {e[named] for e in trial.events if (e["left_id"], e["right_id"]) in new}
        shown = [name for name in latest if name in touched and name not in gone]
        # With all rows: other new pairs of a group have no event of their own here.
        rows = {name: sorted(row for _, row in trial.open[name].rows) for name in shown}
        return [{**latest[n], "provisional": True, "members": rows[n]} for n in shown]

    def _due(self, limit: int) -> list[tuple[Any, ...]]:
        """Waiting pairs up to a limit, in their order: times, then columns."""
        whole = self.slices.take_until(0, limit)
        return [] if whole is None else self._in_order(whole)

    def _in_order(self, whole: Block) -> list[tuple[Any, ...]]:
        names = self.job.order + self.job.facts
        columns = (pa.array(whole.columns[name]).to_pylist() for name in names)
        decisive = 1 + len(self.job.order)
        pairs = sorted(
            zip(whole.t.tolist(), *columns, strict=True), key=lambda pair: pair[:decisive]
        )
        # Equal pairs have one time, so they are due together, or late if one has been dealt.
        at = 1 + names.index(self.job.best) if self.job.best else 0
        kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for pair in pairs:
            other = kept.setdefault(pair[:decisive], pair)
            if other is not pair and (pair[at], repr(pair)) > (other[at], repr(other)):
                kept[pair[:decisive]] = pair
        return list(kept.values())


def _name(t: int, left: Any, right: Any) -> str:
    r"""The name of a group whose first pair this is: its time in UTC, and its ids.

    A bar inside an id is marked. Names sort by the age of groups, up to the year 9999.

    Examples
    --------
    >>> _name(1_700_000_000_500_000, 7, "a|b")
    '2023-11-14T22:13:20.500000Z|7|a\\|b'
    """
    ids = (str(one).replace("\\", "\\\\").replace("|", "\\|") for one in (left, right))
    return "|".join((f"{np.datetime64(t, 'us')}Z", *ids))
