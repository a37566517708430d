"""What the hub decides by: requests in the control directory, and what devices report.

Here because it brings together what must not know each other: `anabranch.edge` runs on devices and
knows no planner, `Steering` knows no frames.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from anabranch.edge.book import Book
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.ownership import NOWHERE
from anabranch.edge.serving import Cloud
from anabranch.edge.wishes import Requests, Wishes
from anabranch.errors import InvalidCall
from anabranch.placement.links import Counting
from anabranch.placement.steering import Running, Steering

__all__ = ["Steered"]

_EVERY = 1.0  # seconds between decisions
_AWAY = 90.0  # seconds without a frame after which a device is taken for offline
_ROW = 24.0  # bytes of a row before any has come
_LATELY = 30.0  # seconds over which bytes of a row are taken


class RowSizes:
    """Bytes that a row of each device takes by now, with its part of the frame around it.

    Rows that share a frame take fewer, so this changes with a device's rate. What a device took
    that sends none by now remains; of one that has sent none it is what rows of others take.

    Examples
    --------
    >>> sizes = RowSizes()
    >>> for now, rows in ((0.0, 10), (60.0, 30), (300.0, 30)):
    ...     sizes.note(now, {"ann": rows}, {"ann": 800 if rows == 10 else 1200})
    ...     print(round(sizes.of("ann")), round(sizes.of("bob")))
    80 80
    24 24
    24 24
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int, int]] = {}  # when, rows and bytes
        self._lately: dict[str, tuple[float, float]] = {}  # rows and bytes, those of before less

    def note(self, now: float, rows: Mapping[str, int], carried: Mapping[str, int]) -> None:
        """How many rows have come of each device so far, in frames of how many bytes."""
        for device, count in rows.items():
            when, had, size = self._seen.get(device, (now, 0, 0))
            if count < had:  # of another relay
                had, size = 0, 0
            if count > had:
                self._seen[device] = now, count, carried[device]
                less = math.exp(-max(now - when, 0.0) / _LATELY)
                before = self._lately.get(device, (0.0, 0.0))
                more = count - had, carried[device] - size
                self._lately[device] = before[0] * less + more[0], before[1] * less + more[1]

    def of(self, device: str) -> float:
        """Bytes of a row of a device."""
        rows, size = self._lately.get(device, (0.0, 0.0))
        if not rows:
            rows = sum(sums[0] for sums in self._lately.values())
            size = sum(sums[1] for sums in self._lately.values())
        return size / rows if rows else _ROW


class Steered:
    """Given to a `Cloud`, which calls it after every turn."""

    def __init__(self) -> None:
        self._wishes: Wishes | None = None
        self._costs: tuple[object, object] = (None, None)
        self._steering = Steering()
        self._looked = 0.0
        self._refused = ""  # why the newest request was, once it has been said
        self._counting: Counting | None = None
        self._since: dict[str, tuple[str, float]] = {}  # of each view: its place, since when
        self._sizes = RowSizes()

    def __call__(self, cloud: Cloud) -> None:
        """Decide, once a second."""
        now = time.monotonic()
        if now - self._looked >= _EVERY:
            self._looked = now
            self._decide(cloud, now)
            self._count(cloud)

    def _count(self, cloud: Cloud) -> None:
        """Write what crosses each link beside the plan; a full disk must not stop the hub."""
        if self._counting is None:
            self._counting = Counting(cloud.hub.control)
        with suppress(OSError):
            plan, cost = self._steering.plan, self._steering.cost
            self._counting.note(time.time(), cloud.relay.bytes, plan, cost)

    def _decide(self, cloud: Cloud, now: float) -> None:
        book, keeper = cloud.relay.state.book, cloud.keeper.state
        asked = Requests(cloud.hub.control).newest()
        if asked is None:
            return
        costs = asked.upload_cost, asked.download_cost
        if costs != self._costs:
            self._costs, self._steering = costs, Steering(*costs)
        self._wishes = asked
        cloud.keeper.watermark = asked.watermark or cloud.keeper.watermark
        homes = {stream.name: stream.home for stream in asked.streams}
        self._sizes.note(now, cloud.relay.rows, cloud.relay.carried)
        for stream, rate in cloud.rates.items():
            if stream in homes:
                self._steering.report(stream, {1.0: rate * self._sizes.of(homes[stream])})
        away = [home for home in homes.values() if now - cloud.relay.heard[home] > _AWAY]
        numbers = {view.name: number for number, view in enumerate(book.views)}
        decisions = self._steering.decide(now, self._running(cloud, now, numbers), homes, away)
        begun = {one.view: one.place for one in decisions if one.origin is None}
        self._enact(asked, keeper, book, begun)
        moved = [
            one
            for one in decisions
            if one.origin is not None and keeper.move(numbers[one.view], one.place)
        ]
        if moved:
            causes = {one.view: dict(one.cause) for one in moved}
            keeper.because({"rule": "rates", "moves": causes})

    def _enact(self, asked: Wishes, keeper: KeeperState, book: Book, begun: dict[str, str]) -> None:
        """Do what is asked for; a request that cannot run is refused, and what runs goes on."""
        why = ""
        try:
            asked.enact(keeper, book, lambda name: begun.get(name, "cloud"))
        except InvalidCall as error:
            why = str(error)
        if why and why != self._refused:
            words = f"the newest request is refused, and what ran before goes on: {why}"
            print(words, file=sys.stderr, flush=True)
        self._refused = why

    def _running(self, cloud: Cloud, now: float, numbers: dict[str, int]) -> list[Running]:
        assert self._wishes is not None
        book, found = cloud.relay.state.book, []
        windows = {one.name: max(one.window) / 1e6 for one in self._wishes.definitions}
        for view in self._wishes.views:
            number = numbers.get(view.name)
            place = None if number is None else book.place(number)
            if place == NOWHERE:
                continue
            if place is not None and self._since.get(view.name, ("",))[0] != place:
                # Where it began, or was before this process did, nobody has chosen lately.
                moved = view.name in self._since
                self._since[view.name] = place, now if moved else -math.inf
            found.append(
                Running(
                    view.name,
                    tuple(self._wishes.streams[k].name for k in view.inputs),
                    view.shares,
                    windows[view.definition],
                    place,
                    self._since.get(view.name, ("", -math.inf))[1],
                    number is None or book.has_moved(number),
                )
            )
        return found
