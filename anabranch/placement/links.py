"""Traffic by link: what a plan says, and what a running hub has counted, in a file for a board."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.flow.folders import Folder

__all__ = ["Counting", "counted", "links_of"]

_MOST = 12  # links that are told one by one
_EVERY = 5.0  # seconds between two looks
_WINDOW = 60.0  # seconds that rates are taken over
_FILE = "traffic/links.json"


def links_of(plan: Any) -> dict[str, Any]:
    """What crosses each device's link under a plan, against everything uploaded."""
    return _form(plan, _planned(plan))


def _planned(plan: Any) -> dict[str, dict[str, Any]]:
    """Rates and cost of each link."""
    links: dict[str, dict[str, Any]] = {}
    for row in plan.traffic().to_pylist():
        line = _line(links, "between sites" if row["device"] is None else str(row["device"]))
        if row["direction"] in ("up", "down"):
            line[row["direction"]] += row["rate"]
        line["cost"] += row["cost"]
    return links


def _line(links: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    return links.setdefault(name, {"device": name, "up": 0.0, "down": 0.0, "cost": 0.0})


def _form(plan: Any, links: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The busiest links, and what all cost."""
    busiest = sorted(links.values(), key=lambda of: -of["cost"] - of.get("seen_up", 0.0))
    return {
        "cost": plan.cost,
        "all_cloud": plan.baseline_cost,
        "links": busiest[:_MOST],
        "more": max(0, len(busiest) - _MOST),
    }


def counted(control: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What the hub of a control directory wrote last; None before it has."""
    found = Folder(control).read(_FILE)
    if found is None:
        return None
    form: dict[str, Any] = json.loads(found)
    return form


class Counting:
    """Turns the relay's counts into rates of the last minute, and writes them beside the plan.

    Examples
    --------
    >>> import tempfile
    >>> from anabranch.placement.call import place
    >>> plan = place([("near", "ann", 5.0), ("near", "bob", 1.0)], {"ann": "a", "bob": "b"})
    >>> control = tempfile.mkdtemp()
    >>> counting = Counting(control)
    >>> for now in range(0, 30, 5):
    ...     counting.note(now, {("up", "b"): 10 * now}, plan, lambda way, device: 1.0)
    >>> found = counted(control)
    >>> found["seconds"], found["seen_cost"], found["links"][0]["seen_up"]
    (25, 10.0, 10.0)
    """

    def __init__(self, control: str | os.PathLike[str]) -> None:
        self._folder = Folder(control)
        self._looks: deque[tuple[float, dict[tuple[str, str], int]]] = deque()
        self._plan: tuple[Any, dict[str, dict[str, Any]]] = None, {}

    def note(
        self,
        now: float,
        bytes_so_far: Mapping[tuple[str, str], int],
        plan: Any,
        cost: Callable[[str, str], float],
    ) -> None:
        """Look at the counts, by direction and device, every few seconds; `now` is since 1970.

        `cost` is that of a byte in a direction of a device's link.
        """
        if self._looks and 0 <= now - self._looks[-1][0] < _EVERY:
            return
        if self._looks and sum(bytes_so_far.values()) < sum(self._looks[-1][1].values()):
            self._looks.clear()  # the relay has begun anew
        self._looks.append((now, dict(bytes_so_far)))
        while now - self._looks[0][0] > _WINDOW:
            self._looks.popleft()
        began, first = self._looks[0]
        if plan is None or now <= began:
            return
        if plan is not self._plan[0]:
            self._plan = plan, _planned(plan)
        links, paid = {name: dict(line) for name, line in self._plan[1].items()}, 0.0
        for (way, device), size in bytes_so_far.items():
            rate = (size - first.get((way, device), 0)) / (now - began)
            _line(links, device)[f"seen_{way}"] = rate
            paid += rate * cost(way, device)
        seen = {"at": now, "seconds": now - began, "seen_cost": paid}
        self._folder.write(_FILE, json.dumps({**_form(plan, links), **seen}).encode())
