"""Association strategies: which columns together name an instance.

Each fails in its own way: the head alone when instances of a page overlap, head and time when two
clients ask for a page in the same second, head and client when a client asks for a page again
while the first instance is under way, all three only when both happen.
"""

from __future__ import annotations

__all__ = ["by_head", "by_head_client", "by_head_time", "by_head_time_client"]


def by_head(head: str = "head") -> list[str]:
    """The head service alone.

    Examples
    --------
    >>> by_head("page")
    ['page']
    """
    return [head]


def by_head_time(head: str = "head", started: str = "instance_ts") -> list[str]:
    """Head, and when its instance began.

    Examples
    --------
    >>> by_head_time()
    ['head', 'instance_ts']
    """
    return [head, started]


def by_head_client(head: str = "head", client: str = "client") -> list[str]:
    """Head, and who asked.

    Examples
    --------
    >>> by_head_client()
    ['head', 'client']
    """
    return [head, client]


def by_head_time_client(
    head: str = "head", started: str = "instance_ts", client: str = "client"
) -> list[str]:
    """Head, when its instance began, and who asked.

    Examples
    --------
    >>> by_head_time_client(started="started")
    ['head', 'started', 'client']
    """
    return [head, started, client]
