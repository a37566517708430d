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
from anabranch.video.channels import Programme, programme
from anabranch.video.clips import fetch
from anabranch.video.planning import Folder, Planner
from anabranch.video.rows import Reading, rows_of
from anabranch.video.scoring import Present, Seen, score_pairs, score_topics
from anabranch.video.shot_kernel import FramePacking, ShotsJob
from anabranch.video.stories import TopicCall, TopicsJob
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


def correlated(
    plan: Programme, keys: list[tuple[Seen, np.ndarray]]
) -> list[tuple[Seen, Seen, float]]:
    """Pairs of different channels, by comparing all with all."""
    lively = [(seen, v / np.linalg.norm(v)) for seen, v in keys if v.any()]
    return [
        (a, b, float(v @ w))
        for a, v in lively
        for b, w in lively
        if a.channel < b.channel and abs(a.t - b.t) <= plan.window and v @ w >= THRESHOLD
    ]


@pytest.mark.services
@pytest.mark.parametrize("seed", [7, 8])
def test_what_channels_have_in_common_is_found(tmp_path: Path, seed: int) -> None:
    installed("av", extra="video")
    plan = programme(seed)
    record(plan, fetch(), tmp_path)
    keys = key_frames(tmp_path)
    pairs = correlated(plan, keys)
    tally = score_pairs(plan, [pair[:2] for pair in pairs])
    assert (tally.false, tally.twice) == (0, 0), tally.wrong
    assert tally.found >= 0.95 * len(plan.pairs), tally.wrong
    call = TopicCall(plan.gap, True, near=plan.near, longest=1 << 60, alone=THRESHOLD)
    topics, present = TopicsJob(call).groups(), Present()
    for a, b, score in sorted(pairs, key=lambda pair: (max(pair[0].t, pair[1].t), pair[:2])):
        where = (a.channel, b.channel, a.t, b.t)
        topics.take_in((max(a.t, b.t), 1, a.id, b.id, *where, score, "", ""))
    topics.close(1 << 62)
    for event in topics.events:
        present.take_in(event)
    told = score_topics(plan, present.rows.values(), {seen.id: seen for seen, _ in keys})
    assert (told.missed, told.false, told.twice) == (0, 0, 0), told.wrong


@pytest.mark.services
def test_the_command_finds_all_and_says_so() -> None:
    installed("av", extra="video")
    command = [sys.executable, "-m", "anabranch.cli.main", "news", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"topics +6 +0 +0 +0", done.stdout), done.stdout
