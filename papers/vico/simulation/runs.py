"""A whole run in virtual time: route, let seconds pass, report, and change plans."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.flow.load import Load
from anabranch.flow.owning import owned
from anabranch.plans.controller import Adaptive, Controller, Report
from anabranch.plans.hashed import Broadcast
from anabranch.plans.log import Entry, live_at
from anabranch.plans.plan import Plan, Rows
from anabranch.plans.policies import POLICIES, Policy, SegmentPolicy
from anabranch.plans.routing import route
from papers.vico.simulation.hosts import Cluster, tally
from papers.vico.simulation.methods import METHODS, Method, first_plan, whole_operators
from papers.vico.simulation.settings import Settings
from papers.vico.simulation.workload import SECOND, Hosts, Workload, draw_hosts, draw_workload

__all__ = ["Outcome", "simulate"]

# Copies of one piece of a run that are counted at a time, to bound memory.
_CELLS = 8_000_000
_LONGEST_PIECE = 250
# Pairs of epoch and mask that one operator can have in its windows at a time.
_CLASSES = 64


@dataclass(frozen=True)
class Outcome:
    """What a run did: comparisons done and due, and copies, by second and operator."""

    method: Method
    settings: Settings
    done: np.ndarray
    due: np.ndarray
    frames: int
    sent: int
    admitted: int
    entries: tuple[tuple[Entry, ...], ...]

    @property
    def throughput(self) -> float:
        """Comparisons per second after the warm-up, all operators together."""
        return float(self.done[self.settings.warmup :].sum(axis=1).mean())

    @property
    def recall(self) -> float:
        """Pairs done of pairs due, over the whole run."""
        due = float(self.due.sum())
        return float(self.done.sum()) / due if due else 1.0

    @property
    def copies_per_frame(self) -> float:
        """Copies sent, whether or not hosts could take them in."""
        return self.sent / max(self.frames, 1)

    @property
    def taken_in(self) -> float:
        """The part of the copies sent that hosts could take in."""
        return self.admitted / max(self.sent, 1)

    @property
    def changes(self) -> tuple[Entry, ...]:
        """Entries of plan logs that brought in another plan."""
        return tuple(
            new
            for log in self.entries
            for old, new in itertools.pairwise(log)
            if new.epoch != old.epoch
        )

    def sampled(self, period: int) -> np.ndarray:
        """Mean comparisons per second of each `period` seconds."""
        whole = len(self.done) // period * period
        result: np.ndarray = self.done[:whole].sum(axis=1).reshape(-1, period).mean(axis=1)
        return result


def simulate(
    settings: Settings, method: str | Method, tick: Callable[[int], None] | None = None
) -> Outcome:
    """Run one method on one cluster.

    Parameters
    ----------
    settings
        Cluster, workload and choices.
    method
        A method, or the name of one of `METHODS`.
    tick
        Told the seconds that have passed, each time some have.

    Examples
    --------
    >>> run = simulate(Settings(hosts=4, rates=(2, 2), seconds=200, warmup=60, beta=1000), "SSP")
    >>> run.recall, 4.9 < run.copies_per_frame * 2 < 5.1
    (1.0, True)
    """
    if isinstance(method, str):
        if method not in METHODS:
            problem = f"unknown method {method!r}; known are {', '.join(METHODS)}"
            raise InvalidCall("simulate", [problem])
        method = METHODS[method]
    return _Run(settings, method).play(tick or (lambda seconds: None))


@dataclass
class _Operator:
    """One correlation: its plan log, its controller, and the classes of its copies."""

    entries: list[Entry]
    first_host: int
    origin: int
    controller: Controller | None = None
    classes: dict[tuple[int, int], int] = field(default_factory=dict)
    last_used: dict[int, int] = field(default_factory=dict)

    def class_of(self, epoch: int, masks: np.ndarray, now: int, keep: int) -> np.ndarray:
        """The class of each copy; numbers of classes that have left the windows are used again."""
        values, which = np.unique(masks, return_inverse=True)
        numbers = []
        for mask in values.tolist():
            if (epoch, mask) not in self.classes:
                old = [key for key, n in self.classes.items() if self.last_used[n] + keep < now]
                for key in old:
                    del self.classes[key]
                free = set(range(_CLASSES)) - set(self.classes.values())
                if not free:
                    raise RuntimeError("plans change too often for the simulator's memory")
                self.classes[(epoch, mask)] = number = min(free)
                self.last_used[number] = now
            numbers.append(self.classes[(epoch, mask)])
        return np.array(numbers)[which]

    def own(self) -> np.ndarray:
        """Whether a left class and a right class own their pairs: the rule of the router."""
        table = np.zeros((_CLASSES, _CLASSES), bool)
        if self.classes:
            epochs, masks = np.array(list(self.classes)).T
            at = np.array(list(self.classes.values()))
            both = owned(epochs[:, None], masks[:, None], epochs[None, :], masks[None, :])
            table[np.ix_(at, at)] = both
        return table


class _Run:
    def __init__(self, settings: Settings, method: Method) -> None:
        self.settings, self.method = settings, method
        self.hosts: Hosts = draw_hosts(settings)
        self.work: Workload = draw_workload(settings)
        self.adapts = bool(method.policies)
        classes = _CLASSES if self.adapts else 1
        self.cluster = Cluster(settings, self.hosts, classes)
        self.operators = self._start()
        self.sent = 0
        self.admitted = 0

    def play(self, tick: Callable[[int], None]) -> Outcome:
        s = self.settings
        piece = s.report if self.adapts else self._piece()
        done = []
        for batch, start in enumerate(range(0, s.seconds, piece)):
            stop = min(start + piece, s.seconds)
            done.append(self._pass(batch, start, stop))
            self.admitted += int(self.cluster.received.sum())
            if self.adapts:
                self._report(batch, start, stop)
            self.cluster.clear()
            tick(stop - start)
        return Outcome(
            self.method,
            s,
            np.concatenate(done),
            self.work.due.T,
            int(self.work.counts.sum()),
            self.sent,
            self.admitted,
            tuple(tuple(operator.entries) for operator in self.operators),
        )

    def _piece(self) -> int:
        cells = 2 * self.settings.operators * self.settings.hosts * (self.settings.delay + 1)
        return int(min(max(_CELLS // cells, 1), _LONGEST_PIECE))

    def _start(self) -> list[_Operator]:
        s, k = self.settings, self.settings.hosts
        rates = self.work.rates[:, :, 0]
        placed = whole_operators(s, rates, self.hosts)
        operators = []
        for o in range(s.operators):
            plan: Plan = Broadcast(1)
            if self.method.start not in ("distribution", "diffusion"):
                both = (float(rates[0, o]), float(rates[1, o]))
                plan = first_plan(self.method.start, s, both, self.hosts.speed)
            host = placed[o] if self.method.start == "distribution" else 0
            # Operators count time from different origins, or all would have their present segment,
            # and with it half of their work, on the same host.
            origin = o * k // s.operators * s.segment
            entries = [Entry(0, 0, plan, 0, (0,), {"rule": "start", "new": str(plan)})]
            operators.append(_Operator(entries, host, origin, self._controller(entries)))
        return operators

    def _controller(self, entries: list[Entry]) -> Controller | None:
        if not self.adapts:
            return None
        s = self.settings
        adaptive = Adaptive(
            s.hosts,
            entries[0].plan,
            s.weights,
            self.method.policies,
            float(self.hosts.memory.mean() * s.frame_bytes),
            float(self.hosts.link.mean() * s.frame_bytes),
        )
        policies: list[Policy] = [
            SegmentPolicy(s.segment_step) if name == "segment" else POLICIES[name]()
            for name in self.method.policies
        ]
        return Controller(entries, s.window_us, s.delay * SECOND, adaptive, policies)

    def _pass(self, batch: int, start: int, stop: int) -> np.ndarray:
        """Route the frames of some seconds and let the seconds pass."""
        s = self.settings
        shape = (stop - start, s.delay + 1, 2, s.operators)
        if self.method.start == "diffusion":
            free = np.zeros(shape, np.int64)
            for o in range(s.operators):
                for side in (0, 1):
                    frames = self.work.arriving(side, o, start, stop)
                    second = frames.stamp + frames.delay - start
                    np.add.at(free[:, :, side, o], (second, frames.delay), 1)
            self.sent += int(free.sum())
            arrivals = np.zeros((*shape, s.hosts, 1), np.int32)
            return self.cluster.advance(start, arrivals, np.ones((s.operators, 1, 1), bool), free)
        routed = [self._route(batch, o, start, stop) for o in range(s.operators)]
        own = np.ones((s.operators, 1, 1), bool)
        width = 1
        if self.adapts:
            used = [n for operator in self.operators for n in operator.classes.values()]
            width = 1 + max(used, default=0)
            own = np.stack([operator.own()[:width, :width] for operator in self.operators])
        arrivals = np.zeros((*shape, s.hosts, width), np.int32)
        for o, sides in enumerate(routed):
            for side, (offsets, workers, classes, second, delay) in enumerate(sides):
                host = self.operators[o].first_host
                tally(offsets, workers, classes, second, delay, host, arrivals, side, o)
                self.sent += len(workers)
        return self.cluster.advance(start, arrivals, own)

    def _route(self, batch: int, o: int, start: int, stop: int) -> list[tuple[np.ndarray, ...]]:
        """Copies of one operator's frames, both sides, with class, second and delay."""
        operator = self.operators[o]
        live = live_at(operator.entries, batch if self.adapts else 0)
        assert live is not None
        keep = int(self.cluster.keep.max())
        sides: list[tuple[np.ndarray, ...]] = []
        for side in (0, 1):
            frames = self.work.arriving(side, o, start, stop)
            stamps = (frames.stamp + operator.origin) * SECOND
            copies = route(live, side, Rows(stamps, frames.h), self.settings.window_us)
            classes = np.zeros(1, np.int64)
            if self.adapts:
                classes = operator.class_of(live.epoch, copies.masks, start, keep)
                operator.last_used.update(dict.fromkeys(np.unique(classes).tolist(), stop))
            second = frames.stamp + frames.delay - start
            sides.append((copies.offsets, copies.workers, classes, second, frames.delay))
        return sides

    def _report(self, batch: int, start: int, stop: int) -> None:
        """Tell each operator's controller what the hosts did, and write down what it changes."""
        for o, operator in enumerate(self.operators):
            assert operator.controller is not None
            newest = max(start - 1 - self.settings.delay, 0) + operator.origin
            loads = self._loads(o, start, stop)
            report = Report(batch, float(stop - start), newest * SECOND, loads)
            change = operator.controller.handle(report)
            if change is not None:
                entry = change.entry(batch + self.settings.ahead)
                operator.entries.append(entry)
                operator.controller.written(entry)

    def _loads(self, o: int, start: int, stop: int) -> tuple[Load, ...]:
        cluster, s = self.cluster, self.settings
        rows = self.work.counts[:, o, start:stop].sum(axis=1)
        held = cluster.held[:, o].sum(axis=(0, 2))
        loads = []
        for host in range(s.hosts):
            left, right = cluster.received[:, o, host].tolist()
            speed = self.hosts.speed[host]
            # Hosts are shared: an operator sees the whole host's load, and a comparison of its
            # own takes as long as the others let it.
            busy = float(cluster.receiving[host] + cluster.comparing[host]) / speed
            own_receiving = s.receive_cost * (left + right) / speed
            loads.append(
                Load(
                    host,
                    rows_left=int(rows[0]) if host == 0 else 0,
                    rows_right=int(rows[1]) if host == 0 else 0,
                    copies_left=left,
                    copies_right=right,
                    comparisons=int(cluster.done[o, host]),
                    state_rows=int(held[host]),
                    state_bytes=int(held[host] * s.frame_bytes),
                    bytes_in=int((left + right) * s.frame_bytes),
                    busy_seconds=busy,
                    compare_seconds=max(busy - own_receiving, 0.0),
                )
            )
        return tuple(loads)
