"""Cells of interest and mergers: who wants to hear of objects in which cells; compiled.

The cells of a query are sorted once by their least distance to it. Its cells of interest are then
always the first so many, and a new threshold moves one pointer. ``cover[cell, peer]`` counts the
queries of a peer that are interested in a cell; where it is not zero the peer's merger covers it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit

__all__ = ["Cells", "announce", "cells_by_distance", "refresh", "shift"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Cells(NamedTuple):
    """Who wants to hear of objects in which cells.

    Attributes
    ----------
    order, reach, extent
        All cells from near to far of a query and their least distances, and how many of them are
        its cells of interest.
    said, slack
        The radius that a query announced, and the share by which it may reach too far.
    cover, owner, mark
        How many queries of a peer are interested in a cell; the peer that a cell belongs to; for
        each peer the last change it was told of, and in the last entry how many there were.
    boxes, mergers
        The boxes of cells around queries, if mergers are boxes, and around those of a peer.
    members, starts
        Queries by peer, and where those of each peer start.
    centres, resolution
        The points of queries, and cells along an axis.
    """

    order: np.ndarray
    reach: np.ndarray
    extent: np.ndarray
    said: np.ndarray
    slack: float
    cover: np.ndarray
    owner: np.ndarray
    mark: np.ndarray
    boxes: np.ndarray
    mergers: np.ndarray
    members: np.ndarray
    starts: np.ndarray
    centres: np.ndarray
    resolution: int


def cells_by_distance(points: np.ndarray, resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """For each query, all cells from near to far (uint16), and their least distances (float32).

    Distances are a little too small, so that rounding never hides a cell.

    Examples
    --------
    >>> order, reach = cells_by_distance(np.array([[0.1], [0.7]]), 4)
    >>> order.tolist()
    [[0, 1, 2, 3], [2, 3, 1, 0]]
    >>> reach.round(2).tolist()[1] == np.float32([0, 0.05, 0.2, 0.45]).tolist()
    True
    """
    m, d = points.shape
    edges = np.arange(resolution + 1) / resolution
    order = np.empty((m, resolution**d), np.uint16)
    reach = np.empty((m, resolution**d), np.float32)
    for q in range(m):
        squares = np.zeros(1)
        for x in points[q]:
            gap = np.maximum(np.maximum(edges[:-1] - x, x - edges[1:]), 0.0)
            squares = np.add.outer(squares, gap * gap).ravel()
        far = np.sqrt(squares).astype(np.float32) * np.float32(1 - 1e-6)
        near = np.argsort(far, kind="stable")
        order[q] = near
        reach[q] = far[near]
    return order, reach


@njit(nogil=True)
def announce(cells, q, peer, radius):  # pragma: no cover
    """Make the cells of interest of a query those within `radius`; returns merger updates.

    One message goes to each foreign peer with cells that enter or leave the merger. Where there are
    boxes, the merger is the box around all cells of interest of the peer's queries.

    With some slack they reach further than needed by that share, and remain as said until the
    radius outgrows them or is less than them by twice that share.
    """
    slack, said = cells.slack, cells.said
    if slack > 0:
        if radius <= said[q] <= radius * (1 + slack) * (1 + slack):
            return 0
        radius *= 1 + slack
        said[q] = radius
    if len(cells.boxes):
        if not _enclose(cells.boxes[q], cells.centres[q], radius, cells.resolution):
            return 0
        return refresh(cells, peer)
    cover, owner, mark = cells.cover, cells.owner, cells.mark
    order, reaches = cells.order[q], cells.reach[q]
    n, messages, total = cells.extent[q], 0, len(order)
    now = mark[-1] + 1
    mark[-1] = now
    while n < total and reaches[n] <= radius:
        c = order[n]
        if cover[c, peer] == 0:
            z = owner[c]
            if z != peer and mark[z] != now:
                mark[z] = now
                messages += 1
        cover[c, peer] += 1
        n += 1
    while n > 0 and reaches[n - 1] > radius:
        n -= 1
        c = order[n]
        cover[c, peer] -= 1
        if cover[c, peer] == 0:
            z = owner[c]
            if z != peer and mark[z] != now:
                mark[z] = now
                messages += 1
    cells.extent[q] = n
    return messages


@njit(nogil=True)
def _enclose(box, centre, radius, resolution):  # pragma: no cover
    """Set the box of cells around a ball; whether it has changed."""
    changed = False
    for axis in range(len(centre)):
        low, high = 0, resolution
        if radius < 0:
            low, high = resolution, 0
        elif radius < 2:  # else the whole space
            low = max(0, int(np.floor((centre[axis] - radius) * resolution - 1e-9)))
            high = min(resolution, int(np.floor((centre[axis] + radius) * resolution + 1e-9)) + 1)
        changed |= box[axis, 0] != low or box[axis, 1] != high
        box[axis, 0], box[axis, 1] = low, high
    return changed


@njit(nogil=True)
def refresh(cells, peer):  # pragma: no cover
    """Make a peer's merger the box around the boxes of its queries; returns merger updates."""
    boxes, members, mark, resolution = cells.boxes, cells.members, cells.mark, cells.resolution
    old, new = cells.mergers[peer].copy(), cells.mergers[peer]
    new[:, 0], new[:, 1] = resolution, 0
    for at in range(cells.starts[peer], cells.starts[peer + 1]):
        box = boxes[members[at]]
        if box[0, 0] < box[0, 1]:
            for axis in range(boxes.shape[1]):
                new[axis, 0] = min(new[axis, 0], box[axis, 0])
                new[axis, 1] = max(new[axis, 1], box[axis, 1])
    if (old == new).all():
        return 0
    cover, owner = cells.cover, cells.owner
    mark[-1] += 1
    messages = _paint(peer, old, new, 0, cover, owner, mark, resolution)
    return messages + _paint(peer, new, old, 1, cover, owner, mark, resolution)


@njit(nogil=True)
def _paint(peer, box, without, value, cover, owner, mark, resolution):  # pragma: no cover
    """Set the cover of all cells of a box that are not in another one; returns peers to tell.

    What remains of a box without another is at most two slabs for each axis.
    """
    messages, part = 0, box.copy()
    for axis in range(len(box)):
        low, high = box[axis, 0], box[axis, 1]
        begin, end = max(low, without[axis, 0]), min(high, without[axis, 1])
        if begin >= end:
            return messages + _fill(peer, part, value, cover, owner, mark, resolution)
        part[axis, 0], part[axis, 1] = low, begin
        messages += _fill(peer, part, value, cover, owner, mark, resolution)
        part[axis, 0], part[axis, 1] = end, high
        messages += _fill(peer, part, value, cover, owner, mark, resolution)
        part[axis, 0], part[axis, 1] = begin, end
    return messages


@njit(nogil=True)
def _fill(peer, box, value, cover, owner, mark, resolution):  # pragma: no cover
    """Set the cover of all cells of a box."""
    d, messages, now = len(box), 0, mark[-1]
    for axis in range(d):
        if box[axis, 0] >= box[axis, 1]:
            return 0
    place = box[:, 0].copy()
    while True:
        cell = 0
        for axis in range(d):
            cell = cell * resolution + place[axis]
        cover[cell, peer] = value
        z = owner[cell]
        if z != peer and mark[z] != now:
            mark[z] = now
            messages += 1
        axis = d - 1
        while axis >= 0:
            place[axis] += 1
            if place[axis] < box[axis, 1]:
                break
            place[axis] = box[axis, 0]
            axis -= 1
        if axis < 0:
            return messages


@njit(nogil=True)
def shift(cells, q, old, new):  # pragma: no cover
    """Move a query with its cells of interest to another peer; returns merger updates."""
    cover, owner, mark, order = cells.cover, cells.owner, cells.mark, cells.order[q]
    extent = cells.extent[q]
    now = mark[-1] + 2
    mark[-1] = now
    messages = 0
    for i in range(extent):
        c = order[i]
        z = owner[c]
        cover[c, old] -= 1
        if cover[c, old] == 0 and z != old and mark[z] != now:
            mark[z] = now
            messages += 1
    now += 1
    mark[-1] = now
    for i in range(extent):
        c = order[i]
        z = owner[c]
        if cover[c, new] == 0 and z != new and mark[z] != now:
            mark[z] = now
            messages += 1
        cover[c, new] += 1
    return messages
