"""The score: all that is due and no more is good; a trap, a double or a mixture is not."""

from __future__ import annotations

from typing import Any

from anabranch.video.channels import ADVERT, Programme, Shot, programme
from anabranch.video.scoring import (
    Present,
    Seen,
    Tally,
    Verdict,
    percentile,
    score_pairs,
    score_shots,
    score_topics,
    so_far,
)

PLAN = programme(3)


def seen(shot: Shot) -> Seen:
    return Seen(f"{shot.channel}/{shot.begin}", shot.channel, shot.begin + 40_000)


ALL = [(seen(b), seen(a)) for a, b in PLAN.pairs]
KEYS = {one.id: one for pair in ALL for one in pair}
TOPICS = [{seen(shot).id for pair in topic for shot in pair} for topic in PLAN.topics]


def test_what_is_due_is_found() -> None:
    tally = score_pairs(PLAN, ALL)
    assert (tally.found, tally.missed, tally.false, tally.twice) == (len(PLAN.pairs), 0, 0, 0)
    tally = score_topics(PLAN, TOPICS, KEYS)
    assert (tally.found, tally.missed, tally.false, tally.twice) == (len(PLAN.topics), 0, 0, 0)


def test_what_is_missing_false_or_twice_is_counted() -> None:
    trap = next((a, b) for a, b in PLAN.same_footage if (a, b) in PLAN.far)
    tally = score_pairs(PLAN, [*ALL[1:], ALL[1], (seen(trap[0]), seen(trap[1]))])
    assert (tally.missed, tally.false, tally.twice, tally.good) == (1, 1, 1, False)
    assert [line.split(":")[0] for line in tally.wrong] == ["false", "missed"]


def test_far_pairs_are_false_and_ruined_ones_are_counted_apart() -> None:
    far = min(PLAN.far, key=lambda pair: pair[0].begin)
    tally = score_pairs(PLAN, [*ALL, tuple(map(seen, far))])  # type: ignore[list-item]
    assert (tally.false, tally.apart) == (1, 0)
    ruined = min(PLAN.ruined, key=lambda pair: pair[0].begin)
    tally = score_pairs(PLAN, [*ALL, tuple(map(seen, ruined))])  # type: ignore[list-item]
    assert (tally.found, tally.false, tally.apart, tally.good) == (len(ALL), 0, 1, True)
    keys = {**KEYS, **{one.id: one for one in map(seen, (*far, *ruined))}}
    topics = score_topics(PLAN, [*TOPICS, {seen(shot).id for shot in ruined}], keys)
    assert (topics.false, topics.apart, topics.missed) == (0, 1, 0)
    topics = score_topics(PLAN, [*TOPICS, {seen(shot).id for shot in far}], keys)
    assert (topics.false, topics.apart) == (1, 0)


def test_the_page_says_how_good_it_is_so_far() -> None:
    ordered = sorted(PLAN.pairs, key=lambda pair: max(shot.begin for shot in pair))
    now = max(shot.begin for shot in ordered[3])
    due = sum(max(shot.begin for shot in pair) <= now for pair in ordered)
    found = [(seen(a), seen(b)) for a, b in ordered[:3]]
    said = so_far(PLAN, found, now)
    assert said == (
        f"pairs so far: 3 found of {due} that are due, recall {3 / due:.2f}, precision 1.00"
    )
    (far, *_) = PLAN.far
    false = (seen(far[0]), seen(far[1]))
    assert so_far(PLAN, [*found, false], now).endswith("precision 0.75")
    # What is found before all of its segments are said to be there does not count twice.
    assert so_far(PLAN, ALL, now).startswith(f"pairs so far: {due} found of {due} that are due")


def test_topics_that_are_mixed_or_told_twice_are_counted() -> None:
    mixed = score_topics(PLAN, [TOPICS[0] | TOPICS[1], *TOPICS[2:]], KEYS)
    assert mixed.false == 1 and mixed.missed == 0
    twice = score_topics(PLAN, [*TOPICS, TOPICS[0]], KEYS)
    assert (twice.twice, twice.false) == (1, 0)
    assert score_topics(PLAN, TOPICS[1:], KEYS).missed == 1


def test_what_lies_in_a_damaged_segment_counts_for_nothing() -> None:
    shot = min(PLAN.pairs, key=lambda pair: pair[0].begin)[0]
    number = (shot.begin - PLAN.of(shot.channel)[0].begin) // 2_000_000
    plan = Programme(PLAN.shots, PLAN.window, PLAN.near, PLAN.gap, damaged=(shot.channel, number))
    assert all(shot not in pair for pair in plan.pairs)
    assert score_pairs(plan, ALL).false == 0


def test_a_key_frame_of_no_shot_is_false() -> None:
    nowhere = Seen("x", "north", 0)
    assert score_pairs(PLAN, [(nowhere, ALL[0][0])]).false == 1
    assert score_pairs(PLAN, []).missed == len(PLAN.pairs)


def test_an_advert_is_no_topic() -> None:
    spots = [shot for shot in PLAN.shots if shot.scene == ADVERT[0]]
    assert [shot.channel for shot in spots] == ["north", "north", "south"]
    assert score_pairs(PLAN, [(seen(spots[1]), seen(spots[2]))]).false == 1


def test_each_shot_has_one_key_frame() -> None:
    due = [shot for shot in PLAN.shots if shot.scene != "black" and not PLAN.spoilt(shot)]
    keys = [seen(shot) for shot in PLAN.shots if shot.scene != "black"]
    tally = score_shots(PLAN, keys)
    assert (tally.found, tally.missed, tally.false, tally.twice) == (len(due), 0, 0, 0)
    nowhere = Seen("x", "north", 0)
    again = seen(due[0])._replace(id="y")
    tally = score_shots(PLAN, [nowhere, again, *(seen(shot) for shot in due[:-1])])
    assert (tally.found, tally.missed, tally.false, tally.twice) == (len(due) - 1, 1, 1, 1)
    assert [line.partition(":")[0] for line in tally.wrong] == ["2 key frames", "missed"]


def test_a_run_that_misses_everything_is_not_good() -> None:
    nothing = Verdict(score_shots(PLAN, []), score_pairs(PLAN, []), score_topics(PLAN, [], {}))
    shots, topics, pairs = nothing.problems
    assert shots == "0.00 of the shots found, 0 false"
    assert topics == f"{len(PLAN.topics)} of the topics that are due were missed"
    assert pairs == "0.00 of the pairs found, not 0.95"


def test_what_makes_a_run_good_enough() -> None:
    good = Tally(found=20)
    for tally, which, problem in (
        (Tally(found=19, missed=1), "pairs", ""),
        (Tally(found=18, missed=2), "pairs", "0.90 of the pairs found, not 0.95"),
        (Tally(found=19, missed=1), "topics", "1 of the topics that are due were missed"),
        (Tally(found=20, false=1), "pairs", "1 pairs false, 0 there twice"),
        (Tally(found=20, twice=2), "topics", "0 topics false, 2 there twice"),
        (Tally(found=99, missed=1, twice=3), "shots", ""),
        (Tally(found=97, missed=3), "shots", "0.97 of the shots found, 0 false"),
        (Tally(found=99, false=1), "shots", "1.00 of the shots found, 1 false"),
    ):
        of = {"shots": good, "pairs": good, "topics": good, which: tally}
        assert Verdict(**of).problems == [problem] * bool(problem)


def test_a_verdict_tells_how_long_it_took() -> None:
    waited = [*(n / 10 for n in range(1, 41))]
    told = Verdict(Tally(), Tally(), Tally(), waited, [7.0]).to_dict()
    assert told["latency_from_frame_seconds"] == {"count": 1, "median": 7, "p95": 7, "most": 7}
    assert told["latency_seconds"] == {"count": 40, "median": 2.0, "p95": 3.8, "most": 4.0}
    assert told["problems"] == [] and told["pairs"]["found"] == 0
    assert Verdict(Tally(), Tally(), Tally()).to_dict()["latency_seconds"] == {"count": 0}
    assert percentile([5.0], 95) == percentile([5.0], 50) == 5.0


def provisional(topic: str, ts: int, members: str) -> dict[str, Any]:
    return {"topic": topic, "ts": ts, "members": [*members], "into": None}


def test_the_page_shows_what_is_foreseen_beside_what_is_final() -> None:
    present = Present()
    event = {"event": "opened", "best_left_id": "a", "best_right_id": "b", "into": None}
    present.take_in({**event, "topic": "a|b", "ts": 10, "left_id": "a", "right_id": "b"})
    came = [
        provisional("x|y", 10, "xy"),  # it has been decided since, and is nothing
        provisional("a|b", 12, "abc"),  # more of a final one
        provisional("u|v", 13, "uv"),
        provisional("t|u", 13, "tuv"),  # an earlier pair came later, and names it anew
        provisional("a|b", 14, "abd"),
    ]
    shown = present.foreseen(came)
    assert shown.rows == {"a|b": {*"abcd"}, "t|u": {*"tuv"}}
    assert shown.latest == {"a|b": present.latest["a|b"], "t|u": came[3]}
    assert present.rows == {"a|b": {"a", "b"}}, "what is final stays as it is"
    assert Present().foreseen(came).rows["x|y"] == {"x", "y"}
