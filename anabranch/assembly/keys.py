"""Association strategies: which columns together name an instance.

Each fails in its own way: the kind alone when instances of a page overlap, kind and time when two
clients ask for a page in the same second, kind and client when a client asks for a page again
while the first instance is under way, all three only when both happen.
"""

from __future__ import annotations

__all__ = ["by_head_client", "by_head_time", "by_head_time_client", "by_kind"]


def by_kind(kind: str = "kind") -> list[str]:
    """The kind service alone.

    Examples
    --------
    >>> by_kind("page")
    ['page']
    """
    return [kind]


def by_head_time(kind: str = "kind", started: str = "instance_ts") -> list[str]:
    """Head, and when its instance began.

    Examples
    --------
    >>> by_head_time()
    ['kind', 'instance_ts']
    """
    return [kind, started]


def by_head_client(kind: str = "kind", client: str = "client") -> list[str]:
    """Head, and who asked.

    Examples
    --------
    >>> by_head_client()
    ['kind', 'client']
    """
    return [kind, client]


def by_head_time_client(
    kind: str = "kind", started: str = "instance_ts", client: str = "client"
) -> list[str]:
    """Head, when its instance began, and who asked.

    Examples
    --------
    >>> by_head_time_client(started="started")
    ['kind', 'started', 'client']
    """
    return [kind, started, client]
