"""How tasks end though a cancellation may be swallowed on its way.

`asyncio.wait_for` of Python 3.11 swallows one that comes at the moment in which what it waits for
is done, and so does nats-py while it connects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["end", "heed_cancellation"]


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, again and again, until all have ended.

    Examples
    --------
    >>> async def stubborn():
    ...     try:
    ...         await asyncio.sleep(60)
    ...     except asyncio.CancelledError:
    ...         await asyncio.sleep(60)
    >>> async def story():
    ...     task = asyncio.create_task(stubborn())
    ...     await asyncio.sleep(0)
    ...     await end([task])
    ...     return task.cancelled()
    >>> asyncio.run(story())
    True
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=1)


def heed_cancellation() -> None:
    """Raise if this task has been cancelled and does not know it; for loops without an end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
