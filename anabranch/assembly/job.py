"""A call of `assemble` as tasks run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar

from anabranch.assembly.call import Assembly
from anabranch.assembly.kernel import AssembleKernel
from anabranch.assembly.packing import result_batch
from anabranch.assembly.store import AssembleNotes
from anabranch.calls import describe
from anabranch.flow.instants import FOREVER
from anabranch.flow.kernel import Task
from anabranch.flow.slices import Slices

__all__ = ["AssembleJob"]


@dataclass(frozen=True)
class AssembleJob:
    """Keys in so many buckets, over streams or tables."""

    call: Assembly
    buckets: int
    streaming: bool
    verb: ClassVar[str] = "assemble"
    small: ClassVar[bool] = True
    notes: ClassVar[type[AssembleNotes]] = AssembleNotes

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for open windows to keep their meaning."""
        closing = self.call.closing
        policy = {"close": type(closing).__name__.lower()}
        for part in fields(closing):
            if part.name in ("marker", "grace") and closing.marker is None:
                continue
            if part.name == "declared":  # what a size proves changes no window
                continue
            value = getattr(closing, part.name)
            lasts = part.name in ("timeout", "remember", "grace")
            policy[f"close {part.name}"] = describe(value) if lasts else str(value)
        policy["max_open"] = str(self.call.max_open)
        return {**self.call.settings, **policy, "plan": f"ab.keyed({self.buckets})"}

    @property
    def stays(self) -> tuple[int, ...]:
        """About how long rows stay; in processing time that says nothing of their own times."""
        closing = self.call.closing
        stay = FOREVER // 2 if self.call.by_arrival else closing.timeout + closing.remember
        return (stay, stay)

    def kernel(self, slices: Slices[AssembleNotes], task: Task) -> AssembleKernel:
        """One bucket."""
        return AssembleKernel(
            self.call.closing,
            slices,
            self.call.open_per_bucket(self.buckets),
            by_arrival=self.call.by_arrival,
            by_last_step=not self.streaming or self.call.delay is None,
            worker=task.worker,
            result=partial(result_batch, self.call),
        )
