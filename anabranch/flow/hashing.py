"""Hashes: where a row goes, and which Spark key makes a worker a task of its own.

Spark sends a key to partition ``pmod(murmur3(key), partitions)``. Consecutive integers collide
there, and two workers in one task halve the speed. `worker_keys` picks integers whose hashes give
consecutive remainders modulo 20,160, so that they spread one per task for every number of
partitions that divides it (1 to 10, 12, 14, 15, 16, 18, 20, 21, 24, 28, 30, 32, ... 64, ...). The
keys do not depend on the number of partitions: a restarted query finds its state again even if the
session's setting has changed.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence

import numpy as np

__all__ = [
    "MODULUS",
    "SLOTS_PER_WORKER",
    "mix",
    "murmur3",
    "slot_of",
    "slot_table",
    "spreads",
    "worker_keys",
]

MODULUS = 20_160
SLOTS_PER_WORKER = 16


def murmur3(values: np.ndarray, seed: int = 42) -> np.ndarray:
    """Spark's ``hash`` of 32-bit integers, as unsigned 32-bit integers.

    Examples
    --------
    >>> murmur3(np.array([0, 1, 2])).astype(np.int32).tolist()
    [933211791, -559580957, 1765031574]
    """
    with np.errstate(over="ignore"):
        k = values.astype(np.uint32) * np.uint32(0xCC9E2D51)
        k = (k << np.uint32(15)) | (k >> np.uint32(17))
        h = np.uint32(seed) ^ (k * np.uint32(0x1B873593))
        h = (h << np.uint32(13)) | (h >> np.uint32(19))
        h = h * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    result: np.ndarray = h
    return result


@functools.lru_cache(maxsize=8)
def worker_keys(workers: int) -> tuple[int, ...]:
    """One integer per worker, at most `MODULUS`, whose hashes fall on 0, 1, 2, ... modulo it.

    Examples
    --------
    >>> keys = worker_keys(6)
    >>> sorted((murmur3(np.array(keys)).astype(np.int32) % 6).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    if workers > MODULUS:
        raise ValueError(f"at most {MODULUS:,} workers have keys of their own, got {workers:,}")
    found: dict[int, int] = {}
    start, step = 0, 1 << 18
    while len(found) < workers:
        candidates = np.arange(start, start + step, dtype=np.int64)
        remainders = murmur3(candidates).astype(np.int32).astype(np.int64) % MODULUS
        for position in np.flatnonzero(remainders < workers):
            found.setdefault(int(remainders[position]), int(candidates[position]))
        start += step
    return tuple(found[worker] for worker in range(workers))


def worker_of(key: int) -> int:
    """The worker that a key of `worker_keys` stands for.

    Examples
    --------
    >>> [worker_of(key) for key in worker_keys(4)]
    [0, 1, 2, 3]
    """
    return int(murmur3(np.array([key])).astype(np.int32).astype(np.int64)[0] % MODULUS)


def spreads(partitions: int) -> bool:
    """Whether worker keys are sure to fall one per task with this many partitions."""
    return partitions > 0 and MODULUS % partitions == 0


def mix(values: np.ndarray) -> np.ndarray:
    """A well-spread 64-bit hash of integers, for rows that do not come from Spark.

    Examples
    --------
    >>> len(set(mix(np.arange(1000)).tolist()))
    1000
    """
    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z.view(np.int64)


def slot_table(workers: int, weights: Sequence[float] | None = None) -> np.ndarray:
    """Slots assigned to workers, least loaded first, so that shares of slots follow the weights.

    Examples
    --------
    >>> slot_table(2)[:6].tolist()
    [0, 1, 0, 1, 0, 1]
    >>> np.bincount(slot_table(2, [3, 1])).tolist()
    [24, 8]
    """
    slots = workers * SLOTS_PER_WORKER
    if weights is None:
        return np.arange(slots, dtype=np.int32) % np.int32(workers)
    heap = [(1 / weight, worker, 1) for worker, weight in enumerate(weights) if weight > 0]
    heapq.heapify(heap)
    table = np.empty(slots, np.int32)
    for slot in range(slots):
        _, worker, held = heap[0]
        table[slot] = worker
        heapq.heapreplace(heap, ((held + 1) / weights[worker], worker, held + 1))
    return table


def slot_of(h: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The worker of each hash: that of its slot."""
    high = h.view(np.uint64) >> np.uint64(32)
    found: np.ndarray = table[((high * np.uint64(len(table))) >> np.uint64(32)).astype(np.int64)]
    return found
