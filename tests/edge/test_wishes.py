"""Requests for views: what cannot run is refused early, and ends neither the hub nor what runs."""

from __future__ import annotations

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
from anabranch.edge.placements import Entry
from anabranch.edge.wishes import Requests, Wishes
from anabranch.errors import InvalidCall
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


def test_a_request_that_is_refused_does_not_end_the_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, keeper = begun()
    relay = SimpleNamespace(
        state=SimpleNamespace(book=book), rows=Counter(), carried=Counter(), heard=Counter()
    )
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
