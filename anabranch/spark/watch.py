"""A running query on the terminal, one line per micro-batch, in the words of its verb."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from anabranch.errors import InvalidCall, extra, renamed
from anabranch.spark.frames import kind_of

with extra("cli", "ab.watch", "rich"):
    from rich.console import Console
    from rich.live import Live

    from anabranch.spark.watch_batches import BatchTable
    from anabranch.spark.watch_verbs import table_for

__all__ = ["Interrupt", "watch"]

_POLL_SECONDS = 0.3


@renamed()
def watch(
    query: Any,
    *,
    seconds: float | None = None,
    console: Console | None = None,
    prediction: Any = None,
) -> None:
    """Show a streaming query with a verb of Anabranch, batch by batch, until it stops.

    In a terminal this is a table of the latest micro-batches that is redrawn in place; elsewhere
    (a pipe, a log file) one plain line per batch. Ctrl-C ends the watching, not the query. If the
    query fails, the table says so; ``query.awaitTermination()`` raises what went wrong.

    Parameters
    ----------
    query
        What ``DataFrame.writeStream.start()`` returned.
    seconds
        Stop watching after so long; by default when the query stops.
    console
        Where to print; by default standard output.
    prediction
        What `ab.estimate_state` returned: shown beside what the latest batch reports.

    Examples
    --------
    >>> query = pairs.writeStream.format("noop").start()  # doctest: +SKIP
    >>> ab.watch(query, seconds=60)  # doctest: +SKIP
    """
    problems = []
    if not hasattr(query, "recentProgress"):
        problems.append(
            "query must be a streaming query, as .writeStream.start() returns it, got "
            f"{type(query).__name__}"
        )
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        problems.append(f"seconds must be a number above 0, or None, got {seconds!r}")
    if prediction is not None and not hasattr(prediction, "beside"):
        problems.append(
            f"prediction must be what ab.estimate_state returns, got {type(prediction).__name__}"
        )
    if console is not None and not isinstance(console, Console):
        problems.append(f"console must be a Console of rich, or None, got {kind_of(console)}")
    if problems:
        raise InvalidCall("watch", problems)
    console = Console() if console is None else console
    until = None if seconds is None else time.monotonic() + seconds
    # The table must fit the screen, or it could not be redrawn in place.
    rows = max(3, min(12, console.height - 8)) if console.is_terminal else 12
    table = BatchTable(rows, prediction)
    with Interrupt() as interrupt:
        if console.is_terminal:
            with Live(get_renderable=lambda: table, console=console, refresh_per_second=4):
                more = True
                while more:
                    table = _suited(table, query)
                    more = _follow(table, query, until, interrupt)
        else:
            more = True
            if query.isActive and query.lastProgress is None:
                _plain(console, f"{table.status} ...")
            while more:
                table = _suited(table, query)
                more = _follow(table, query, until, interrupt)
                for line in table.take_lines():
                    _plain(console, line)
            _plain(console, table.caption)


def _suited(table: BatchTable, query: Any) -> BatchTable:
    """Another table if the query turns out to assemble or group; nothing was shown of it before."""
    if table.count or type(table) is not BatchTable:
        return table
    kind = table_for(query)
    return table if kind is BatchTable else kind(table.batches.maxlen or 12, table.prediction)


def _follow(table: BatchTable, query: Any, until: float | None, interrupt: Interrupt) -> bool:
    """Update, and wait a moment if there may be more; false when it is time to stop."""
    over = not query.isActive
    table.update(query)
    if over:
        return False
    if interrupt.asked.is_set():
        table.status = "watching was stopped; the query runs on"
        return False
    wait = _POLL_SECONDS if until is None else min(_POLL_SECONDS, until - time.monotonic())
    if wait > 0:
        interrupt.asked.wait(wait)
        return True
    return False


class Interrupt:
    """Turns Ctrl-C into a flag for as long as the block lasts; a second Ctrl-C is as usual.

    PySpark answers Ctrl-C by cancelling every job of the session, which would fail the query that
    is only being watched; and an exception in the midst of a call to Spark leaves half an answer
    for the next call to read.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        # Only the main thread may set handlers, and only it receives Ctrl-C.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self.asked.is_set():
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            raise KeyboardInterrupt
        self.asked.set()


def _plain(console: Console, line: str) -> None:
    # Spark's messages are full of brackets, which rich would take for markup.
    console.print(line, markup=False, highlight=False, soft_wrap=True)
