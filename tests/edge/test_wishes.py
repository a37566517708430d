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
from anabranch.cli.steered import Steered
from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.placements import Entry, PlacementLog
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
    # A view that is yet moving ends as soon as it has moved.
    book.enact(Entry(1, moves=((1, "cem"),)))
    Requests(tmp_path).write(replace(ASKED, views=(FIRST,)))
    steered._decide(cloud, 9)
    assert cloud.keeper.state.next_entry() is None
    book.adopted("ann", 1, 10), book.adopted("cem", 1, 10)
    steered._decide(cloud, 10)
    assert cloud.keeper.state.next_entry() == Entry(2, removed=(1,))
