"""Which views of a running system move, and why: reports in, decisions out.

It has no clock and no connection, and remembers what staying has cost. Costs are bytes per second
times the cost of a byte on a link; what a move costs is computed from what it will send twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not
from typing import Any

import numpy as np

from anabranch.placement.call import place
from anabranch.placement.cost import costs_with, link_costs
from anabranch.placement.graph import CLOUD, CLOUD_NAME
from anabranch.placement.needs import ADOPTION, DEFINITION, MovePrices, Needs
from anabranch.placement.placement import Placement
from anabranch.placement.rows import Pinned
from anabranch.placement.switching import Move, Switcher

__all__ = ["Decision", "Running", "Steering"]

_LONGEST = 600.0
"""Seconds of a window of a view that may leave the cloud.

A device writes the rows that it holds with every flush, and a move sends a window of them twice.
"""
_UNKNOWN = {1.0: 1.0}  # rates of a stream before a report
_CHANGED = 0.2
_NOWHERE, _UNKNOWN_PLACE = -2, -3  # in place of the number of a device
_TOLD = 20  # moves of a moment of which the saving is told


@dataclass(frozen=True)
class Running:
    """A view as it runs.

    `window` is in seconds; `since` is when it moved to its place, by the clock of `decide`;
    `has_moved` says that no earlier place of it is needed any more.
    """

    name: str
    inputs: tuple[str, ...]
    shares: tuple[float, ...]
    window: float
    place: str | None = None  # None: it is new
    since: float = -math.inf
    has_moved: bool = True


@dataclass(frozen=True)
class Decision:
    """A view to move or, if it has no origin, to begin; and why.

    The cause of a move holds ``why`` in words, the ``account`` and the ``price`` of this move, what
    it ``saves`` in a second (told of the first few), and what all costs in a second: ``cost``
    before the moves of now, ``predicted`` after them.
    """

    view: str
    origin: str | None
    place: str
    cause: Mapping[str, Any] = field(default_factory=dict)


class Steering:
    """Follows the rates that devices report.

    A view begins where that costs least, or in the cloud if a stream of it was never reported. It
    moves if staying has cost twice what moving would, if that saves over 5 % of what the links
    concerned cost, if no earlier place of it is needed any more, nor any row of its last move sent
    twice, and if all devices of its sources are there and have reported.

    Parameters
    ----------
    upload_cost, download_cost
        Of a byte: one for all devices, or dicts by device; None stands for all others.
    pin
        Views that stay at a place.

    Examples
    --------
    >>> steering = Steering(download_cost=1.0)
    >>> homes = {"gps[ann]": "ann", "gps[bob]": "bob"}
    >>> steering.report("gps[ann]", {1.0: 100.0}), steering.report("gps[bob]", {1.0: 900.0})
    (None, None)
    >>> near = Running("near", ("gps[ann]", "gps[bob]"), (1.0, 1.0), window=10.0)
    >>> [(d.view, d.place) for d in steering.decide(0.0, [near], homes)]
    [('near', 'bob')]
    >>> there = Running("near", ("gps[ann]", "gps[bob]"), (1.0, 1.0), 10.0, "bob", since=0.0)
    >>> steering.report("gps[bob]", {1.0: 20.0})
    >>> moved = [d for now in (31.0, 40.0, 60.0) for d in steering.decide(now, [there], homes)]
    >>> print(moved[0].cause["why"])
    staying on bob has cost 4.96 k, moving to ann costs 980; saves 160 a second
    """

    def __init__(
        self, upload_cost: Any = 1.0, download_cost: Any = 0.5, pin: Mapping[str, str] | None = None
    ) -> None:
        self._costs = upload_cost, download_cost
        self._pin = dict(pin or {})
        self._reported: dict[str, dict[float, float]] = {}
        self._heard: dict[str, dict[float, float]] = {}  # reports that were not compared yet
        self._used: dict[str, dict[float, float]] = {}  # the reports that the plan is made of
        self._given: list[Running] = []
        self._views: dict[str, Running] = {}
        self._at: dict[str, str] = {}  # the places of views that run
        self._where = np.empty(0, np.int64)  # likewise, by the numbers of the plan
        self._device: dict[str, int] = {}  # those of the plan, with the cloud
        self._recent: dict[str, Running] = {}  # those that are moving, or have moved
        self._homes: dict[str, str] = {}
        self._switcher: Switcher | None = None
        self._needs: Needs | None = None  # of the graph of the plan
        self._prices = MovePrices()
        self._now: float | None = None

    def report(self, stream: str, rates: Mapping[float, float]) -> None:
        """Bytes per second of a stream, by share; those of other shares are in proportion."""
        self._reported[stream] = self._heard[stream] = dict(rates)

    @property
    def plan(self) -> Placement | None:
        """The best plan at the rates that were used last."""
        return None if self._switcher is None else self._switcher.best

    def decide(
        self,
        now: float,
        views: Iterable[Running],
        homes: Mapping[str, str],
        offline: Collection[str] = (),
    ) -> list[Decision]:
        """What to do now: views that begin, and views that move.

        Parameters
        ----------
        now
            Seconds, of any clock that goes on.
        views
            Everything that runs or is to run.
        homes
            The device of each stream.
        offline
            Devices that are not there.
        """
        given, before = list(views), self._homes  # neither is taken over if one cannot be had
        self._homes = dict(homes)
        same = self._is_alike(given) and self._homes == before
        elapsed, self._now = 0.0 if self._now is None else max(now - self._now, 0.0), now
        if not self._views:
            self._switcher = None
            return []
        changes = self._changed()
        at = self._at
        forced = self._follow(at, same)
        assert self._switcher is not None and self._needs is not None
        places, held = self._switcher.places, self._held(now, offline)
        hold = Pinned(held, places[held])
        news: Any = self._needs.changes(changes) if same else []
        moves = self._switcher.observe(news, elapsed, hold=hold)
        begun = self._begun(at) if len(at) < len(self._views) else []
        if not forced and not moves:
            return begun
        stuck = {self._needs.names[v] for v in held.tolist()}
        return begun + [one for one in self._moved(forced + moves, places) if one.view not in stuck]

    def _is_alike(self, given: list[Running]) -> bool:
        """Whether views are given for which the plan was made: over the same rows.

        A window counts as well: one that is long stays in the cloud.
        """
        old, before = self._given, self._views
        if given == old:  # as a rule, and quickly: they are the same objects
            return True
        self._given = given
        changed = list(compress(zip(old, given, strict=False), map(is_not, old, given)))
        if same := len(given) == len(before) == len(old) and _are_named_alike(changed):
            self._views = before | {view.name: view for _, view in changed}
        else:
            views = self._views = {view.name: view for view in given}
            same = before.keys() == views.keys()
            changed = [(before.get(name, one), one) for name, one in views.items()]
            changed = [(was, one) for was, one in changed if not same or was is not one]
        if not same:
            self._at, self._recent = {}, {}
        for _, view in changed:
            if same and self._switcher is not None and self._needs is not None:
                self._where[self._needs.number[view.name]] = self._place(view)
            if view.place is None:
                self._at.pop(view.name, None)
            else:
                self._at[view.name] = view.place
            if view.place is not None and (not view.has_moved or view.since > -math.inf):
                self._recent[view.name] = view
            else:
                self._recent.pop(view.name, None)
        return same and all([_demand(was) == _demand(one) for was, one in changed])

    def _place(self, view: Running) -> int:
        """Where a view runs, by number."""
        return _NOWHERE if view.place is None else self._device.get(view.place, _UNKNOWN_PLACE)

    def _moved(self, moves: list[Move], places: np.ndarray) -> list[Decision]:
        """Moves with their causes; `places` are those before them."""
        assert self._switcher is not None and self._needs is not None
        graph, number = self._switcher.best.graph, self._needs.number
        saved = {
            "cost": float(link_costs(graph, places).sum()),
            "predicted": self._switcher.cost,
        }
        moved: list[Decision] = []
        device = self._device
        ends = [[device.get(p, CLOUD) for p in (one.origin, one.target)] for one in moves]
        views = np.array([number[one.view] for one in moves])
        prices = self._prices.of(graph, views, *np.array(ends).T).tolist()
        back = costs_with(graph, self._switcher.places, views[:_TOLD], places[views[:_TOLD]])
        saves = [cost - saved["predicted"] for cost in back] + [None] * (len(moves) - len(back))
        for move, price, saving in zip(moves, prices, saves, strict=True):
            if move.origin not in device:  # of no stream by now
                price += DEFINITION * self.cost("down", move.origin)
            moved.append(self._explained(move, price, saved, saving))
        return moved

    def _begun(self, at: Mapping[str, str]) -> list[Decision]:
        """Where views begin that are nowhere yet."""
        assert self._switcher is not None
        found = []
        for name, where in self._switcher.location.items():
            if name in at:
                continue
            if self._is_reported(self._views[name]):
                why = {"why": "it begins where that costs least"}
                found.append(Decision(name, None, str(where), why))
            else:
                why = {"why": "it begins in the cloud, for rates are not known yet"}
                found.append(Decision(name, None, self._pin.get(name, CLOUD_NAME), why))
        return found

    def _is_reported(self, view: Running) -> bool:
        return all(stream in self._reported for stream in view.inputs)

    def _rate(self, stream: str, share: float) -> float:
        """Bytes per second of a share; before a first report every stream has one in a second."""
        known = self._used.get(stream, _UNKNOWN)
        if share in known:
            return known[share]
        largest = max(known)
        return known[largest] * share / largest if largest else 0.0

    def _rates(self) -> list[tuple[str, str, float]]:
        """What views need of all streams: (view, stream, bytes per second)."""
        return [
            (view.name, stream, self._rate(stream, share))
            for view in self._views.values()
            for stream, share in zip(view.inputs, view.shares, strict=True)
        ]

    def _changed(self) -> dict[str, dict[float, float]]:
        """Streams whose report differs by over 20 % from the one in use, and is used from now on.

        Small changes are not worth a plan.
        """
        found = {}
        for stream, report in self._heard.items():
            used = self._used.get(stream, _UNKNOWN)
            if report.keys() != used.keys():
                found[stream] = report
                continue
            for share, rate in report.items():
                was = used[share]
                if abs(rate - was) > _CHANGED * (rate if rate > was else was):
                    found[stream] = report
        self._used |= found
        self._heard.clear()
        return found

    def _follow(self, at: Mapping[str, str], same: bool) -> list[Move]:
        """Adopt a plan if views or devices have changed, or views are not where they should be."""
        if self._switcher is not None and same:
            there = self._where == self._switcher.places
            if (there | (self._where == _NOWHERE)).all():
                return []
        up, down = self._costs
        long = {name: CLOUD_NAME for name, view in self._views.items() if view.window > _LONGEST}
        pin = long | {view: where for view, where in self._pin.items() if view in self._views}
        read = {stream for view in self._views.values() for stream in view.inputs}
        homes = {stream: device for stream, device in self._homes.items() if stream in read}
        there = set(homes.values())
        pinned = set(self._homes.values()).intersection(pin.values())  # perhaps without streams
        switcher, self._switcher = self._switcher, None  # unless the plan can be made
        plan = place(self._rates(), homes, _known(up, there), _known(down, there | pinned), pin=pin)
        self._needs = Needs(plan.graph, self._views)
        numbered = [self._views[name] for name in self._needs.names]
        self._prices.windows = np.array([view.window for view in numbered])
        self._device = {plan.graph.device_name(d): d for d in range(CLOUD, plan.graph.devices)}
        self._where = np.array([self._place(view) for view in numbered])
        self._switcher = switcher or Switcher(plan, self._prices, min_saving=0.05)
        return self._switcher.adopt(plan, at)

    def _held(self, now: float, offline: Collection[str]) -> np.ndarray:
        """Numbers of views that cannot move now."""
        assert self._needs is not None
        stuck = self._homes.keys() - self._reported.keys()
        if offline:
            stuck |= {stream for stream, home in self._homes.items() if home in offline}
        held = [
            view.name
            for view in self._recent.values()
            # Else its rows are sent twice no more.
            if not view.has_moved or now - view.since < view.window + ADOPTION
        ]
        if stuck:
            views = self._views
            held += [name for name in self._at if not stuck.isdisjoint(views[name].inputs)]
        return np.unique(np.array([self._needs.number[name] for name in held], np.int64))

    def cost(self, direction: str, device: str) -> float:
        """Of a byte ``"up"`` or ``"down"`` the link of a device."""
        if device == CLOUD_NAME:
            return 0.0
        up = direction == "up"
        value = self._costs[0 if up else 1]
        if isinstance(value, Mapping):
            return float(value.get(device, value.get(None, 1.0 if up else 0.5)))
        return float(value)

    def _explained(
        self, move: Move, price: float, saved: Mapping[str, float], saves: float | None
    ) -> Decision:
        why = (
            f"staying {_at(move.origin)} has cost {_bytes(move.account)}, moving to "
            f"{'the cloud' if move.target == CLOUD_NAME else move.target} costs {_bytes(price)}"
        )
        if saves is not None and saves > 0:
            why += f"; saves {_bytes(saves)} a second"
        if not move.account:
            why = f"it can no longer be {_at(move.origin)}"
        cause = {"why": why, "account": move.account, "price": price, "saves": saves, **saved}
        return Decision(move.view, move.origin, move.target, cause)


def _are_named_alike(changed: Iterable[tuple[Running, Running]]) -> bool:
    return all([was.name == one.name for was, one in changed])


def _demand(view: Running) -> tuple[Any, ...]:
    return view.inputs, view.shares, view.window


def _known(costs: Any, there: Collection[str]) -> Any:
    """Costs of those devices alone that there are."""
    if not isinstance(costs, Mapping):
        return costs
    return {device: cost for device, cost in costs.items() if device is None or device in there}


def _at(device: str) -> str:
    return "in the cloud" if device == CLOUD_NAME else f"on {device}"


def _bytes(value: float) -> str:
    """A cost as people read it.

    Examples
    --------
    >>> _bytes(512), _bytes(2048), _bytes(3e6)
    ('512', '2.05 k', '3 M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
