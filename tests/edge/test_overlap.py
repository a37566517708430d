"""A move sends rows to two places for a window: as many bytes as it is charged for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.cli.steered import RowSizes
from anabranch.edge.agent_state import AgentState, Effects
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.frames import decode_up, encode_down
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.placements import Entry
from anabranch.edge.relay_state import RelayState
from anabranch.placement.graph import CLOUD
from anabranch.placement.steering import Running, Steering

SECOND = 1_000_000
BEGIN = 1_794_837_900 * SECOND
WINDOW, BEFORE = 30, 60  # seconds; rows come for this long before the move
RATES = {"ann": 2, "bob": 5}  # rows a second
HOMES = {f"gps[{name}]": name for name in RATES}


class System:
    """Two devices and a relay, under a clock of seconds; nothing is lost or late."""

    def __init__(self, place: str) -> None:
        self.rng = np.random.default_rng(1)
        self.agents = {name: AgentState(name, 1) for name in RATES}
        self.relay, self.position, self.now = RelayState(1), 0, 0
        self.keeper = KeeperState(self.relay.book)
        self.bytes: Counter[str] = Counter()  # of frames, by device
        self.rows: Counter[str] = Counter()
        self.carried: Counter[str] = Counter()
        for name, agent in self.agents.items():
            self.said(name, agent.connect())
        streams = [Stream(s, home, {"xy": "array<double>"}) for s, home in HOMES.items()]
        window = (WINDOW * SECOND, WINDOW * SECOND)
        near = Definition("near", "pairs", window, ["euclidean", "xy", "xy", None, "<=", 0.0])
        self.keeper.add(streams, [near], [(View("near", "near", (0, 1)), place)])
        self.turn()

    def said(self, name: str, effects: Effects) -> None:
        for content in effects.send:
            up = decode_up(content)
            self.bytes[name] += len(content)
            if rows := sum(len(section.n) for section in up.sections):
                self.rows[name] += rows
                self.carried[name] += len(content)
            self.position += 1
            self.relay.frame(self.position, name, up)
        self.turn()

    def turn(self) -> None:
        """The keeper publishes what is due, and mailboxes are emptied."""
        entry: Entry | None = self.keeper.next_entry()
        if entry is not None:
            self.position += 1
            self.relay.entry(self.position, entry)
        for message in self.relay.flush():
            name = message.subject[2:]
            if name in self.agents:
                self.bytes[name] += len(encode_down(message.frame))
                self.said(name, self.agents[name].receive(message.frame))

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            for name, agent in self.agents.items():
                for k in range(RATES[name]):
                    t = BEGIN + self.now * SECOND + k * SECOND // RATES[name]
                    xy = np.round(self.rng.uniform(0, 1000, 2), 1).tolist()
                    agent.put(f"gps[{name}]", t, {"xy": xy})
                self.said(name, agent.flush(BEGIN + (self.now + 1) * SECOND))


def price(origin: str, target: str) -> float:
    """What the hub charges, by the bytes of rows that it has seen of both devices."""
    system = System("cloud")
    system.live(BEFORE)
    steering, sizes = Steering(1.0, 1.0), RowSizes()
    sizes.note(0.0, system.rows, system.carried)
    for stream, home in HOMES.items():
        steering.report(stream, {1.0: RATES[home] * sizes.of(home)})
    steering.decide(0.0, [Running("near", tuple(HOMES), (1.0, 1.0), WINDOW, origin)], HOMES)
    assert steering.plan is not None
    graph = steering.plan.graph
    device = {graph.device_name(d): d for d in range(CLOUD, graph.devices)}
    ends = (np.array([device[one]]) for one in (origin, target))
    (found,) = steering._prices.of(graph, np.array([0]), *ends)
    return float(found)


def is_over(system: System, origin: str) -> bool:
    """Whether no row is needed at the old place any more."""
    before = [bound for bound in system.relay.book.bounds[0] if bound.place == origin]
    return all(bound.until < BEGIN + system.now * SECOND for bound in before)


@pytest.mark.parametrize(
    ("origin", "target"),
    [("cloud", "bob"), ("cloud", "ann"), ("bob", "cloud"), ("bob", "ann"), ("ann", "bob")],
)
def test_the_bytes_of_a_move_are_within_20_percent_of_its_price(origin: str, target: str) -> None:
    """Beside a system that stays as it is, until the old place is served no more."""
    stays, moves = System(origin), System(origin)
    for system in (stays, moves):
        system.live(BEFORE)
    assert moves.keeper.move(0, target)
    while not is_over(moves, origin):
        for system in (stays, moves):
            system.live(1)
    assert WINDOW <= moves.now - BEFORE <= WINDOW + 3
    more = moves.bytes.total() - stays.bytes.total()
    assert more == pytest.approx(price(origin, target), rel=0.2)
