"""Spark's state of one key, in this process."""

from __future__ import annotations

from typing import Any

__all__ = ["Map", "Value"]


class Value:
    """A value."""

    def __init__(self) -> None:
        self.held: Any = None

    def get(self) -> Any:
        return self.held

    def update(self, value: Any) -> None:
        self.held = value


class Map(dict[Any, Any]):
    """A map, which counts how often it was read."""

    reads = 0

    def getValue(self, key: Any) -> Any:
        self.reads += 1
        return self.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self[key] = value

    def removeKey(self, key: Any) -> None:
        self.pop(key)
