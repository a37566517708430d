"""The score: all that is due and no more is good; a trap, a double or a mixture is not."""

from __future__ import annotations

from anabranch.video.channels import Programme, Shot, programme
from anabranch.video.scoring import Seen, score_pairs, score_topics

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
    trap = next(
        (a, b) for a, b in PLAN.same_footage if (a, b) not in PLAN.pairs and not _spoilt(PLAN, a, b)
    )
    tally = score_pairs(PLAN, [*ALL[1:], ALL[1], (seen(trap[0]), seen(trap[1]))])
    assert (tally.missed, tally.false, tally.twice, tally.good) == (1, 1, 1, False)
    assert [line.split(":")[0] for line in tally.wrong] == ["false", "missed"]


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


def _spoilt(plan: Programme, *shots: Shot) -> bool:
    return any(plan.spoilt(shot) for shot in shots)


def test_a_key_frame_of_no_shot_is_false() -> None:
    nowhere = Seen("x", "north", 0)
    assert score_pairs(PLAN, [(nowhere, ALL[0][0])]).false == 1
    assert score_pairs(PLAN, []).missed == len(PLAN.pairs)
