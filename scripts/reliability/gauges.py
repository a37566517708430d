"""What a run takes: memory of each process, bytes on disk, seconds of a micro-batch."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

from anabranch.spark.settings import DAEMON

__all__ = [
    "bytes_under",
    "ended",
    "live_heap",
    "outside_heap",
    "processes",
    "resident",
    "session",
    "worked",
]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_DAEMONS = (DAEMON, "pyspark.daemon")


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _stat(pid: int) -> list[str] | None:
    """What the kernel says of a process, from its state on; nothing of one that has ended."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if found[0] in "ZX" else found


def ended(pid: int) -> bool:
    """Whether a process has ended, though nobody may have asked after it."""
    return _stat(pid) is None


def worked(pid: int) -> int:
    """How long a process has worked, in the kernel's ticks, mostly of 10 ms."""
    found = _stat(pid)
    return 0 if found is None else int(found[11]) + int(found[12])


def session(leader: int) -> list[int]:
    """The processes of a session, whoever has started them, and whichever group they are in."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = {pid: _stat(pid) for pid in pids}
    return [pid for pid, stat in found.items() if stat is not None and int(stat[3]) == leader]


def processes(root: int) -> dict[int, str]:
    """The processes below this one, with what they are.

    ``jvm``, ``executor`` (a JVM of its own on a cluster), ``daemon`` or ``worker`` of Python.
    """
    parents: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                commands[int(entry.name)] = (entry / "cmdline").read_text(errors="replace")
            except OSError:
                continue  # it has ended meanwhile
            parents.setdefault(int(stat[1]), []).append(int(entry.name))
    found: dict[int, str] = {}
    waiting = [(child, "") for child in parents.get(root, [])]
    while waiting:
        pid, parent = waiting.pop()
        command = commands.get(pid, "")
        kind = "jvm" if "java" in command.split("\0")[0] else ""
        if kind and "CoarseGrainedExecutorBackend" in command:
            kind = "executor"
        if any(module in command.split("\0") for module in _DAEMONS):
            kind = "worker" if parent in ("daemon", "worker") else "daemon"
        found[pid] = kind
        waiting += [(child, kind) for child in parents.get(pid, [])]
    return {pid: kind for pid, kind in found.items() if kind}


def live_heap(spark: Any) -> int:
    """Bytes on the JVM's heap that are in use, after a collection of garbage on both sides.

    A frame that Python holds keeps its plan in the JVM, and frames of past micro-batches are in
    cycles, which Python collects when it has made many other objects.
    """
    gc.collect()
    jvm = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def outside_heap(spark: Any) -> int:
    """Bytes that the JVM has taken for classes and compiled code."""
    beans = spark._jvm.java.lang.management.ManagementFactory
    return int(beans.getMemoryMXBean().getNonHeapMemoryUsage().getCommitted())


def bytes_under(folder: Path) -> int:
    """The sizes of all files under a folder, while others write there."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue  # removed meanwhile
    return total
