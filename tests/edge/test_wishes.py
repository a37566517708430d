"""Requests for views: what cannot run is refused early, and ends neither the hub nor what runs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

import anabranch as ab
from anabranch.cli.steered import RowSizes, Steered
from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.placements import Entry, PlacementLog
from anabranch.edge.story import story
from anabranch.edge.wishes import Requests, Wishes
from anabranch.errors import InvalidCall
from anabranch.placement.links import counted
from anabranch.placement.views import wishes_of

STREAMS = tuple(Stream(f"gps[{who}]", who, {"x": "double"}) for who in ("ann", "bob", "cem"))
NEAR = Definition("near", "pairs", (30, 30))
FIRST, SECOND = View("near(ann,bob)", "near", (0, 1)), View("near(ann,cem)", "near", (0, 2))
ASKED = Wishes(STREAMS, (NEAR,), (FIRST, SECOND))
CHANGED = replace(ASKED, definitions=(replace(NEAR, window=(60, 60)),), views=(FIRST,))


def begun() -> tuple[Book, KeeperState]:
    """Both views run in the cloud."""
    book = Book()
    book.enact(Entry(0, STREAMS, (NEAR,), ((FIRST, "cloud"), (SECOND, "cloud"))))
    return book, KeeperState(book)


def test_a_key_that_names_no_device_is_refused_at_the_call() -> None:
    me = ab.feed("gps", by="user", tick="1 second", columns="x double")
    them = ab.feed("gps", by="friend", tick="1 second", columns="x double")
    near = ab.view("near", {me: None, them: None}, window="1 second")
    table = pd.DataFrame({"user": ["ann", "ann"], "friend": ["bob.smith", "bob"]})
    with pytest.raises(InvalidCall, match=r"every key names a device, .* got 'bob\.smith'"):
        wishes_of([near.over(table)])
    assert len(wishes_of([near.over(table[1:])]).views) == 1


def test_a_request_that_is_refused_ends_no_view() -> None:
    book, keeper = begun()
    with pytest.raises(InvalidCall, match="is there with another definition"):
        CHANGED.enact(keeper, book, lambda name: "cloud")
    assert keeper.next_entry() is None
    replace(CHANGED, definitions=(NEAR,)).enact(keeper, book, lambda name: "cloud")
    assert keeper.next_entry() == Entry(1, removed=(1,))


def relay_of(book: Book) -> Any:
    counts = {name: Counter() for name in ("rows", "carried", "heard", "bytes")}
    return SimpleNamespace(state=SimpleNamespace(book=book), **counts)


def test_the_hub_writes_what_crosses_links_beside_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, keeper = begun()
    cloud: Any = SimpleNamespace(
        relay=relay_of(book),
        keeper=SimpleNamespace(state=keeper, watermark=1),
        hub=SimpleNamespace(control=tmp_path),
        rates={"gps[ann]": 3.0},
    )
    Requests(tmp_path).write(replace(ASKED, upload_cost=2.0))
    steered = Steered()
    for passed in (0.0, 20.0):
        monkeypatch.setattr(time, "time", lambda passed=passed: 1e9 + passed)
        monkeypatch.setattr(time, "monotonic", lambda passed=passed: 100 + passed)
        cloud.relay.bytes["up", "ann"] = 50 * int(passed)
        steered(cloud)
    found = counted(tmp_path)
    assert found is not None and found["seen_cost"] == 100.0  # 50 bytes a second, each 2
    ann = next(link for link in found["links"] if link["device"] == "ann")
    assert ann["seen_up"] == 50.0 and found["all_cloud"] > 0
    assert PlacementLog(tmp_path).entries() == []  # it is no entry of the log
    # Another relay counts from 0, and has had more of one device by now and less of another.
    cloud.relay = relay_of(book)
    cloud.relay.bytes.update({("up", "bob"): 5000, ("up", "ann"): 10})
    for passed in (30.0, 40.0):
        monkeypatch.setattr(time, "time", lambda passed=passed: 1e9 + passed)
        monkeypatch.setattr(time, "monotonic", lambda passed=passed: 100 + passed)
        steered(cloud)
    found = counted(tmp_path)
    assert found is not None and found["seen_cost"] == 0.0 and found["seconds"] == 10.0


def test_a_request_that_is_refused_does_not_end_the_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, keeper = begun()
    relay = relay_of(book)
    cloud: Any = SimpleNamespace(
        relay=relay,
        keeper=SimpleNamespace(state=keeper, watermark=1),
        hub=SimpleNamespace(control=tmp_path),
        rates={},
    )
    steered = Steered()
    Requests(tmp_path).write(CHANGED)
    for now in range(3):
        steered._decide(cloud, now)
    said = capsys.readouterr().err
    assert said.count("the newest request is refused, and what ran before goes on") == 1
    assert "is there with another definition: give the new one a new name" in said
    assert keeper.next_entry() is None
    Requests(tmp_path).write(replace(ASKED, views=(FIRST,)))
    steered._decide(cloud, 3)
    assert keeper.next_entry() == Entry(1, removed=(1,)) and not capsys.readouterr().err
    Requests(tmp_path).write(CHANGED)
    steered._decide(cloud, 4)
    assert "is refused" in capsys.readouterr().err


def test_a_request_that_is_met_is_neither_read_nor_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Counter[str] = Counter()
    for kind, name in ((Wishes, "from_dict"), (KeeperState, "add")):
        found = getattr(kind, name)

        def counting(*given: Any, name: str = name, found: Any = found) -> Any:
            done[name] += 1
            return found(*given)

        monkeypatch.setattr(kind, name, counting)
    book = Book()
    cloud: Any = SimpleNamespace(
        relay=relay_of(book),
        keeper=SimpleNamespace(state=KeeperState(book), watermark=1),
        hub=SimpleNamespace(control=tmp_path),
        rates={},
    )
    steered = Steered()
    Requests(tmp_path).write(ASKED)
    steered._decide(cloud, 0)
    assert done == {"from_dict": 1, "add": 1}
    # The keeper begins anew before it has written anything: it is asked again.
    cloud.keeper.state = KeeperState(book)
    steered._decide(cloud, 1)
    entry = cloud.keeper.state.next_entry()
    assert entry is not None and len(entry.views) == 2 and done["add"] == 2
    book.enact(entry)
    for now in range(2, 9):
        steered._decide(cloud, now)
    assert done == {"from_dict": 1, "add": 2} and cloud.keeper.state.next_entry() is None
    # A view that is yet moving ends at once.
    book.enact(Entry(1, moves=((1, "cem"),)))
    Requests(tmp_path).write(replace(ASKED, views=(FIRST,)))
    steered._decide(cloud, 9)
    assert cloud.keeper.state.next_entry() == Entry(2, removed=(1,))


class Hub:
    """A hub of which every entry is folded as soon as it is written; devices adopt none of them."""

    def __init__(self, control: Path) -> None:
        self.control, self.book = control, Book()
        self.keeper, self.steered = KeeperState(self.book), Steered()
        self.cloud: Any = SimpleNamespace(
            relay=relay_of(self.book),
            keeper=SimpleNamespace(state=self.keeper, watermark=1),
            hub=SimpleNamespace(control=control),
            rates={},
        )
        self.now = 0.0
        self.entries: list[Entry] = []

    def ask(self, *views: View) -> None:
        Requests(self.control).write(replace(ASKED, views=views))

    def turn(self, *left: str) -> None:
        """A few seconds pass."""
        for _ in range(3):
            self.now += 1
            self.keeper.without(dict.fromkeys(left, True))
            self.steered._decide(self.cloud, self.now)
            if (entry := self.keeper.next_entry()) is not None:
                self.book.enact(entry)
                self.entries.append(entry)

    @property
    def running(self) -> dict[int, str]:
        places = {number: self.book.place(number) for number in range(len(self.book.views))}
        return {number: place for number, place in places.items() if place}


def test_a_view_that_ended_and_is_asked_for_again_begins_anew(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    hub.ask(FIRST, SECOND)
    hub.turn()
    hub.ask(FIRST)
    hub.turn()
    assert hub.running == {0: "cloud"}
    hub.ask(FIRST, SECOND)
    hub.turn()
    # With another number: what was found before is not taken for what is found from now on.
    assert hub.running == {0: "cloud", 2: "cloud"} and hub.book.views[2] == SECOND
    assert hub.keeper.move(2, "cem") and len(hub.entries) == 3
    assert story(hub.entries)[-1] == "entry 2: 1 view begins, in the cloud."


def test_a_view_that_ends_while_it_moves_and_is_wanted_again_begins_anew(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    hub.ask(FIRST, SECOND)
    hub.turn()
    assert hub.keeper.move(1, "cem")
    hub.turn()
    hub.ask(FIRST)
    hub.turn()
    assert hub.running == {0: "cloud"}
    hub.ask(FIRST, SECOND)
    hub.turn()
    assert hub.running == {0: "cloud", 2: "cloud"} and hub.book.views[2] == SECOND


def test_views_of_a_device_that_left_begin_anew_once_it_is_back(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    hub.ask(FIRST, SECOND)
    hub.turn()
    hub.turn("cem")
    assert hub.running == {0: "cloud"} and hub.entries[-1].cause == {"rule": "bye"}
    before = len(hub.entries)
    hub.turn("cem")
    hub.ask(SECOND, FIRST)  # asking again does not begin what would end at once
    hub.turn("cem")
    assert len(hub.entries) == before
    hub.turn()
    assert hub.running == {0: "cloud", 2: "cloud"} and hub.book.views[2] == SECOND


def test_no_view_begins_or_ends_while_it_is_not_sure_that_a_device_left(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    hub.ask(FIRST)
    hub.turn()
    hub.ask(FIRST, SECOND)
    hub.keeper.without({"ann": False, "cem": False})
    hub.steered._decide(hub.cloud, hub.now + 1)
    assert hub.keeper.next_entry() is None and hub.running == {0: "cloud"}
    hub.turn()
    assert hub.running == {0: "cloud", 1: "cloud"}


def test_a_view_of_a_device_that_may_have_left_waits_for_it_to_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on as it is, and what is asked for is not tried again every second."""
    hub = Hub(tmp_path)
    hub.ask(FIRST, SECOND)
    hub.turn()
    tried = []
    add = hub.keeper.add
    monkeypatch.setattr(hub.keeper, "add", lambda *given: (tried.append(given), add(*given)))
    slower = replace(SECOND, shares=(0.5, 0.25))
    hub.ask(FIRST, slower)
    hub.keeper.without({"cem": False})
    for _ in range(5):
        hub.now += 1
        hub.steered._decide(hub.cloud, hub.now)
    assert len(tried) == 1 and hub.keeper.next_entry() is None
    hub.turn()
    assert hub.running == {0: "cloud", 2: "cloud"} and hub.book.views[2] == slower


def test_a_view_with_other_shares_ends_and_begins_anew_where_it_is(tmp_path: Path) -> None:
    """The shares may come from a column of the reference table."""
    hub = Hub(tmp_path)
    hub.ask(FIRST, SECOND)
    hub.turn()
    assert hub.keeper.move(1, "cem")
    hub.turn()
    slower = replace(SECOND, shares=(0.5, 0.25))
    hub.ask(FIRST, slower)
    hub.turn()  # while it is yet moving
    assert hub.running == {0: "cloud", 2: "cem"} and hub.book.views[2] == slower
    assert hub.entries[-1].removed == (1,) and len(hub.entries) == 3


def test_a_view_of_another_definition_takes_the_place_of_one_that_has_not_begun(
    tmp_path: Path,
) -> None:
    """Which was decided, and is folded later: what runs then is not what is asked for."""
    hub = Hub(tmp_path)
    hub.ask(FIRST)
    hub.steered._decide(hub.cloud, 1.0)
    decided = hub.keeper.next_entry()
    assert decided is not None
    far, other = replace(NEAR, name="far"), replace(FIRST, definition="far")
    Requests(tmp_path).write(replace(ASKED, definitions=(NEAR, far), views=(other,)))
    hub.steered._decide(hub.cloud, 2.0)
    hub.book.enact(decided)
    hub.turn()
    assert hub.running == {1: "cloud"} and hub.book.views[1] == other


@pytest.mark.parametrize("rows", [5, 10, 11, 500])
def test_sizes_of_rows_are_right_after_the_relay_started_anew(rows: int) -> None:
    """It counts from 0: fewer rows than before, as many, or more in fewer bytes."""
    sizes = RowSizes()
    sizes.note(0.0, {"ann": 10}, {"ann": 8000}, "first")
    sizes.note(100.0, {"ann": rows}, {"ann": 20 * rows}, "second")
    assert 20 <= sizes.of("ann") <= 800 and 20 <= sizes.of("bob") <= 800
    sizes.note(1000.0, {"ann": rows + 50}, {"ann": 20 * (rows + 50)}, "second")
    assert sizes.of("ann") == pytest.approx(20)
