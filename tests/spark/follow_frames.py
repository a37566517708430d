"""A hub without a network: what the relay writes to the buckets while people move."""

from __future__ import annotations

import os
from typing import Any

from anabranch.edge.agent_state import AgentState, Effects
from anabranch.edge.frames import decode_up, encode_down
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.placements import PlacementLog
from anabranch.edge.relay_state import RelayState
from anabranch.edge.wishes import Wishes
from tests.spark.follow_twin import Row

BUCKETS = 2
TICK = 1_000_000


class QuietHub:
    """Agents, relay and keeper side by side; `frames` are those of ``in.<bucket>``, in order."""

    def __init__(self, control: str | os.PathLike[str], wishes: Wishes, places: Any) -> None:
        self.log = PlacementLog(control)
        self.relay = RelayState(BUCKETS)
        self.keeper = KeeperState(self.relay.book)
        self.position = 0
        self.frames: list[tuple[str, bytes]] = []
        homes = dict.fromkeys(stream.home for stream in wishes.streams)
        self.agents = {name: AgentState(name, 1, slack=0) for name in homes}
        wishes.enact(self.keeper, self.relay.book, places)
        self.enact()
        for name, agent in self.agents.items():
            self.sent(name, agent.connect())
        self.settle()

    def enact(self) -> None:
        """Write the next entry, and let the relay fold it."""
        entry = self.keeper.next_entry()
        assert entry is not None
        self.relay.entry(self._next(), self.log.write(entry))

    def move(self, view: str, place: str) -> None:
        names = [known.name for known in self.relay.book.views]
        assert self.keeper.move(names.index(view), place)
        self.enact()
        self.settle()

    def put(self, row: Row) -> None:
        values = {name: row[name] for name in row if name not in ("key", "n", "t")}
        effects = self.agents[row["key"]].put(f"gps[{row['key']}]", row["t"], values)
        assert [stored.n for stored in effects.rows] == [row["n"]]
        self.sent(row["key"], effects)

    def flush(self, now: int) -> None:
        for name, agent in self.agents.items():
            self.sent(name, agent.flush(now))
        self.settle()

    def sent(self, device: str, effects: Effects) -> None:
        assert not effects.stopped
        for content in effects.send:
            self.relay.frame(self._next(), device, decode_up(content))

    def settle(self) -> None:
        """Deliver until nobody has anything to say."""
        while messages := self.relay.flush():
            for message in messages:
                kind, name = message.subject.split(".", 1)
                if kind == "in":
                    self.frames.append((message.subject, encode_down(message.frame)))
                else:
                    self.sent(name, self.agents[name].receive(message.frame))

    def _next(self) -> int:
        self.position += 1
        return self.position


def recorded(control: str | os.PathLike[str], wishes: Wishes, rows: list[Row]) -> QuietHub:
    """People move for a while; some views do too, from the cloud to devices and back."""
    somewhere = {"follows(gps[ann],gps[bob])": "bob", "nearby(gps[bob],gps[cy])": "cy"}
    hub = QuietHub(control, wishes, lambda view: somewhere.get(view, "cloud"))
    moves = {
        80: ("nearby(gps[ann],gps[bob])", "ann"),
        120: ("nearby(gps[bob],gps[cy])", "cloud"),
        160: ("follows(gps[ann],gps[bob])", "cloud"),
    }
    for count, row in enumerate(sorted(rows, key=lambda row: (row["t"], row["key"], row["n"]))):
        hub.put(row)
        if count % 5 == 4:
            hub.flush(row["t"] - 1)
        if count in moves:
            hub.move(*moves[count])
    last = max(row["t"] for row in rows)
    for later in range(1, 5):
        hub.flush(last + later * 10 * TICK)
    return hub
