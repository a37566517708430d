"""Made-up channels: timetables whose truth is in no doubt, and segments that hold what they say."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from anabranch.video.channels import (
    ADVERT,
    AGAIN,
    BEGIN,
    FAR,
    SCENES,
    SECOND,
    STYLES,
    Programme,
    Shot,
    programme,
)
from anabranch.video.studio import record, segment_name
from anabranch.video.truth import truth


@pytest.mark.parametrize("seed", range(4))
def test_a_timetable_has_stories_and_traps(seed: int) -> None:
    plan = programme(seed)
    for style in STYLES:
        shots = plan.of(style.channel)
        assert shots[0].begin == BEGIN + style.begin * SECOND
        assert all(a.end == b.begin for a, b in pairwise(shots))
        assert all(1.3 * SECOND < s.end - s.begin <= 6 * SECOND for s in shots)
        assert all(
            s.lead + (s.end - s.begin) / SECOND <= SCENES[s.scene].end
            for s in shots
            if s.scene in SCENES
        )
    assert len(plan.pairs) > 10 and len(plan.topics) > 2
    told = [pair for topic in plan.topics for pair in topic]
    assert len(told) == len(plan.pairs) and set(told) == plan.pairs
    assert {"ident", "black", "card"} <= {shot.scene for shot in plan.shots}
    spots = [shot for shot in plan.shots if shot.scene in ADVERT]
    first, again, other = (spots[n : n + len(ADVERT)] for n in range(0, len(spots), len(ADVERT)))
    apart = {b.begin - a.begin for a, b in zip(first, again, strict=True)}
    assert len(apart) == 1 and max(apart) <= AGAIN  # as long after, so it is known as an advert
    assert again[-1].end < other[0].begin < again[0].begin + plan.window
    assert not any(plan.spoilt(shot) for shot in spots)
    assert "phone" not in plan.clips  # it states no licence
    assert min(abs(abs(a.begin - b.begin) - plan.window) for a, b in plan.same_footage) >= SECOND


@pytest.mark.parametrize("seed", range(12))
def test_a_timetable_has_a_far_pair_and_a_ruined_one(seed: int) -> None:
    plan = programme(seed)
    assert any(pair[0].scene == pair[1].scene == FAR for pair in plan.far)
    assert not plan.far & plan.pairs and not plan.ruined & plan.pairs
    assert all(abs(a.begin - b.begin) >= plan.window + SECOND for a, b in plan.far)
    assert sum(shot.ruined for shot in plan.shots) == 1 and plan.ruined
    told = truth(plan)
    pairs = {name: len(told[name]) for name in ("due", "far", "ruined")}
    assert pairs == {"due": len(plan.pairs), "far": len(plan.far), "ruined": len(plan.ruined)}
    for n, m in told["ruined"]:
        assert "ruined" in told["shots"][n]["done"] + told["shots"][m]["done"]
    for n, m in told["far"]:
        assert abs(told["shots"][n]["begin"] - told["shots"][m]["begin"]) > told["window"]
    assert json.loads(json.dumps(told)) == told
    assert not programme(seed, 60).far, "it is too short for that"


def test_what_a_channel_shows_at_a_time() -> None:
    plan = programme(1)
    shot = plan.of("south")[4]
    assert plan.at("south", shot.begin) == plan.at("south", shot.end - SECOND // 10) == shot
    assert plan.at("south", BEGIN - SECOND) is None


def test_segments_hold_what_the_timetable_says(tmp_path: Path) -> None:
    """Idents and black alone, so that nothing must be fetched."""
    av = pytest.importorskip("av")
    shots = [
        Shot(style.channel, BEGIN + n * SECOND, BEGIN + (n + 1) * SECOND, scene)
        for style in STYLES
        for n, scene in enumerate(("ident", "black", "card", "ident", "black"))
    ]
    plan = Programme(tuple(shots), 0, 0, 0, damaged=("north", 1), missing=("west", 0))
    got = record(plan, {}, tmp_path)
    names = [segment_name(BEGIN + n * 2 * SECOND) for n in range(3)]
    assert [path.name for path in got["south"]] == names
    assert [path.name for path in got["west"]] == names[1:]
    for style in STYLES:
        for path in got[style.channel]:
            if path == got["north"][1]:
                continue
            begin = names.index(path.name) * 2
            with av.open(str(path)) as film:
                frames = [f.to_ndarray()[: style.size[1]] for f in film.decode(video=0)]
            assert len(frames) == style.rate * (1 if begin == 4 else 2)
            for n, luma in enumerate(frames):
                assert luma.shape == style.size[::-1]
                assert (np.median(luma) < 20) == (begin + n // style.rate in (1, 4))
    damaged = got["north"][1]
    whole = damaged.read_bytes()
    record(Programme(tuple(shots), 0, 0, 0), {}, tmp_path / "again")
    again = (tmp_path / "again/north" / damaged.name).read_bytes()
    assert len(again) == len(whole) and again != whole
