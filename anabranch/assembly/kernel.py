"""One bucket's step: invocations in, closed windows out.

In event time an invocation waits until the clock, which is the watermark, has passed it; then all
those waiting are taken in order of time, key and content, with the timers between them. So the
result is that of the whole stream sorted by time, however it came. An invocation that comes when
the clock has passed its time already is *late*: it joins the open window of its key, or else is a
revision of the instance that lingers, or else a row of its own. In processing time the clock is the
time of the micro-batch, and nothing waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from anabranch.assembly.closing import Closing, Learned
from anabranch.assembly.learning import L_SEEN, new_knowledge
from anabranch.assembly.loop import (
    EMITTED,
    EVICTED,
    HEADS,
    LEARNED,
    LINGERING,
    NEVER,
    OPEN,
    OPENS,
    ORDERS,
    PEAK,
    SLOTS,
    TIMEOUT,
    Column,
    flatten,
    run_loop,
)
from anabranch.assembly.store import BEGINNING, Entry, Store, Tables, refs_of
from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block, concat

__all__ = ["ROW", "AssembleKernel", "AssembleLoad", "Emitted"]

# Columns of the matrix "w" of an invocation: both hashes of its key, the hash of its head, when it
# ended, the bit of its stream, and a hash of its content that settles ties.
ROW = ("h1", "h2", "head", "end", "stream", "tie")

_SLICE_BYTES = 32 << 20


@dataclass(frozen=True)
class Emitted:
    """Rows of the result: the windows' table, where each one's items start, and the items."""

    windows: np.ndarray
    starts: np.ndarray
    items: Block | None

    def __len__(self) -> int:
        return len(self.windows)


@dataclass
class AssembleLoad:
    """One bucket's step in figures. `late` and `rejected` count invocations."""

    worker: int
    watermark: int = 0
    rows: int = 0
    late: int = 0
    rejected: int = 0
    instances: int = 0
    revisions: int = 0
    evicted: int = 0
    timeouts: int = 0
    open_windows: int = 0
    peak_windows: int = 0
    lingering: int = 0
    waiting_rows: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    busy_seconds: float = 0.0
    operator: str = ""

    def to_json(self) -> str:
        """One line that `from_json` reads.

        Examples
        --------
        >>> AssembleLoad.from_json(AssembleLoad(3, instances=7).to_json()).instances
        7
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> AssembleLoad:
        """The report that `to_json` wrote."""
        return cls(**json.loads(text))


class AssembleKernel:
    """The windows of one bucket.

    Parameters
    ----------
    closing
        When windows close.
    store
        What the bucket holds; the step changes it.
    max_open
        Windows that may be open in this bucket.
    by_arrival
        Processing time.
    worker
        The bucket's number.

    Examples
    --------
    >>> from anabranch.assembly.closing import count_or_timeout
    >>> kernel = AssembleKernel(count_or_timeout(2, "5 us"), Store())
    >>> rows = Block.of([1, 3, 9], {"w": np.array([[7, 7, 7, 0, 1, 0]] * 3)})
    >>> _ = kernel.step([rows], clock=0)
    >>> closed = kernel.step([], clock=20)
    >>> closed.windows[:, [Column.OPENED, Column.CLOSED, Column.COUNT, Column.SEQ]].tolist()
    [[1, 3, 2, 0], [9, 14, 1, 0]]
    """

    def __init__(
        self,
        closing: Closing,
        store: Store,
        max_open: int | None = None,
        by_arrival: bool = False,
        worker: int = 0,
    ) -> None:
        self.closing = closing
        self.store = store
        self.max_open = int(NEVER) if max_open is None else max_open
        self.by_arrival = by_arrival
        self.load = AssembleLoad(worker)
        made_for = repr((closing, max_open, by_arrival))
        if store.notes.setdefault("policy", made_for) != made_for:
            raise StateMismatch(
                f"the checkpoint's windows were made by {store.notes['policy']}, the query is now "
                f"{made_for}: restart with the old policy, or begin a new checkpoint"
            )

    def step(self, arrivals: Sequence[Block], clock: int, flush: bool = False) -> Emitted:
        """Take in arrivals, move the clock, and tell what closed.

        The clock never runs backwards. With `flush` the windows that remain open are closed.
        """
        began = time.perf_counter()
        store = self.store
        before = store.notes.get("clock", BEGINNING)
        clock = max(clock, before)
        load = self.load
        load.watermark = clock
        load.rejected += sum(block.meta.get("rejected", 0) for block in arrivals)
        refs, rows = self._due([b for b in arrivals if len(b)], before, clock)
        if not len(refs) and not flush and clock < store.notes.get("next", BEGINNING):
            emitted = Emitted(np.empty((0, Column.WIDTH), np.int64), np.zeros(1, np.int64), None)
        else:
            emitted = self._advance(refs, rows, clock, flush)
        store.notes["clock"] = clock
        self._report(emitted, clock)
        load.busy_seconds += time.perf_counter() - began
        return emitted

    def next_due(self) -> int | None:
        """The clock at which the next step has something to do without new rows."""
        found = int(self.store.notes.get("next", int(NEVER)))
        clock = self.store.notes.get("clock", BEGINNING)
        if not self.by_arrival:
            for entry in self.store.marks.values():
                if entry.last > clock:
                    found = min(found, max(entry.first, clock + 1))
        return None if found >= NEVER else found

    def _due(self, arrivals: list[Block], before: int, clock: int) -> tuple[np.ndarray, np.ndarray]:
        """Store what came; names and figures of the rows that are due, late ones last."""
        store = self.store
        due: list[tuple[int, Block, int, int]] = []
        if not self.by_arrival:
            for number, entry in store.marks.items():
                if entry.last > before and entry.first <= clock:
                    block = store.read_marks(number)
                    ends = np.searchsorted(block.t, (before, clock), "right")
                    due.append((number, block, int(ends[0]), int(ends[1])))
        late = 0
        if arrivals:
            fresh = concat(arrivals).in_time_order()
            self.load.rows += len(fresh)
            for piece in _pieces(fresh):
                passed = len(piece)
                if not self.by_arrival:
                    passed = int(np.searchsorted(piece.t, clock, "right"))
                    late += passed
                ahead = int(NEVER) if self.by_arrival else clock
                due.append((store.append(piece, ahead), piece, 0, passed))
        self.load.late += late
        due = [part for part in due if part[2] < part[3]]
        if not due:
            return np.empty(0, np.int64), np.empty((0, 7), np.int64)
        refs = np.concatenate([refs_of(n, np.arange(a, b)) for n, _, a, b in due])
        t = np.concatenate([block.t[a:b] for _, block, a, b in due])
        w = np.concatenate([block.columns["w"][a:b] for _, block, a, b in due])
        is_late = np.zeros(len(t), np.int64)
        if late:
            is_late[-late:] = 1
        # In processing time all come at once, and what is of one key is taken together.
        order = (
            np.lexsort((w[:, 5], t, w[:, 1], w[:, 0])) if self.by_arrival else _order(t, w, is_late)
        )
        rows = np.empty((len(t), 7), np.int64)
        rows[:, :3] = w[order, :3]
        rows[:, 3] = t[order]
        rows[:, 4:6] = w[order, 3:5]
        rows[:, 6] = is_late[order]
        return refs[order], rows

    def _advance(self, refs: np.ndarray, rows: np.ndarray, clock: int, flush: bool) -> Emitted:
        store, closing = self.store, self.closing
        held = store.tables().arrays
        old = held.get("windows", np.empty((0, Column.WIDTH), np.int64))
        kept = held.get("refs", np.empty(0, np.int64))
        known, n = len(old), len(rows)
        meta = np.empty((known + n, Column.WIDTH), np.int64)
        meta[:known] = old
        names = np.concatenate([kept, refs])
        links = np.full(len(names), -1, np.int64)
        _chain(meta[:known], links)
        heads, degrees, silences, ordered, common = self._knowledge(held, meta[:known], rows)
        size = len(held.get("heads", ()))
        out, starts, items, c = run_loop(
            meta,
            known,
            links,
            rows,
            len(kept),
            clock,
            self.by_arrival,
            flush,
            closing.restarts,
            closing.revises,
            closing.learns,
            closing.size,
            closing.expects,
            closing.timeout,
            closing.linger,
            self.max_open,
            store.notes.get("order", 0),
            store.notes.get("learned", 0),
            heads,
            size,
            degrees,
            silences,
            ordered,
            common,
            *_parameters(closing),
        )
        found = Emitted(out, starts, store.gather(names[items]) if len(items) else None)
        store.notes["order"], store.notes["learned"] = int(c[ORDERS]), int(c[LEARNED])
        self.load.peak_windows = max(self.load.peak_windows, int(c[PEAK]))
        learned = {}
        if closing.learns:
            learned = _settled(heads[: c[HEADS]], degrees, silences, ordered, common)
        self._keep(meta[: c[SLOTS]], links, names, clock, learned)
        assert int(c[EMITTED]) == len(out) and self.load.open_windows == (
            0 if flush else int(c[OPENS])
        )
        return found

    def _keep(
        self,
        meta: np.ndarray,
        links: np.ndarray,
        names: np.ndarray,
        clock: int,
        learned: dict[str, np.ndarray],
    ) -> None:
        """Store the windows that are open or linger, the latter in the order they closed."""
        lingering = np.flatnonzero(meta[:, Column.STATE] == LINGERING)
        lingering = lingering[np.argsort(meta[lingering, Column.ORDER], kind="stable")]
        is_open = np.flatnonzero(meta[:, Column.STATE] == OPEN)
        meta = meta[np.concatenate([lingering, is_open])]
        rows, starts = flatten(meta, links, len(links))
        meta[:, Column.LINK] = starts[:-1]
        meta[:, Column.LINK_END] = starts[1:] - 1
        meta[: len(lingering), Column.LINK : Column.QUEUED + 1] = -1
        refs = self.store.clean(names[rows], int(NEVER) if self.by_arrival else clock)
        self.store.put_tables(Tables({"windows": meta, "refs": refs, **learned}))
        due = int(NEVER)
        if len(is_open):
            due = int(meta[len(lingering) :, Column.DUE].min())
        if len(lingering):
            due = min(due, int(meta[0, Column.CLOSED]) + self.closing.linger)
        self.store.notes["next"] = due
        self.load.open_windows, self.load.lingering = len(is_open), len(lingering)

    def _knowledge(
        self, held: dict[str, np.ndarray], meta: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """What is known of heads, with room for more; as good as nothing unless it is learned."""
        if not self.closing.learns:
            return new_knowledge({}, 1)
        room = len(np.unique(np.concatenate([meta[:, Column.HEAD], rows[:, 2]]))) + 1
        return new_knowledge(held, room)

    def _report(self, emitted: Emitted, clock: int) -> None:
        load, windows = self.load, emitted.windows
        revisions = windows[:, Column.REVISION] > 0
        load.revisions += int(revisions.sum())
        load.instances += int((~revisions).sum())
        load.timeouts += int((windows[:, Column.REASON] == TIMEOUT).sum())
        load.evicted += int((windows[:, Column.REASON] == EVICTED).sum())
        tables = self.store.tables().arrays
        if "windows" in tables:
            states = tables["windows"][:, Column.STATE]
            load.open_windows = int((states == OPEN).sum())
            load.lingering = len(states) - load.open_windows
        load.state_rows, load.state_bytes = self.store.rows, self.store.nbytes
        if not self.by_arrival:
            held = {n: e for n, e in self.store.marks.items() if e.last > clock}
            load.waiting_rows = sum(self._waiting(n, e, clock) for n, e in held.items())

    def _waiting(self, number: int, entry: Entry, clock: int) -> int:
        """Rows of a slice that the clock has not passed."""
        if entry.first > clock:
            return entry.rows
        t = self.store.read_marks(number).t
        return len(t) - int(np.searchsorted(t, clock, "right"))


def _settled(
    heads: np.ndarray,
    degrees: np.ndarray,
    silences: np.ndarray,
    ordered: np.ndarray,
    common: np.ndarray,
) -> dict[str, np.ndarray]:
    """What is known as it is stored, the head that was learned about longest ago first."""
    live = np.flatnonzero(heads[:, L_SEEN] >= 0)
    live = live[np.argsort(heads[live, L_SEEN], kind="stable")]
    return {
        "heads": heads[live],
        "degrees": degrees[live],
        "silences": silences[live],
        "ordered": ordered[live],
        "common": common,
    }


def _pieces(block: Block) -> list[Block]:
    """A block, in order of time, cut into slices of a size that state stores bear."""
    count = max(1, -(-block.nbytes // _SLICE_BYTES))
    step = -(-len(block) // count)
    return [block.slice(at, min(at + step, len(block))) for at in range(0, len(block), step)]


def _order(t: np.ndarray, w: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Rows in order of time, key and content, late ones after the others."""
    order = np.argsort(t + (late << np.int64(61)) if late.any() else t, kind="stable")
    equal = t[order[1:]] == t[order[:-1]]
    if equal.any():  # sort only the runs of equal times
        tied = np.zeros(len(t), bool)
        tied[1:] |= equal
        tied[:-1] |= equal
        places = np.flatnonzero(tied)
        rows = order[places]
        again = np.lexsort((w[rows, 5], w[rows, 1], w[rows, 0], t[rows], late[rows]))
        order[places] = rows[again]
    return order


def _chain(meta: np.ndarray, links: np.ndarray) -> None:
    """Link the stored rows of each open window, which stand one after the other."""
    is_open = meta[:, Column.STATE] == OPEN
    if is_open.any():
        count = int(meta[is_open, Column.LINK_END].max()) + 1
        links[:count] = np.arange(1, count + 1)
        links[meta[is_open, Column.LINK_END]] = -1


def _parameters(closing: Closing) -> tuple[float, float, int, int, int]:
    """What a learned policy learns by: risk, coverage, after, most heads, and how long it holds."""
    if not isinstance(closing, Learned):
        return 0.0, 0.0, 0, 0, 0
    # By then instances of the very beginning have settled, long ones as well as short ones.
    hold = closing.timeout + 2 * closing.linger
    return closing.risk, closing.coverage, closing.after, closing.max_heads, hold
