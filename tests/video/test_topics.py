"""Topics: those of the twin, however pairs come, and each event once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.flow.blocks import Block
from anabranch.testing.workers import LivingWorkers, Workers
from anabranch.video.spelling import caption
from anabranch.video.stories import BETWEEN, TopicCall, TopicsJob
from tests.examples import examples
from tests.video.topics_twin import Match, Row, shown_again, twin

START = 1_700_000_000_000_000
CALL = TopicCall(12, True, near=4, longest=40, repeating=30, equal=1, span=9, alone=0.8)
TEXTS = ("left", "right", "left_channel", "right_channel", "left_words", "right_words")
TEXTS += ("left_concepts", "right_concepts")


def entry(pair: Match, counts: int) -> dict[str, Any]:
    """A pair, or a repetition, as the packed columns have it."""
    left, right, score = pair
    return {
        "t": START + pair.t,
        **{"counts": counts, "left": left.id, "right": right.id},
        **{"left_channel": left.channel, "right_channel": right.channel},
        **{"left_t": START + left.t, "right_t": START + right.t, "score": score},
        **{"left_words": "", "right_words": "", "left_concepts": "", "right_concepts": ""},
    }


def block(entries: list[dict[str, Any]]) -> Block:
    columns = {name: [one[name] for one in entries] for name in entries[0]}
    t = np.array(columns.pop("t"), np.int64)
    return Block.of(t, {n: pa.array(v) if n in TEXTS else np.array(v) for n, v in columns.items()})


def shown(
    events: list[dict[str, Any]],
    pairs: list[Match],
    repeats: Sequence[Match] = (),
    call: TopicCall = CALL,
) -> Counter[frozenset[Match]]:
    """Final topics out of the events alone; pairs before a topic is told are those of its rows."""
    assert len({(e["topic"], e["revision"]) for e in events}) == len(events)
    open_now: set[str] = set()
    closed: Counter[frozenset[Match]] = Counter()
    for event in events:
        name, kind = event["topic"], event["event"]
        assert (name in open_now) == (kind != "opened")
        open_now ^= {name} if kind in ("opened", "merged", "closed") else set()
        if kind == "closed":
            within = (event["began"] - START, event["last"] - START)
            topic = frozenset(
                p
                for p in pairs
                if {p.left.id, p.right.id} <= set(event["members"])
                and within[0] <= p.t <= within[1]
            )
            rows = {row for p in topic for row in (p.left, p.right)}
            assert {row.id for row in rows} == set(event["members"])
            assert event["shots"] == len(rows) and event["pairs"] == len(topic)
            assert event["channels"] == sorted({row.channel for row in rows})
            assert event["score"] == max(p.score for p in topic)
            assert event["repeated"] == len(shown_again(topic, list(repeats), call))
            closed[topic] += 1
    assert not open_now
    return closed


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[list[Match], list[Match]]:
    """Pairs of key frames of different channels, and of the same one."""
    times = draw(st.lists(st.integers(0, 60), min_size=2, max_size=14))
    rows = [Row(f"{n:02d}", draw(st.sampled_from("ABC")), t) for n, t in enumerate(times)]
    both = [(a, b) for n, a in enumerate(rows) for b in rows[n + 1 :]]
    chosen = draw(st.lists(st.sampled_from(both), max_size=25, unique=True))
    scores = st.sampled_from([0.5, 0.9])
    pairs = [Match(a, b, draw(scores)) for a, b in chosen if a.channel != b.channel]
    return pairs, [Match(a, b) for a, b in chosen if a.channel == b.channel]


calls = st.builds(
    TopicCall,
    gap=st.integers(5, 30),
    one_stream=st.just(True),
    near=st.integers(0, 5),
    longest=st.integers(5, 60),
    repeating=st.integers(0, 60),
    equal=st.integers(0, 2),
    span=st.integers(0, 20),
    channels=st.integers(2, 3),
    alone=st.sampled_from([None, 0.8]),
)


def run(
    entries: list[dict[str, Any]], call: TopicCall
) -> tuple[list[dict[str, Any]], Counter[str]]:
    job = TopicsJob(call)
    topics = job.groups()
    names = ("t", *job.order, *job.facts)
    order = ("t", *job.order)
    for one in sorted(entries, key=lambda e: tuple(e[name] for name in order)):
        topics.take_in(tuple(one[name] for name in names))
    topics.close(START + 10**6)
    assert not topics.open and not topics.facts and topics.pairs == 0
    return topics.events, topics.dropped


@st.composite
def evenings(draw: st.DrawFn) -> tuple[list[Match], list[Match]]:
    """Two channels with the same advert, on one of them more than once, and other pictures."""
    shots = draw(st.lists(st.integers(1, 6), min_size=3, max_size=5))
    rows: list[Row] = []
    pictures: list[int] = []
    for channel in "AB":
        t = draw(st.integers(0, 6))
        for show in range(draw(st.integers(1, 3))):
            for picture, length in enumerate(shots):
                rows.append(Row(f"{channel}{show}{picture}", channel, t))
                pictures.append(picture)
                t += max(0, length + draw(st.integers(-1, 1)))
            t += draw(st.integers(0, 30))
    both = [
        Match(a, b, 0.9)
        for n, a in enumerate(rows)
        for m, b in enumerate(rows[:n])
        if pictures[n] == pictures[m] and draw(st.integers(0, 9))
    ]
    inside = [pair for pair in both if pair.left.channel == pair.right.channel]
    return [pair for pair in both if pair not in inside], inside


@settings(max_examples=examples(200), deadline=None)
@given(broadcasts() | evenings(), calls)
def test_topics_are_those_of_the_twin(
    sent: tuple[list[Match], list[Match]], call: TopicCall
) -> None:
    pairs, repeats = sent
    entries = [entry(p, 1) for p in pairs] + [entry(r, 0) for r in repeats]
    events, dropped = run(entries, call)
    due, furniture = twin(pairs, repeats, call)
    assert dropped == furniture
    plain = [p for topic in due for p in topic]
    assert shown(events, plain, repeats, call) == due


@settings(max_examples=examples(100), deadline=None)
@given(broadcasts(), calls)
def test_another_channel_never_removes_a_pair(
    sent: tuple[list[Match], list[Match]], call: TopicCall
) -> None:
    """What two channels have in common is in a topic, whatever a third one shows.

    With topics that may last: one that began earlier ends earlier too.
    """
    call = replace(call, longest=10**6, channels=2)

    def told(channels: str) -> set[Match]:
        pairs, repeats = (
            [m for m in one if {m.left.channel, m.right.channel} <= set(channels)] for one in sent
        )
        entries = [entry(p, 1) for p in pairs] + [entry(r, 0) for r in repeats]
        events, _ = run(entries, call)
        kept = [p for topic in twin(pairs, repeats, call)[0] for p in topic]
        return {pair for topic in shown(events, kept, repeats, call) for pair in topic}

    assert told("AB") <= told("ABC")
    assert told("BC") <= told("ABC")


@settings(max_examples=examples(60), deadline=None)
@given(broadcasts() | evenings(), st.data())
def test_batching_order_and_restarts_do_not_matter(
    sent: tuple[list[Match], list[Match]], data: st.DataObject
) -> None:
    """Pairs come at most 10 late, in any order and batches, to kernels that live on or do not."""
    pairs, repeats = sent
    entries = [entry(p, 1) for p in pairs] + [entry(r, 0) for r in repeats]
    workers: Workers = data.draw(st.sampled_from([Workers, LivingWorkers]))(TopicsJob(CALL))
    arrival = sorted(entries, key=lambda e: e["t"] + data.draw(st.integers(0, 10)))
    events: list[dict[str, Any]] = []
    mark = START
    while arrival:
        count = data.draw(st.integers(1, 8))
        batch, arrival = arrival[:count], arrival[count:]
        for found in workers.step(0, [block(batch)], mark):
            events += found.to_pylist()
        mark = max(mark, min((e["t"] for e in arrival), default=0) - 1)
    for found in workers.step(0, [], START + 1000):
        events += found.to_pylist()
    assert events == run(entries, CALL)[0]
    assert workers.state_rows == 0
    assert sum(load.late for load in workers.loads) == 0


def test_what_is_near_outlives_a_restart() -> None:
    workers = Workers(TopicsJob(CALL))
    one, other = (Match(Row(f"a{n}", "A", n), Row(f"b{n}", "B", n)) for n in (1, 3))
    for n, pair in enumerate((one, other)):
        events = workers.step(0, [block([entry(pair, 1)])], START + 2 + n)
    assert [e["shots"] for found in events for e in found.to_pylist()] == [4]


def test_nothing_is_near_a_topic_that_has_closed_early() -> None:
    call = replace(CALL, longest=5, near=5, alone=0.5)
    a, d = Row("a", "A", 0), Row("d", "C", 6)
    pairs = [Match(a, Row("b", "B", 0)), Match(a, Row("c", "B", 5)), Match(a, d)]
    pairs.append(Match(Row("e", "A", 3), Row("f", "B", 7)))
    events, _ = run([entry(p, 1) for p in pairs], call)
    assert shown(events, pairs) == twin(pairs, [], call)[0]
    assert [e["shots"] for e in events if e["event"] == "closed"] == [3, 2, 2]


def test_a_studio_that_a_channel_repeats_does_not_chain_its_evening() -> None:
    studio = [Row(f"s{n}", "A", 10 * n) for n in range(6)]
    guest = Row("b", "B", 55)
    repeats = [Match(a, b) for n, a in enumerate(studio) for b in studio[n + 1 :]]
    pairs = [Match(one, guest, 0.9) for one in studio]
    call = replace(CALL, repeating=100, gap=100)
    entries = [entry(p, 1) for p in pairs] + [entry(r, 0) for r in repeats]
    assert run(entries, call) == ([], {"furniture": 6})
    assert len([e for e in run(entries[:6], call)[0] if e["event"] == "closed"]) == 1


def test_an_advert_connects_nothing_once_it_comes_again() -> None:
    """Four shots on both channels; channel A shows them again, all of them 50 later."""
    times = (0, 4, 7, 13)
    first, later = ([Row(f"a{n}{m}", "A", m + t) for n, t in enumerate(times)] for m in (0, 50))
    other = [Row(f"b{n}", "B", 20 + t) for n, t in enumerate(times)]
    repeats = [Match(a, b) for a, b in zip(first, later, strict=True)]
    pairs = [Match(a, b) for side in (first, later) for a, b in zip(side, other, strict=True)]
    call = replace(CALL, repeating=1000, gap=100, longest=1000, near=8, span=20)
    entries = [entry(p, 1) for p in pairs] + [entry(r, 0) for r in repeats]
    events, dropped = run(entries, call)
    # The fourth shot is when it is known; what came before stays, and says what it is.
    assert dropped == {"advert": 1}
    closed = [e for e in events if e["event"] == "closed"]
    assert [(e["shots"], e["repeated"]) for e in closed] == [(11, 7)]
    assert run([e for e in entries if e["left"] != "a350"], call)[1] == {}


def test_views_of_two_key_frames_are_one_pair() -> None:
    pair = Match(Row("a", "A", 1), Row("b", "B", 2))
    views = [entry(pair._replace(score=score), 1) for score in (0.5, 0.7, 0.6)]
    for alone, told in ((None, []), (0.7, [(0.7, 1), (0.7, 1)])):
        workers = Workers(TopicsJob(replace(CALL, alone=alone)))
        found = [*workers.step(0, [block(views)], START + 3), *workers.step(0, [], START + 99)]
        events = [event for batch in found for event in batch.to_pylist()]
        assert [(e["score"], e["pairs"]) for e in events] == told


@settings(max_examples=examples(30), deadline=None)
@given(broadcasts() | evenings(), st.data())
def test_live_rows_say_what_would_be_and_change_nothing(
    sent: tuple[list[Match], list[Match]], data: st.DataObject
) -> None:
    """Of any two batches the last provisional rows are what all pairs so far would give."""
    pairs, repeats = sent
    entries = [entry(p, 1) for p in pairs] + [entry(r, 0) for r in repeats]
    arrival = sorted(entries, key=lambda e: e["t"])
    workers = Workers(TopicsJob(replace(CALL, live=True)))
    final, mark = [], START
    for count in data.draw(st.permutations([1, 2, 3, 5, 8, 13, 30])):
        batch, arrival = arrival[:count], arrival[count:]
        if not batch:
            break
        found = [e for some in workers.step(0, [block(batch)], mark) for e in some.to_pylist()]
        final += [e for e in found if not e["provisional"]]
        told = [e for e in entries if e not in arrival]
        all_events = run(told, CALL)[0]
        would = {e["topic"]: e for e in all_events if e["event"] in ("opened", "grew")}
        rows = {e["topic"]: e["members"] for e in all_events if e["event"] == "closed"}
        for event in found:
            if event["provisional"]:
                plain = {**event, "provisional": False, "members": None}
                assert plain == would[event["topic"]]
                assert event["members"] == rows[event["topic"]]
        mark = max(mark, batch[-1]["t"] - data.draw(st.integers(1, 10)))
    for some in workers.step(0, [], START + 1000):
        final += [e for e in some.to_pylist() if not e["provisional"]]
    assert final == run([e for e in entries if e not in arrival], CALL)[0]


def test_the_caption_of_a_topic_is_voted_for_by_its_key_frames() -> None:
    """A reader errs now and then; what is read right once is told, not what is wrong twice."""
    pair = entry(Match(Row("a", "A", 1), Row("b", "B", 2), 0.9), 1)
    lines = [
        ("BR1DGE SHUT IN RIGA", "WEATHER"),
        ("BRIDGE SHUT IN RIGA", "WEATHER"),
        ("BRIDGE SHUT IN R|GA", ""),
    ]
    entries = [
        {**pair, "t": pair["t"] + n, "left": f"a{n}", "right": f"b{n}"}
        | {"left_words": left, "right_words": right}
        for n, (left, right) in enumerate(lines)
    ]
    assert [e["words"] for e in run(entries, CALL)[0]][-1] == "BRIDGE SHUT IN RIGA"
    # A key frame that matches many others is still one.
    again = [
        {**entries[0], "t": pair["t"] + n, "right": f"b{n}", "right_words": "FLOOD IN GHENT"}
        for n in range(3)
    ]
    told = [{**one, "left_words": "MILL FIRE IN TURKU"} for one in again]
    assert [e["words"] for e in run(told, CALL)[0]][-1] == "FLOOD IN GHENT"


def test_a_topic_has_the_concepts_that_its_key_frames_show_most() -> None:
    pair = entry(Match(Row("a", "A", 1), Row("b", "B", 2), 0.9), 1)
    of = [["ship", "water", "sport"], ["water", "ship", "person"], ["food"], []]
    shown = [BETWEEN.join(concepts) for concepts in of]
    entries = [
        {**pair, "t": pair["t"] + n, "right": f"b{n}"}
        | {"left_concepts": shown[0], "right_concepts": shown[n + 1]}
        for n in range(3)
    ]
    events = run(entries, CALL)[0]
    # The first key frame is in all three pairs, and votes once.
    assert [e["concepts"] for e in events] == [
        ["ship", "water", "person"],
        *[["ship", "water", "food"]] * 3,
    ]
    workers = Workers(TopicsJob(CALL))  # each step takes up what the one before has stored
    came = [*workers.step(0, [block(entries)], START + 2), *workers.step(0, [], START + 100)]
    told = [event for batch in came for event in batch.to_pylist()]
    assert [e["concepts"] for e in told if e["event"] == "closed"] == [["ship", "water", "food"]]
    assert run([pair], CALL)[0][-1]["concepts"] is None


@given(st.dictionaries(st.text("ab CD1", max_size=12), st.integers(1, 4), max_size=6))
def test_a_vote_depends_on_the_lines_alone(lines: dict[str, int]) -> None:
    chosen = caption(lines)
    assert chosen == caption(dict(reversed(lines.items())))
    assert chosen in lines if lines else chosen is None
    if lines:
        most = {line: count + 1000 * (line == chosen) for line, count in lines.items()}
        assert caption(most) == chosen


def test_captions_that_agree_make_one_pair_a_topic() -> None:
    call = replace(CALL, alone=None)
    pair = entry(Match(Row("a", "A", 1), Row("b", "B", 2)), 1)
    assert run([pair], call)[0] == []
    said = {**pair, "left_words": "BRIDGE SHUT", "right_words": "bridge shut"}
    opened, closed = run([said], call)[0]
    assert (opened["event"], closed["event"], opened["words"]) == (
        "opened",
        "closed",
        "BRIDGE SHUT",
    )
