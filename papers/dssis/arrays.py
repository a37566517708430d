"""Whole assemblies in one process, over arrays: for experiments and for trying a policy out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.assembly.closing import Closing
from anabranch.assembly.kernel import AssembleKernel
from anabranch.assembly.store import AssembleNotes
from anabranch.assembly.table import Column
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.instants import BEGINNING
from anabranch.flow.load import AssembleLoad
from anabranch.flow.slices import Slices

__all__ = ["Assembled", "assemble_arrays"]


@dataclass(frozen=True)
class Assembled:
    """Rows of the result (`windows`, by `table.Column`) and which events each holds.

    The events of row i are ``rows[starts[i]:starts[i + 1]]``, as positions in the input.
    """

    windows: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    load: AssembleLoad

    def column(self, number: int) -> np.ndarray:
        """One column of the windows."""
        found: np.ndarray = self.windows[:, number]
        return found

    @property
    def row_of(self) -> np.ndarray:
        """For every event the row of the result that holds it."""
        found = np.empty(len(self.rows), np.int64)
        found[self.rows] = np.repeat(np.arange(len(self.windows)), np.diff(self.starts))
        return found

    @property
    def life(self) -> np.ndarray:
        """How long each row's window was open, in microseconds; revisions are left out."""
        first = self.windows[:, Column.REVISION] == 0
        found: np.ndarray = (self.column(Column.CLOSED) - self.column(Column.OPENED))[first]
        return found


def assemble_arrays(
    t: Any,
    key: Any,
    closing: Closing,
    *,
    kind: Any = None,
    end: Any = None,
    stream: Any = None,
    steps: int = 1,
    max_open: int | None = None,
) -> Assembled:
    """Assemble events given as arrays, in event time, to the end of the input.

    Windows that are open at the end wait for their deadline. Rows may come in any order.

    Parameters
    ----------
    t
        Event times in microseconds.
    key
        Whole numbers that name the instance.
    closing
        When windows close.
    kind
        Whole numbers that name the kind; the key if left out.
    end, stream
        When each event ended, and the number of its stream.
    steps
        Into how many steps of the clock the run is cut; the result is the same, the memory less.
    max_open
        Windows that may be open.

    Examples
    --------
    >>> from anabranch.assembly import close
    >>> found = assemble_arrays([10, 12, 13, 40], [1, 2, 1, 1], close.count(2, "9 us"))
    >>> found.windows[:, [Column.OPENED, Column.CLOSED, Column.COUNT]].tolist()
    [[10, 13, 2], [12, 21, 1], [40, 49, 1]]
    >>> [found.rows[a:b].tolist() for a, b in zip(found.starts, found.starts[1:])]
    [[0, 2], [1], [3]]
    """
    times = np.asarray(t, np.int64)
    n = len(times)
    w = np.empty((n, 6), np.int64)
    keys = np.asarray(key, np.int64)
    w[:, 0], w[:, 1] = mix(keys), keys
    w[:, 2] = keys if kind is None else np.asarray(kind, np.int64)
    w[:, 3] = times if end is None else np.asarray(end, np.int64)
    w[:, 4] = 1 if stream is None else np.int64(1) << np.asarray(stream, np.int64)
    w[:, 5] = np.arange(n)
    kernel = AssembleKernel(closing, Slices((0, 0), AssembleNotes()), max_open)
    order = np.argsort(times, kind="stable")
    windows = [np.empty((0, Column.WIDTH), np.int64)]
    starts, rows, offset = [np.zeros(1, np.int64)], [], 0
    kernel.advance([Block.of(times[order], {"w": w[order]})] if n else [], BEGINNING)
    last = int(times.max()) if n else 0
    first = int(times.min()) if n else 0
    clocks = np.linspace(first, last, steps + 1)[1:-1].astype(np.int64).tolist()
    for clock in [*clocks, last, last + 4 * (closing.timeout + closing.remember) + 1]:
        for found in kernel.advance([], clock):
            windows.append(found.windows)
            starts.append(found.starts[1:] + offset)
            offset += int(found.starts[-1])
            if found.items is not None:
                rows.append(found.items.columns["w"][:, 5])
    return Assembled(
        np.concatenate(windows),
        np.concatenate(starts),
        np.concatenate([np.empty(0, np.int64), *rows]),
        kernel.load,
    )
