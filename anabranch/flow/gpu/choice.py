"""Which device a worker has: what its call wants, what it is assigned, and what it sees."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import logging
import os
from dataclasses import dataclass

from anabranch.errors import AnabranchError, InvalidCall, extra
from anabranch.flow.cache import CACHE, Cache
from anabranch.flow.gpu.device import Device

__all__ = ["DEVICES", "Choice", "lost", "visible", "warn_once"]

DEVICES = ("auto", "cpu", "gpu")
"""What a call may want."""

_LOG = logging.getLogger("anabranch")


def budget() -> int:
    """Bytes of window blocks that one process keeps on a device.

    Rows that are decided must be in the process too, so more than that would be of no use.
    """
    given = os.environ.get("ANABRANCH_GPU_MB")
    return CACHE.budget if given is None else int(given) << 20


@dataclass(frozen=True)
class Choice:
    """What the task of a call asks of GPUs.

    Parameters
    ----------
    verb
        Whose call it is, for messages.
    wanted
        One of `DEVICES`.
    addresses
        The GPUs that are assigned to the task, if somebody assigns them.
    worker
        The number of the worker: without addresses, workers take the visible GPUs in turn.
    """

    verb: str
    wanted: str
    addresses: tuple[str, ...] = ()
    worker: int = 0

    @property
    def must(self) -> bool:
        """Whether a GPU that fails stops the query."""
        return self.wanted == "gpu"

    def open(self) -> Device | None:
        """The GPU of the task; None for the CPU.

        Under ``"auto"`` whatever goes wrong is said once, and the CPU does the work.
        """
        if self.wanted == "cpu" or (self.wanted == "auto" and not (visible() and _installed())):
            return None
        try:
            device = self._device()
        except Exception as error:  # packages, driver, memory: any of them may refuse
            if not self.must:
                warn_once(
                    f"device='auto': comparing on the CPU, since the GPU cannot be used: {error}"
                )
                return None
            if isinstance(error, AnabranchError):
                raise
            raise self._invalid(
                f"device='gpu', and the GPU cannot be used: {type(error).__name__}: {error}; see "
                "nvidia-smi and python -c 'import torch; torch.zeros(1).cuda()' on the worker's "
                "host, or pass device='auto', which then takes the CPU"
            ) from error
        if self.must and device.failed:
            raise lost(device.failed)
        return device

    def _device(self) -> Device:
        with extra("gpu", "device='gpu'", "torch"), extra("gpu", "device='gpu'", "triton"):
            import torch
            import triton  # noqa: F401
        count = visible()
        if not count:
            raise self._invalid(
                "device='gpu', and this Python worker sees no GPU: check nvidia-smi on its host "
                "and CUDA_VISIBLE_DEVICES, ask Spark for spark.task.resource.gpu.amount, or pass "
                "device='auto', which takes the CPU where there is none"
            )
        number = self.worker % count
        if self.addresses:
            found = ordinal(self.addresses[0], count)
            if found is None:
                raise self._invalid(
                    f"Spark assigned GPU {self.addresses[0]!r} to this task, and its Python worker "
                    f"sees {count}: the discovery script must print the indexes of nvidia-smi, or "
                    "CUDA_VISIBLE_DEVICES list what it prints"
                )
            number = found
        capability = torch.cuda.get_device_capability(number)
        if capability < (8, 0):
            raise self._invalid(
                f"GPU {number} has compute capability "
                f"{'.'.join(map(str, capability))}: bfloat16 needs 8.0 (Ampere) or later"
            )
        return _opened(number)

    def _invalid(self, text: str) -> InvalidCall:
        return InvalidCall(self.verb, [text])


@functools.cache
def warn_once(text: str) -> None:
    """Say something on the standard error of this process, and not again."""
    _LOG.warning("%s", text)


def lost(why: str) -> AnabranchError:
    """What stops a query that wants a GPU which fails, or has failed another query before."""
    return AnabranchError(
        f"device='gpu', and the GPU failed: {why}; a process that has lost a GPU does not get it "
        "back: restart the query with new workers, or pass device='auto', which goes on with the "
        "CPU"
    )


def ordinal(address: str, count: int) -> int | None:
    """The number by which CUDA knows the GPU at an address that Spark gives; None if it does not.

    Where `CUDA_VISIBLE_DEVICES` lists the address, CUDA counts in that list.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if address in listed:
        return listed.index(address)
    return int(address) if address.isdigit() and int(address) < count else None


@functools.cache
def visible() -> int:
    """How many GPUs this process sees; the driver is asked, which needs no package."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    good = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if good else 0


def _installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "triton"))


@functools.cache
def _opened(number: int) -> Device:
    from anabranch.flow.gpu.torch_device import TorchDevice

    return TorchDevice(number, Cache(budget()))
