"""One listener per session, for all of ours that follow its queries.

Spark tells every listener of every micro-batch of every query, one after the other, so a session
has one of ours, whatever number of parts wants to hear of its queries.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["Hearer", "hearer_of", "hearers", "sessions"]


class Hearer(Protocol):
    """What wants to hear of queries; one that has a method `started` hears of their start too."""

    def progressed(self, progress: Any) -> None:
        """A micro-batch of a query has ended."""

    def ended(self, event: Any) -> None:
        """A query has ended."""


H = TypeVar("H", bound=Hearer)


class _Listener(StreamingQueryListener):
    """Tells the hearers of a session; if one fails the others hear of it all the same."""

    def __init__(self) -> None:
        self.hearers: dict[type, Any] = {}

    def onQueryStarted(self, event: Any) -> None:
        """A query has been started; Spark waits for this in `start()`."""
        self._notify(lambda hearer: getattr(hearer, "started", _ignore)(event))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch has ended."""
        self._notify(lambda hearer: hearer.progressed(event.progress))

    def onQueryTerminated(self, event: Any) -> None:
        """A query has ended."""
        self._notify(lambda hearer: hearer.ended(event))

    def _notify(self, what: Callable[[Hearer], None]) -> None:
        failed = None
        for hearer in list(self.hearers.values()):
            try:
                what(hearer)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed  # Spark logs it


def _ignore(event: Any) -> None:
    """What most hearers do at the start of a query."""


_PATIENCE = 5000  # milliseconds for events under way when a program ends
_LISTENERS: weakref.WeakKeyDictionary[Any, _Listener] = weakref.WeakKeyDictionary()


@atexit.register
def _leave() -> None:
    """Hear what is under way, and leave the sessions that a program did not stop.

    Spark's process outlives the interpreter for a moment, and would print a trace for every event
    that it can no longer hand over.
    """
    for spark, listener in list(_LISTENERS.items()):
        with suppress(Exception):  # nothing to leave: Connect, or a Spark that is gone or busy
            java: Any = spark.sparkContext._jsc
            if java is not None:
                with suppress(Exception):
                    java.sc().listenerBus().waitUntilEmpty(_PATIENCE)
                spark.streams.removeListener(listener)
                java.sc().listenerBus().waitUntilEmpty(_PATIENCE)


def hearer_of(spark: SparkSession, kind: type[H]) -> H:
    """The session's one hearer of a kind, which hears of its queries from now on."""
    if spark not in _LISTENERS:
        listener = _Listener()
        spark.streams.addListener(listener)
        _LISTENERS[spark] = listener
    found = _LISTENERS[spark].hearers
    if kind not in found:
        found[kind] = kind()
    hearer: H = found[kind]
    return hearer


def hearers(kind: type[H]) -> list[H]:
    """Those of a kind, of all sessions."""
    every = list(_LISTENERS.values())
    return [listener.hearers[kind] for listener in every if kind in listener.hearers]


def sessions() -> list[SparkSession]:
    """The sessions that are listened to."""
    return list(_LISTENERS)
