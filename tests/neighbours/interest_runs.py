"""`nearest` under interest routing without Spark: homes, then owners, called as Spark would.

A home or owner without rows is called only if a timer of it is due; one with rows and a timer is
called twice. All that passes between steps
passes as bytes. Mergers may be lost, or be older than the newest. A run can be saved and taken back
to where it was, as a checkpoint is that somebody restores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.slices import Slice, Window
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.interest.belated import BelatedLists
from anabranch.neighbours.interest.homes import HomeKernel, Owners
from anabranch.neighbours.interest.horizons import Merger
from anabranch.neighbours.interest.mergers import Mergers
from anabranch.neighbours.interest.owners import OwnerKernel
from anabranch.neighbours.lists.algorithm import FOREVER, Algorithm, Queries
from anabranch.plans.log import User
from anabranch.plans.plan import RIGHT
from tests.neighbours.runs import Run

SPAN = 50_000


class TightOwner(OwnerKernel):
    """An owner whose lists hold hardly more than k, so that they are cut and repaired often."""

    spare: int | None = None

    def _algorithm(self, queries: Queries) -> Algorithm:
        return BelatedLists(queries, self.spare)


class InterestRun(Run):
    """One query set on some workers, each a home of objects and an owner of queries.

    `choose` picks one of an owner's mergers, given as (batch, bytes) oldest first, or None. With
    `lean` owners want nothing but what they cannot rule out; `spare` is that of their lists.
    """

    def __init__(
        self,
        call: Nearest,
        fixed: Sequence[dict[str, Any]],
        late: int,
        workers: int,
        choose: Callable[[list[tuple[int, bytes]]], bytes | None] = lambda files: files[-1][1],
        lean: bool = False,
        spare: int | None = None,
    ) -> None:
        super().__init__(call, fixed, late, workers)
        assert self.fixed is not None
        self.workers = workers
        self.owners = Owners.of(self.fixed, workers, call.measure)
        self.choose = choose
        self.lean = lean
        self.spare = spare
        self.mergers: dict[int, list[tuple[int, bytes]]] = {}
        self.home_heads: dict[int, bytes] = {}
        self.home_slices: dict[tuple[int, int], bytes] = {}
        self.home_due: dict[int, int] = {}
        self.home_loads: list[Any] = []
        self.due: dict[int, int] = {}
        self.batch = 0

    def step(
        self,
        objects: Sequence[tuple[int, int, Sequence[float]]],
        ops: Sequence[dict[str, Any]] = (),
    ) -> None:
        """One micro-batch of objects (t, id, point)."""
        watermark = self.watermark
        inbox: dict[int, list[Block]] = {}
        if objects:
            t, ids, points = zip(*objects, strict=True)
            block = Block.of(t, {"id": np.array(ids, np.int64), "v": np.array(points, np.float64)})
            homes = mix(block.columns["id"]) % self.workers
            for home in range(self.workers):
                inbox[home] = [block.take(np.flatnonzero(homes == home))]
            self.newest = max(self.newest, *t)
        sent: dict[int, list[tuple[int, Block]]] = {}
        for home in range(self.workers):
            for arrivals in self._calls(home, inbox, self.home_due, watermark):
                for owner, block, notes in self._look(home, arrivals, watermark):
                    cell = block.encode(side=RIGHT, **notes)
                    sent.setdefault(owner, []).append((RIGHT, Block.decode(cell)))
        for owner in range(self.workers):
            for arrived in self._calls(owner, sent, self.due, watermark):
                self._work(owner, arrived, watermark)
        self.batch += 1

    def finish(self) -> None:
        """Let time pass, in two leaps, until nothing is left to say."""
        self.newest += 10 * SPAN
        self.step([])
        super().finish()

    def _calls(
        self, worker: int, inbox: dict[int, list[Any]], due: dict[int, int], watermark: int
    ) -> list[Any]:
        called = [inbox[worker]] if worker in inbox else []
        return called + [[]] * (due.get(worker, FOREVER) <= watermark)

    def _look(
        self, home: int, arrivals: list[Block], watermark: int
    ) -> list[tuple[int, Block, dict[str, Any]]]:
        def fetch(entry: Slice) -> Block:
            return Block.decode(self.home_slices[home, entry.number])

        window = Window.open((SPAN, SPAN), self.home_heads.get(home), fetch)
        kernel = HomeKernel(self.owners, window, home, "fingerprint")
        found = list(kernel.step(arrivals, watermark, self._chosen(kernel)))
        for number in window.dropped:
            del self.home_slices[home, number]
        for number, (_, block) in window.added.items():
            self.home_slices[home, number] = block.encode()
        self.home_heads[home] = window.head()
        self.home_loads.append(kernel.load)
        self.home_due[home] = kernel.due() or 2**62
        return found

    def _chosen(self, kernel: HomeKernel) -> dict[int, Merger]:
        mergers = {}
        for owner, files in self.mergers.items():
            known = [file for file in files if file[0] < self.batch]
            chosen = self.choose(known) if known else None
            if chosen is not None:
                mergers[owner] = Merger.decode(chosen)
        return mergers

    def _kernel(self, window: Window, worker: int) -> OwnerKernel:
        kernel = TightOwner(self.call, self.fixed, window, worker)
        kernel.spare = self.spare
        return kernel

    def _after(self, kernel: Any, worker: int) -> None:
        merger = kernel.merger()
        if merger is not None:
            if self.lean:
                merger.wanted[:] = -1.0
            self._publish(kernel, merger)
        self.due[worker] = kernel.due() or 2**62

    def _publish(self, kernel: OwnerKernel, merger: Merger) -> None:
        self.mergers.setdefault(kernel.worker, []).append((self.batch, merger.encode()))

    def total(self, name: str) -> int:
        """A figure of all homes' steps, added up."""
        return sum(getattr(load, name) for load in self.home_loads)


class KeptControl(InterestRun):
    """A run whose mergers are files, which stay when its state is taken back."""

    def __init__(self, folder: str, *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.files = Mergers(folder, User("query", "operator"))

    def save(self) -> dict[str, Any]:
        """All that a checkpoint and a sink hold."""
        names = ("rows", "newest", "heads", "lists", "slices", "due", "batch", "home_heads")
        kept = {name: getattr(self, name) for name in (*names, "home_slices", "home_due")}
        return copy.deepcopy(kept)

    def take_back(self, saved: dict[str, Any]) -> None:
        """Go on from a saved state."""
        vars(self).update(copy.deepcopy(saved))

    def _chosen(self, kernel: HomeKernel) -> dict[int, Merger]:
        return self.files.newest(kernel.believes)

    def _publish(self, kernel: OwnerKernel, merger: Merger) -> None:
        notes = kernel.window.notes
        kept = notes.get("mergers", [])
        notes["mergers"] = self.files.publish(kernel.worker, self.batch, merger, kept)
