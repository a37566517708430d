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
from typing import Any

from anabranch.edge.book import Book
from anabranch.edge.definitions import View
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.ownership import NOWHERE
from anabranch.edge.serving import Cloud
from anabranch.edge.wishes import Requests, Wishes
from anabranch.errors import InvalidCall
from anabranch.placement.links import Counting
from anabranch.placement.steering import Running, Steering

__all__ = ["Steered"]

_LEAST, _MOST = 0.25, 1.0  # seconds between decisions
_SHARE = 20  # times as long as a decision takes
_ASK = 1.0  # seconds between looks for requests
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
        self._mean = _ROW  # of all devices
        self._relay: Any = None  # whose counts were seen last

    def note(
        self, now: float, rows: Mapping[str, int], carried: Mapping[str, int], relay: Any = None
    ) -> None:
        """How many rows a relay has had of each device so far, in frames of how many bytes.

        One that starts anew counts from 0, and may have had more by now than the one before.
        """
        if relay is not self._relay:
            self._relay = relay
            self._seen = {device: (when, 0, 0) for device, (when, _, _) in self._seen.items()}
        for device, count in rows.items():
            when, had, size = self._seen.get(device, (now, 0, 0))
            if count > had:
                self._seen[device] = now, count, carried[device]
                less = math.exp(-max(now - when, 0.0) / _LATELY)
                before = self._lately.get(device, (0.0, 0.0))
                more = count - had, carried[device] - size
                self._lately[device] = before[0] * less + more[0], before[1] * less + more[1]
        if self._lately:
            every = self._lately.values()
            self._mean = sum(size for _, size in every) / sum(rows for rows, _ in every)

    def of(self, device: str) -> float:
        """Bytes of a row of a device."""
        rows, size = self._lately.get(device, (0.0, 0.0))
        return size / rows if rows else self._mean


class Steered:
    """Given to a `Cloud`, which calls it after every turn."""

    def __init__(self) -> None:
        self._requests: Requests | None = None
        self._wishes: Wishes | None = None
        self._judged: tuple[Wishes, KeeperState] | None = None  # the request that was enacted
        self._costs: tuple[object, object] = (None, None)
        self._steering = Steering()
        self._due = self._look = 0.0  # when a decision is due, and a look for requests
        self._asked: Wishes | None = None
        self._refused = ""  # why the newest request was, once it has been said
        self._counting: Counting | None = None
        self._counted: Any = None  # the relay whose bytes are
        self._views: dict[str, Running] = {}  # as they ran when they were looked at last
        self._sizes = RowSizes()

    def __call__(self, cloud: Cloud) -> None:
        """Decide, every second at least, and sooner if that takes little of a core."""
        now = time.monotonic()
        if now >= self._due:
            self._decide(cloud, now)
            self._count(cloud)
            taken = time.monotonic() - now
            self._due = now + min(max(_LEAST, _SHARE * taken), _MOST)

    def _count(self, cloud: Cloud) -> None:
        """Write what crosses each link beside the plan; a full disk must not stop the hub."""
        if self._counting is None or self._counted is not cloud.relay:  # which counts from 0
            self._counting, self._counted = Counting(cloud.hub.control), cloud.relay
        with suppress(OSError):
            plan, cost = self._steering.plan, self._steering.cost
            self._counting.note(time.time(), cloud.relay.bytes, plan, cost)

    def _decide(self, cloud: Cloud, now: float) -> None:
        book, keeper = cloud.relay.state.book, cloud.keeper.state
        asked = self._newest(cloud, now)
        if asked is None:
            return
        costs = asked.upload_cost, asked.download_cost
        if costs != self._costs:
            self._costs, self._steering = costs, Steering(*costs)
        cloud.keeper.watermark = asked.watermark or cloud.keeper.watermark
        homes = {stream.name: stream.home for stream in asked.streams}
        self._sizes.note(now, cloud.relay.rows, cloud.relay.carried, cloud.relay)
        for stream, rate in cloud.rates.items():
            if stream in homes:
                self._steering.report(stream, {1.0: rate * self._sizes.of(homes[stream])})
        away = {home for home in homes.values() if now - cloud.relay.heard[home] > _AWAY}
        numbers = {view.name: number for number, view in enumerate(book.views)}
        decisions = self._steering.decide(
            now, self._running(asked, keeper, book, now, numbers), homes, away
        )
        if not self._is_done(asked, keeper, book, numbers):
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

    def _newest(self, cloud: Cloud, now: float) -> Wishes | None:
        """What is asked for by now."""
        self._requests = self._requests or Requests(cloud.hub.control)
        if now >= self._look:
            self._asked, self._look = self._requests.newest(), now + _ASK
        return self._asked

    def _is_done(
        self, asked: Wishes, keeper: KeeperState, book: Book, numbers: Mapping[str, int]
    ) -> bool:
        """Whether a request was refused, or all that it asks for is so: it need not be read again.

        A keeper that begins anew knows nothing of what the one before it was asked for.
        """
        if self._judged is None or self._judged[0] is not asked or self._judged[1] is not keeper:
            return False
        if self._refused:
            return True
        runs = {name: n for name, n in numbers.items() if book.place(n) != NOWHERE}
        return runs.keys() <= self._views.keys() and all(
            (view.name in runs and _is_as_asked(view, asked, book, runs[view.name]))
            or _waits(view, asked, keeper)  # also one that runs and is asked for otherwise
            for view in asked.views
        )

    def _enact(self, asked: Wishes, keeper: KeeperState, book: Book, begun: dict[str, str]) -> None:
        """Do what is asked for; a request that cannot run is refused, and what runs goes on."""
        why = ""
        try:
            asked.enact(keeper, book, lambda name: begun.get(name) or self._place(name))
        except InvalidCall as error:
            why = str(error)
        if why and why != self._refused:
            words = f"the newest request is refused, and what ran before goes on: {why}"
            print(words, file=sys.stderr, flush=True)
        self._refused, self._judged = why, (asked, keeper)

    def _place(self, name: str) -> str:
        """Where a view is that begins anew at once."""
        runs = self._views.get(name)
        return (runs.place if runs is not None else None) or "cloud"

    def _running(
        self,
        asked: Wishes,
        keeper: KeeperState,
        book: Book,
        now: float,
        numbers: Mapping[str, int],
    ) -> list[Running]:
        """All views that are asked for, as they run; most of them do as they did a second ago."""
        fresh, self._wishes = asked is not self._wishes, asked
        windows = {one.name: max(one.window) / 1e6 for one in asked.definitions}
        before, self._views = self._views, {}
        for view in asked.views:
            number, old = numbers.get(view.name), before.get(view.name)
            place = None if number is None else book.place(number) or None
            if place is None and _waits(view, asked, keeper):
                continue
            has_moved = number is None or place is None or book.has_moved(number)
            if fresh or old is None or (old.place, old.has_moved) != (place, has_moved):
                # Where it began, or was before this process did, nobody has chosen lately.
                since = -math.inf
                if old is not None and old.place is not None:
                    since = old.since if old.place == place else now
                inputs = tuple(asked.streams[k].name for k in view.inputs)
                window = windows[view.definition]
                old = Running(view.name, inputs, view.shares, window, place, since, has_moved)
            self._views[view.name] = old
        return list(self._views.values())


def _waits(view: View, asked: Wishes, keeper: KeeperState) -> bool:
    """Whether a view can begin only once a device is back."""
    return any(asked.streams[k].home in keeper.left for k in view.inputs)


def _is_as_asked(view: View, asked: Wishes, book: Book, number: int) -> bool:
    """Whether what runs under a view's name is that view."""
    runs = book.views[number]
    if (runs.definition, runs.shares) != (view.definition, view.shares):
        return False
    inputs = [asked.streams[k].name for k in view.inputs]
    return inputs == [book.streams[k].name for k in runs.inputs]
