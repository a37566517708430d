"""`nearest` under selective routing without Spark: homes, then owners, called as Spark would.

A home or owner without rows is called only if a timer of it is due; one with rows and a timer is
called twice. All that passes between steps
passes as bytes. Mergers may be lost, or be older than the newest. A run can be saved and taken back
to where it was, as a checkpoint is that somebody restores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix, worker_of
from anabranch.flow.kernel import Task
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.lists.algorithm import Algorithm, Queries
from anabranch.neighbours.selective.belated import BelatedLists
from anabranch.neighbours.selective.homes import HomeKernel, Owners
from anabranch.neighbours.selective.horizons import Merger
from anabranch.neighbours.selective.jobs import HomeJob, OwnerJob
from anabranch.neighbours.selective.mergers import Mergers
from anabranch.neighbours.selective.owners import OwnerKernel
from anabranch.plans.log import User
from anabranch.plans.plan import RIGHT
from anabranch.testing import Workers
from tests.neighbours.runs import Run, Thing, object_block

SPAN = 50_000


class TightOwner(OwnerKernel):
    """An owner whose lists hold hardly more than k, so that they are cut and repaired often."""

    spare: int | None = None

    def _algorithm(self, queries: Queries) -> Algorithm:
        return BelatedLists(queries, self.spare)


@dataclass(frozen=True)
class Homes(HomeJob):
    """Homes that are told of mergers by a run."""

    run: Any = None
    stays = (SPAN,)

    def kernel(self, slices: Any, task: Task) -> HomeKernel:
        return HomeKernel(self.run.owners, slices, task.worker, self.run.chosen)


@dataclass(frozen=True)
class TightOwners(OwnerJob):
    """Owners that tell a run of their mergers."""

    run: Any = None
    stays = (50,)

    def kernel(self, slices: Any, task: Task) -> OwnerKernel:
        made = TightOwner(self.nearest, self.queries, slices, task.worker, publish=self.run.publish)
        made.spare = self.run.spare
        return made


class SelectiveRun(Run):
    """One query set on some workers, each a home of objects and an owner of queries.

    `choose` picks one of an owner's mergers, given as (batch, bytes) oldest first, or None. With
    `lean` owners want nothing but what they cannot rule out; `spare` is that of their lists.
    `kind` is that of workers: read from what is stored, or living on.
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
        kind: type[Workers] = Workers,
    ) -> None:
        super().__init__(call, fixed, late, workers)
        assert self.fixed is not None
        self.owners = Owners.of(self.fixed, workers, call.measure, call.where)
        self.choose = choose
        self.lean = lean
        self.spare = spare
        self.mergers: dict[int, list[tuple[int, bytes]]] = {}
        table = self.fixed.encode(**self.fixed.meta)
        self.owner_count = workers
        self.homes = kind(Homes(call, table, workers, "", run=self))
        self.workers = kind(TightOwners(call, table, "", run=self))
        self.batch = 0

    def step(
        self,
        objects: Sequence[Thing],
        ops: Sequence[dict[str, Any]] = (),
    ) -> None:
        """One micro-batch of objects (t, id, point)."""
        watermark = self.watermark
        inbox: dict[int, list[Block]] = {}
        if objects:
            block = object_block(self.call, objects)
            homes = mix(block.columns["id"]) % self.owner_count
            for home in range(self.owner_count):
                cell = block.take(np.flatnonzero(homes == home)).encode(side=RIGHT)
                inbox[home] = [Block.decode(cell)]
            self.newest = max(self.newest, int(block.t.max()))
        sent: dict[int, list[Block]] = {}
        for home in range(self.owner_count):
            for arrivals in self._calls(self.homes, home, inbox, watermark):
                for batch in self.homes.step(home, arrivals, watermark):
                    for row in batch.to_pylist():
                        owner = worker_of(row["worker"])
                        sent.setdefault(owner, []).append(Block.decode(row["block"]))
        for owner in range(self.owner_count):
            for arrived in self._calls(self.workers, owner, sent, watermark):
                self._work(owner, arrived, watermark)
        self.batch += 1

    def finish(self) -> None:
        """Let time pass, in two leaps, until nothing is left to say."""
        self.newest += 10 * SPAN
        self.step([])
        super().finish()

    def _calls(
        self, workers: Workers, worker: int, inbox: dict[int, list[Any]], watermark: int
    ) -> list[Any]:
        due = workers.is_due(worker, watermark)
        return ([inbox[worker]] if worker in inbox else []) + [[]] * due

    def chosen(self, believes: Callable[[Merger], bool]) -> dict[int, Merger]:
        """The mergers that a home goes by."""
        mergers = {}
        for owner, files in self.mergers.items():
            known = [file for file in files if file[0] < self.batch]
            chosen = self.choose(known) if known else None
            if chosen is not None:
                mergers[owner] = Merger.decode(chosen)
        return mergers

    def publish(self, owner: int, merger: Merger, kept: Sequence[str]) -> list[str]:
        """Keep what an owner tells homes."""
        if self.lean:
            merger.wanted[:] = -1.0
        self.mergers.setdefault(owner, []).append((self.batch, merger.encode()))
        return []

    def total(self, name: str) -> int:
        """A figure of all homes' steps, added up."""
        return sum(getattr(load, name) for load in self.homes.loads)


class KeptControl(SelectiveRun):
    """A run whose mergers are files, which stay when its state is taken back."""

    def __init__(self, folder: str, *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.files = Mergers(folder, User("query", "operator"))

    def save(self) -> dict[str, Any]:
        """All that a checkpoint and a sink hold."""
        kept = {name: copy.deepcopy(getattr(self, name)) for name in ("rows", "newest", "batch")}
        return {**kept, "workers": self.workers.copy(), "homes": self.homes.copy()}

    def take_back(self, saved: dict[str, Any]) -> None:
        """Go on from a saved state."""
        vars(self).update(copy.deepcopy({n: saved[n] for n in ("rows", "newest", "batch")}))
        self.workers, self.homes = saved["workers"].copy(), saved["homes"].copy()

    def chosen(self, believes: Callable[[Merger], bool]) -> dict[int, Merger]:
        return self.files.newest(believes)

    def publish(self, owner: int, merger: Merger, kept: Sequence[str]) -> list[str]:
        return self.files.publish(owner, self.batch, merger, kept)
