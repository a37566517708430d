"""The world in a box: agents, relay, keeper and evaluators under one seeded scheduler.

Everything that may happen to real processes happens to the state machines here: messages are
delayed, reordered, doubled and lost, devices are cut off, and every process is killed at any moment
between two durable steps. A disk is lost, put back from a backup, or copied so that two devices of
one name run. The broker loses the newest messages of its streams, once or twice, and is recovered.
In the end all is well again, and what was found must be the twin's; a device may only have been
stopped if its disk was put back or copied. In some worlds devices leave and come back, and views
end and are asked for again, also with other shares. In others a device is lost for good, or seems
to be: nobody waits for it any more, and views over it end, also while they move.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from anabranch.edge.agent_state import AgentState, Effects
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.evaluator import Evaluator
from anabranch.edge.frames import (
    Down,
    Output,
    Up,
    decode_down,
    decode_output,
    decode_up,
    encode_down,
    encode_output,
)
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.mail import base_of, fresh_results
from anabranch.edge.own_stream import Row
from anabranch.edge.ownership import NOWHERE
from anabranch.edge.placements import Entry
from anabranch.edge.recovery import recovered
from anabranch.edge.relay_state import Covered, RelayState
from anabranch.edge.sections import Results
from tests.edge.twin import Known, Put, twin

__all__ = ["World", "Wrong"]

BUCKETS = 2
_Frame = TypeVar("_Frame", Up, Down, Output)


class Wrong(AssertionError):
    """Results are not what the twin says."""


@dataclass
class Device:
    """A device: what is on its disk, and the process, which may be dead."""

    name: str
    streams: list[str]
    skew: int
    process: AgentState | None = None
    rows: dict[tuple[str, int], Row] = field(default_factory=dict)
    frames: dict[int, bytes] = field(default_factory=dict)
    state: bytes | None = None
    shown: list[tuple[int, ...]] = field(default_factory=list)
    cut: bool = False
    incarnation: int = 0
    token: int = 0

    def copy(self) -> Device:
        """What is on its disk, on another one."""
        disk = {"rows": dict(self.rows), "frames": dict(self.frames), "shown": list(self.shown)}
        return replace(self, process=None, **disk)


@dataclass
class Bucket:
    """A bucket of the cloud: its committed state, and where it is in its subject."""

    state: bytes | None = None
    seen: int = -1
    batch: int = -1
    found: list[tuple[int, ...]] = field(default_factory=list)
    output: bytes | None = None  # of the newest batch, which may not be published
    generation: int = 0
    had: dict[str, int] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)  # to devices, in this and former batches


class World:
    """One world; `run` lives it to its end and compares."""

    def __init__(self, seed: int, steps: int = 250) -> None:
        self.rng = rng = random.Random(seed)
        self.steps = steps
        self.whims = random.Random(f"whims {seed}")  # apart, so that other worlds stay as they are
        self.is_fickle = self.whims.random() < 0.4
        self.byes = 0
        self.lots = random.Random(f"lots {seed}")  # likewise
        self.gone: set[str] = set()  # devices that are lost, or seem to be
        self.taken: set[tuple[int, int]] = set()  # their rows that the relay has had
        self.cut_short = 0  # views that ended while they moved
        self.now = 1000
        self.loss = rng.choice([0.0, 0.02, 0.2])
        self.deaths = rng.choice([0.0, 0.02, 0.1])
        self.up: list[tuple[str, Any]] = []  # the stream UP
        self.stored: dict[str, list[bytes]] = {}  # DOWN and IN
        self.flying: deque[tuple[str, bytes]] = deque()  # to "u.<device>" or "d.<device>"
        self.log: list[Entry] = []
        self.relay: RelayState | None = None
        self.snapshot: bytes | None = None
        self.generation = 0  # of the broker's streams
        self.recoveries = 0
        self.synced: dict[str, int] = {}  # messages of each subject that a power cut leaves
        self.keeper: KeeperState | None = None
        self.late: set[tuple[int, int]] = set()
        self.fate = rng.choices(["", "lost", "put back", "copied"], [7, 1, 1, 1])[0]  # of a disk
        # Of the broker, yet to come; what the cloud knew of an outbox would be lost with it.
        self.losses = 0 if self.fate else rng.choices([0, 1, 2], [3, 2, 1])[0]
        self.back: dict[str, int] = {}  # a device was there before the loss, by which frame of it
        self.left: dict[str, int] = {}  # the newest frame by which the relay heard that it left
        self.lost: dict[tuple[str, int], Row] = {}
        self.victim = ""  # whose disk is lost, or was put back and is of no use
        self.backup: Device | None = None
        self.suspect = ""  # whose disk was put back or copied
        self.twin: Device | None = None  # that runs beside the device of its name
        self.stops: list[str] = []
        self.buckets = {k: Bucket() for k in range(BUCKETS)}
        # When a device is lost, in a world in which nothing else happens to disks.
        loses = not self.fate and self.lots.random() < 0.5
        self.loses_at = self.lots.randrange(steps) if loses else steps
        self.is_lost = self.lots.random() < 0.7  # for good
        self._people()
        self._wishes()

    # ------------------------------------------------------------ who there is

    def _people(self) -> None:
        rng = self.rng
        names = ["ann", "bob", "cyd", "dan"][: rng.randint(2, 4)]
        self.tick = rng.choice([0, 0, 3, 10])
        self.devices = {}
        self.declared: list[Stream] = []
        for name in names:
            feeds = ["gps"] if rng.random() < 0.8 else ["gps", "cam"]
            streams = [f"{feed}[{name}]" for feed in feeds]
            columns = {"x": "bigint"}
            self.declared += [Stream(stream, name, columns, self.tick) for stream in streams]
            token = rng.getrandbits(32)
            self.devices[name] = Device(name, streams, rng.randint(-30, 30), token=token)

    def _wishes(self) -> None:
        rng = self.rng
        self.windows = [(rng.choice([0, 5, 40]), rng.choice([5, 40, 100])) for _ in range(2)]
        deliver = [("cloud",), ("cloud", "inputs")]
        self.definitions = [
            Definition("any", "pairs", self.windows[0], None, ((), ()), rng.choice(deliver)),
            Definition(
                "near",
                "pairs",
                self.windows[1],
                ["within", "x", "x", 3],
                (("x",), ("x",)),
                rng.choice(deliver),
            ),
            Definition("big", "each", (0, 0), [["x", ">=", 5]], (("x",),), rng.choice(deliver)),
        ]
        self.wanted: list[tuple[View, str]] = []
        count = len(self.declared)
        for number in range(rng.randint(1, 4)):
            definition = rng.choice(self.definitions)
            inputs = tuple(rng.sample(range(count), 1 if definition.kind == "each" else 2))
            shares = tuple(rng.choice([1.0, 0.5, 0.3]) for _ in inputs)
            view = View(f"v{number}", definition.name, inputs, shares)
            self.wanted.append((view, rng.choice(self._places())))
        self.asked = {view.name: view for view, _ in self.wanted}

    def _places(self) -> list[str]:
        return ["cloud", *self.devices]

    # ------------------------------------------------------------ what happens

    def run(self) -> World:
        """Let things happen, then let all be well, and compare."""
        if self.rng.random() < 0.7:
            self._open()
        for step in range(self.steps):
            self.now += self.rng.choice([0, 1, 1, 3, 10])
            if step == self.loses_at:
                self._lose_sight()
            if self.gone:
                self._do_without()
            self._anything()
        self._heal()
        self._compare()
        return self

    def _open(self) -> None:
        """Views are there and devices connected before anything else happens."""
        loss, deaths, self.loss, self.deaths = self.loss, self.deaths, 0.0, 0.0
        self._wish()
        self._keeper()
        for _ in range(6):
            for device in self.devices.values():
                self._connect(device)
            while self.flying:
                self._fly()
            self._relay()
        self.loss, self.deaths = loss, deaths

    def _anything(self) -> None:
        rng = self.rng
        device = rng.choice(self._everybody())
        what = rng.random()
        if what < 0.27:
            self._put(device)
        elif what < 0.39:
            self._flush(device)
        elif what < 0.62:
            for _ in range(rng.randint(1, 3)):
                self._fly()
        elif what < 0.77:
            self._relay()
        elif what < 0.82:
            self._bucket(rng.choice(list(self.buckets.values())))
        elif what < 0.88:
            self._keeper()
        elif what < 0.93:
            self._wish()
        elif what < 0.945 and self.losses and self.log:
            (self._lose if rng.random() < 0.4 else self._sync)()
        elif what < 0.95 and self.fate:
            self._harm(device)
        elif what < 0.96:
            device.cut = not device.cut and rng.random() < 0.5
        else:
            self._connect(device)
        if self.is_fickle and self.whims.random() < 0.04:
            self._be_fickle(self.whims.choice(self._everybody()))

    def _be_fickle(self, device: Device) -> None:
        """A device leaves or starts again; a view ends, or is asked for again."""
        what, relay = self.whims.random(), self._running_relay()
        assert self.keeper is not None
        if what < 0.2:
            self.byes += 1
            self._do(device, self._agent(device).leave())
        elif what < 0.4:
            device.process = None
        elif what < 0.6 and relay.book.views:
            self.keeper.remove(self.whims.randrange(len(relay.book.views)))
        elif relay.book.views:
            name = self.whims.choice(relay.book.views).name
            if self.whims.random() < 0.3:
                shares = tuple(self.whims.choice([1.0, 0.5]) for _ in self.asked[name].inputs)
                self.asked[name] = replace(self.asked[name], shares=shares)
            self._ask_again([name])

    def _lose_sight(self) -> None:
        """From now on a device does nothing, and nothing reaches it."""
        device = self.lots.choice(self._everybody())
        device.process = None
        self.gone.add(device.name)

    def _do_without(self, most: float = 0.05) -> None:
        """Nobody waits for a device that is away; views over it end, and those at it move."""
        lots, book = self.lots, self._running_relay().book
        assert self.keeper is not None
        for stream, declared in enumerate(book.streams):
            silent = declared.home in self.gone and book.watermark(stream) < self.now - 100
            if silent and book.awaits(stream) and lots.random() < most:
                self.keeper.presume(stream, self.now - 50)
        for view in range(len(book.views)):
            if lots.random() < most and self._needs(view):
                moving = not book.has_moved(view)
                self.cut_short += self.keeper.remove(view) and moving
            elif lots.random() < most and book.place(view) in self.gone:
                self.keeper.move(view, lots.choice(self._places()))

    def _needs(self, view: int) -> bool:
        """Whether a view is over streams of a device that is away."""
        return bool(self._running_relay().book.homes(view) & self.gone)

    def _ask_again(self, names: Iterable[str]) -> None:
        assert self.keeper is not None
        views = [(self.asked[name], self.whims.choice(self._places())) for name in names]
        self.keeper.add(self.declared, self.definitions, views)

    def _agent(self, device: Device) -> AgentState:
        if device.process is None:
            device.process = AgentState.restore(
                device.name,
                device.incarnation,
                device.state,
                device.rows.values(),
                device.frames.items(),
                token=device.token,
                slack=self.rng.choice([0, 20]),
                beat=self.rng.choice([1, 50]),
                window=self.rng.choice([300, 10_000]),
                portion=self.rng.choice([30, 100_000]),
            )
        return device.process

    def _dies(self) -> bool:
        return self.rng.random() < self.deaths

    def _do(self, device: Device, effects: Effects) -> None:
        """Commit, then send; the process may die before, between and after."""
        if effects.stopped:
            self._stop(device, effects.stopped)
            return
        if self._dies():
            device.process = None
            return
        if effects.rows:
            device.rows.update({(row.stream, row.n): row for row in effects.rows})
        if effects.incarnation:
            device.incarnation, base = effects.incarnation, effects.incarnation << 32
            rows = [replace(row, n=row.n + base * (row.n < base)) for row in device.rows.values()]
            device.rows = {(row.stream, row.n): row for row in rows}
            device.frames = {}
        if effects.frames:
            device.frames.update(effects.frames)
        device.state = effects.state or device.state
        if effects.results:
            device.shown += identities(effects.results)
        if self._dies():
            device.process = None
            return
        if effects.send and not device.cut:
            self.flying.extend((f"u.{device.name}", content) for content in effects.send)
        if effects.again:
            self._do(device, self._agent(device).again(device.frames.items()))

    def _everybody(self) -> list[Device]:
        here = [device for device in self.devices.values() if device.name not in self.gone]
        return [*here, *([self.twin] if self.twin is not None else [])]

    def _named(self, name: str) -> list[Device]:
        """The device of a name, if it is here, and whoever else runs under it."""
        here = [] if name in self.gone else [self.devices[name]]
        if self.twin is not None and self.twin.name == name:
            here.append(self.twin)
        return here

    def _harm(self, device: Device) -> None:
        """A disk is lost, put back or copied, once in a world."""
        if self.victim or self.suspect:
            return
        if self.fate == "lost":
            self._rob(device, device.rows)
        elif self.fate == "copied":
            self.suspect, self.twin = device.name, device.copy()
        elif self.backup is None:
            self.backup = device.copy()
        elif len(self.devices[self.backup.name].rows) > len(self.backup.rows) + 2:
            self.suspect = self.backup.name
            self.lost = self.devices[self.suspect].rows  # until it is seen that it does no harm
            self.devices[self.suspect] = self.backup

    def _rob(self, device: Device, lost: dict[tuple[str, int], Row]) -> None:
        """A device loses its disk and begins anew: the one loss that cannot be healed."""
        self.victim, self.lost = device.name, lost
        token = self.rng.getrandbits(32)
        again = Device(device.name, device.streams, device.skew, token=token)
        self.devices[device.name] = again

    def _stop(self, device: Device, why: str) -> None:
        """A device stops: of two copies one is left, and a disk that was put back is of no use."""
        if device.name != self.suspect or self.victim:
            raise Wrong(f"{device.name} was stopped: {why}")
        self.stops.append(why)
        if device is self.twin:
            self.twin = None
        elif self.twin is not None:
            self.devices[device.name], self.twin = self.twin, None
        elif self.fate == "copied":
            raise Wrong(f"both copies of {device.name} were stopped: {why}")
        else:
            self._rob(device, device.rows | self.lost)  # the cloud has rows of the one before

    def _put(self, device: Device) -> None:
        agent, name = self._agent(device), self.rng.choice(device.streams)
        t = agent.stream(name).time_at(self.now + device.skew)
        self._do(device, agent.put(name, t, {"x": self.rng.randint(0, 9)}))

    def _flush(self, device: Device) -> None:
        self._do(device, self._agent(device).flush(self.now + device.skew))

    def _connect(self, device: Device) -> None:
        self._do(device, self._agent(device).connect())

    def _fly(self) -> None:
        """One of the messages that are under way arrives, or is lost, or comes twice."""
        flying, random_ = self.flying, self.rng.random
        if not flying:
            return
        at = below(self.rng, min(len(flying), 6))
        subject, content = flying[at]
        if random_() >= 0.1:
            del flying[at]
        if random_() < self.loss:
            return
        if subject[0] == "u":
            self.up.append((subject, content))
            return
        for device in self._named(subject[2:]):
            if not device.cut:
                self._do(device, self._agent(device).receive(read_down(content)))

    def _relay(self) -> None:
        """The relay folds a part of UP, sends what follows, and is written down at times."""
        relay = self._running_relay()
        for number in range(self._unfolded(relay), len(self.up)):
            self._fold(relay, number)
            if self.rng.random() < 0.2:
                break
        if self.rng.random() < 0.3:
            return
        for message in relay.flush():
            held = self.stored.setdefault(message.subject, [])
            last = read_down(held[-1]).number if held else -1
            if not message.frame.follows(last):
                raise Wrong(f"{message.subject} got {message.frame.number} after {last}")
            held.append(encode_down(message.frame))
            if self._dies():
                self.relay = self.keeper = None
                return
            if message.subject.startswith("m."):
                self.flying.append((f"d.{message.subject[2:]}", held[-1]))
        for name, first in relay.replays():
            for content in after(self.stored.get(f"m.{name}", []), first - 1):
                self.flying.append((f"d.{name}", content))
        if self.rng.random() < 0.2:
            self.snapshot = relay.snapshot()
        if self._dies():
            self.relay = self.keeper = None

    def _unfolded(self, relay: RelayState) -> int:
        """The first message of UP that is not folded; its generation begins after its base."""
        return relay.position + 1 - base_of(self.generation) - bool(self.generation)

    def _fold(self, relay: RelayState, number: int) -> None:
        subject, content = self.up[number]
        position = base_of(self.generation) + number + bool(self.generation)
        if subject == "k":
            relay.entry(position, Entry.from_dict(content))
        elif subject[0] == "u":
            self._take(relay, position, subject[2:], read_up(content))
        else:
            relay.output(position, int(subject[2:]), read_output(content))
        for _, extras in relay.reports():
            self.late |= {(stream, n) for stream, n in extras.get("late", ())}

    def _take(self, relay: RelayState, position: int, device: str, up: Up) -> None:
        known = relay._devices.get(device)
        before = -1 if known is None else known.next
        relay.frame(position, device, up)
        if relay._devices[device].next == before + 1 == up.number + 1:
            self.taken |= {(one.stream, n) for one in up.sections for n in one.n.tolist()}
            if up.extras.get("bye"):
                self.left[device] = max(up.number, self.left.get(device, -1))

    def _running_relay(self) -> RelayState:
        if self.relay is None:
            covered = self._covered()
            if self.snapshot is None:
                self.relay = RelayState(BUCKETS, covered)
            else:
                self.relay = RelayState.restore(self.snapshot, covered)
            self.keeper = KeeperState(self.relay.book)
            for entry in self.keeper.unfolded(self.log):
                self.up.append(("k", entry.to_dict()))
        return self.relay

    def _covered(self) -> dict[str, Covered]:
        newest = {subject: read_down(held[-1]) for subject, held in self.stored.items() if held}
        return {subject: Covered(down.number, down.position) for subject, down in newest.items()}

    def _sync(self) -> None:
        """What the broker has is safe; long after that, devices prune what it came from."""
        self.synced = {subject: len(held) for subject, held in self.stored.items()}
        for device in self._everybody():
            sending = self._agent(device)._sending
            if sending.generation == self.generation:  # else it is first asked to send again
                acked = sending.acked
                device.frames = {n: f for n, f in device.frames.items() if n >= acked}

    def _lose(self) -> None:
        """The power of the broker is cut: its newest messages are gone; it is recovered."""
        rng = self.rng
        self.losses, self.recoveries = self.losses - 1, self.recoveries + 1
        for device in self.devices.values():
            found = ((n, read_up(content).extras) for n, content in device.frames.items())
            byes = {n: extras["bye"] for n, extras in found if "bye" in extras}
            if byes and not byes[max(byes)]:
                self.back[device.name] = max(byes)
        for subject, held in self.stored.items():
            if rng.random() < 0.7:
                del held[rng.randint(self.synced.get(subject, 0), len(held)) :]
        self.flying = deque(one for one in self.flying if rng.random() < 0.3)
        former = None if self.snapshot is None else RelayState.restore(self.snapshot, None)
        self.generation, self.up = self.generation + 1, []
        begun = {
            subject[2:]: down.extras["begin"][0]
            for subject, held in self.stored.items()
            for down in map(read_down, held)
            if "begin" in down.extras
        }
        relay = recovered(former, self.log, BUCKETS, self._covered(), self.generation, begun)
        for message in relay.flush():
            self.stored.setdefault(message.subject, []).append(encode_down(message.frame))
        self.snapshot, self.relay, self.keeper = relay.snapshot(), None, None

    def _bucket(self, bucket: Bucket) -> None:
        """A micro-batch: read on, commit, publish; it may die between any two."""
        number = next(k for k, one in self.buckets.items() if one is bucket)
        if bucket.output is not None:  # committed, and perhaps not published
            if bucket.generation == self.generation:
                self.up.append((f"c.{number}", bucket.output))
            bucket.output = None
        new = after(self.stored.get(f"in.{number}", []), bucket.seen)
        held = list(map(read_down, new[: self.rng.randint(1, 5)]))
        if not held:
            return
        restored = bucket.state is not None
        evaluator = Evaluator.restore(bucket.state) if restored else Evaluator("cloud")  # type: ignore[arg-type]
        computed: list[Results] = []
        received: list[Results] = []
        if bucket.generation < self.generation:  # before anything that is new
            self.up += [(f"c.{number}", content) for content in bucket.sent]
        had, seen = dict(bucket.had), bucket.seen
        for down in held:
            if not down.follows(seen):
                raise Wrong(f"bucket {number} has {seen}, and gets {down.number}")
            seen = down.number
            computed += evaluator.take(down.steps)
            received += [one for one, _ in fresh_results(down, had)]
        if self._dies():
            return
        bucket.state, bucket.seen, bucket.had = evaluator.snapshot(), seen, had
        bucket.generation = self.generation
        bucket.batch += 1
        bucket.found += identities([*computed, *received])
        bucket.output = encode_output(Output(bucket.batch, tuple(computed)))
        bucket.sent.append(bucket.output)
        if self._dies():
            return
        self.up.append((f"c.{number}", bucket.output))
        bucket.output = None

    def _keeper(self) -> None:
        """The keeper writes an entry, and publishes it unless it dies."""
        self._running_relay()
        assert self.keeper is not None
        left = self._running_relay().left
        for name in left:
            if left[name] and self.left.get(name, -1) < self.back.get(name, -1):
                raise Wrong(f"{name} was back before the broker's loss, and is taken for gone")
        self.keeper.without(left)
        entry = self.keeper.next_entry()
        if entry is None:
            return
        if entry.number != len(self.log):
            raise Wrong(f"entry {entry.number} is written after {len(self.log)}")
        self.log.append(entry)
        if self._dies():
            self.relay = self.keeper = None
            return
        self.up.append(("k", entry.to_dict()))

    def _wish(self) -> None:
        relay, rng = self._running_relay(), self.rng
        assert self.keeper is not None
        if not self.log or (self.wanted and rng.random() < 0.5):
            some = self.wanted[: rng.randint(1, 2)]
            del self.wanted[: len(some)]
            self.keeper.add(self.declared, self.definitions, some)
        elif relay.book.views:
            view = rng.randrange(len(relay.book.views))
            if rng.random() < 0.08:
                self.keeper.remove(view)
            elif rng.random() < 0.05:
                stream = rng.choice(relay.book.views[view].inputs)
                self.keeper.presume(stream, self.now - 50)
            else:
                self.keeper.move(view, rng.choice(self._places()))

    # ------------------------------------------------------------ the end

    def _heal(self) -> None:
        """Nothing is lost any more, everybody runs, and time goes on until nothing changes."""
        self.loss = self.deaths = 0.0
        if not self.is_lost:
            self.gone.clear()
        for device in self._everybody():
            device.cut = False
            device.process = None if self.is_fickle else device.process  # who has left is back
        for round_ in range(400):
            self.now += 100 if round_ < 5 else 0
            for device in self._everybody():
                self._flush(device)
                if round_ % 4 == 0:
                    self._connect(device)
            while self.flying:
                self._fly()
            if self.gone:
                self._do_without(1.0)
            if self.is_fickle:
                self._ask_again(self._begun())
            self._keeper()
            while self._unfolded(self._running_relay()) < len(self.up):
                self._relay()
            self._relay()
            for bucket in self.buckets.values():
                self._bucket(bucket)
            if round_ >= 5 and self._is_quiet():
                return
        raise Wrong("it never comes to rest")

    def _begun(self) -> dict[str, int]:
        """The newest view of each name that was ever there, if its devices are."""
        newest = {view.name: k for k, view in enumerate(self._running_relay().book.views)}
        return {name: k for name, k in newest.items() if not self._needs(k)}

    def _is_quiet(self) -> bool:
        """Whether everybody has processed all there is, and what is asked for runs."""
        book = self._running_relay().book
        if self.is_fickle and any(
            book.place(k) == NOWHERE or book.views[k] != self.asked[name]
            for name, k in self._begun().items()
        ):
            return False
        if any(self._needs(k) or place in self.gone for k, place in self._running_views()):
            return False
        agents = [self._agent(device) for device in self._everybody()]
        stored = {subject: found.number for subject, found in self._covered().items()}
        return (
            self._running_relay().book.epoch == len(self.log) - 1
            and self._unfolded(self._running_relay()) == len(self.up)
            and not self._running_relay().pending
            and not any(agent.backlog or agent._outgoing for agent in agents)
            and all(agent.seen == stored.get(f"m.{agent.device}", -1) for agent in agents)
            and all(one.seen == stored.get(f"in.{k}", -1) for k, one in self.buckets.items())
            and not any(bucket.output for bucket in self.buckets.values())
        )

    def _running_views(self) -> list[tuple[int, str]]:
        book = self._running_relay().book
        places = [(k, book.place(k)) for k in range(len(book.views))]
        return [(k, place) for k, place in places if place != NOWHERE]

    def _compare(self) -> None:
        book = self._running_relay().book
        rows: dict[int, list[Put]] = {}
        for number, stream in enumerate(book.streams):
            found = self.devices[stream.home].rows | (self.lost if self.victim else {})
            mine = [row for (name, _), row in sorted(found.items()) if name == stream.name]
            rows[number] = [
                Put(row.n, row.t, row.stamp, row.values) for row in mine if row.stamp is not None
            ]
        due = twin(self._known(), book.streams, rows, _where)
        inputs = {number: view.inputs for number, view in enumerate(book.views)}
        late = {
            one
            for one in due
            if any(
                (stream, n) in self.late for stream, n in zip(inputs[one[0]], one[1:], strict=True)
            )
        }
        late |= {one for one in due if self._is_harmed(one[0], {self.victim})}
        late |= {one for one in due if self._may_miss(*one)}
        seen = Counter(one for bucket in self.buckets.values() for one in bucket.found)
        _same("the cloud", seen, due, late)
        for device in self._everybody():
            mine = {one for one in due if self._shows(device, one[0])}
            shown = Counter(one for one in device.shown if self._shows(device, one[0]))
            _same(device.name, shown, mine, late)
        self._at_rest()
        self.found = len(due)
        names = [view.name for view in book.views]
        self.again = len(names) - len(set(names))
        if len({(names[view], *rows) for view, *rows in due}) < len(due):
            raise Wrong("two lives of a view have a result in common")

    def _may_miss(self, view: int, *rows: int) -> bool:
        """Whether a result may be missing, since a device is lost that had to send a row or it."""
        book, inputs = self._running_relay().book, self._running_relay().book.views[view].inputs
        if not self._is_harmed(view, self.gone):
            return False
        if self.recoveries or self._is_harmed(view, self.gone, sources=False):
            return True  # what the broker lost cannot be sent again; nor can what was found there
        sides = zip(inputs, rows, strict=True)
        return any(book.streams[s].home in self.gone and (s, n) not in self.taken for s, n in sides)

    def _is_harmed(self, view: int, lost: set[str], sources: bool = True) -> bool:
        """Whether results of a view may be missing, since it needs one of some devices."""
        book = self._running_relay().book
        inputs = book.views[view].inputs if sources else ()
        homes = {book.streams[stream].home for stream in inputs}
        places = [place for entry in self.log for number, place in entry.moves if number == view]
        first = [place for entry in self.log for _, place in entry.views][view]
        return not lost.isdisjoint({*homes, *places, first})

    def _known(self) -> list[Known]:
        known: list[Known] = []
        definitions = {definition.name: definition for definition in self.definitions}
        for entry in self.log:
            for view, _ in entry.views:
                definition = definitions[view.definition]
                known.append(Known(len(known), view, definition, entry.number, float("inf")))
            for number in entry.removed:
                known[number] = known[number]._replace(last=entry.number)
        return known

    def _shows(self, device: Device, view: int) -> bool:
        """Whether a device gets all results of a view."""
        book = self._running_relay().book
        deliver = book.definitions[book.views[view].definition].deliver
        homes = {book.streams[stream].home for stream in book.views[view].inputs}
        return "inputs" in deliver and device.name in homes - {self.victim}

    def _at_rest(self) -> None:
        """No evaluator holds what nobody can need."""
        evaluators = [self._agent(device).evaluator for device in self._everybody()]
        blobs = [bucket.state for bucket in self.buckets.values() if bucket.state is not None]
        evaluators += [Evaluator.restore(blob) for blob in blobs]
        book = self._running_relay().book
        for evaluator in evaluators:
            for number in evaluator.views.keys() - evaluator.done:
                over = book.place(number) == NOWHERE and not book.homes(number) <= self.gone
                if (over or book.has_moved(number)) and book.place(number) != evaluator.place:
                    raise Wrong(f"view {number} is still at {evaluator.place}")


def reader(decode: Callable[[bytes], _Frame]) -> Callable[[bytes], _Frame]:
    """Reads the same bytes once, for they arrive many times: nobody may change what was read.

    Arrays cannot be changed; `test_nobody_changes_what_was_read` looks at all else.
    """

    @lru_cache(2000)
    def read(content: bytes) -> _Frame:
        found = decode(content)
        for part in (*getattr(found, "sections", ()), *getattr(found, "steps", ()), *found.results):
            for value in vars(part).values():
                for array in value if isinstance(value, tuple) else (value,):
                    if isinstance(array, np.ndarray):
                        array.flags.writeable = False
        return found

    return read


read_up, read_down, read_output = reader(decode_up), reader(decode_down), reader(decode_output)


def after(held: list[bytes], number: int) -> list[bytes]:
    """The messages of a subject after one of a number; they are in order."""
    first = len(held)
    while first and read_down(held[first - 1]).number > number:
        first -= 1
    return held[first:]


def below(rng: random.Random, end: int) -> int:
    """What `rng.randrange(end)` draws; that takes three times as long."""
    bits = end.bit_length()
    found = rng.getrandbits(bits)
    while found >= end:
        found = rng.getrandbits(bits)
    return found


def identities(found: list[Results]) -> list[tuple[int, ...]]:
    """View and row numbers of each result."""
    return [
        (one.view, *numbers)
        for one in found
        for numbers in zip(*(side.tolist() for side in one.n), strict=True)
    ]


def _where(definition: Definition, a: Put, b: Put) -> bool:
    if definition.name == "near":
        return abs(int(a.values["x"]) - int(b.values["x"])) <= 3
    return definition.name == "any" or int(a.values["x"]) >= 5


def _same(
    who: str, seen: Counter[tuple[int, ...]], due: set[tuple[int, ...]], late: set[tuple[int, ...]]
) -> None:
    twice = {one for one, count in seen.items() if count > 1}
    lost, strange = due - seen.keys() - late, seen.keys() - due
    if twice or lost or strange:
        raise Wrong(f"{who}: twice {sorted(twice)}, lost {sorted(lost)}, not due {sorted(strange)}")
