"""What a long call is doing, for people who wait: on a terminal by rich, in a notebook as HTML.

Nothing is shown of a call that takes less than a second, without a terminal or a notebook, or with
``ANABRANCH_PROGRESS=off`` in the environment. A thread of its own shows what the call last noted,
so that the call itself does nothing but note it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

__all__ = ["SETTING", "Screen", "Step", "screen", "step", "working"]

SETTING = "ANABRANCH_PROGRESS"
_OFF = ("off", "0", "false", "no")
_PATIENCE, _PAUSE = 1.0, 0.25  # seconds until something is shown, and between looks


class Step(NamedTuple):
    """What a call does now; how much of how much is done, if that is known."""

    words: str = ""
    done: int = 0
    of: int = 0


class Screen(Protocol):
    """Where progress is shown; it is opened by the first `show`."""

    def show(self, title: str, now: Step) -> None: ...
    def close(self) -> None: ...


class _Work:
    """A call whose steps are shown; only one is at a time."""

    def __init__(self) -> None:
        self.now = Step()
        self.over = threading.Event()


_CURRENT: _Work | None = None
_TURN = threading.Lock()


def step(words: str, done: int = 0, of: int = 0) -> None:
    """Note what the call that is shown does now; without one this is nothing."""
    if _CURRENT is not None:
        _CURRENT.now = Step(words, done, of)


@contextmanager
def working(verb: str) -> Iterator[None]:
    """Show the steps of a call for as long as it lasts; of calls within calls, the outermost.

    Examples
    --------
    >>> with working("fit_windows"):
    ...     step("fits durations")
    """
    global _CURRENT
    where = screen()
    if where is None or not _TURN.acquire(blocking=False):
        yield
        return
    work = _CURRENT = _Work()
    shower = threading.Thread(target=_show, args=(verb, work, where), daemon=True)
    shower.start()
    try:
        yield
    finally:
        _CURRENT = None
        work.over.set()
        shower.join()
        _TURN.release()


def screen() -> Screen | None:
    """A notebook, or a terminal with rich; None if there is neither, or it is not wanted."""
    if os.environ.get(SETTING, "").lower() in _OFF:
        return None
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel"):
        return _Notebook()
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return _Terminal() if terminal and find_spec("rich") is not None else None


def _show(verb: str, work: _Work, where: Screen) -> None:
    began, wait = time.monotonic(), _PATIENCE
    while not work.over.wait(wait):
        where.show(f"{verb}, {time.monotonic() - began:.0f} s", work.now)
        wait = _PAUSE
    where.close()


class _Terminal:
    """One line that is redrawn in place, and gone when the call is over."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, title: str, now: Step) -> None:
        words = f"{title}: {now.words}"
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}", markup=False), BarColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(words)
            self._bar.start()
        share = {"completed": now.done, "total": now.of or None}
        self._bar.update(self._bar.task_ids[0], description=words, **share)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class _Notebook:
    """An output of the cell that is replaced in place, and empty when the call is over."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, title: str, now: Step) -> None:
        from IPython.display import HTML, display

        share = f'value="{now.done}" max="{now.of}"' if now.of else ""
        page = HTML(f"{escape(title)}: {escape(now.words)} <progress {share}></progress>")
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)

    def close(self) -> None:
        if self._handle is not None:
            from IPython.display import HTML

            self._handle.update(HTML(""))
