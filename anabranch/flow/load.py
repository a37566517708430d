"""What a worker reports of one step; the same figures feed metrics, plans and people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

__all__ = ["AssembleLoad", "Figures", "GroupsLoad", "Load"]

F = TypeVar("F", bound="Figures")


@dataclass
class Figures:
    """What every verb reports of a worker's step. `late` and `rejected` count rows, not copies."""

    worker: int
    watermark: int = 0
    late: int = 0
    rejected: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    busy_seconds: float = 0.0
    operator: str = ""

    def to_json(self) -> str:
        """One line that `from_json` reads.

        Examples
        --------
        >>> Load.from_json(Load(3, pairs=7).to_json()).pairs
        7
        """
        return json.dumps({one.name: getattr(self, one.name) for one in fields(self)})

    @classmethod
    def from_json(cls: type[F], text: str) -> F:
        """The report that `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass
class Load(Figures):
    """A step of `correlate` or `nearest` in figures.

    `rows_left` and `rows_right` count each input row once, in one worker; `copies_left` and
    `copies_right` what this worker received. `newest` is the newest event time stored of each plan,
    by its number; `newest_left` and `newest_right` are the newest event times that arrived on a
    side, late rows included, and 0 if none did.

    Of an Earth Mover's Distance, `pruned` counts pairs that each filter ruled out, `accepted` those
    that an upper bound showed to match and `solved` those that had to be solved; `ranges` is the
    work by range of the left row's key, under a plan of ranges.

    `unmatched` counts rows that were emitted without a partner, `matched` those that waited to be
    and found one.

    Of `nearest` under ``selective``, `sent_at_once` and `sent_later` count copies sent to owners
    of queries, `withheld` those not sent at the first look, `dropped` those that never will be, and
    `looks` how often an object was held against an owner's merger.
    """

    rows_left: int = 0
    rows_right: int = 0
    copies_left: int = 0
    copies_right: int = 0
    comparisons: int = 0
    pairs: int = 0
    unmatched: int = 0
    matched: int = 0
    bytes_in: int = 0
    compare_seconds: float = 0.0
    newest: dict[str, int] = field(default_factory=dict)
    newest_left: int = 0
    newest_right: int = 0
    pruned: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    solved: int = 0
    ranges: list[float] = field(default_factory=list)
    sent_at_once: int = 0
    sent_later: int = 0
    withheld: int = 0
    dropped: int = 0
    looks: int = 0


@dataclass
class AssembleLoad(Figures):
    """One bucket's step in figures. `late` and `rejected` count events.

    `reasons` counts why windows closed, by the words of the result.
    """

    rows: int = 0
    instances: int = 0
    revisions: int = 0
    evicted: int = 0
    timeouts: int = 0
    open_windows: int = 0
    peak_windows: int = 0
    remembered: int = 0
    waiting_rows: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


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
