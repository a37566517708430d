"""Objects pass through the peers one by one, and messages are counted; compiled.

Each object is an instant. First what expires at it goes, with the merger updates this causes; then
the object is sent to its rendezvous peer and by it to every interested peer, and each of those
shows it to its queries; then changed thresholds are announced. Updates take no time.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.lists.algorithm import FOREVER
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.methods.ranked import better, oldest, place, take_out, tell
from anabranch.neighbours.methods.skyband import expire, holds, limit, offer, prune
from papers.knn.peers.interest import announce

__all__ = ["OPEN", "STARVING", "STEADY", "filtered_passage", "probabilistic_passage"]

INTERESTED, MERGER = 0, 1
STEADY, STARVING, OPEN = 0, 1, 2
_STRETCH = 32  # objects between two looks at the room for candidates; each adds at most two

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _radius(rule, best, n, full, spare, held, floor, q, root):  # pragma: no cover
    """How far a query of PA looks now, and how many objects it keeps.

    A steady query (see `PeerSettings`) keeps its threshold while it holds from `full` to
    ``full + spare`` objects. With more it cuts the list to the middle of that; with fewer it looks
    further, as far as the middle would be reached if objects were spread evenly, and again only
    if the list goes on shrinking.
    """
    if rule == STARVING:
        return (best[n - 1] if n > 0 else np.inf), n
    if rule == OPEN:
        return (best[n - 1] if n == full else np.inf), n
    middle = full + (spare + 1) // 2
    if n > full + spare:
        n = middle
        held[q] = best[n - 1]
    if n >= full:
        floor[q] = full
    elif n < floor[q]:
        # A threshold of nothing, of many objects at the query itself, cannot be stretched.
        held[q] = held[q] * (middle / max(n, 1)) ** root if held[q] > 0 else np.inf
        floor[q] = n - max(1, spare // 8)
    return held[q], n


@njit(nogil=True)
def probabilistic_passage(
    rule, first, points, cells, centres, living, born, home, k, full, spare, window,
    best, best_ints, sizes, eldest, held, floor,
    order, reach, extent, said, slack, cover, owner, mark, boxes, mergers, resolution,
    members, starts, counters, heard, out, far, done,
):  # pragma: no cover  # fmt: skip
    """Objects through peers that use PA; returns how many there are and how many reports."""
    m, peers, count = len(living), cover.shape[1], 0
    root = 1.0 / points.shape[1]
    moved, listed = np.zeros(m, np.bool_), np.empty(m, np.int64)
    lanes = np.empty(8)
    for j in range(done, len(points)):
        if count + m * (k + 1) > len(far):
            return j, count
        s, cell, changed = first + j, cells[j], 0
        for q in range(m):
            if eldest[q] + window <= s:
                sizes[q] = take_out(best[q], best_ints[q], sizes[q], s - window)
                eldest[q] = oldest(best_ints[q], sizes[q], FOREVER)
                moved[q] = True
                listed[changed] = q
                changed += 1
                radius, sizes[q] = _radius(
                    rule, best[q], sizes[q], full, spare, held, floor, q, root
                )
                counters[MERGER] += announce(
                    q, home[q], radius, order, reach, extent, said, slack, cover, owner, mark,
                    boxes, mergers, members, starts, centres, resolution,
                )  # fmt: skip
        z = owner[cell]
        for p in range(peers):
            if cover[cell, p] == 0 and p != z:
                continue
            counters[INTERESTED] += p != z
            heard[p] += 1
            for at in range(starts[p], starts[p + 1]):
                q = members[at]
                n = sizes[q]
                off = score(0, centres[q], points[j], lanes)
                if rule == STEADY:
                    fits = off <= held[q]
                elif rule == STARVING:
                    fits = n == 0 or off < best[q, n - 1]
                else:
                    fits = n < full or off < best[q, full - 1]
                if not fits or s < born[q] or not living[q]:
                    continue
                place(best[q], best_ints[q], n, off, s, s, 0)
                sizes[q] = n + 1 if rule == STEADY else min(n + 1, full)
                eldest[q] = min(eldest[q], s)
                if not moved[q]:
                    moved[q] = True
                    listed[changed] = q
                    changed += 1
        for i in range(changed):
            q = listed[i]
            moved[q] = False
            count = tell(best[q], best_ints[q], sizes[q], k, out, far, count, q, s)
            radius, sizes[q] = _radius(rule, best[q], sizes[q], full, spare, held, floor, q, root)
            counters[MERGER] += announce(
                q, home[q], radius, order, reach, extent, said, slack, cover, owner, mark,
                boxes, mergers, members, starts, centres, resolution,
            )  # fmt: skip
    return len(points), count


@njit(nogil=True)
def _make_room(scores, ints, n):  # pragma: no cover
    """Move candidates to the front of their array if its end is near."""
    if n[2] + 2 * _STRETCH + 2 <= len(scores):
        return True
    size = n[2] - n[1]
    for i in range(size):
        scores[i] = scores[n[1] + i]
        ints[i, 0] = ints[n[1] + i, 0]
        ints[i, 1] = ints[n[1] + i, 1]
        ints[i, 2] = ints[n[1] + i, 2]
    n[1], n[2] = 0, size
    return size + 2 * _STRETCH + 2 <= len(scores)


@njit(nogil=True)
def filtered_passage(
    first, points, cells, ring, ring_cells, centres, living, born, home, k, full, window, buffer,
    gamma, top, top_ints, cand, cand_ints, counts, limits, earliest, best, best_ints, sizes, eldest,
    order, reach, extent, said, slack, cover, owner, mark, boxes, mergers, resolution,
    members, starts, counters, heard, out, far, done,
):  # pragma: no cover  # fmt: skip
    """Objects through peers that use RAPF; returns how many and how many reports.

    Stops early if there is no room for more reports or candidates: the caller makes some.
    """
    m, peers, count = len(living), cover.shape[1], 0
    moved, listed, wider = np.zeros(m, np.bool_), np.empty(m, np.int64), np.empty(m, np.int64)
    queue, heap = np.empty(k, np.int64), np.empty(k)
    lanes = np.empty(8)
    for j in range(done, len(points)):
        if count + m * (k + 1) > len(far):
            return j, count
        if (j - done) % _STRETCH == 0:
            for q in range(m):
                if not _make_room(cand[q], cand_ints[q], counts[q]):
                    return j, count
        s, changed, announced = first + j, 0, 0
        for q in range(m):
            if earliest[q] + window <= s:
                expire(
                    top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, s - window
                )  # fmt: skip
                moved[q] = True
                listed[changed] = q
                changed += 1
        if s >= buffer:
            o = s - buffer
            slot = o % buffer
            cell = ring_cells[slot]
            z = owner[cell]
            for p in range(peers):
                if cover[cell, p] == 0 and p != z:
                    continue
                counters[INTERESTED] += p != z
                heard[p] += 1
                for at in range(starts[p], starts[p + 1]):
                    q = members[at]
                    if o < born[q] or not living[q]:
                        continue
                    off = score(0, centres[q], ring[slot], lanes)
                    f = sizes[q]
                    barred = f >= k and better(best[q, k - 1], best_ints[q, k - 1, 0], off, o)
                    if barred or holds(top_ints[q], cand_ints[q], counts[q], o):
                        continue
                    if offer(
                        top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, off, o, o
                    ) and not moved[q]:  # fmt: skip
                        moved[q] = True
                        listed[changed] = q
                        changed += 1
        for q in range(m):
            if eldest[q] + buffer <= s:
                sizes[q] = take_out(best[q], best_ints[q], sizes[q], s - buffer)
                eldest[q] = oldest(best_ints[q], sizes[q], FOREVER)
                radius = best[q, k - 1] if sizes[q] >= k else np.inf
                counters[MERGER] += announce(
                    q, home[q], radius, order, reach, extent, said, slack, cover, owner, mark,
                    boxes, mergers, members, starts, centres, resolution,
                )  # fmt: skip
        cell = cells[j]
        ring[s % buffer] = points[j]
        ring_cells[s % buffer] = cell
        z = owner[cell]
        for p in range(peers):
            if cover[cell, p] == 0 and p != z:
                continue
            counters[INTERESTED] += p != z
            heard[p] += 1
            for at in range(starts[p], starts[p + 1]):
                q = members[at]
                if s < born[q] or not living[q]:
                    continue
                off = score(0, centres[q], points[j], lanes)
                f = sizes[q]
                if f < k or off < best[q, k - 1]:
                    inside = offer(
                        top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, off, s, s
                    )
                    if counts[q, 2] - counts[q, 1] > limits[q]:
                        prune(
                            top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, s - window,
                            queue, heap,
                        )  # fmt: skip
                        limits[q] = limit(counts[q, 2] - counts[q, 1], gamma)
                    wider[announced] = q
                    announced += 1
                    if inside and not moved[q]:
                        moved[q] = True
                        listed[changed] = q
                        changed += 1
                if f < full or off < best[q, full - 1]:
                    place(best[q], best_ints[q], f, off, s, s, 0)
                    sizes[q] = min(f + 1, full)
                    eldest[q] = min(eldest[q], s)
        for i in range(changed):
            q = listed[i]
            moved[q] = False
            count = tell(top[q], top_ints[q], counts[q, 0], k, out, far, count, q, s)
            earliest[q] = oldest(top_ints[q], counts[q, 0], FOREVER)
        for i in range(announced):
            q = wider[i]
            radius = best[q, k - 1] if sizes[q] >= k else np.inf
            counters[MERGER] += announce(
                q, home[q], radius, order, reach, extent, said, slack, cover, owner, mark,
                boxes, mergers, members, starts, centres, resolution,
            )  # fmt: skip
    return len(points), count
