"""Which device a worker has: what its call wants, what it is assigned, and what it sees."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import logging
import os
from collections.abc import Sequence

from anabranch.correlation.gpu.device import Device
from anabranch.errors import AnabranchError, InvalidCall, extra
from anabranch.flow.cache import CACHE, Cache

__all__ = ["open_device", "visible", "warn_once"]

_LOG = logging.getLogger("anabranch")


def budget() -> int:
    """Bytes of window blocks that one process keeps on a device.

    Rows that are decided must be in the process too, so more than that would be of no use.
    """
    given = os.environ.get("ANABRANCH_GPU_MB")
    return CACHE.budget if given is None else int(given) << 20


def open_device(wanted: str, addresses: Sequence[str], worker: int) -> Device | None:
    """The GPU of a worker; None for the CPU.

    Under ``"auto"`` whatever goes wrong is said once, and the CPU does the work.

    Parameters
    ----------
    wanted
        ``"auto"``, ``"cpu"`` or ``"gpu"``.
    addresses
        The GPUs that are assigned to the task, if somebody assigns them.
    worker
        The number of the worker: without addresses, workers take the visible GPUs in turn.
    """
    if wanted == "cpu" or (wanted == "auto" and not (visible() and _installed())):
        return None
    try:
        return _device(addresses, worker)
    except Exception as error:  # packages, driver, memory: any of them may refuse
        if wanted == "auto":
            warn_once(f"device='auto': comparing on the CPU, since the GPU cannot be used: {error}")
            return None
        if isinstance(error, AnabranchError):
            raise
        raise InvalidCall(
            "correlate",
            [
                f"device='gpu', and the GPU cannot be used: {type(error).__name__}: {error}; see "
                "nvidia-smi and python -c 'import torch; torch.zeros(1).cuda()' on the worker's "
                "host, or pass device='auto', which then takes the CPU"
            ],
        ) from error


def _device(addresses: Sequence[str], worker: int) -> Device:
    with extra("gpu", "device='gpu'", "torch"), extra("gpu", "device='gpu'", "triton"):
        import torch
        import triton  # noqa: F401
    count = visible()
    if not count:
        raise InvalidCall(
            "correlate",
            [
                "device='gpu', and this Python worker sees no GPU: check nvidia-smi on its host "
                "and CUDA_VISIBLE_DEVICES, ask Spark for spark.task.resource.gpu.amount, or pass "
                "device='auto', which takes the CPU where there is none"
            ],
        )
    number = ordinal(addresses[0], count) if addresses else worker % count
    capability = torch.cuda.get_device_capability(number)
    if capability < (8, 0):
        raise InvalidCall(
            "correlate",
            [
                f"GPU {number} has compute capability "
                f"{'.'.join(map(str, capability))}: bfloat16 needs 8.0 (Ampere) or later"
            ],
        )
    return _opened(number)


@functools.cache
def warn_once(text: str) -> None:
    """Say something on the standard error of this process, and not again."""
    _LOG.warning("%s", text)


def ordinal(address: str, count: int) -> int:
    """The number by which CUDA knows the GPU at an address that Spark gives.

    Where `CUDA_VISIBLE_DEVICES` lists the address, CUDA counts in that list.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if address in listed:
        return listed.index(address)
    if address.isdigit() and int(address) < count:
        return int(address)
    raise InvalidCall(
        "correlate",
        [
            f"Spark assigned GPU {address!r} to this task, and its Python worker sees {count}: the "
            "discovery script must print the indexes of nvidia-smi, or CUDA_VISIBLE_DEVICES list "
            "what it prints"
        ],
    )


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
    from anabranch.correlation.gpu.torch_device import TorchDevice

    return TorchDevice(number, Cache(budget()))
