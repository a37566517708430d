"""The owner of some queries under selective routing: a worker of `nearest` that is sent only what
may matter to it, some of it belatedly, and tells the homes of objects what it can promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.flow.blocks import Block, concat
from anabranch.flow.instants import FOREVER
from anabranch.neighbours.kernel import NearestKernel
from anabranch.neighbours.selective.belated import BelatedLists
from anabranch.neighbours.selective.horizons import STEPS, Merger

__all__ = ["OwnerKernel"]


class OwnerKernel(NearestKernel):
    """One owner of queries: `NearestKernel` behind the homes of objects.

    Objects come once the watermark has passed them. One that is later than what has been reached
    waits for nothing; one that is earlier was withheld until now and takes its place in the past.
    """

    def __init__(
        self,
        *about: Any,
        publish: Callable[[int, Merger, Sequence[str]], list[str]] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*about, **more)
        self._heard: dict[str, str] = {}
        self._publish = publish

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """As every worker of `nearest`; then publish what homes may rely on."""
        yield from super().step(arrivals, now, last)
        merger = self.merger()
        if merger is not None and self._publish is not None:
            notes = self.slices.notes
            notes.mergers = self._publish(self.worker, merger, notes.mergers)

    def renew(self, fresh: NearestKernel) -> None:
        """Go on with the slices of a later micro-batch, and publish as of that."""
        super().renew(fresh)
        assert isinstance(fresh, OwnerKernel)
        self._publish = fresh._publish

    def merger(self) -> Merger | None:
        """What to publish after a step; None if it would say little new.

        Nor is anything published after a step in which some home had no stamp: it could not tell
        whether that step is in its past. All have one where there are new objects.
        """
        if self._heard.keys() != self.slices.notes.looks.keys():
            return None
        group = self._groups.get("time")
        if group is None or not len(group.ids) or self._objects.first_past is None:
            return None
        assert isinstance(group.algorithm, BelatedLists)
        step = max(1, int(group.algorithm.queries.window.min()) // STEPS)
        mark = self.reached // step
        if self.slices.notes.published == mark:
            return None
        self.slices.notes.published = mark
        return replace(group.algorithm.merger(), heard=self._heard)

    def _kind(self) -> type[Any]:
        return BelatedLists

    def _take_objects(self, blocks: Sequence[Block], watermark: int) -> None:
        load = self.load
        self._hear(blocks, watermark)
        for block in blocks:
            load.bytes_in += block.nbytes
            load.copies_right += len(block)
        good = [block for block in blocks if len(block)]
        if not good:
            return
        objects = concat(good)
        fresh = objects.t > self.reached
        group = self._groups["time"]
        longest = int(group.algorithm.queries.window.max())
        self._hold(objects.take(np.flatnonzero(fresh)))
        belated = np.flatnonzero(~fresh & (objects.t > self.reached - longest))
        if len(belated):
            block = objects.take(belated).in_time_order()
            self.slices.append(0, block)
            placed, before, numbers = self._objects.insert(block)
            assert isinstance(group.algorithm, BelatedLists)
            points = np.asarray(placed.columns["v"], np.float64)
            marks = self._marking.of(placed)
            group.algorithm.insert(before, placed.t, numbers, points, marks)

    def _hold(self, objects: Block) -> None:
        if len(objects):
            fresh = objects.in_time_order()
            self.slices.append(0, fresh)
            self._objects.add(fresh)

    def _hear(self, blocks: Sequence[Block], watermark: int) -> None:
        """Make sure that no home has still to look at something that could matter by now.

        Homes look in the same micro-batch, before this; should Spark ever pass one by, its objects
        would be missed without a word.
        """
        looks = self.slices.notes.looks
        heard: dict[str, int] = {}
        self._heard = {}
        for block in blocks:
            home, looked = str(block.meta["home"]), block.meta["looked"]
            if looked < watermark:
                raise RuntimeError(
                    f"home {home} has looked up to {looked} and worker {self.worker} is to go on "
                    f"to {watermark}: the two operators of a nearest see different watermarks"
                )
            heard[home] = min(heard.get(home, FOREVER), block.meta["next_look"])
            if block.meta["stamp"] is not None:
                self._heard[home] = block.meta["stamp"]
        looks.update(heard)
        silent = [home for home, next_look in looks.items() if next_look <= watermark]
        if silent:
            raise RuntimeError(
                f"home {silent[0]} had objects to look at by {looks[silent[0]]} and was not called "
                f"before worker {self.worker} went on to {watermark}: no timer fired for it"
            )
