"""What every host does in a second: forget, receive, compare; compiled, for all hosts at once.

Copies that a host holds are counted by operator, side, second of their stamp and *class*, which is
the pair of epoch and mask that the router gave them: all that the rule of ownership asks for. So
pairs are counted exactly, without ever looking at one frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.flow.process import njit
from papers.vico.simulation.settings import Settings
from papers.vico.simulation.workload import Hosts

__all__ = ["Cluster", "tally"]


@dataclass
class Cluster:
    """The state of all hosts between two seconds.

    `waiting`, `done` and `received` hold figures by operator and host; those since the last call
    of `clear` can be read by a reporter.
    """

    settings: Settings
    hosts: Hosts
    classes: int = 1

    def __post_init__(self) -> None:
        s = self.settings
        self.keep = np.array([s.window[0] + s.delay, s.window[1] + s.delay])
        cells = (s.operators, s.hosts)
        self.bins = np.zeros((2, self.keep.max() + 2, *cells, self.classes), np.int32)
        self.held = np.zeros((2, *cells, self.classes), np.int64)
        self.waiting = np.zeros(cells)
        self.lost = np.zeros(cells)
        self.stored = np.zeros(s.hosts)
        self.carry = np.zeros(s.hosts)
        # By host: load as the baselines see it, units and frames of the last second.
        self.seen = np.zeros((3, s.hosts))
        self.clear()

    def clear(self) -> None:
        """Begin to count anew what hosts report."""
        s = self.settings
        self.done = np.zeros((s.operators, s.hosts))
        self.received = np.zeros((2, s.operators, s.hosts), np.int64)
        self.receiving = np.zeros(s.hosts)
        self.comparing = np.zeros(s.hosts)

    def advance(
        self, start: int, arrivals: np.ndarray, own: np.ndarray, free: np.ndarray | None = None
    ) -> np.ndarray:
        """Let seconds pass; comparisons done, by second and operator.

        Parameters
        ----------
        start
            The first second.
        arrivals
            Copies by second, delay, side, operator, host and class.
        own
            Whether a left class and a right class own their pairs, by operator.
        free
            Frames by second, delay, side and operator that go to the least-loaded hosts;
            `arrivals` is then filled here.
        """
        s = self.settings
        if free is None:
            free = np.zeros((0, 0, 0, 0), np.int64)
        costs = np.array([s.receive_cost, s.compare_cost, s.queue, s.receive == "first"], float)
        done: np.ndarray = _advance(
            start,
            arrivals,
            free,
            own,
            np.array(s.window),
            self.keep,
            s.delay,
            costs,
            np.array(s.weights),
            s.staleness,
            self.hosts.speed,
            self.hosts.memory,
            self.hosts.link,
            self.bins,
            self.held,
            self.waiting,
            self.lost,
            self.stored,
            self.carry,
            self.seen,
            self.done,
            self.received,
            self.receiving,
            self.comparing,
        )
        return done


@njit
def tally(offsets, workers, classes, second, delay, first_host, out, side, operator):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Count copies into `out` by second, delay, side, operator, host and class.

    `classes` holds one class per copy, or one for all. Worker w lives on host ``first_host + w``.
    """
    one = len(classes) == 1
    for row in range(len(offsets) - 1):
        for copy in range(offsets[row], offsets[row + 1]):
            host = first_host + workers[copy]
            out[second[row], delay[row], side, operator, host, classes[0 if one else copy]] += 1


@njit
def _advance(  # type: ignore[no-untyped-def]  # pragma: no cover
    start,
    arrivals,
    free,
    own,
    window,
    keep,
    most_delay,
    costs,
    weights,
    staleness,
    speed,
    memory,
    link,
    bins,
    held,
    waiting,
    lost,
    stored,
    carry,
    seen,
    done,
    received,
    receiving,
    comparing,
):
    receive_cost, compare_cost, queue, first = costs
    steps, delays, _, operators, hosts, classes = arrivals.shape
    ring = bins.shape[1]
    result = np.zeros((steps, operators))
    admitted = np.zeros(hosts)
    total = np.zeros(hosts)
    part = np.zeros(hosts)
    queued = np.zeros(hosts)
    new = np.zeros((2, classes), np.int64)
    for step in range(steps):
        now = start + step
        # Forget what has left the windows.
        for side in range(2):
            gone = (now - keep[side] - 1) % ring
            for o in range(operators):
                for h in range(hosts):
                    for c in range(classes):
                        n = bins[side, gone, o, h, c]
                        if n:
                            bins[side, gone, o, h, c] = 0
                            held[side, o, h, c] -= n
                            stored[h] -= n
        if len(free):
            if now % staleness == 0:
                for h in range(hosts):
                    seen[0, h] = (
                        weights[0] * (seen[1, h] + compare_cost * waiting[:, h].sum()) / speed[h]
                        + weights[1] * stored[h] / memory[h]
                        + weights[2] * seen[2, h] / link[h]
                    )
            _deal(free[step], arrivals[step], held, seen[0], costs, weights, speed, memory, link)
        # How many copies each host can take in.
        total[:] = 0
        queued[:] = 0
        for o in range(operators):
            for h in range(hosts):
                queued[h] += waiting[o, h]
                for d in range(delays):
                    for side in range(2):
                        for c in range(classes):
                            total[h] += arrivals[step, d, side, o, h, c]
        for h in range(hosts):
            units = speed[h]
            demand = receive_cost * total[h] + compare_cost * queued[h]
            if first == 0 and demand > units:
                units *= receive_cost * total[h] / demand
            most = np.floor(min(link[h], memory[h] - stored[h], units / receive_cost))
            part[h] = 1.0 if total[h] <= most else max(most, 0.0) / total[h]
            admitted[h] = 0
        # Take them in, and count the pairs they make with what is there.
        for o in range(operators):
            for h in range(hosts):
                for d in range(delays):
                    for side in range(2):
                        other = 1 - side
                        for c in range(classes):
                            n = arrivals[step, d, side, o, h, c]
                            if n and part[h] < 1:
                                # The carry deals the cuts out evenly over cells and seconds.
                                want = n * part[h] + carry[h]
                                n = min(n, int(np.floor(want + 1e-9)))
                                carry[h] = max(want - n, 0.0)
                            new[side, c] = n
                            if n == 0:
                                continue
                            for p in range(classes):
                                if side == 0 and not own[o, c, p]:
                                    continue
                                if side == 1 and not own[o, p, c]:
                                    continue
                                met = held[other, o, h, p]
                                # Late frames look at a window that begins and ends earlier.
                                for b in range(now - keep[other], now - d - window[other]):
                                    met -= bins[other, b % ring, o, h, p]
                                for b in range(now - d + window[side] + 1, now + 1):
                                    met -= bins[other, b % ring, o, h, p]
                                waiting[o, h] += n * met
                        # Now the other side meets them, this side does not.
                        slot = (now - d) % ring
                        for c in range(classes):
                            n = new[side, c]
                            if n:
                                bins[side, slot, o, h, c] += n
                                held[side, o, h, c] += n
                                received[side, o, h] += n
                                admitted[h] += n
        # Compare with the processor time that receiving has left.
        queued[:] = 0
        for o in range(operators):
            for h in range(hosts):
                queued[h] += waiting[o, h]
        for h in range(hosts):
            stored[h] += admitted[h]
            units = admitted[h] * receive_cost
            receiving[h] += units
            most = max(speed[h] - units, 0.0) / compare_cost
            part[h] = 1.0 if queued[h] <= most else most / queued[h]
            worked = min(queued[h], most)
            comparing[h] += worked * compare_cost
            seen[1, h] = units + worked * compare_cost
            seen[2, h] = admitted[h]
            left = queued[h] - worked
            room = queue * speed[h] / compare_cost
            total[h] = 1.0 if left <= room else room / left
        for o in range(operators):
            for h in range(hosts):
                n = waiting[o, h]
                if n:
                    worked = n * part[h]
                    done[o, h] += worked
                    result[step, o] += worked
                    waiting[o, h] = (n - worked) * total[h]
                    lost[o, h] += (n - worked) * (1 - total[h])
    return result


@njit
def _deal(free, arrivals, held, load, costs, weights, speed, memory, link):  # type: ignore[no-untyped-def]  # pragma: no cover
    """LLF-Diffusion: each frame to the host that has the least load at that moment."""
    delays, _, operators = free.shape
    hosts = len(load)
    arrivals[:] = 0
    for o in range(operators):
        for d in range(delays):
            for side in range(2):
                for _ in range(free[d, side, o]):
                    best = 0
                    for h in range(1, hosts):
                        if load[h] < load[best]:
                            best = h
                    arrivals[d, side, o, best, 0] += 1
                    units = costs[0] + costs[1] * held[1 - side, o, best, 0]
                    load[best] += (
                        weights[0] * units / speed[best]
                        + weights[1] / memory[best]
                        + weights[2] / link[best]
                    )
