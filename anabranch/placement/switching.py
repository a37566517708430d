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
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from anabranch.errors import InvalidCall
from anabranch.placement.cost import link_costs
from anabranch.placement.placement import Placement
from anabranch.placement.tables import is_cost, listed

__all__ = ["Move", "Switcher"]


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
    price
        What redeploying a device's views costs, in units of the plan's cost: one for all devices
        or a dict.

    Examples
    --------
    >>> import anabranch as ab
    >>> plan = ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"}, down=1.0)
    >>> follower = ab.Switcher(plan, price=5)
    >>> follower.observe([("w", "p", 1)])   # Q at 2, P at 1: one unit lost on P's link
    []
    >>> [str(m.view) for _ in range(9) for m in follower.observe([])]
    ['w']
    >>> follower.location
    {'w': 'Q'}
    """

    def __init__(self, plan: Placement, price: float | Mapping[Any, float]) -> None:
        if not isinstance(plan, Placement):
            problem = f"plan must come from ab.place, got {type(plan).__name__}"
            raise InvalidCall("Switcher", [problem])
        names = [plan.graph.device_name(k) for k in range(plan.graph.devices)]
        values = price if isinstance(price, Mapping) else dict.fromkeys(names, price)
        wrong = [n for n in names if not _is_price(values.get(n))]
        if wrong:
            problem = f"price must be above 0 for every device; it is not for {listed(wrong)}"
            raise InvalidCall("Switcher", [problem])
        self.best = plan
        self.places = plan.places.copy()
        self.account = np.zeros(plan.graph.devices)
        self._price = np.array([float(values[n]) for n in names])

    @property
    def location(self) -> dict[Any, Any]:
        """Where views are now."""
        names = [self.best.graph.device_name(int(k)) for k in self.places]
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
        group = self._groups(target)
        count = int(group.max(initial=-1)) + 1
        # Devices that must switch together keep one account between them.
        before = np.bincount(group, self.account, count)
        change = np.bincount(group, lost * duration, count)
        after = np.maximum(before + change, 0.0)
        size = np.bincount(group, minlength=count)
        self.account = after[group] / size[group]
        moving = self.places != target
        involved = np.zeros(graph.devices, bool)
        for at in (self.places[moving], target[moving]):
            involved[at[at >= 0]] = True
        price = np.bincount(group, np.where(involved, self._price, 0.0), count)
        ready = (after >= 2 * price) & (price > 0)
        return self._switch(ready[group], after[group])

    def _groups(self, target: np.ndarray) -> np.ndarray:
        """Devices between which a view would move have to switch together."""
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


def _is_price(value: Any) -> bool:
    return is_cost(value) and value > 0
