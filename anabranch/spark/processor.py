"""What Spark is handed to run on its workers, which loads what it needs when there is work.

When a query starts, Spark tries out its stateful operators in a process of its own on the driver,
only to learn which state they ask for. Whatever is imported there takes its time before the first
micro-batch begins: a second of a core for all that kernels need, of which a trial runs nothing. So
the work itself travels as bytes, and is unpickled by the first rows or timer.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructType

from anabranch.errors import StateMismatch
from anabranch.spark.quiet import hush_trial

__all__ = ["Processor", "Worker", "said_first"]

# As types: of a schema that is text every task of every micro-batch asks Spark twice what it means.
_HEAD = StructType().add("head", BinaryType())
_NUMBER, _PIECE = StructType().add("number", LongType()), StructType().add("piece", BinaryType())


@contextmanager
def said_first() -> Iterator[None]:
    """Print a mismatch that leaves a task on one line, before Spark prints it at the end of traces.

    Examples
    --------
    >>> with said_first():
    ...     raise StateMismatch("begun with k='5'")
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: begun with k='5'
    """
    try:
        yield
    except StateMismatch as error:
        print(f"StateMismatch: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        raise


class Worker(Protocol):
    """Does the work, over the state that a task is given."""

    def begin(self, handle: StatefulProcessorHandle, head: Any, pieces: Any) -> None:
        """Take up the state of a task."""

    def take(self, key: Any, rows: Iterator[Any], values: Any) -> Iterator[Any]:
        """The results of a key's new rows."""

    def wake(self, key: Any, values: Any, fired: int) -> Iterator[Any]:
        """The results of a key whose timer has fired."""


class Processor(StatefulProcessor):
    """Runs a worker of a stream inside ``transformWithStateInPandas``."""

    def __init__(self, worker: Worker) -> None:
        self._worker: Worker | None = worker
        self._packed = b""

    def __getstate__(self) -> bytes:
        # As Spark pickles: users' functions, and packages that are registered, go by value.
        packed: bytes = self._packed or cloudpickle.dumps(self._worker)  # type: ignore[no-untyped-call]
        return packed

    def __setstate__(self, packed: bytes) -> None:
        hush_trial()  # here, for Spark prints as soon as it has unpickled a processor
        self._worker, self._packed = None, packed

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", _HEAD)
        self._pieces = handle.getMapState("pieces", _NUMBER, _PIECE)
        self._begun = False

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Any:
        with said_first():
            found = self._ready().take(key, rows, timerValues)
        return _saying(found)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        with said_first():
            found = self._ready().wake(key, timerValues, expiredTimerInfo.getExpiryTimeInMs())
        return _saying(found)

    def close(self) -> None:
        pass

    def _ready(self) -> Worker:
        if self._worker is None:
            self._worker = pickle.loads(self._packed)
        worker: Worker = self._worker
        if not self._begun:
            worker.begin(self._handle, self._head, self._pieces)
            self._begun = True
        return worker


def _saying(results: Iterator[Any]) -> Iterator[Any]:
    """Results as they come; most of a task's work is done while they are asked for."""
    with said_first():
        yield from results
