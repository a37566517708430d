"""A call of `nearest` as tasks run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from anabranch.flow.blocks import Block
from anabranch.flow.gpu.choice import Choice
from anabranch.flow.kernel import Task
from anabranch.flow.slices import Slices
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.kernel import NearestKernel
from anabranch.neighbours.notes import NearestNotes

__all__ = ["NearestJob"]


@dataclass(frozen=True)
class NearestJob:
    """A call of `nearest` as tasks run it; `table` holds the fixed queries, encoded."""

    nearest: Nearest
    table: bytes | None
    verb: ClassVar[str] = "nearest"
    small: ClassVar[bool] = False
    notes: ClassVar[type[NearestNotes]] = NearestNotes

    @cached_property
    def queries(self) -> Block | None:
        """The fixed queries."""
        return None if self.table is None else Block.decode(self.table)

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for stored state to keep its meaning."""
        return self.nearest.settings(self.queries)

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be decoded again; what took long to compute goes along."""
        return {name: value for name, value in vars(self).items() if name != "queries"}

    @property
    def stays(self) -> tuple[int, ...]:
        """About how long objects stay; slices are merged up to an eighth of it."""
        if self.queries is not None:
            spans = self.queries.columns["window"][~self.queries.columns["counted"]]
            if len(spans):
                return (int(spans.max()),)
        return (self.nearest.window or 60_000_000,)

    def kernel(self, slices: Slices[NearestNotes], task: Task) -> NearestKernel:
        """One worker."""
        choice = self.choice(task)
        return NearestKernel(self.nearest, self.queries, slices, task.worker, choice)

    def choice(self, task: Task) -> Choice:
        """What a task asks of GPUs; one that it must have is opened at once."""
        made = Choice(self.verb, self.nearest.device, task.gpus, task.worker)
        if made.must:
            made.open()
        return made
