"""The prefix rule: the best upload level of a stream, found without looking at anybody else.

A stream with consumers at rates r picks a level t: consumers at or below t are served by the
upload for nothing, those above stay with the stream and cost their price (what must be brought to
it). ``cost(t) = up * t + sum of prices above t``, minimised, ties to the largest t (the
paper's local rule in section 3.5, with the case k = 0 and the tie rule that it leaves out).

Sorting every consumer is not needed. At the best level every kept consumer has ``up * rate >
price`` (else raising the level to its rate would not cost more), so a consumer with ``up * rate <=
price`` bars all levels below its rate. One pass finds each stream's bar; only what is above it,
usually little, is sorted.

Letters of the compiled part: u is a unit (a stream that picks a level), k a place in its order; v
is a view, e the place of an input in the rows of views, s that source, d its device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.placement.graph import ViewGraph

__all__ = ["Levels", "prefix_rule", "sharing_devices", "source_levels"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_WIDE = 32


class Levels(NamedTuple):
    """The upload level of each stream and the least cost that it reaches."""

    threshold: np.ndarray
    value: np.ndarray


def prefix_rule(unit: np.ndarray, rate: np.ndarray, price: np.ndarray, up: np.ndarray) -> Levels:
    """The best level of each unit, for rows in any order.

    Parameters
    ----------
    unit, rate, price
        One entry per consumer: whose it is, the rate it needs, what keeping it costs.
    up
        Upload cost of each unit.

    Examples
    --------
    >>> rate, price = np.array([10.0, 3.0]), np.array([6.0, 5.0])
    >>> rule = prefix_rule(np.array([0, 0]), rate, price, up=np.ones(1))
    >>> rule.threshold.tolist(), rule.value.tolist()
    ([3.0], [9.0])
    """
    bar = _bars(unit, rate, price, up)
    return Levels(*_choose(unit, rate, price, up, bar))


def source_levels(graph: ViewGraph, skip: np.ndarray) -> Levels:
    """The best level of every source in a graph of one level, all in a few passes over the rows.

    Devices in `skip` are left out. Where a device has a capacity, levels whose views do not fit are
    not allowed (flaw F6); that is exact for devices with one source.
    """
    if not graph.shared:
        raise ValueError("source_levels is for shared streams")
    limit = np.zeros(0) if graph.capacity is None else graph.capacity
    load = np.zeros(0) if graph.load is None else graph.load
    bar = _source_bars(graph.rows, graph.links, skip)
    return Levels(*_source_choose(graph.rows, graph.links, skip, bar, limit, load))


def sharing_devices(graph: ViewGraph) -> np.ndarray:
    """Devices for which the prefix rule may be wrong, in a graph of one level.

    They could serve two views with one download, or hold two inputs of one view (flaw F3).
    """
    of = graph.sources_by_device
    sizes = np.diff(graph.offsets)
    if np.all(np.diff(of.offsets) <= 1) and sizes.max(initial=0) <= _WIDE:
        # One stream per device: a download is shared if two streams meet in two views.
        found: np.ndarray = _meeting_twice(graph.rows, graph.home, graph.devices)
        return found
    found = _sharing(graph.rows, graph.consumers, graph.row_view, graph.home, of)
    return found


# Letters: v a view, e a row, s a source, d a device, u a unit (what picks a level: a source, or a
# source on a device), k a position.


@njit
def _bars(unit, rate, price, up):
    bar = np.zeros(len(up))
    for k in range(len(unit)):
        u = unit[k]
        if up[u] * rate[k] <= price[k] and rate[k] > bar[u]:
            bar[u] = rate[k]
    return bar


@njit
def _choose(unit, rate, price, up, bar):
    units = len(up)
    starts = np.zeros(units + 1, np.int64)
    for k in range(len(unit)):
        if rate[k] > bar[unit[k]]:
            starts[unit[k] + 1] += 1
    for u in range(units):
        starts[u + 1] += starts[u]
    at = starts[:-1].copy()
    rates = np.empty(starts[units])
    prices = np.empty(starts[units])
    for k in range(len(unit)):
        u = unit[k]
        if rate[k] > bar[u]:
            rates[at[u]], prices[at[u]] = rate[k], price[k]
            at[u] += 1
    none = np.zeros(0)
    return _best(starts, rates, prices, none, up, np.full(units, np.inf), bar)


@njit
def _best(starts, rates, prices, loads, up, limit, bar):
    units = len(up)
    threshold = bar.copy()
    value = up * bar
    for u in range(units):
        first, last = starts[u], starts[u + 1]
        if first == last:
            continue
        order = np.argsort(rates[first:last])
        # From the top down: t is the rate of the consumer looked at, kept are those above it.
        best_cost, best_level = np.inf, 0.0
        kept, weight = 0.0, 0.0
        k = len(order) - 1
        fits = True
        while k >= 0:
            level = rates[first + order[k]]
            cost = up[u] * level + kept
            if cost < best_cost:
                best_cost, best_level = cost, level
            while k >= 0 and rates[first + order[k]] == level:
                kept += prices[first + order[k]]
                if len(loads):
                    weight += loads[first + order[k]]
                k -= 1
            if weight > limit[u]:
                fits = False
                break
        if fits and up[u] * bar[u] + kept < best_cost:
            best_cost, best_level = up[u] * bar[u] + kept, bar[u]
        threshold[u], value[u] = best_level, best_cost
    return threshold, value


@njit
def _total(rates, first, last):
    return rates[first:last].sum() if last - first > _WIDE else 0.0


@njit(inline="always")
def _others(rates, first, last, own, whole):
    # Added up rather than subtracted from the total, so that equal rates compare as equal; but
    # not for views so wide that it would take quadratic time.
    if last - first == 2:
        return rates[first + last - 1 - own]
    if last - first > _WIDE:
        return whole - rates[own]
    total = 0.0
    for e in range(first, last):
        if e != own:
            total += rates[e]
    return total


@njit
def _source_bars(rows, links, skip):
    offsets, inputs, rates = rows
    home, up, down = links
    bar = np.zeros(len(home))
    for v in range(len(offsets) - 1):
        first, last = offsets[v], offsets[v + 1]
        whole = _total(rates, first, last)
        for e in range(first, last):
            s = inputs[e]
            d = home[s]
            if d < 0 or rates[e] <= bar[s] or skip[d]:
                continue
            if up[d] * rates[e] <= down[d] * _others(rates, first, last, e, whole):
                bar[s] = rates[e]
    return bar


@njit
def _above(rows, home, skip, bar):
    # Where the rows of each source begin that are above its bar.
    starts = np.zeros(len(home) + 1, np.int64)
    for e in range(len(rows.inputs)):
        s = rows.inputs[e]
        if rows.rates[e] > bar[s] and home[s] >= 0 and not skip[home[s]]:
            starts[s + 1] += 1
    for s in range(len(home)):
        starts[s + 1] += starts[s]
    return starts


@njit
def _source_choose(rows, links, skip, bar, limit, load):
    offsets, inputs, rates = rows
    home, up, down = links
    sources = len(home)
    starts = _above(rows, home, skip, bar)
    at = starts[:-1].copy()
    kept_rates = np.empty(starts[sources])
    kept_prices = np.empty(starts[sources])
    kept_loads = np.empty(starts[sources] if len(limit) else 0)
    for v in range(len(offsets) - 1):
        first, last = offsets[v], offsets[v + 1]
        whole = _total(rates, first, last)
        for e in range(first, last):
            s = inputs[e]
            d = home[s]
            if rates[e] > bar[s] and d >= 0 and not skip[d]:
                kept_rates[at[s]] = rates[e]
                kept_prices[at[s]] = down[d] * _others(rates, first, last, e, whole)
                if len(limit):
                    kept_loads[at[s]] = load[v]
                at[s] += 1
    unit_up = np.zeros(sources)
    unit_limit = np.full(sources, np.inf)
    for s in range(sources):
        if home[s] >= 0:
            unit_up[s] = up[home[s]]
            if len(limit):
                unit_limit[s] = limit[home[s]]
    return _best(starts, kept_rates, kept_prices, kept_loads, unit_up, unit_limit, bar)


@njit
def _holding_two(rows, home, devices):
    # Devices that hold two inputs of one view.
    found = np.zeros(devices, np.bool_)
    seen = np.full(devices, -1, np.int32)
    for v in range(len(rows.offsets) - 1):
        for e in range(rows.offsets[v], rows.offsets[v + 1]):
            d = home[rows.inputs[e]]
            if d >= 0:
                if seen[d] == v:
                    found[d] = True
                seen[d] = v
    return found


@njit
def _read_by_several(rows, read):
    # Only streams with two readers can serve two: a wide view over others has nothing to look at.
    views = len(rows.offsets) - 1
    starts = np.zeros(views + 1, np.int64)
    several = np.empty(len(rows.inputs), np.int32)
    count = 0
    for v in range(views):
        for e in range(rows.offsets[v], rows.offsets[v + 1]):
            s = rows.inputs[e]
            if read.offsets[s + 1] - read.offsets[s] > 1:
                several[count] = s
                count += 1
        starts[v + 1] = count
    return starts, several


@njit
def _sharing(rows, read, row_view, home, of):
    devices = len(of.offsets) - 1
    found = _holding_two(rows, home, devices)
    starts, several = _read_by_several(rows, read)
    stamp = np.full(len(home), -1, np.int32)
    for d in range(devices):
        for k in range(of.offsets[d], of.offsets[d + 1]):
            s = of.rows[k]
            for j in range(read.offsets[s], read.offsets[s + 1]):
                if found[d]:
                    break
                v = row_view[read.rows[j]]
                for e in range(starts[v], starts[v + 1]):
                    other = several[e]
                    if home[other] == d:
                        continue
                    if stamp[other] == d:
                        found[d] = True
                        break
                    stamp[other] = d
    return found


@njit
def _partners(rows, sources):
    # Each pair of streams that meet in a view, under the smaller of the two.
    offsets, inputs = rows.offsets, rows.inputs
    views = len(offsets) - 1
    starts = np.zeros(sources + 1, np.int64)
    for v in range(views):
        first, last = offsets[v], offsets[v + 1]
        for i in range(first, last - 1):
            for j in range(i + 1, last):
                starts[min(inputs[i], inputs[j]) + 1] += 1
    for s in range(sources):
        starts[s + 1] += starts[s]
    partner = np.empty(starts[sources], np.int32)
    at = starts[:-1].copy()
    for v in range(views):
        first, last = offsets[v], offsets[v + 1]
        for i in range(first, last - 1):
            for j in range(i + 1, last):
                low = min(inputs[i], inputs[j])
                partner[at[low]] = max(inputs[i], inputs[j])
                at[low] += 1
    return starts, partner


@njit
def _meeting_twice(rows, home, devices):
    sources = len(home)
    starts, partner = _partners(rows, sources)
    found = np.zeros(devices, np.bool_)
    stamp = np.full(sources, -1, np.int32)
    for s in range(sources):
        for k in range(starts[s], starts[s + 1]):
            other = partner[k]
            if stamp[other] == s:
                if home[s] >= 0:
                    found[home[s]] = True
                if home[other] >= 0:
                    found[home[other]] = True
            stamp[other] = s
    return found
