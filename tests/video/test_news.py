"""The news: what three channels of real footage have in common is found, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from anabranch.flow.blocks import Block
from anabranch.testing.workers import Workers
from anabranch.video.channels import AGAIN, SECOND, Programme, programme
from anabranch.video.clips import fetch
from anabranch.video.planning import Folder, Planner
from anabranch.video.rows import Reading, rows_of
from anabranch.video.scoring import Present, Seen, score_pairs, score_shots, score_topics
from anabranch.video.shot_kernel import FramePacking, ShotsJob
from anabranch.video.stories import TopicCall, Topics, TopicsJob
from anabranch.video.studio import record
from tests.sinks.stories import installed

THRESHOLD = 0.6


def key_frames(folder: Path) -> list[tuple[Seen, np.ndarray]]:
    """Key frames of all channels, segment by segment, without Spark."""
    planner = Planner(Folder(str(folder), closed="all"))
    workers, packing, found = Workers(ShotsJob(10_000_000)), FramePacking(1), []
    for planned in planner.between({}, planner.latest({})):
        for batch in rows_of(planned, Reading(picture=None)):
            rows = batch.filter(batch.column("id").is_valid())
            t = rows.column("ts").cast(pa.int64())
            named = pa.RecordBatch.from_arrays([t, *rows.columns], ["t", *rows.schema.names])
            blocks = [Block.decode(cell) for cell in packing.pack(named, None).cells.values()]
            for keys in workers.step(0, blocks, 0):
                found += [
                    (
                        Seen(row["id"], row["channel"], int(row["ts"].timestamp() * 1e6)),
                        np.array(row["features"]),
                    )
                    for row in keys.to_pylist()
                ]
    return found


Pair = tuple[Seen, Seen, float]


def correlated(
    plan: Programme, keys: list[tuple[Seen, np.ndarray]]
) -> tuple[list[Pair], list[Pair]]:
    """Pairs of different channels and of the same one, by comparing all with all."""
    lively = [(seen, v / np.linalg.norm(v)) for seen, v in keys if v.any()]
    alike = [
        (a, b, float(v @ w)) for a, v in lively for b, w in lively if a < b and v @ w >= THRESHOLD
    ]
    far = [(abs(a.t - b.t), a.channel == b.channel) for a, b, _ in alike]
    pairs = [p for p, (t, same) in zip(alike, far, strict=True) if not same and t <= plan.window]
    return pairs, [p for p, (t, same) in zip(alike, far, strict=True) if same and t <= AGAIN]


def told(plan: Programme, pairs: list[Pair], repeats: list[Pair]) -> Topics:
    """Topics of pairs, without what is repeated."""
    job = TopicsJob(
        TopicCall(
            *(plan.gap, True),
            **{"near": plan.near, "longest": 1 << 60, "alone": THRESHOLD},
            **{"repeating": 600 * SECOND, "equal": SECOND, "span": 60 * SECOND},
        )
    ).groups()
    both = [(1, *pair) for pair in pairs] + [(0, *pair) for pair in repeats]
    for counts, a, b, score in sorted(both, key=lambda one: (max(one[1].t, one[2].t), one[:3])):
        where = (a.channel, b.channel, a.t, b.t)
        job.take_in((max(a.t, b.t), counts, a.id, b.id, *where, score, *4 * [""]))
    job.close(1 << 62)
    return job


@pytest.mark.services
@pytest.mark.parametrize("seed", [7, 8, 9])
def test_what_channels_have_in_common_is_found(tmp_path: Path, seed: int) -> None:
    installed("av", extra="video")
    plan = programme(seed)
    record(plan, fetch(), tmp_path)
    keys = key_frames(tmp_path)
    shots = score_shots(plan, [seen for seen, _ in keys])
    assert (shots.missed, shots.false) == (0, 0) and shots.twice < 5, shots.wrong
    pairs, repeats = correlated(plan, keys)
    topics, present = told(plan, pairs, repeats), Present()
    for event in topics.events:
        present.take_in(event)
    seen = {one.id: one for one, _ in keys}
    found = [
        (seen[event["left_id"]], seen[event["right_id"]])
        for event in topics.events
        if event["event"] in ("opened", "grew")
    ]
    tally = score_pairs(plan, found)
    assert (tally.false, tally.twice) == (0, 0), tally.wrong
    assert tally.found >= 0.95 * len(plan.pairs), tally.wrong
    verdict = score_topics(plan, present.rows.values(), seen)
    assert (verdict.missed, verdict.false, verdict.twice) == (0, 0, 0), verdict.wrong
    # Without repetitions the advert is a topic; of its shots, gravel and the like do not match.
    assert set(topics.dropped) == {"advert"} and topics.dropped["advert"] >= 4
    assert score_pairs(plan, [pair[:2] for pair in pairs]).false == topics.dropped["advert"]


@pytest.mark.services
def test_the_command_finds_all_and_says_so() -> None:
    installed("av", extra="video")
    command = [sys.executable, "-m", "anabranch.cli.main", "news", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"topics +6 +0 +0 +0", done.stdout), done.stdout
