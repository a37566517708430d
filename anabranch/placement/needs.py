"""What views that run need of streams, by number: rates that change, and what moves cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.placement.graph import ViewGraph, spread_rows
from anabranch.placement.rows import RateChanges

__all__ = ["ADOPTION", "DEFINITION", "MovePrices", "Needs"]

DEFINITION = 280.0
"""Bytes that a move costs for each of its two places that is a device: what that place and the
other source are told when it begins and when it is over."""
ADOPTION = 0.5
"""Seconds until all sources have adopted an entry: 0.2 as a rule at 80 ms there and back."""


class Sampled(Protocol):
    """A view, the streams that it reads and which share of each."""

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def shares(self) -> tuple[float, ...]: ...


class Needs:
    """Which share of its stream each row of a graph needs.

    Parameters
    ----------
    graph
        Views that read streams alone.
    views
        They, by their names in the graph.

    Examples
    --------
    >>> from anabranch.placement.call import place
    >>> from anabranch.placement.steering import Running
    >>> near = Running("near", ("a", "b"), (1.0, 0.5), window=10.0)
    >>> plan = place([("near", "a", 8.0), ("near", "b", 2.0)], {"a": "A", "b": "B"}, 1.0, 1.0)
    >>> found = Needs(plan.graph, {"near": near}).changes({"b": {1.0: 40.0}})
    >>> found.rows.tolist(), found.rates.tolist()
    ([1], [20.0])
    """

    def __init__(self, graph: ViewGraph, views: Mapping[str, Sampled]) -> None:
        names = [graph.view_name(v) for v in range(graph.views)]
        streams = [graph.source_name(s) for s in range(graph.sources)]
        self.names = names
        self.number = {name: v for v, name in enumerate(names)}
        self._node = {stream: node for node, stream in enumerate(streams)}
        self._read = graph.consumers
        rows = zip(graph.row_view.tolist(), graph.inputs.tolist(), strict=True)
        self._share = np.array([_share(views[names[v]], streams[node]) for v, node in rows])

    def changes(self, rates: Mapping[str, Mapping[float, float]]) -> RateChanges:
        """The rows of some streams, and their rates by those of their streams by share.

        Of a share that is not known a row has what is in proportion to the largest that is.
        """
        read = [one for one in rates if one in self._node]
        nodes = np.array([self._node[one] for one in read], np.int64)
        rows = self._read.rows[spread_rows(self._read.offsets, nodes)].astype(np.int64)
        count = np.diff(self._read.offsets)[nodes]
        stated = [rates[one] for one in read]
        several = [k for k, of in enumerate(stated) if len(of) != 1]
        if several:
            tops = [max(of.items()) for of in stated]
        else:  # nearly always
            tops = [one for of in stated for one in of.items()]
        largest, top = zip(*tops, strict=True) if tops else ((), ())
        share, most, rate = self._share[rows], np.repeat(largest, count), np.repeat(top, count)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where(share == most, rate, np.where(most > 0, rate * share / most, 0.0))
        ends = np.cumsum(count)
        for k in several:
            at = slice(ends[k] - count[k], ends[k])
            said = np.array([stated[k].get(one, np.nan) for one in share[at].tolist()])
            found[at] = np.where(np.isnan(said), found[at], said)
        if not (np.isfinite(found) & (found >= 0)).all():
            wrong = next(
                one for one in read if not all(0 <= r < np.inf for r in rates[one].values())
            )
            problem = f"rates must be numbers of at least 0; those of {wrong!r} are "
            raise InvalidCall("report", [f"{problem}{dict(rates[wrong])}"])
        return RateChanges(rows, found)


def _share(view: Sampled, stream: str) -> float:
    return view.shares[view.inputs.index(stream)]


class MovePrices:
    """What moves send more than staying would, while the old places are served as before.

    That is definitions, and the rows for the new place until the two no longer overlap.

    Attributes
    ----------
    windows
        Seconds of the window of each view.

    Examples
    --------
    >>> from anabranch.placement.graph import pair_graph
    >>> graph, prices = pair_graph([0], [1], [100.0], [20.0], sources=2), MovePrices()
    >>> prices.windows = np.array([10.0])
    >>> prices.of(graph, *map(np.array, ([0], [1], [0]))).tolist()
    [980.0]
    """

    def __init__(self) -> None:
        self.windows = np.empty(0)

    def of(
        self, graph: ViewGraph, views: np.ndarray, origins: np.ndarray, targets: np.ndarray
    ) -> np.ndarray:
        """What moves of views of a graph cost, all by number."""
        up, down = np.append(graph.up, 0.0), np.append(graph.down, 0.0)  # the last of the cloud
        rows, sizes = graph.rows_of(views), np.diff(graph.offsets)[views]
        move = np.repeat(np.arange(len(views)), sizes)
        home, rate = graph.home[graph.inputs[rows]], graph.rates[rows]
        # For any other old place it is sent up already.
        sent = np.where(home == origins[move], up[home], 0.0) + down[targets[move]]
        more = np.bincount(move, np.where(home != targets[move], rate * sent, 0.0), len(views))
        told = DEFINITION * (down[origins] + down[targets])
        found: np.ndarray = np.maximum(told + more * (self.windows[views] + ADOPTION), 1.0)
        return found
