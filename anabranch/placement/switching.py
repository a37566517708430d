"""When rates change: move a view only once staying has cost enough.

Redeploying has a price too. Each device keeps an account of what its present set has cost more than
the best one would have; at twice the price of switching it switches. On a unit of two states that
is 3-competitive: never more than three times what a planner pays who knows the future, plus a
constant. One account for all devices together would be worse by a factor that grows with their
number (flaw F7, against section 4.5 of the paper).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import numpy as np

from anabranch.calls import MISSING
from anabranch.errors import InvalidCall, renamed
from anabranch.placement.cost import link_costs, node_locations
from anabranch.placement.graph import CLOUD, CLOUD_NAME, FREE, ViewGraph
from anabranch.placement.placement import Placement
from anabranch.placement.rows import Pinned, RateChanges
from anabranch.placement.tables import is_cost, is_id, listed

__all__ = ["Move", "Prices", "Switcher"]

_SHOWN = 10
_NOTHING = Pinned(np.empty(0, np.int64), np.empty(0, np.int32))


@runtime_checkable
class Prices(Protocol):
    """What many moves cost, at once."""

    def of(
        self, graph: ViewGraph, views: np.ndarray, origins: np.ndarray, targets: np.ndarray
    ) -> np.ndarray:
        """What moves of views of a graph cost, all by number."""


MoveCost = float | Mapping[Any, float] | Callable[[Any, Any, Any], float] | Prices


@dataclass(frozen=True)
class Move:
    """A view to redeploy, and the account that made it worth while."""

    view: Any
    origin: Any
    target: Any
    account: float


class Switcher:
    """Follows changing rates: rates in, moves out.

    Parameters
    ----------
    plan
        The plan that is deployed.
    move_cost
        What redeploying costs, in units of the plan's cost: for a device's views one number for
        all devices or a dict, or for each view a function of ``(view, origin, target)``, or
        `Prices`, which say it of many at once.
    min_saving
        The share of what their links cost now that devices must save by moving.

    Examples
    --------
    >>> import anabranch as ab
    >>> plan = ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"}, download_cost=1.0)
    >>> follower = ab.placement.Switcher(plan, move_cost=5)
    >>> follower.observe([("w", "p", 1)])   # Q at 2, P at 1: one unit lost on P's link
    []
    >>> print(follower.explain())
    1 of 1 views would move: staying has cost 2 of the 20 at which they do
      w on P, better on Q
    >>> [str(m.view) for _ in range(9) for m in follower.observe([])]
    ['w']
    >>> follower.location
    {'w': 'Q'}

    A view more, and a device; what is deployed stays:

    >>> wider = ab.place([("w", "p", 9), ("w", "q", 2), ("v", "q", 1), ("v", "r", 5)], "own")
    >>> follower.adopt(wider)
    [Move(view='w', origin='Q', target='p', account=0.0)]
    """

    @renamed(price="move_cost")
    def __init__(
        self, plan: Placement, move_cost: MoveCost = MISSING, *, min_saving: float = 0.0
    ) -> None:
        if move_cost is MISSING:
            raise InvalidCall("Switcher", ["move_cost= is missing, for example 5"])
        problems = _plan_problems(plan)
        if not is_cost(min_saving):
            problems.append(f"min_saving must be a share of at least 0, got {min_saving!r}")
        if isinstance(move_cost, Mapping) and not problems:
            strange = [name for name in move_cost if name not in set(_devices(plan))]
            if strange:
                problems.append(f"move_cost names unknown devices {listed(strange)}")
        if problems:
            raise InvalidCall("Switcher", problems)
        self._move_cost = move_cost
        self._min_saving = min_saving
        self._price = _device_prices(plan, move_cost, "Switcher")
        self.best = self.aim = plan
        self._aimed = plan, _NOTHING  # what `aim` was made of
        self._names = list(plan.location)
        self._located: tuple[np.ndarray | None, dict[Any, Any]] = None, {}
        self.places = plan.places.copy()
        self.account = np.zeros(plan.graph.devices)

    @property
    def location(self) -> dict[Any, Any]:
        """Where views are now."""
        if self._located[0] is not self.places:
            graph, views = self.best.graph, self._names
            at, device = np.unique(self.places[: len(views)], return_inverse=True)
            names = [graph.device_name(k) for k in at.tolist()]  # fewer devices than views
            found = zip(views, map(names.__getitem__, device.tolist()), strict=True)
            self._located = self.places, dict(found)
        return dict(self._located[1])

    @property
    def cost(self) -> float:
        """What the deployed placement costs at the present rates."""
        return float(link_costs(self.best.graph, self.places).sum())

    @renamed()
    def observe(self, changes: Any, duration: float = 1.0, *, hold: Any = ()) -> list[Move]:
        """Take new rates, that hold for `duration`, and answer with the moves to make now.

        Views named in `hold` cannot move now: the others follow the best plan in which those stay.
        By number, changes may be `RateChanges`, and `hold` what is `Pinned`.
        """
        if not is_cost(duration):
            raise InvalidCall(
                "observe", [f"duration must be a time of at least 0, got {duration!r}"]
            )
        changes = list(changes) if isinstance(changes, (list, tuple)) else changes
        given = changes.rows if isinstance(changes, RateChanges) else changes
        if not isinstance(changes, (list, RateChanges)) or len(given):
            self.best = self.best.replan(changes)
        held = self._held(hold)
        if self.best is not self._aimed[0] or not held.is_as(self._aimed[1]):
            self.aim = self.best.replan(pin=held) if len(held.views) else self.best
            self._aimed = self.best, held
        graph, target = self.best.graph, self.aim.places
        now = link_costs(graph, self.places)
        lost = now - link_costs(graph, target)
        group, limit = self._limits(target)
        count = len(limit)
        # Devices that must switch together keep one account between them.
        before = np.bincount(group, self.account, count)
        change = np.bincount(group, lost, count)
        after = np.maximum(before + change * duration, 0.0)
        size = np.bincount(group, minlength=count)
        self.account = after[group] / size[group]
        ready = (after >= limit) & (limit > 0)
        if self._min_saving:
            ready &= change > self._min_saving * np.bincount(group, now, count)
        return self._switch(ready[group], after[group])

    @renamed()
    def adopt(self, plan: Placement, location: Mapping[Any, Any] | None = None) -> list[Move]:
        """Continue with another plan: views and devices may be new in it, or gone.

        Views that remain stay where they are, and devices keep their accounts; new views begin
        where the plan has them. Answers with the moves that cannot wait: of views whose device is
        gone, that are pinned elsewhere now, or that would be too much for a device. `location`
        says where views are in fact, if not where `observe` wanted them.
        """
        problems = _plan_problems(plan)
        if location is not None and not isinstance(location, Mapping):
            problems.append(f"location must be a dict of views and places, got {location!r}")
        if problems:
            raise InvalidCall("adopt", problems)
        price = _device_prices(plan, self._move_cost, "adopt")
        old, names = self.location if location is None else location, _devices(plan)
        account = dict(zip(_devices(self.best), self.account.tolist(), strict=True))
        number = {name: k for k, name in enumerate(names)} | {CLOUD_NAME: CLOUD}
        places = plan.places.copy()
        for v, view in enumerate(plan.location):
            if view in old and old[view] in number and plan.graph.pins[v] == FREE:
                places[v] = number[old[view]]
        self.best = self.aim = plan
        self._aimed, self._names = (plan, _NOTHING), list(plan.location)
        self.places, self._price = places, price
        self.account = np.array([account.get(name, 0.0) for name in names])
        group = self._groups(plan.places)
        self._switch(np.isin(group, group[self._impossible()]), self.account)
        return [
            Move(view, old[view], place, 0.0)
            for view, place in self.location.items()
            if view in old and old[view] != place
        ]

    @renamed()
    def explain(self) -> str:
        """The account: which views would be better elsewhere, and when they move.

        One paragraph for each group of devices that must switch together.
        """
        graph, target = self.best.graph, self.aim.places
        group, limit = self._limits(target)
        total = np.bincount(group, self.account, len(limit))
        moving = np.flatnonzero(self.places != target)
        if not len(moving):
            return "every view is where it is best: nothing would move"
        at = group[np.where(self.places >= 0, self.places, target)[moving]]
        lines = []
        for number in np.unique(at):
            views = moving[at == number]
            lines.append(
                f"{len(views):,} of {len(self.best.location):,} views would move: staying has cost "
                f"{total[number]:.6g} of the {limit[number]:.6g} at which they do"
            )
            for v in views[:_SHOWN].tolist():
                here, there = (_at(graph.device_name(int(p[v]))) for p in (self.places, target))
                lines.append(f"  {graph.view_name(v)} {here}, better {there}")
            if len(views) > _SHOWN:
                lines.append(f"  and {len(views) - _SHOWN:,} more")
        return "\n".join(lines)

    def _held(self, hold: Any) -> Pinned:
        """Where the views are that cannot move now."""
        if isinstance(hold, (list, tuple)) and not hold:
            return _NOTHING
        if isinstance(hold, Pinned):
            return hold
        at = {name: v for v, name in enumerate(self._names)}
        several = isinstance(hold, Collection) and not isinstance(hold, (str, bytes))
        views = list(hold) if several else [hold]
        if not several or (views := [v for v in views if not is_id(v) or v not in at]):
            problem = f"hold must be a list of views of the plan, such as {listed(at)}"
            raise InvalidCall("observe", [f"{problem}, but has {listed(views)}"])
        found = np.unique(np.array([at[view] for view in hold], np.int64))
        return Pinned(found, self.places[found])

    def _impossible(self) -> np.ndarray:
        """Devices that hold a view none of whose inputs is there, or more than they can carry."""
        graph = self.best.graph
        at = node_locations(graph, self.places)
        fed = at[graph.inputs] == np.repeat(self.places, np.diff(graph.offsets))
        alone = np.bincount(graph.row_view, fed, graph.views) == 0
        alone &= (self.places >= 0) & (graph.pins == FREE)
        devices = [self.places[alone]]
        if graph.capacity is not None and graph.load is not None:
            held = self.places >= 0
            load = np.bincount(self.places[held], graph.load[held], graph.devices)
            devices.append(np.flatnonzero(load > graph.capacity * (1 + 1e-12)))
        return np.concatenate(devices)

    def _limits(self, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The group of each device, and the account at which a group moves; 0 if it has no move."""
        group = self._groups(target)
        count = int(group.max(initial=-1)) + 1
        moving = np.flatnonzero(self.places != target)
        if self._price is None:
            if isinstance(self._move_cost, Prices):
                here, there = self.places[moving], target[moving]
                prices = self._move_cost.of(self.best.graph, moving, here, there)
            else:
                moves = self._moves(moving, target)
                prices = np.array([self._price_of(move) for move in moves])
            by = np.where(self.places >= 0, self.places, target)[moving]
            return group, 2 * np.bincount(group[by], prices, count)
        involved = np.zeros(self.best.graph.devices, bool)
        for at in (self.places[moving], target[moving]):
            involved[at[at >= 0]] = True
        return group, 2 * np.bincount(group, np.where(involved, self._price, 0.0), count)

    def _price_of(self, move: Move) -> float:
        found = self._move_cost(move.view, move.origin, move.target)  # type: ignore[operator]
        if not _is_price(found):
            raise InvalidCall(
                "Switcher", [f"move_cost must be above 0; for {move.view!r} it gave {found!r}"]
            )
        return float(found)

    def _groups(self, target: np.ndarray) -> np.ndarray:
        """Devices between which a view would move have to switch together."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        crosses = (self.places != target) & (self.places >= 0) & (target >= 0)
        devices = self.best.graph.devices
        links = coo_array(
            (np.ones(crosses.sum()), (self.places[crosses], target[crosses])),
            shape=(devices, devices),
        )
        label: np.ndarray = connected_components(links, directed=False)[1]
        return label

    def _switch(self, ready: np.ndarray, account: np.ndarray) -> list[Move]:
        target = self.aim.places
        moving = np.flatnonzero(self.places != target)
        by = np.where(self.places >= 0, self.places, target)[moving]  # a device that it concerns
        moving, by = moving[ready[by]], by[ready[by]]
        moves = self._moves(moving, target, account[by])
        if len(moving):
            self.places = self.places.copy()
            self.places[moving] = target[moving]
        self.account[ready] = 0.0
        return moves

    def _moves(
        self, views: np.ndarray, target: np.ndarray, account: np.ndarray | None = None
    ) -> list[Move]:
        graph = self.best.graph
        spent = np.zeros(len(views)) if account is None else account
        return [
            Move(
                graph.view_name(int(v)),
                graph.device_name(int(self.places[v])),
                graph.device_name(int(target[v])),
                float(lost),
            )
            for v, lost in zip(views, spent, strict=True)
        ]


def _plan_problems(plan: Any) -> list[str]:
    if isinstance(plan, Placement):
        return []
    return [f"plan must come from ab.place, got {type(plan).__name__}"]


def _devices(plan: Placement) -> list[Any]:
    return [plan.graph.device_name(k) for k in range(plan.graph.devices)]


def _device_prices(plan: Placement, move_cost: Any, verb: str) -> np.ndarray | None:
    """The price of each device; None if a function says it for each move."""
    if isinstance(move_cost, Prices) or _is_function(move_cost):
        return None
    names = _devices(plan)
    values = move_cost if isinstance(move_cost, Mapping) else dict.fromkeys(names, move_cost)
    wrong = [name for name in names if not _is_price(values.get(name))]
    if wrong:
        problem = f"move_cost must be above 0 for every device; it is not for {listed(wrong)}"
        raise InvalidCall(verb, [problem])
    return np.array([float(values[name]) for name in names])


def _at(place: Any) -> str:
    return "in the cloud" if place == "cloud" else f"on {place}"


def _is_function(value: Any) -> bool:
    """Whether it can be called with a view, an origin and a target."""
    try:
        signature(value).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def _is_price(value: Any) -> bool:
    return is_cost(value) and value > 0
