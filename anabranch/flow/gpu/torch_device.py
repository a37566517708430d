"""A GPU by way of Triton and torch: memory, streams and launches around the kernels.

Two streams: kernels run in one, copies in the other, so that candidates of one launch are fetched
and decided, and new rows uploaded, while the next launch computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from anabranch.flow.cache import Cache
from anabranch.flow.gpu.areas import report_areas, scan_areas
from anabranch.flow.gpu.device import MOST_HITS, Hits, How, Rows, Work
from anabranch.flow.gpu.join import FIELDS, report, scan
from anabranch.flow.gpu.tilings import AREAS, Tiling, tiling_of, width_of

__all__ = ["TorchDevice", "TorchRows"]

_ENDS = np.iinfo(np.int64)
_ROOM = 256  # rows behind each matrix that a tile may read: as many as it has at most
_FIRST_ROOM = 1 << 20
_REPORTERS = 32  # programs of `report` on each multiprocessor
_PART = 64  # right rows that one of them takes at a time


@dataclass
class TorchRows:
    """Rounded rows with their squared norms, and the int64 stamps of the rows.

    For areas `matrix` holds rows by columns, or sums of columns, and `more` all columns.
    """

    matrix: torch.Tensor
    more: torch.Tensor
    stamps: torch.Tensor
    error: float = 0.0
    by_columns: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        more = 0 if self.more is self.matrix else self.more.nbytes
        return int(self.matrix.nbytes + more + self.stamps.nbytes)


class _Started(NamedTuple):
    work: Sequence[Work]
    how: How
    table: torch.Tensor
    stretches: torch.Tensor
    grid: tuple[int, int, int]
    rows: _List
    pairs: _List
    counts: torch.Tensor
    done: Any


class _List(NamedTuple):
    triples: torch.Tensor
    capacity: int


class TorchDevice:
    """One GPU; without a number Triton's interpreter on the CPU, for tests of the kernels."""

    def __init__(self, number: int | None, memory: Cache, tiling: Tiling | None = None) -> None:
        self.memory = memory
        self.failed = ""
        self._on = torch.device("cpu") if number is None else torch.device("cuda", number)
        self._tiling = tiling
        # The interpreter does not know bfloat16: it multiplies the same numbers in float32.
        self._type = torch.float32 if number is None else torch.bfloat16
        self._streams: dict[str, Any] = {}
        self._programs = 4
        if number is not None:
            # Rounding new rows is short, so it does not wait for the rest of a launch.
            self._streams = {
                name: torch.cuda.Stream(self._on, priority=priority)
                for name, priority in (("copies", -1), ("kernels", 0))
            }
            found = torch.cuda.get_device_properties(self._on).multi_processor_count
            self._programs = _REPORTERS * found
        self._capacity = [_FIRST_ROOM, _FIRST_ROOM]

    @property
    def run(self) -> int:
        """How many left rows share a stretch."""
        return 128 if self._tiling is None else self._tiling.rows

    def upload(self, matrix: np.ndarray, stamps: np.ndarray, norms: np.ndarray | None) -> TorchRows:
        """Round rows to bfloat16 and measure what that loses."""
        with self._stream("copies"):
            exact = self._sent(matrix).double()
            if norms is not None:
                exact /= self._sent(norms).sqrt()[:, None]
            n, d = exact.shape
            rounded = torch.zeros((n + _ROOM, width_of(d)), dtype=self._type, device=self._on)
            rounded[:n, :d] = exact.bfloat16()
            there = rounded.double()
            squares = there.square().sum(1).float()
            squares[n:] = torch.nan  # zeros might well be near to something
            # The sum of squares is computed in float64: the last factor is more than it may err.
            lost = (exact - there[:n, :d]).square().sum(1).max().sqrt() * (1 + 2.0**-30)
            # Reading the number waits for the rest: the rows are there for any stream.
            return TorchRows(rounded, squares, self._sent(stamps), float(lost))

    def upload_columns(
        self, whole: np.ndarray, sums: np.ndarray | None, stamps: np.ndarray
    ) -> TorchRows:
        """Turn float32 rows into columns."""
        with self._stream("copies"):
            all_of_it = self._columns(whole)
            fewer = all_of_it if sums is None else self._columns(sums)
            sent = self._sent(stamps)
            if self._streams:  # as `upload` does, so that they are there for any stream
                self._streams["copies"].synchronize()
            return TorchRows(fewer, all_of_it, sent, by_columns=True)

    def _columns(self, rows: np.ndarray) -> torch.Tensor:
        n, d = rows.shape
        # What lies behind the last row is near to nothing, and far from nothing.
        turned = torch.full((d, n + _ROOM), torch.nan, dtype=torch.float32, device=self._on)
        turned[:, :n] = self._sent(rows).T
        return turned

    def bounded(self, rows: Rows, share: float, own: np.ndarray) -> TorchRows:
        """Other norms beside the same matrix; there is room behind them, too."""
        of = _rows(rows)
        with self._stream("copies"):
            norms = of.more.double() * share
            norms[: len(own)] += self._sent(own)
            return replace(of, more=norms.float())

    def part(self, rows: Rows, start: int, stop: int) -> TorchRows:
        """A copy of some rows, with room behind them."""
        of = _rows(rows)
        with self._stream("copies"):
            behind = slice(start, stop + _ROOM)
            where = (slice(None), behind) if of.by_columns else behind
            matrix = of.matrix[where].clone()
            more = matrix if of.more is of.matrix else of.more[where].clone()
            stamps = of.stamps[:, start:stop].clone()
            return TorchRows(matrix, more, stamps, of.error, of.by_columns)

    def release(self) -> None:
        """Have torch give back what it keeps for later."""
        if self._streams:
            torch.cuda.empty_cache()

    def start(self, work: Sequence[Work], how: How) -> _Started:
        """Launch both kernels."""
        with self._stream("kernels"):
            if self._streams:
                self._streams["kernels"].wait_stream(self._streams["copies"])
            table, stretches, grid = self._tabled(work)
            return self._launched(work, how, table, stretches, grid)

    def finish(self, started: _Started) -> Hits | None:
        """Fetch candidates; look again if there was too little room for them."""
        while True:
            if started.done is not None:
                started.done.synchronize()
            with self._stream("copies"):
                listed, found = started.counts.tolist()
                if max(listed, found) > MOST_HITS:
                    return None
                if listed <= started.rows.capacity and found <= started.pairs.capacity:
                    # Line by line: all at once would take a kernel, behind the next launch.
                    lines = started.pairs.triples.view(3, -1)
                    return _in_order(*(line[:found].cpu().numpy() for line in lines))
            # While rows did not fit, not all pairs are counted.
            for which, needed in enumerate((listed, found)):
                if needed > self._capacity[which]:
                    self._capacity[which] = 1 << (needed - 1).bit_length()
            with self._stream("kernels"):
                started = self._launched(*started[:5])

    def _launched(
        self,
        work: Sequence[Work],
        how: How,
        table: torch.Tensor,
        stretches: torch.Tensor,
        grid: tuple[int, int, int],
    ) -> _Started:
        rows, pairs = (
            _List(torch.empty(3 * size, dtype=torch.int32, device=self._on), size)
            for size in self._capacity
        )
        counts = torch.zeros(2, dtype=torch.int64, device=self._on)
        started = _Started(work, how, table, stretches, grid, rows, pairs, counts, None)
        (self._areas if how == "area" else self._products)(started)
        if not self._streams:
            return started
        done = torch.cuda.Event()
        done.record()
        return started._replace(done=done)

    def _products(self, started: _Started) -> None:
        work, how, table, stretches, grid, rows, pairs, counts, _ = started
        like = _rows(work[0].left).matrix
        norms = how == "distance"
        # Of a product the sign is all there is to the factor.
        negative = not norms and work[0].goal.factor < 0
        tiling = self._tiles(work)
        scan[grid](
            table,
            stretches,
            like,
            rows.triples,
            counts,
            rows.capacity,
            WIDTH=like.shape[1],
            DEPTH=tiling.depth,
            ROWS=tiling.rows,
            COLS=tiling.cols,
            TILES=tiling.tiles,
            STAGES=tiling.stages,
            NORMS=norms,
            NEGATIVE=negative,
            num_warps=tiling.warps,
        )
        report[(self._programs,)](
            table,
            stretches,
            like,
            rows.triples,
            pairs.triples,
            counts,
            rows.capacity,
            pairs.capacity,
            WIDTH=like.shape[1],
            DEPTH=min(tiling.depth, 64),
            ROWS=tiling.rows,
            COLS=tiling.cols,
            PART=min(tiling.cols, _PART),
            NORMS=norms,
            NEGATIVE=negative,
            num_warps=2,
        )

    def _areas(self, started: _Started) -> None:
        work, _, table, stretches, grid, rows, pairs, counts, _ = started
        first, upward = _rows(work[0].left), work[0].goal.factor > 0
        tiling = self._tiles(work)
        scan_areas[grid](
            table,
            stretches,
            rows.triples,
            counts,
            rows.capacity,
            WIDTH=first.matrix.shape[0],
            ROWS=tiling.rows,
            COLS=tiling.cols,
            TILES=tiling.tiles,
            UPWARD=upward,
            num_warps=tiling.warps,
        )
        report_areas[(self._programs,)](
            table,
            stretches,
            rows.triples,
            pairs.triples,
            counts,
            rows.capacity,
            pairs.capacity,
            WHOLE=first.more.shape[0],
            ROWS=tiling.rows,
            COLS=tiling.cols,
            PART=min(tiling.cols, _PART),
            UPWARD=upward,
            num_warps=2,
        )

    def _tiles(self, work: Sequence[Work]) -> Tiling:
        first = _rows(work[0].left)
        if self._tiling is not None:
            return self._tiling
        return AREAS if first.by_columns else tiling_of(first.matrix.shape[1])

    def _tabled(
        self, work: Sequence[Work]
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[int, int, int]]:
        """The table of a launch, its stretches, and how many programs it takes."""
        tiling = self._tiles(work)
        stretches = np.concatenate([one.stretches for one in work])
        starts = np.cumsum([0, *(one.stretches.size for one in work)])[:-1]
        lines = [_line(one, int(start)) for one, start in zip(work, starts, strict=True)]
        both = self._sent(np.concatenate([np.array(lines, np.int64).ravel(), stretches.ravel()]))
        cells = len(lines) * len(FIELDS)
        widest = int((stretches[:, 1] - stretches[:, 0]).max())
        tallest = max(len(one.stretches) for one in work)
        across = -(-widest // (tiling.tiles * tiling.cols))
        return both[:cells], both[cells:], (tallest, max(1, across), len(work))

    def _sent(self, array: np.ndarray) -> torch.Tensor:
        """A copy on the device, by way of memory that it can read by itself."""
        if not self._streams:
            return torch.tensor(np.ascontiguousarray(array))
        pinned = torch.empty(array.shape, dtype=_TYPES[array.dtype], pin_memory=True)
        pinned.numpy()[...] = array
        return pinned.to(self._on, non_blocking=True)

    @contextmanager
    def _stream(self, name: str) -> Iterator[None]:
        if not self._streams:
            yield
            return
        with torch.cuda.device(self._on), torch.cuda.stream(self._streams[name]):
            yield


_TYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int64): torch.int64,
}


def _in_order(pair: np.ndarray, left: np.ndarray, right: np.ndarray) -> Hits:
    """Candidates sorted as one number each, which is many times as fast as by three columns."""
    tall, wide = (int(rows.max(initial=0)).bit_length() for rows in (left, right))
    key = (((pair.astype(np.int64) << tall) | left) << wide) | right
    key.sort()
    columns = key >> (tall + wide), (key >> wide) & ((1 << tall) - 1), key & ((1 << wide) - 1)
    return Hits(*(column.astype(np.int32) for column in columns))


def _rows(rows: Any) -> TorchRows:
    assert isinstance(rows, TorchRows)
    return rows


def _line(work: Work, start: int) -> list[int]:
    """The numbers of `FIELDS` for one pair."""
    left, right, goal = _rows(work.left), _rows(work.right), work.goal
    ahead, back = work.window
    pointers = [x.data_ptr() for x in (left.matrix, right.matrix, left.more, right.more)]
    # Times, epochs, masks; of right rows the masks are in the fourth line.
    stamps = [
        rows.stamps[line].data_ptr()
        for lines in ((0, 0), (1, 1), (2, 3))
        for rows, line in zip((left, right), lines, strict=True)
    ]
    return [
        *pointers,
        *stamps,
        left.stamps.shape[1],
        start,
        _halves(float(goal.low), goal.factor),
        _halves(_share(goal.row), _share(goal.col)),
        min(back, _ENDS.max),
        min(ahead, _ENDS.max),
        _ENDS.min + back if back <= _ENDS.max else _ENDS.max,
        _ENDS.max - ahead if ahead <= _ENDS.max else _ENDS.min,
        left.matrix.shape[1],
        right.matrix.shape[1],
    ]


def _share(norms: np.ndarray | None) -> float:
    return 0.0 if norms is None else float(norms[0])


def _halves(low: float, high: float) -> int:
    """Two float32 in one number."""
    return int(np.array([low, high], "<f4").view("<i8")[0])
