"""The log, what the keeper allows, and what devices and relay say when all is not well."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest

from anabranch.edge.agent_state import AgentState, Effects
from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.frames import VERSION, Down, FrameError, Up, decode_up, encode_up
from anabranch.edge.keeper import Keeper
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.losses import reported
from anabranch.edge.mail import base_of
from anabranch.edge.ownership import EARLIEST
from anabranch.edge.placements import Entry, PlacementLog
from anabranch.edge.recovery import recovered
from anabranch.edge.relay_state import Covered, RelayState
from anabranch.edge.sections import Results, Section
from anabranch.edge.serving import Cloud
from anabranch.edge.story import story
from anabranch.errors import InvalidCall, StateMismatch

XY = {"xy": "array<double>", "name": "string"}
STREAMS = [Stream("gps[ann]", "ann", XY), Stream("gps[bob]", "bob", XY)]
NEAR = Definition("near", "pairs", (30, 30), ["euclidean", "xy", "xy", None, "<=", 5])
VIEW = View("near(ann,bob)", "near", (0, 1))
BASE = 1 << 32  # numbers of the first incarnation
FIRST = Entry(0, tuple(STREAMS), (NEAR,), ((VIEW, "cloud"),), cause={"rule": "start"})


# ---------------------------------------------------------------- the log


def test_an_entry_is_read_back_and_never_written_twice(tmp_path: Path) -> None:
    log = PlacementLog(tmp_path / "control")
    assert log.entries() == []
    written = [log.write(FIRST), log.write(Entry(1, moves=((0, "bob"),), presumed=((1, 9),)))]
    assert PlacementLog(tmp_path / "control").entries() == written
    with pytest.raises(StateMismatch, match="another keeper writes it, so this one must stop"):
        log.write(Entry(1))
    assert [path.name for path in sorted(log.path.iterdir())] == ["00000000.json", "00000001.json"]


def test_a_log_with_a_hole_or_a_strange_file_is_rejected(tmp_path: Path) -> None:
    log = PlacementLog(tmp_path)
    log.write(FIRST)
    form = {**FIRST.to_dict(), "number": 2}
    (tmp_path / "00000002.json").write_text(json.dumps(form))
    with pytest.raises(StateMismatch, match=r"00000001.json .* is missing, though later ones"):
        log.entries()
    (tmp_path / "00000001.json").write_text(json.dumps(form))
    with pytest.raises(StateMismatch, match=r"cannot be read \(ValueError: it says that it is"):
        PlacementLog(tmp_path).entries()


# ---------------------------------------------------------------- the keeper


def test_a_view_that_moves_moves_no_further_until_it_has_moved() -> None:
    book = Book()
    keeper = KeeperState(book)
    keeper.add(STREAMS, [NEAR], [(VIEW, "cloud")])
    keeper.add(STREAMS, [NEAR], [(VIEW, "cloud")])  # known by name: once is enough
    first = keeper.next_entry()
    assert first is not None and len(first.views) == 1 and first.streams == tuple(STREAMS)
    assert keeper.next_entry() is None
    book.enact(first)
    assert not keeper.move(0, "cloud")
    assert keeper.move(0, "bob") and not keeper.move(0, "ann")
    second = keeper.next_entry()
    assert second is not None and second.moves == ((0, "bob"),)
    assert not keeper.move(0, "ann")  # decided, not folded
    book.enact(second)
    assert not keeper.move(0, "ann")
    book.adopted("ann", 1, 10)
    assert not keeper.move(0, "ann")
    book.adopted("bob", 1, 20)
    assert book.bounds[0][0].until == 20 + 30
    assert keeper.remove(0) and not keeper.move(0, "ann")


def test_a_view_ends_while_it_moves() -> None:
    """Before its move is decided, before it is folded, and before the sources know of it."""
    for known in range(3):
        book = Book()
        book.enact(FIRST)
        keeper = KeeperState(book)
        assert keeper.move(0, "bob")
        entries = []
        if known:
            entries.append(keeper.next_entry())
        if known == 2:
            book.enact(entries.pop())  # type: ignore[arg-type]
        assert keeper.remove(0) and not keeper.remove(0) and not keeper.move(0, "ann")
        for entry in entries:
            book.enact(entry)  # type: ignore[arg-type]
        last = keeper.next_entry()
        assert last is not None and last.removed == (0,) and not last.moves
        book.enact(last)
        assert book.place(0) == "" and not book.uploads("ann") and not book.uploads("bob")
        for device in ("ann", "bob"):
            book.adopted(device, last.number, 10)
        assert {bound.until for bound in book.bounds[0][:-1]} == {EARLIEST}


def test_a_view_ends_though_a_source_is_lost_for_good() -> None:
    """What the other has stamped before it ended meets nothing that is a window later."""
    book = Book()
    for entry in (FIRST, Entry(1, moves=((0, "bob"),)), Entry(2, removed=(0,))):
        book.enact(entry)
    assert not book.awaits(0) and not book.awaits(1)  # nobody knows of it yet
    book.adopted("bob", 2, 100)
    assert book.awaits(0) and not book.awaits(1) and not book.has_moved(0)
    assert not book.enact(Entry(3, presumed=((0, 129),)))
    assert book.enact(Entry(4, presumed=((0, 130),))) == [0]
    assert {bound.until for bound in book.bounds[0][:-1]} == {EARLIEST}
    assert book.has_moved(0) and not book.awaits(0) and not book.awaits(1)
    assert not book.adopted("ann", 2, 900)  # it seemed to be lost


def test_a_row_is_late_after_twice_the_watermark_and_never_within_it(tmp_path: Path) -> None:
    """As docs/follow.md says it, by all moments of silence and of arrival."""
    second, wait = 1_000_000, 10
    relay = RelayState(1)
    relay.book.enact(FIRST)

    async def publish(*_: Any) -> None:
        pass

    async def presumed(heard: int) -> list[int]:
        """What is presumed of ann's stream by each second, who is silent after one of them."""
        keeper = Keeper(SimpleNamespace(publish=publish), relay, tmp_path / str(heard))  # type: ignore[arg-type]
        keeper.log.write(FIRST)
        found = []
        for now in range(100):
            if now <= heard:
                relay.book.promised(0, now * second)
            relay.book.promised(1, now * second)
            keeper.watermark = wait * second
            entry = await keeper.turn(now * second)
            if entry is not None:
                assert [stream for stream, _ in entry.presumed] == [0]
                relay.book.enact(entry)
            found.append(relay.book.watermark(0) // second if now > heard else -1)
        return found

    kinds = set()
    for heard in range(0, 40, 13):
        relay.book = Book()
        relay.book.enact(FIRST)
        known = asyncio.run(presumed(heard))
        times = sorted(set(known[heard + 1 :]))
        assert times[0] == heard and len(times) > 4  # one for each `watermark` of silence
        assert {later - time for time, later in pairwise(times)} <= {wait + 1, wait + 2}
        for arrival in range(heard + 1, 100):
            for t in range(heard + 1, arrival + 1):
                late = t <= known[arrival]
                delay = arrival - t
                assert late if delay > 2 * wait else (not late or delay >= wait)
                kinds.add((late, wait < delay <= 2 * wait))
    assert kinds == {(True, True), (False, True), (True, False), (False, False)}


def test_no_entry_is_written_for_a_silent_stream_whose_views_have_ended(tmp_path: Path) -> None:
    async def entries(*made: Entry) -> list[Entry | None]:
        async def publish(*_: Any) -> None:
            pass

        relay, client = RelayState(1), SimpleNamespace(publish=publish)
        for entry in made:
            relay.book.enact(entry)
        for device in ("ann", "bob"):
            relay.book.adopted(device, len(made) - 1, 10)
        keeper = Keeper(client, relay, tmp_path)  # type: ignore[arg-type]
        return [await keeper.turn(now) for now in (2_000_000, 2_000_000_000)]

    before, after = asyncio.run(entries(FIRST))
    assert before is None and after is not None and len(after.presumed) == 2
    assert asyncio.run(entries(FIRST, Entry(1, removed=(0,)))) == [None, None]


def test_a_keeper_that_was_killed_publishes_what_was_not_folded() -> None:
    book = Book()
    book.enact(FIRST)
    keeper = KeeperState(book)
    lost = Entry(1, moves=((0, "bob"),))
    assert keeper.unfolded([FIRST, lost]) == [lost]
    keeper.presume(0, 5)
    assert keeper.next_entry() is None and not keeper.move(0, "ann")
    book.enact(lost)
    assert keeper.next_entry() == Entry(2, presumed=((0, 5),))


@pytest.mark.parametrize(
    ("definition", "view", "words"),
    [
        (NEAR, View("v", "far", (0, 1)), "has no definition 'far'"),
        (Definition("near", "sum"), VIEW, "kind must be 'pairs' or 'each', got 'sum'"),
        (NEAR, View("v", "near", (0, 0)), "needs 2 different streams"),
        (Definition("near", "pairs", keep=(("z",), ())), VIEW, "keeps 'z', and the stream has xy"),
        (Definition("near", "pairs", where=["same", "z", "z"]), VIEW, "there is no column 'z'"),
    ],
)
def test_a_view_that_cannot_run_is_rejected(definition: Any, view: View, words: str) -> None:
    with pytest.raises(InvalidCall, match=words):
        KeeperState(Book()).add(STREAMS, [definition], [(view, "cloud")])


@pytest.mark.parametrize("key", ["bob.smith", "a b", "*", ">", "../../x", "", "cloud", "b" * 65])
def test_a_key_that_names_no_device_is_refused(key: str) -> None:
    """It would be a subject that no stream has, or a file anywhere."""
    streams = [STREAMS[0], Stream(f"gps[{key}]", key, XY)]
    keeper = KeeperState(Book())
    with pytest.raises(InvalidCall, match="every key names a device, by 1 to 64 letters"):
        keeper.add(streams, [NEAR], [(VIEW, "cloud")])
    assert keeper.next_entry() is None


def test_a_changed_definition_needs_a_new_name() -> None:
    book = Book()
    book.enact(FIRST)
    changed = Definition("near", "pairs", (60, 60))
    with pytest.raises(InvalidCall, match="is there with another definition: give the new one a"):
        KeeperState(book).add(STREAMS, [changed], [(VIEW, "cloud")])


def test_a_relay_takes_entries_in_order_alone() -> None:
    """One may be lost on its way; the keeper publishes it again."""
    relay = RelayState(1)
    for position, number in enumerate((0, 0, 2, 1, 1, 2)):
        relay.entry(position, FIRST if number == 0 else Entry(number))
    assert relay.book.epoch == 2 and relay.counts == {"entries out of order": 1}


def test_entries_are_enacted_in_order() -> None:
    with pytest.raises(StateMismatch, match="entry 3 does not follow entry -1"):
        Book().enact(Entry(3))


# ---------------------------------------------------------------- devices and relay


def started(incarnation: int = 1) -> tuple[AgentState, RelayState]:
    """A device that has adopted the first entry."""
    agent, relay = AgentState("ann", incarnation, slack=0), RelayState(1)
    relay.entry(0, FIRST)
    talk(agent, relay, agent.connect())
    return agent, relay


def talk(agent: AgentState, relay: RelayState, effects: Effects) -> list[Effects]:
    """Let a device and the relay speak until both are silent."""
    heard: list[Effects] = []
    mail = relay.__dict__.setdefault("mail", [])
    while effects.send:
        for content in effects.send:
            relay.frame(relay.position + 1, agent.device, decode_up(content))
        mail += [m.frame for m in relay.flush() if m.subject == f"m.{agent.device}"]
        effects = Effects()
        for down in list(mail):
            one = agent.receive(down)
            heard.append(one)
            effects.send += one.send
    return heard


def test_rows_before_the_first_directive_get_its_stamp() -> None:
    agent, relay = AgentState("ann", 1, slack=0), RelayState(1)
    [row] = agent.put("gps[ann]", 5, {"xy": [1.0, 2.0], "name": "x"}).rows
    assert row.stamp is None and not agent.flush(10).send
    relay.entry(0, FIRST)
    heard = talk(agent, relay, agent.connect())
    assert [one.stamp for effects in heard for one in effects.rows] == [0]
    [frame] = agent.flush(10).frames
    assert decode_up(frame[1]).sections[0].n.tolist() == [row.n]


@pytest.mark.parametrize(
    ("t", "values", "words"),
    [
        (4, {"xy": [1.0, 2.0], "name": "x"}, "time goes back by 96 microseconds"),
        (105, {"xy": [1.0, 2.0], "name": "x"}, "late by 46 microseconds"),
        (1.5, {"xy": [1.0, 2.0], "name": "x"}, "must be whole microseconds since 1970, got 1.5"),
        (200, {"xy": [1.0, 2.0]}, "columns must be xy, name; got xy"),
        (200, {"xy": [1.0], "name": "x"}, "'xy' must be 2 finite numbers"),
        (200, {"xy": [1.0, np.nan], "name": "x"}, "'xy' must be 2 finite numbers"),
        (200, {"xy": [1.0, 2.0], "name": 3}, "'name' must be a string, got 3"),
    ],
)
def test_a_row_that_cannot_be_taken_is_rejected(t: Any, values: Any, words: str) -> None:
    agent, _ = started()
    agent.put("gps[ann]", 100, {"xy": [1.0, 2.0], "name": "x"})
    agent.flush(150)
    with pytest.raises(InvalidCall, match=words):
        agent.put("gps[ann]", t, values)


def test_a_former_incarnation_is_told_to_stop() -> None:
    old, relay = started()
    new = AgentState("ann", 2, slack=0)
    talk(new, relay, new.connect())
    assert new.epoch == 0 and not new.flush(5).stopped
    heard = talk(old, relay, old.connect())
    assert any("another incarnation of this device has taken over" in e.stopped for e in heard)
    assert relay.counts["frames of a former incarnation"] > 0


def row(t: int) -> tuple[str, int, dict[str, Any]]:
    return "gps[ann]", t, {"xy": [float(t), 2.0], "name": "x"}


def backed_up() -> tuple[AgentState, RelayState, AgentState]:
    """A device, its relay, and a copy of its outbox; the device has gone on by two frames."""
    agent, relay = started()
    kept = agent.flush(5)
    talk(agent, relay, kept)
    copy = AgentState.restore("ann", 1, kept.state, [], kept.frames, slack=0)
    for t in (10, 20):
        agent.put(*row(t))
        talk(agent, relay, agent.flush(t))
    return agent, relay, copy


def cloud_has(relay: RelayState) -> int:
    return relay._devices["ann"].next


@pytest.mark.parametrize("offline", [0, 1, 2, 4])
def test_an_outbox_that_went_back_stops(offline: int) -> None:
    """Whether it has fewer frames than the cloud by then, as many or more."""
    _, relay, copy = backed_up()
    for t in range(100, 100 + offline):
        copy.put(*row(t))
        copy.flush(t)
    before = cloud_has(relay)
    heard = talk(copy, relay, copy.connect())
    words = "the outbox went back" if offline < 2 else "is not the one here"
    assert any(words in effects.stopped for effects in heard)
    assert all("begin with an empty" in effects.stopped for effects in heard if effects.stopped)
    assert cloud_has(relay) == before  # not one of its frames was taken
    assert relay.counts["frames of a copy"] == (1 if offline > 2 else 0)


def test_of_two_copies_one_stops_whoever_sends() -> None:
    """Both are connected, so both hear what either is told."""
    agent, relay, copy = backed_up()
    talk(agent, relay, agent.connect())
    assert not agent.waiting
    for down in relay.__dict__["mail"]:
        copy.receive(down)
    assert "the outbox went back" in copy.connect().stopped
    for first in (True, False):
        agent, relay = started()
        kept = agent.flush(5)
        talk(agent, relay, kept)
        copy = AgentState.restore("ann", 1, kept.state, [], kept.frames, slack=0)
        one, other = (agent, copy) if first else (copy, agent)
        for made, t in ((one, 30), (other, 40)):
            made.put(*row(t))
        effects = other.flush(40)  # made first, sent last
        talk(one, relay, one.flush(30))
        talk(other, relay, effects)
        talk(other, relay, other.connect())
        assert "is not the one here" in other.connect().stopped and not one.connect().stopped
        talk(one, relay, one.flush(50))
        talk(one, relay, one.connect())
        assert not one.connect().stopped and not one.waiting


def test_an_outbox_that_was_put_back_and_has_nothing_else_to_say_goes_on() -> None:
    agent, relay = started()
    kept = agent.flush(5)
    talk(agent, relay, kept)
    again = AgentState.restore("ann", 1, kept.state, [], kept.frames, slack=0)
    again.put(*row(10))
    heard = talk(again, relay, again.flush(10)) + talk(again, relay, again.connect())
    assert not any(effects.stopped for effects in heard) and not again.waiting


def test_an_outbox_that_asks_for_what_it_has_had_stops_and_its_copy_does_not() -> None:
    agent, relay, copy = backed_up()
    talk(agent, relay, agent.connect())
    assert copy.seen < agent.seen
    relay.position += 1
    relay.stop("ann", copy.seen)
    [message] = [m for m in relay.flush() if m.subject == "m.ann"]
    assert "a part of its mailbox that it has had" in copy.receive(message.frame).stopped
    assert not agent.receive(message.frame).stopped


def test_an_outbox_that_went_back_before_it_began_stops() -> None:
    """It knows its incarnation, and has nothing of its mailbox, of which the beginning is gone."""
    _, relay, _ = backed_up()
    new = AgentState("ann", 1, slack=0)
    relay.frame(relay.position + 1, "ann", decode_up(new.connect().send[0]))
    [message] = [m for m in relay.flush() if m.subject == "m.ann"]
    assert "the outbox went back" in new.receive(message.frame).stopped


# ---------------------------------------------------------------- incarnations


def test_an_incarnation_is_given_by_the_cloud() -> None:
    """Larger than all before, and rows that were put before are numbered by it."""
    agent, relay = started(incarnation=7)
    new = AgentState("ann", 0, token=5, slack=0)
    waiting = [new.put(*row(t)).rows[0] for t in (10, 20)]
    assert [one.n for one in waiting] == [0, 1] and not new.flush(20).send
    heard = talk(new, relay, new.connect())
    assert new.incarnation == 8 and new.epoch == 0
    [given] = [effects for effects in heard if effects.incarnation]
    assert given.incarnation == 8 and given.state is not None
    [stamped] = [effects.rows for effects in heard if effects.rows]
    assert [(one.n, one.stamp) for one in stamped] == [((8 << 32) + k, 0) for k in (0, 1)]
    talk(new, relay, new.flush(30))
    talk(new, relay, new.connect())
    assert not new.waiting and new.put(*row(40)).rows[0].n == (8 << 32) + 2
    talk(agent, relay, agent.connect())
    assert "another incarnation of this device has taken over" in agent.connect().stopped


def test_no_two_outboxes_get_the_same_incarnation() -> None:
    relay = RelayState(1)
    relay.entry(0, FIRST)
    agents = [AgentState("ann", 0, token=token, slack=0) for token in (5, 6)]
    for agent in agents:
        relay.frame(relay.position + 1, "ann", decode_up(agent.connect().send[0]))
    [message] = [m for m in relay.flush() if m.subject == "m.ann"]
    for agent in agents:
        agent.receive(message.frame)
    assert [agent.incarnation for agent in agents] == [1, 2]


@pytest.mark.parametrize("offline", [0, 1, 4])
def test_a_copy_that_was_made_before_an_incarnation_was_given_stops(offline: int) -> None:
    """It asks for one as well, and must not take over from the one that goes on."""
    agent, copy = (AgentState("ann", 0, token=5, slack=0) for _ in range(2))
    relay = RelayState(1)
    relay.entry(0, FIRST)
    for one in (agent, copy):
        one.put(*row(10))
    talk(agent, relay, agent.connect())
    for t in (20, 30):
        agent.put(*row(t))
        talk(agent, relay, agent.flush(t))
    before = cloud_has(relay)
    for t in range(100, 100 + offline):
        copy.put(*row(t))
        copy.flush(t)
    relay.frame(relay.position + 1, "ann", decode_up(copy.connect().send[0]))
    [answer] = [m.frame for m in relay.flush() if m.subject == "m.ann"]
    relay.__dict__["mail"].append(answer)
    heard = talk(copy, relay, copy.receive(answer)) + talk(copy, relay, copy.flush(200))
    heard += talk(copy, relay, copy.connect())
    assert any("put back from a backup, or is one of two copies" in one.stopped for one in heard)
    assert cloud_has(relay) == before  # not one of its frames was taken
    assert not any(one.stopped for one in talk(agent, relay, agent.connect()))


def test_an_answer_that_was_lost_is_given_again() -> None:
    """The same outbox asks again, also after a restart of the relay."""
    relay = RelayState(1)
    relay.entry(1, FIRST)
    relay.frame(2, "ann", Up(0, -1, -1, -1, extras={"new": 5}))
    relay.flush()
    again = RelayState.restore(relay.snapshot(), relay.covered)
    again.frame(3, "ann", Up(0, -1, -1, -1, extras={"new": 5}))
    [message] = again.flush()
    assert message.frame.extras["given"] == {5: 1}


def test_what_a_new_outbox_has_to_say_waits_for_its_incarnation() -> None:
    agent = AgentState("ann", 0, token=5, slack=0)
    relay = RelayState(1)
    relay.entry(0, FIRST)
    assert not agent.leave().send
    heard = talk(agent, relay, agent.connect())
    assert [effects.frames for effects in heard if effects.incarnation] == [[]]
    said = agent.flush(5)
    [(_, content)] = said.frames
    assert decode_up(content).extras == {"bye": True} and agent.waiting
    talk(agent, relay, said)
    assert relay.left == {"ann": True}


def test_a_frame_without_an_incarnation_is_counted() -> None:
    relay = RelayState(1)
    relay.frame(1, "ann", Up(0, 0, 0, -1))
    relay.frame(2, "ann", Up(0, -1, 0, -1, extras={"new": "me"}))
    assert relay.counts["frames without an incarnation"] == 2 and not relay.pending


def test_a_relay_sends_no_stream_of_others_and_counts_late_rows() -> None:
    agent, relay = started()
    relay.entry(relay.position + 1, Entry(1, presumed=((0, 100),)))
    relay.flush()
    columns = np.array([[0.0, 0.0]]), np.array(["x"], object)
    rows = tuple(
        Section(stream, 0, np.array([BASE + n]), np.array([t]), columns)
        for stream, n, t in ((0, 1, 100), (0, 2, 101), (1, 9, 500))
    )
    upcoming = agent.following
    claim = {"late": [[1, BASE + 5]]}
    up = Up(1, upcoming, 0, 0, rows, extras=claim, before=agent._sending.check)
    relay.frame(relay.position + 1, "ann", up)
    [message] = [m for m in relay.flush() if m.subject == "in.0"]
    assert [(s.stream, s.n.tolist()) for s in message.frame.steps if len(s.n)] == [(0, [BASE + 2])]  # type: ignore[union-attr]
    assert (
        relay.counts["late rows of gps[ann]"] == 1
        and relay.counts["sections of a foreign stream"] == 1
    )
    # What a device says of late rows does not count.
    reports = [extras["late"] for _, extras in relay.reports() if "late" in extras]
    assert [rows for rows in reports if rows] == [[[0, BASE + 1]]]


def test_a_hub_says_which_streams_have_late_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, relay = started()
    cloud = cloud_of(relay, tmp_path)
    relay.entry(relay.position + 1, Entry(1, presumed=((0, 100),)))
    columns = np.array([[0.0, 0.0]]), np.array(["x"], object)
    for n in range(3):
        check = relay._devices["ann"].check
        one = Section(0, 0, np.array([BASE + n]), np.array([50 + n]), columns)
        relay.frame(
            relay.position + 1, "ann", Up(1, agent.following + n, 0, 0, (one,), before=check)
        )
        cloud._take_reports()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("gps[ann]: rows came after the watermark and are left out")
    cloud.keeper.state.presume(0, 10**15)
    entry = cloud.keeper.state.next_entry()
    assert entry is not None and story([FIRST, Entry(1), entry])[-1] == (
        "  Late, and left out so far: 3 rows of gps[ann]."
    )


def cloud_of(relay: RelayState, folder: Path) -> Cloud:
    """A hub's process around a relay, without a broker."""

    async def made() -> Cloud:
        return Cloud(SimpleNamespace(folder=folder), "tls://hub:4222")  # type: ignore[arg-type]

    cloud = asyncio.run(made())
    cloud.relay, cloud.keeper = (
        SimpleNamespace(state=state)  # type: ignore[assignment]
        for state in (relay, KeeperState(relay.book))
    )
    return cloud


def test_a_hub_says_what_it_left_out_and_the_story_sums_it_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames that cannot be read, sections of others, and clocks that are a day off."""
    agent, relay = started()
    cloud = cloud_of(relay, tmp_path)
    foreign = Section(1, 0, np.array([BASE]), np.array([5]), (np.zeros((1, 2)),))
    for n in range(11):
        relay.skip(relay.position + 1, "frames")
        extras: dict[str, Any] = {"clock": -86_400.0} if n == 4 else {}
        up = Up(1, agent.following + n, 0, 0, (foreign,), extras=extras)
        up = replace(up, before=relay._devices["ann"].check)
        relay.frame(relay.position + 1, "ann", up)
        relay.frame(relay.position + 1, "ann", up)  # which is no loss
        cloud._take_reports()
    assert capsys.readouterr().err.splitlines() == [
        "left out so far: frames that cannot be read, 1",
        "left out so far: sections of a foreign stream, 1",
        "the clock of ann is 86,400 s behind the hub's",
        "left out so far: frames that cannot be read, 10",
        "left out so far: sections of a foreign stream, 10",
    ]
    cloud.keeper.state.presume(0, 10**15)
    entry = cloud.keeper.state.next_entry()
    assert entry is not None and story([FIRST, Entry(1, cause=entry.cause)])[-2:] == [
        "  The clock of ann is 86,400 s behind.",
        "  Left out so far: frames that cannot be read, 11; sections of a foreign stream, 11.",
    ]
    cloud._take_reports()  # nothing is new, so the entry after says nothing of it
    cloud.keeper.state.presume(0, 10**15)
    entry = cloud.keeper.state.next_entry()
    assert entry is None or "left out" not in entry.cause


def test_a_device_says_which_rows_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows from before their stream was declared may be of other columns; some were dropped."""
    agent, relay = AgentState("ann", 0, token=5, slack=0), RelayState(1)
    relay.entry(0, FIRST)
    agent.put("gps[ann]", 3, {"speed": 1.0})
    talk(agent, relay, agent.connect())
    talk(agent, relay, agent.flush(4))
    assert agent.unfit == {"gps[ann]": 1}
    said = agent.flush(5)
    assert [decode_up(content).extras["losses"] for _, content in said.frames] == [{0: [1, 0]}]
    talk(agent, relay, said)
    agent.stream("gps[ann]").dropped += 2
    restored = AgentState.restore("ann", 1, agent._dump(), [], [], slack=0)
    assert restored.unfit == {"gps[ann]": 1}
    talk(agent, relay, agent.flush(6))
    assert not agent.flush(7).frames  # it is said once
    assert reported("bob", {"losses": {0: [9, 9]}}, STREAMS, {}) == {}  # a stream that is not his
    assert reported("ann", {"losses": {0: "many", 7: [1, 1]}}, STREAMS, {}) == {}
    relay.flush()
    relay.reports()
    # The hub starts again before it has written an entry: the next one says it all the same.
    relay = RelayState.restore(relay.snapshot(), relay.covered)
    cloud = cloud_of(relay, tmp_path)
    cloud._take_reports()
    assert capsys.readouterr().err.splitlines() == [
        "left out so far: rows of gps[ann] that do not fit, 1",
        "left out so far: rows of gps[ann] that a full device dropped, 2",
    ]
    cloud.keeper.state.presume(0, 10**15)
    entry = cloud.keeper.state.next_entry()
    assert entry is not None and entry.cause["left out"] == {
        "rows of gps[ann] that do not fit": 1,
        "rows of gps[ann] that a full device dropped": 2,
    }


def test_what_a_new_outbox_left_out_is_added_to_what_the_one_before_did() -> None:
    """Each counts from 0, says its count again after a loss, and may say anything."""
    relay = RelayState(1)
    relay.entry(0, FIRST)
    said: dict[int, list[Any]] = {
        1: [[5, 0], [5, 0], [7, 1]],
        2: [[3, 0], [3, 2], [1, 0], [-4, 2]],
        3: [[1 << 63, 0], [1 << 63, 0]],
        4: [[1 << 63, 0]],
    }
    counts = []
    for incarnation, losses in said.items():
        for number, one in enumerate(losses):
            before = relay._devices["ann"].check if number else 0
            up = Up(incarnation, number, 0, -1, before=before, extras={"losses": {0: one}})
            relay.frame(relay.position + 1, "ann", decode_up(encode_up(up)))
            relay.flush()
            relay = RelayState.restore(relay.snapshot(), relay.covered)
        why = ("do not fit", "a full device dropped")
        counts.append([relay.counts[f"rows of gps[ann] that {what}"] for what in why])
    assert counts == [[7, 1], [10, 3], [(1 << 32) + 10, 3], [(2 << 32) + 10, 3]]


def test_a_relay_lets_nothing_pass_that_would_break_a_place() -> None:
    agent, relay = started()
    n, t, xy, name = np.array([BASE + 1]), np.array([5]), np.zeros((1, 2)), np.array(["x"], object)
    results = Results(0, (n, n), (t, t), n, np.zeros(1))
    bad = [
        Section(0, 7, n, t, (xy, name)),
        Section(0, 0, n, t, (xy,)),
        Section(0, 0, n, t, (xy, xy)),
        Section(0, 0, n, t, (xy.astype(np.float32), name)),
        Section(0, 0, n, t, (np.zeros((1, 3)), name)),
        Section(0, 0, n, t, (xy, np.array([3], object))),
        Section(0, 0, n - BASE, t, (xy, name)),
        Section(0, 0, n, -t, (xy, name)),
        Section(0, 0, n, t + (1 << 62), (xy, name)),
        Section(0, 0, *(np.repeat(one, 2, axis=0) for one in (n, t)), (xy, name)),
    ]
    good = Section(0, 0, n, t, (xy, name))
    report = {"adopted": [[99, 5]]}
    relay.flush()
    sent = (good, *bad), (results,), report, agent._sending.check
    relay.frame(relay.position + 1, "ann", Up(1, agent.following, 0, 0, *sent))
    [message] = [m for m in relay.flush() if m.subject == "in.0"]
    assert len(message.frame.steps) == 1 and not message.frame.results
    assert relay.counts["sections with a stamp that nobody gave"] == 1
    assert relay.counts["sections of other columns"] == 5
    assert relay.counts["sections with numbers or times that cannot be"] == 4
    assert relay.counts["results of a foreign view"] == 1


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_frame_whose_numbers_are_none_is_damaged(at: int) -> None:
    form = [VERSION, 1, 0, 0, 0, 0, [], [], {}]
    form[at] = "many"
    with pytest.raises(FrameError, match="whole numbers are expected"):
        decode_up(msgpack.packb(form))


def test_a_broker_that_lost_messages_is_noticed() -> None:
    _, relay = started()
    relay.flush()
    blob = relay.snapshot()
    with pytest.raises(StateMismatch, match="went back behind number 0: the broker has lost"):
        RelayState.restore(blob, {"in.0": Covered(-1, -1)})
    with pytest.raises(StateMismatch, match="right after a flush"):
        relay.acknowledge("ann")
        relay.position += 1
        relay.acknowledge("ann")
        relay.snapshot()


def test_a_device_that_is_ahead_of_its_mailbox_stops() -> None:
    """The broker has lost what the device had: new frames would have the numbers of those."""
    agent, relay = started()
    agent._seen += 1
    relay.frame(relay.position + 1, "ann", Up(1, agent.following, 0, agent.seen))
    [message] = [m for m in relay.flush() if m.subject == "m.ann"]
    assert relay.counts["frames of a device ahead of its mailbox"] == 1
    effects = agent.receive(message.frame)
    assert "has lost a part of its mailbox: run `anabranch edge recover`" in effects.stopped
    assert effects.state is None and not agent.connect().stopped  # once it is healed, it goes on


def test_a_device_whose_acknowledged_frames_are_lost_stops_until_the_hub_is_healed() -> None:
    """Others' rows may have filled its mailbox up to the number that it has seen."""
    agent, relay = started()
    agent._sending.acknowledge(agent.following - 1)
    lost = Down(agent.seen + 1, relay.position + 1, agent.following - 2)
    assert "run `anabranch edge recover`" in agent.receive(lost).stopped
    assert not agent.receive(replace(lost, acked=agent.following - 1)).stopped


def test_a_device_that_begins_anew_after_a_recovery_is_introduced_once() -> None:
    """A second hello leaves out nothing that waits for the device by then."""
    near = Definition("near", "pairs", (30, 30), None, ((), ()), ("cloud",))
    streams = Stream("gps[ann]", "ann", {}), Stream("gps[bob]", "bob", {})
    log = [Entry(0, streams, (near,), ((View("v", "near", (0, 1)), "bob"),))]
    former = RelayState(1)
    former.entry(1, log[0])
    former.frame(2, "bob", Up(1, -1, -1, -1, extras={"hello": 0, "fresh": True}))
    former.flush()
    relay = recovered(former, log, 1, former.covered, 1)
    relay.flush()
    base = base_of(1)
    fresh = Up(2002, -1, -1, -1, extras={"hello": 0, "fresh": True})
    relay.frame(base + 1, "bob", fresh)
    [begin] = [m.frame for m in relay.flush() if m.subject == "m.bob"]
    assert begin.extras["begin"] == [2002, None]
    relay = RelayState.restore(relay.snapshot(), None)
    relay.frame(base + 2, "ann", Up(1, -1, 0, -1, extras={"hello": 0, "again": [1, 0, 0]}))
    rows = Section(0, 0, np.array([1 << 32]), np.array([100]), (), 100)
    relay.frame(base + 3, "ann", decode_up(encode_up(Up(1, 0, 0, -1, (rows,)))))
    relay.frame(base + 4, "bob", fresh)
    [then] = [m.frame for m in relay.flush() if m.subject == "m.bob"]
    assert "begin" not in then.extras and "again" in then.extras
    assert [step.n.tolist() for step in then.steps if isinstance(step, Section)] == [[1 << 32]]
