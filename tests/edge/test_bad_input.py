"""What anybody who is enrolled may send, and what applications may put: refused and counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from anabranch.edge.agent_state import AgentState, Effects
from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.frames import VERSION, Down, FrameError, Up, decode_up, encode_down, encode_up
from anabranch.edge.mail import fresh_results
from anabranch.edge.placements import Entry
from anabranch.edge.recovery import recovered
from anabranch.edge.relay_state import Covered, RelayState
from anabranch.edge.sections import Results

BASE = 1 << 32
NONE = np.empty(0, np.int64)
STREAMS = Stream("gps[ann]", "ann", {"x": "double"}), Stream("gps[bob]", "bob", {"x": "double"})
NEAR = Definition("near", "pairs", (9, 9), None, (("x",), ()))
FIRST = Entry(0, STREAMS, (NEAR,), ((View("near(ann,bob)", "near", (0, 1)), "ann"),))


def hub() -> RelayState:
    relay = RelayState(1)
    relay.entry(1, FIRST)
    relay.frame(2, "ann", Up(1, -1, -1, -1, extras={"hello": 0}))
    relay.flush()
    return relay


def results(**changed: Any) -> Results:
    one = np.array([BASE])
    good = Results(0, (one, one), (one, one), np.zeros(1, int), np.zeros(1), (np.zeros(1),))
    return replace(good, **changed)


def test_results_that_are_whole_are_delivered() -> None:
    relay = hub()
    relay.frame(3, "ann", Up(1, 0, 0, -1, results=(results(),)))
    [message] = relay.flush()
    assert message.subject == "in.0" and len(message.frame.results) == 1
    assert message.frame.extras["origins"] == [["ann", 1 << 32, 1]]


@pytest.mark.parametrize(
    "changed",
    [
        {
            "n": (NONE, NONE),
            "t": (NONE, NONE),
            "stamp": NONE,
            "score": NONE / 1.0,
            "columns": (NONE / 1.0,),
        },
        {"n": (np.array([BASE]),)},
        {"n": (np.array([BASE]), np.array([1, 2]))},
        {"stamp": np.array([7])},
        {"stamp": np.array([-1])},
        {"stamp": np.array([0, 0])},
        {"score": np.zeros(2)},
        {"columns": ()},
        {"columns": (np.zeros((1, 2)),)},
        {"columns": (np.array(["x"], object),)},
    ],
)
def test_results_of_another_form_are_counted(changed: dict[str, Any]) -> None:
    relay = hub()
    relay.frame(3, "ann", Up(1, 0, 0, -1, results=(results(**changed),)))
    assert relay.counts["results of another form"] == 1
    assert not any(message.frame.results for message in relay.flush())


def test_many_results_of_a_device_with_a_long_name_are_not_much_more_for_the_cloud() -> None:
    """Its name is said once: else few bytes of a device would be too many for the broker."""
    name = "a" * 64
    streams = replace(STREAMS[0], home=name), STREAMS[1]
    relay = RelayState(1)
    relay.entry(1, replace(FIRST, streams=streams, views=((FIRST.views[0][0], name),)))
    relay.frame(2, name, Up(1, -1, -1, -1, extras={"hello": 0}))
    relay.flush()
    up = encode_up(Up(1, 0, 0, -1, results=(results(),) * 1000))
    relay.frame(3, name, decode_up(up))
    [message] = [message for message in relay.flush() if message.subject == "in.0"]
    assert len(encode_down(message.frame)) < len(up) + 200
    assert [who for _, who in fresh_results(message.frame, {})] == [name] * 1000


def test_a_frame_that_is_partly_bad_changes_nothing_but_what_is_good() -> None:
    """A report of an entry that nobody wrote, beside results of somebody else's view."""
    relay = hub()
    before = relay.book.to_form()
    extras = {"adopted": [[5, 0]], "rates": {"x": "many"}}
    relay.frame(3, "bob", Up(1, 0, 0, -1, results=(results(),), extras=extras))
    assert relay.counts["results of a foreign view"] == 1
    assert relay.book.to_form() == before


@pytest.mark.parametrize(
    ("at", "value"),
    [(1, -1), (1, 1 << 31), (2, -2), (3, 1 << 62), (4, -5), (8, {"adopted": [[0, 1 << 62]]})],
)
def test_numbers_that_cannot_be_are_damage(at: int, value: Any) -> None:
    form: list[Any] = [VERSION, 1, 0, 0, 0, 0, [], [], {}]
    assert decode_up(msgpack.packb(form)).number == 0
    form[at] = value
    with pytest.raises(FrameError, match="is expected, got"):
        decode_up(msgpack.packb(form))


STRANGE = [b"", b'{"stream":"UP","seq":1}', b"\xc1" * 9, b"[1, 2]", b'{"number": "x"}', b"null"]


@pytest.mark.parametrize("content", STRANGE)
def test_what_nobody_of_ours_wrote_is_left_out(content: bytes) -> None:
    """By every reader of the cloud's subjects; what is of another version is an error."""
    pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")
    from anabranch.edge.frames import own_down
    from anabranch.edge.relay import _entry_of

    assert own_down(content) is None
    with pytest.raises(FrameError, match="bytes are no entry"):
        _entry_of(content)
    with pytest.raises(FrameError, match="upgrade the older side"):
        own_down(bytes([0x91, 9]))
    relay = hub()
    relay.skip(3, "frames")
    assert relay.position == 3 and relay.counts == {"frames that cannot be read": 1}


def test_an_agent_goes_on_after_a_message_that_is_no_frame(tmp_path: Any) -> None:
    pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")
    from types import SimpleNamespace

    from anabranch.edge import Agent

    agent = Agent("ann", broker="tls://hub:4222", credentials=None, folder=tmp_path)
    for content in STRANGE:
        asyncio.run(agent._receive(SimpleNamespace(data=content)))  # type: ignore[arg-type]
    assert agent.unread == len(STRANGE) and agent._error is None
    asyncio.run(agent._receive(SimpleNamespace(data=bytes([0x91, 9]))))  # type: ignore[arg-type]
    assert "upgrade the older side" in str(agent._error)


class Talk:
    """Two agents and a relay that hear each other at once; the view is in the cloud."""

    def __init__(self, **options: int) -> None:
        self.relay, self.position = RelayState(1), 1
        self.agents = {name: AgentState(name, 1, slack=0, **options) for name in ("ann", "bob")}
        self.mail: dict[str, list[Down]] = {name: [] for name in self.agents}
        self.sizes: list[int] = []

    def begin(self) -> None:
        self.relay.entry(1, replace(FIRST, views=((FIRST.views[0][0], "cloud"),)))
        for name, agent in self.agents.items():
            self.sent(name, agent.connect())

    def sent(self, name: str, effects: Effects) -> None:
        assert not effects.stopped
        for content in effects.send:
            self.position += 1
            self.sizes.append(len(content))
            self.relay.frame(self.position, name, decode_up(content))
        due: list[tuple[str, Down]] = []
        for message in self.relay.flush():
            if message.subject.startswith("m."):
                self.mail[message.subject[2:]].append(message.frame)
                due.append((message.subject[2:], message.frame))
        for device, first in self.relay.replays():
            due += [(device, frame) for frame in self.mail[device][first:]]
        for device, frame in due:
            self.sent(device, self.agents[device].receive(frame))


def test_a_clock_that_is_a_day_off_harms_its_own_stream_alone() -> None:
    """Ann's clock is a day ahead: her rows and watermarks are, and bob's are taken as ever."""
    talk, day = Talk(), 86_400_000_000
    talk.begin()
    for t in range(10, 100, 10):
        for name, ahead in (("ann", day), ("bob", 0)):
            agent = talk.agents[name]
            agent.put(f"gps[{name}]", t + ahead, {"x": 1.0})
            talk.sent(name, agent.flush(t + ahead))
    assert set(talk.relay.counts) <= {"frames that were there"}
    assert talk.relay.book.watermark(0) > day > talk.relay.book.watermark(1) >= 90


def test_rows_that_waited_for_long_go_in_many_frames_and_none_is_late() -> None:
    talk = Talk(portion=5_000)
    ann = talk.agents["ann"]
    for t in range(10, 1_010):
        ann.put("gps[ann]", t, {"x": 0.5})
        if t % 100 == 0:
            ann.flush(t)  # nobody has asked for anything
    talk.begin()
    talk.sent("ann", ann.flush(2_000))
    talk.relay.acknowledge("ann")
    talk.sent("ann", ann.flush(2_001))
    assert sum(size > 500 for size in talk.sizes) >= 4 and max(talk.sizes) < 10_000
    assert not ann.waiting and set(talk.relay.counts) <= {"frames that were there"}


def test_a_hello_is_answered_with_the_brokers_clock_and_a_report_of_it_reaches_the_cloud() -> None:
    talk = Talk()
    talk.begin()
    ann = talk.agents["ann"]
    hello = decode_up(ann.connect(now=1_000).send[0])
    talk.relay.frame(100, "ann", hello, at=5_000)
    [message] = [m for m in talk.relay.flush() if m.subject == "m.ann"]
    assert message.frame.extras["clock"] == [1_000, 5_000]
    talk.relay.reports()
    ann.clock = -2.5
    [(_, content)] = ann.flush(10_000).frames
    assert decode_up(content).extras["clock"] == -2.5 and ann.clock is None


def test_a_device_that_leaves_says_so_until_it_comes_back() -> None:
    talk = Talk()
    talk.begin()
    ann = talk.agents["ann"]
    ann.put("gps[ann]", 50, {"x": 1.0})
    talk.sent("ann", ann.leave())
    assert talk.relay.left == {"ann": True} and talk.relay.book.watermark(0) < 50
    again = RelayState.restore(
        talk.relay.snapshot(),
        {"m.ann": Covered(9, 99), "m.bob": Covered(9, 99), "in.0": Covered(9, 99)},
    )
    assert again.left == {"ann": True}
    again.frame(200, "ann", Up(2, -1, -1, -1, extras={"hello": 0}))
    assert again.left == {}


def test_a_device_that_starts_again_after_it_left_is_back() -> None:
    """With the outbox and the incarnation that it had; put after `leave` says nothing yet."""
    talk = Talk()
    talk.begin()
    ann = talk.agents["ann"]
    kept = ann.leave()
    talk.sent("ann", kept)
    ann.put("gps[ann]", 50, {"x": 1.0})
    talk.sent("ann", ann.flush(60))
    assert talk.relay.left == {"ann": True}
    frames = list(ann._sending.kept.items())
    again = AgentState.restore("ann", 1, ann.flush(60).state, [], frames, slack=0)
    talk.sent("ann", again.connect())
    assert talk.relay.left == {"ann": True}
    talk.sent("ann", again.flush(70))
    assert talk.relay.left == {}
    state = again.flush(80).state
    third = AgentState.restore("ann", 1, state, [], again._sending.kept.items(), slack=0)
    assert third.flush(90).frames == []  # it has been said once


def test_a_bye_that_is_sent_again_after_a_recovery_ends_nothing() -> None:
    """Ann left and came back before the broker lost messages; what she says after that counts."""
    former = RelayState(1)
    former.entry(1, FIRST)
    former.frame(2, "ann", Up(1, -1, -1, -1, extras={"hello": 0}))

    def say(relay: RelayState, number: int, **extras: Any) -> dict[str, bool]:
        before = relay._devices["ann"].check
        frame = encode_up(Up(1, number, 0, -1, extras=extras, before=before))
        relay.frame(relay.position + 1, "ann", decode_up(frame))
        return dict(relay.left)

    assert [say(former, n, bye=n == 0) for n in range(1)] == [{"ann": True}]
    former.flush()
    for known, uncertain in ((None, {}), (former, {"ann": False})):
        relay = recovered(known, [FIRST], 1, {}, 1, {"ann": 1})
        assert relay.left == uncertain
        hello = {"hello": 3, "again": [1, 0, 0]}
        relay.frame(relay.position + 1, "ann", Up(1, -1, -1, -1, extras=hello))
        assert [say(relay, n, **({"bye": n == 0} if n != 1 else {})) for n in range(3)] == [
            uncertain,
            uncertain,
            {},
        ]
        assert say(relay, 3, bye=True) == {"ann": True}


def test_a_device_that_has_had_nothing_of_its_mailbox_sends_no_frame() -> None:
    """Else a hello that was overtaken by it would pass for that of an outbox which went back."""
    talk = Talk()
    talk.begin()
    new = talk.agents["ann"] = AgentState("ann", 2, slack=0)
    hello = new.connect()
    new.clock = 2.5
    assert not new.leave().frames and not new.flush(5).frames and new.waiting
    talk.sent("ann", hello)
    assert talk.relay.left == {}
    assert new.seen >= 0
    extras = [decode_up(content).extras for _, content in new.flush(10).frames]
    assert extras == [{"clock": 2.5, "bye": True}]
