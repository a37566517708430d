"""When rates change: move a view only once staying has cost enough.

Redeploying has a price too. Each device keeps an account of what its present set has cost more than
the best one would have; at twice the price of switching it switches. On a unit of two states that
is 3-competitive: never more than three times what a planner pays who knows the future, plus a
constant. One account for all devices together would be worse by a factor that grows with their
number (flaw F7, against section 4.5 of the paper).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.calls import MISSING
from anabranch.errors import InvalidCall, renamed
from anabranch.placement.cost import link_costs
from anabranch.placement.placement import Placement
from anabranch.placement.tables import is_cost, listed

__all__ = ["Move", "Switcher"]

_SHOWN = 10


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
        What redeploying a device's views costs, in units of the plan's cost: one for all devices
        or a dict.

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
    """

    @renamed(price="move_cost")
    def __init__(self, plan: Placement, move_cost: float | Mapping[Any, float] = MISSING) -> None:
        if move_cost is MISSING:
            raise InvalidCall("Switcher", ["move_cost= is missing, for example 5"])
        if not isinstance(plan, Placement):
            problem = f"plan must come from ab.place, got {type(plan).__name__}"
            raise InvalidCall("Switcher", [problem])
        names = [plan.graph.device_name(k) for k in range(plan.graph.devices)]
        values: dict[Any, Any] = dict.fromkeys(names, move_cost)
        values = dict(move_cost) if isinstance(move_cost, Mapping) else values
        strange = [n for n in values if n not in set(names)]
        if strange:
            problem = f"move_cost names unknown devices {listed(strange)}"
            raise InvalidCall("Switcher", [problem])
        wrong = [n for n in names if not _is_price(values.get(n))]
        if wrong:
            problem = f"move_cost must be above 0 for every device; it is not for {listed(wrong)}"
            raise InvalidCall("Switcher", [problem])
        self.best = plan
        self.places = plan.places.copy()
        self.account = np.zeros(plan.graph.devices)
        self._price = np.array([float(values[n]) for n in names])

    @property
    def location(self) -> dict[Any, Any]:
        """Where views are now."""
        named = self.places[: len(self.best.location)]
        names = [self.best.graph.device_name(int(k)) for k in named]
        return dict(zip(self.best.location, names, strict=True))

    @property
    def cost(self) -> float:
        """What the deployed placement costs at the present rates."""
        return float(link_costs(self.best.graph, self.places).sum())

    def observe(self, changes: Any, duration: float = 1.0) -> list[Move]:
        """Take new rates, that hold for `duration`, and answer with the moves to make now."""
        if not is_cost(duration):
            raise InvalidCall(
                "observe", [f"duration must be a time of at least 0, got {duration!r}"]
            )
        changes = list(changes) if isinstance(changes, (list, tuple)) else changes
        if not isinstance(changes, list) or changes:
            self.best = self.best.replan(changes)
        graph, target = self.best.graph, self.best.places
        lost = link_costs(graph, self.places) - link_costs(graph, target)
        group, limit = self._limits(target)
        count = len(limit)
        # Devices that must switch together keep one account between them.
        before = np.bincount(group, self.account, count)
        change = np.bincount(group, lost * duration, count)
        after = np.maximum(before + change, 0.0)
        size = np.bincount(group, minlength=count)
        self.account = after[group] / size[group]
        ready = (after >= limit) & (limit > 0)
        return self._switch(ready[group], after[group])

    def explain(self) -> str:
        """The account: which views would be better elsewhere, and when they move.

        One paragraph for each group of devices that must switch together.
        """
        graph, target = self.best.graph, self.best.places
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

    def _limits(self, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The group of each device, and the account at which a group moves; 0 if it has no move."""
        group = self._groups(target)
        involved = np.zeros(self.best.graph.devices, bool)
        moving = self.places != target
        for at in (self.places[moving], target[moving]):
            involved[at[at >= 0]] = True
        count = int(group.max(initial=-1)) + 1
        return group, 2 * np.bincount(group, np.where(involved, self._price, 0.0), count)

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
        graph, target = self.best.graph, self.best.places
        old = self.places
        by = np.where(old >= 0, old, target)  # a device that this move concerns
        moving = np.flatnonzero((old != target) & ready[by])
        moves = [
            Move(
                graph.view_name(int(v)),
                graph.device_name(int(old[v])),
                graph.device_name(int(target[v])),
                float(account[by[v]]),
            )
            for v in moving
        ]
        self.places = old.copy()
        self.places[moving] = target[moving]
        self.account[ready] = 0.0
        return moves


def _at(place: Any) -> str:
    return "in the cloud" if place == "cloud" else f"on {place}"


def _is_price(value: Any) -> bool:
    return is_cost(value) and value > 0
