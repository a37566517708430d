"""What a run of the simulated peers is: overlay, workload, algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import InvalidCall

__all__ = ["DATA", "MERGERS", "METHODS", "PeerSettings"]

DATA = ("uniform", "clustered", "sensors")
MERGERS = ("box", "cells")
METHODS = ("PA", "PA-starving", "PA-open", "RAPF")


@dataclass(frozen=True)
class PeerSettings:
    """Defaults are those of the paper's table 1.

    Parameters
    ----------
    method
        ``RAPF``, or a way of reading PA. ``PA`` keeps a steady threshold while from k + c to
        k + 2c objects are below it, and moves it when there are more or fewer. ``PA-starving``
        has the last object of its list as threshold even if the list is not full, to the letter of
        the paper. ``PA-open`` has no threshold while its list is not full, as the library's PA
        has none, and asks all peers for everything then.
    data
        ``uniform``, ``clustered`` (two clusters) or ``sensors`` (rows of a file, in random order).
    spread
        Standard deviation of a cluster in each dimension.
    resolution
        Cells per axis.
    window, buffer
        In objects; no buffer means half a window.
    objects, warmup
        How many objects are counted, and how many come before them.
    merger
        A peer is interested in exactly the ``cells`` that one of its queries is interested in, or
        in the ``box`` around them. The paper does not say which; its figures fit the box.
    slack
        By which share cells of interest reach further than the threshold, so that they need not
        follow its every move; 0 as in the paper.
    churn
        How often, evenly over the run, a peer joins and another departs.
    """

    method: str = "PA"
    data: str = "uniform"
    dimension: int = 4
    resolution: int = 12
    peers: int = 256
    queries: int = 400
    k: int = 9
    window: int = 40_000
    buffer: int | None = 2_000
    error: float = 1e-3
    gamma: float = 0.2
    objects: int = 1_000_000
    warmup: int = 100_000
    spread: float = 0.1
    merger: str = "box"
    slack: float = 0.0
    churn: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []
        if self.method not in METHODS:
            problems.append(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.merger not in MERGERS:
            problems.append(f"merger must be one of {', '.join(MERGERS)}, got {self.merger!r}")
        if self.data not in DATA:
            problems.append(f"data must be one of {', '.join(DATA)}, got {self.data!r}")
        for name in (
            *("dimension", "resolution", "peers", "queries", "k", "objects", "error", "spread"),
        ):
            if getattr(self, name) <= 0:
                problems.append(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("warmup", "churn", "gamma", "slack"):
            if getattr(self, name) < 0:
                problems.append(f"{name} must not be negative, got {getattr(self, name)}")
        if self.window < 2:
            problems.append(f"window must hold at least 2 objects, got {self.window}")
        elif self.method == "RAPF" and not 1 <= self.recent <= self.window // 2:
            problems.append(
                f"buffer must be from 1 to {self.window // 2}, half the window, got {self.recent}; "
                "with a longer one RAPF would lose nearest objects"
            )
        if self.data == "sensors" and self.dimension > 5:
            problems.append(f"the sensor data have 5 columns, got dimension {self.dimension}")
        cells = self.resolution**self.dimension
        if cells > 2**16:
            problems.append(f"at most 65536 cells, got {cells}; use a coarser resolution")
        elif self.peers > cells:
            problems.append(f"no peer can have less than a cell: {self.peers} peers, {cells} cells")
        if problems:
            raise InvalidCall("simulate", problems)

    @property
    def recent(self) -> int:
        """Length of the buffer, in objects."""
        return self.window // 2 if self.buffer is None else self.buffer
