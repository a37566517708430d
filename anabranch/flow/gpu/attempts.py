"""What to do if a device refuses: make room if memory is full, else leave the work to the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anabranch.flow.gpu.choice import lost, warn_once
from anabranch.flow.gpu.device import Device

__all__ = ["Attempts"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Attempts:
    """Work that a device may refuse.

    What does not fit into its memory is left to the CPU. If the device fails, so is all that
    follows; one that `must` not fail raises, also if it has failed another query of this process.
    """

    device: Device
    must: bool = False

    def of(self, work: Callable[[], _T]) -> _T | None:
        """What the work gives, at the second attempt if there was too little memory at the first.

        None where the CPU is to do it.
        """
        if not self.usable():
            return None
        for _ in range(2):
            try:
                return work()
            except Exception as error:
                if not self.refused(error):
                    return None
        return None

    def usable(self) -> bool:
        """Whether the device has not failed."""
        if self.must and self.device.failed:
            raise lost(self.device.failed)
        return not self.device.failed

    def refused(self, error: Exception) -> bool:
        """Make room if there is too little memory, else give the device up; whether to go on."""
        device, memory = self.device, self.device.memory
        if _is_memory(error):
            if memory.nbytes:  # else it is others who fill it
                memory.shrink(memory.nbytes // 2)
            device.release()
            warn_once(
                "the memory of the GPU is full: keeping fewer rows there, and comparing on the CPU "
                "what does not fit; set ANABRANCH_GPU_MB to less, or run fewer workers on a GPU"
            )
            return True
        what = f"{type(error).__name__}: {error}"
        if self.must:
            raise lost(what) from error
        device.failed = what
        warn_once(f"device='auto': comparing on the CPU from now on, since the GPU failed: {what}")
        return False


def _is_memory(error: Exception) -> bool:
    """Whether a device, or the memory that it shares with its host, is full."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()
