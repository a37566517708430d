"""A brute-force twin of the placement planner: every viable placement, each priced from scratch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

CLOUD = "cloud"

Inputs = list[tuple[str, str, float]]


def prices(value: float | dict[str, float], devices: set[str]) -> dict[str, float]:
    return value if isinstance(value, dict) else dict.fromkeys(devices, value)


def cost(
    inputs: Inputs,
    sources: dict[str, str],
    at: dict[str, str],
    up: float | dict[str, float],
    down: float | dict[str, float],
    shared: bool = True,
) -> float:
    """The formula of `anabranch.placement.cost`, word for word."""
    where = {**sources, **at}
    devices = set(where.values()) - {CLOUD}
    cu, cd = prices(up, devices), prices(down, devices)
    total = 0.0
    for u in {u for _, u, _ in inputs}:
        rows = [(w, r) for w, i, r in inputs if i == u]
        join = max if shared else sum
        here = where[u]
        if here != CLOUD:
            total += cu[here] * join([r for w, r in rows if where[w] != here] or [0.0])
        for d in devices - {here}:
            total += cd[d] * join([r for w, r in rows if where[w] == d] or [0.0])
    return total


def with_readers(inputs: Inputs, readers: dict[str, dict[str, float | None]]) -> Inputs:
    """A row more for everybody who reads a view."""
    found = list(inputs)
    for view, places in readers.items():
        by_others = [r for _, u, r in inputs if u == view]
        own = sum(r for w, _, r in inputs if w == view)
        for place, rate in places.items():
            usual = max(by_others) if by_others else own
            found.append((f"reader of {view} at {place}", view, usual if rate is None else rate))
    return found


def reading(readers: dict[str, dict[str, float | None]]) -> dict[str, str]:
    return {f"reader of {v} at {place}": place for v, places in readers.items() for place in places}


def placements(
    inputs: Inputs, sources: dict[str, str], pin: dict[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Every placement in which a view is in the cloud or where one of its inputs is, or pinned."""
    pins = pin or {}
    below: dict[str, list[str]] = {}
    for w, u, _ in inputs:
        below.setdefault(w, []).append(u)
    order: list[str] = []
    waiting = dict(below)
    while waiting:
        ready = [w for w, us in waiting.items() if all(u in sources or u in order for u in us)]
        order += ready
        for w in ready:
            del waiting[w]

    def go(rest: list[str], at: dict[str, str]) -> Iterator[dict[str, str]]:
        if not rest:
            yield dict(at)
            return
        w, *others = rest
        options = {CLOUD} | {sources.get(u) or at[u] for u in below[w]}
        options = {pins[w]} if w in pins else options
        for option in sorted(options):
            at[w] = option
            yield from go(others, at)
        del at[w]

    yield from go(order, {})


def is_viable(
    inputs: Inputs,
    sources: dict[str, str],
    at: dict[str, str],
    pin: dict[str, str] | None = None,
) -> bool:
    where = {**sources, **at}
    if any(at[w] != place for w, place in (pin or {}).items()):
        return False
    for w in set(at) - set(pin or {}):
        if at[w] != CLOUD and at[w] not in [where[u] for v, u, _ in inputs if v == w]:
            return False
    return True


def fits(at: dict[str, str], capacity: dict[str, float], load: dict[str, float]) -> bool:
    used: dict[str, float] = {}
    for w, d in at.items():
        used[d] = used.get(d, 0.0) + load.get(w, 1.0)
    return all(used.get(d, 0.0) <= limit for d, limit in capacity.items())


def least_cost(
    inputs: Inputs,
    sources: dict[str, str],
    upload_cost: float | dict[str, float] = 1.0,
    download_cost: float | dict[str, float] = 1.0,
    capacity: dict[str, float] | None = None,
    load: dict[str, float] | None = None,
    shared: bool = True,
    readers: dict[str, dict[str, float | None]] | None = None,
    pin: dict[str, str] | None = None,
) -> float:
    rows, stays = with_readers(inputs, readers or {}), reading(readers or {})
    weights = {**(load or {}), **dict.fromkeys(stays, 0.0)}
    return min(
        cost(rows, sources, at, upload_cost, download_cost, shared)
        for at in placements(rows, sources, {**(pin or {}), **stays})
        if capacity is None or fits(at, capacity, weights)
    )


def least_cost_with_core(
    inputs: Inputs,
    sources: dict[str, str],
    up: float | dict[str, float],
    down: float | dict[str, float],
    links: list[tuple[str, str, float]],
    attached: dict[str, str],
    sites: dict[str, str],
) -> float:
    """Cloud views go to any core node; a stream pays each core link it crosses once a direction."""
    nodes = sorted({n for a, b, _ in links for n in (a, b)})
    best = float("inf")
    for at in placements(inputs, sources):
        star = cost(inputs, sources, at, up, down)
        if star >= best:
            continue
        free = [w for w in at if at[w] == CLOUD]
        for chosen in itertools.product(nodes, repeat=len(free)):
            where = dict(zip(free, chosen, strict=True))
            for name, place in {**sources, **at}.items():
                if place != CLOUD:
                    where[name] = attached[place]
                elif name in sites:
                    where[name] = sites[name]
            best = min(best, star + _core_cost(inputs, where, links))
    return best


def _core_cost(inputs: Inputs, where: dict[str, str], links: list[tuple[str, str, float]]) -> float:
    total = 0.0
    for k, (a, _, price) in enumerate(links):
        side = {a}
        grew = True
        while grew:
            grew = False
            for j, (x, y, _) in enumerate(links):
                if j != k and (x in side) != (y in side):
                    side |= {x, y}
                    grew = True
        for u in {u for _, u, _ in inputs}:
            across = [
                r for w, i, r in inputs if i == u and (where[w] in side) != (where[u] in side)
            ]
            total += price * max(across or [0.0])
    return total
