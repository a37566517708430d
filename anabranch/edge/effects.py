"""What the shell of a device has to do after each event."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.edge.own_stream import Row
from anabranch.edge.sections import Results

__all__ = ["Effects"]


@dataclass
class Effects:
    """What the shell has to do, in this order.

    Commit `incarnation`, `rows`, `frames`, `results` and `state` in one transaction; then send,
    then show results.
    """

    rows: list[Row] = field(default_factory=list)  # in place of those with the same number
    frames: list[tuple[int, bytes]] = field(default_factory=list)  # likewise
    results: list[Results] = field(default_factory=list)  # wherever they were computed
    state: bytes | None = None  # in place of the one before
    send: list[bytes] = field(default_factory=list)
    freed: int = -1  # frames up to this number are in the cloud
    stopped: str = ""  # why this incarnation must not continue
    incarnation: int = 0  # that the cloud has given: rows that have none are numbered by it
    again: bool = False  # the state's `again` is to be called with all frames that are kept
