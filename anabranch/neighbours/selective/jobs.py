"""The two operators of `nearest` under selective routing, as tasks run them.

In a micro-batch homes look first, and what they send reaches the owners through a shuffle in the
same batch; both see the same watermark. What owners can promise goes back to the homes through
files in the control directory, believed only by homes that remember the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from anabranch.flow.blocks import Block
from anabranch.flow.cache import CACHE
from anabranch.flow.kernel import Task, fingerprint_of, owner_of
from anabranch.flow.slices import Slices
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.notes import NearestNotes
from anabranch.neighbours.selective.homes import HomeKernel, HomeNotes, Owners
from anabranch.neighbours.selective.mergers import Mergers
from anabranch.neighbours.selective.owners import OwnerKernel
from anabranch.plans.log import User

__all__ = ["HomeJob", "OwnerJob"]


@dataclass(frozen=True)
class HomeJob:
    """Homes of objects, which send copies to this many owners of the fixed queries in `table`."""

    nearest: Nearest
    table: bytes
    owners: int
    control: str
    call: str = ""  # what tells this call from others in the query
    verb: ClassVar[str] = "nearest"
    small: ClassVar[bool] = False
    notes: ClassVar[type[HomeNotes]] = HomeNotes

    @cached_property
    def base(self) -> NearestJob:
        """The job of the owners."""
        return NearestJob(self.nearest, self.table)

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be made again."""
        return {name: value for name, value in vars(self).items() if name != "base"}

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same: that of the owners, and how many there are."""
        return {**self.base.settings, "workers": str(self.owners)}

    @property
    def stays(self) -> tuple[int, ...]:
        """About how long objects stay."""
        return self.base.stays

    def kernel(self, slices: Slices[HomeNotes], task: Task) -> HomeKernel:
        """One home."""
        owner = owner_of(self, task.query)
        mergers = _mergers(self.control, _user(self.base, task, self.call), owner)
        # The owner's name tells these queries, their measure and condition from others.
        owners = CACHE.kept(f"owners {owner}", owner, self._owners)
        last = self.nearest.by_last_step
        return HomeKernel(owners, slices, task.worker, mergers.newest, by_last_step=last)

    def _owners(self) -> Owners:
        call = self.nearest
        return Owners.of(Block.decode(self.table), self.owners, call.measure, call.where)


@dataclass(frozen=True)
class OwnerJob(NearestJob):
    """Owners of queries behind homes, which publish in the control directory."""

    control: str = ""
    call: str = ""  # what tells this call from others in the query

    def kernel(self, slices: Slices[NearestNotes], task: Task) -> OwnerKernel:
        """One owner."""
        owner = owner_of(self, task.query)
        mergers = _mergers(self.control, _user(self, task, self.call), owner)
        publish = partial(_publish, mergers, task.batch)
        about = self.nearest, self.queries, slices, task.worker, self.choice(task)
        return OwnerKernel(*about, publish=publish)


def _user(job: NearestJob, task: Task, call: str) -> User:
    return User(task.query, fingerprint_of(job.settings), task.run, call)


def _publish(
    mergers: Mergers, batch: int, owner: int, merger: object, kept: list[str]
) -> list[str]:
    return mergers.publish(owner, batch, merger, kept)  # type: ignore[arg-type]


def _mergers(control: str, user: User, owner: str) -> Mergers:
    """Those of the control directory, which remember what they have read."""
    token = f"mergers {owner} {control!r} {user!r}"
    return CACHE.kept(token, owner, lambda: Mergers(control, user))
