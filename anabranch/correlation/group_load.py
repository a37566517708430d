"""What the worker of `groups` reports of one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.flow.load import Figures

__all__ = ["GroupsLoad"]


@dataclass
class GroupsLoad(Figures):
    """A step of `groups` in figures.

    `rows` are the pairs that came, also late ones; `opened`, `grown`, `merged` and `closed` count
    the events emitted, and `dropped` what connects nothing, rows without a partner too, in
    `reasons` by why. What is provisional is not counted.
    """

    rows: int = 0
    opened: int = 0
    grown: int = 0
    merged: int = 0
    closed: int = 0
    dropped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    open_groups: int = 0
    waiting_pairs: int = 0

    def count(self, events: Iterable[Mapping[str, Any]], dropped: Mapping[str, int]) -> None:
        """Add what a step emitted and what it dropped."""
        kinds = Counter(event["event"] for event in events)
        self.opened += kinds["opened"]
        self.grown += kinds["grew"]
        self.merged += kinds["merged"]
        self.closed += kinds["closed"]
        self.dropped += sum(dropped.values())
        self.reasons = dict(Counter(self.reasons) + Counter(dropped))
