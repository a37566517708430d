"""The whole story, from frames to topics, killed twenty times: both tables are as if it was not.

::

    frames -> shots -> archive -> correlate -> topics -> sink
          ^                   ^            ^         ^      ^
        frames              keys         pairs    driver  driver, when its rows are written

Moments are drawn from a seed: a micro-batch, a point of it, and what is killed there, the driver or
the Python processes of all tasks.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.spark.processes import driver, newest
from tests.video.films import scene, segmented

SEGMENT, SEGMENTS = 50, 24  # frames; micro-batches have one segment of each channel
STORY, OWN = (35, 40, 30), 200  # frames of its shots, and of what a channel shows between stories
KINDS = {"driver": 6, "worker": 14}
POINTS = {"driver": ("computed", "written"), "worker": ("frames", "keys", "pairs")}


class Moment(NamedTuple):
    """When to kill what: at this point of that micro-batch."""

    batch: int
    kind: str
    point: str


def moments(seed: int) -> list[Moment]:
    """Twenty of them in their order, no two in one micro-batch."""
    draw = random.Random(seed)
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    draw.shuffle(kinds)
    batches = sorted(draw.sample(range(SEGMENTS), len(kinds)))
    return [
        Moment(batch, kind, draw.choice(POINTS[kind]))
        for batch, kind in zip(batches, kinds, strict=True)
    ]


def on_air(folder: Path) -> None:
    """Two channels that have three stories in common, the second one a second later."""
    for n, name in enumerate(("north", "south")):
        frames: list[Any] = scene(900 + n, 20 + 25 * n)
        for story in range(5):
            shots = enumerate(STORY) if story < 4 else ()
            frames += [frame for k, count in shots for frame in scene(10 * story + k, count)]
            frames += scene(100 * (n + 1) + story, OWN)
        assert len(frames) >= SEGMENT * SEGMENTS
        cuts = tuple(range(SEGMENT, SEGMENT * SEGMENTS, SEGMENT))
        segmented(folder / name, frames[: SEGMENT * SEGMENTS], cuts)


def tables(spark: Any, folder: Path) -> tuple[list[str], list[str]]:
    """Key frames and final events of topics, as rows."""
    keys = spark.read.parquet(str(folder / "keyframes"))
    events = spark.read.parquet(str(folder / "out")).filter("NOT provisional")
    return tuple(sorted(map(str, of.collect())) for of in (keys, events))  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_twenty_kills_at_random_moments_change_neither_key_frames_nor_topics(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    on_air(tmp_path / "channels")
    calm, struck = tmp_path / "calm", tmp_path / "struck"
    for folder in (calm, struck):
        folder.mkdir()
        (folder / "channels").symlink_to(tmp_path / "channels")
    call = ("--what", "news")
    with driver(calm, *call, script="video_driver.py") as only:
        only.finish()
    want = tables(spark, calm)
    assert len(want[0]) > 20 and sum("event='closed'" in row for row in want[1]) >= 3

    drawn = moments(seed)
    strikes = [f"{m.kind}:{m.point}:{m.batch}" for m in drawn if m.kind != "driver"]
    # A task is tried again, as it is on a cluster; executors are killed in other stories.
    lost = ("--master", "local[2,4]", "--strike", ",".join(strikes))
    for moment in drawn:
        if moment.kind == "driver":
            held = ("--hold", str(moment.batch), *(["--written"] * (moment.point == "written")))
            with driver(struck, *call, *lost, *held, script="video_driver.py") as run:
                run.kill_when_held()
            assert newest(struck, "offsets") == moment.batch
    with driver(struck, *call, *lost, script="video_driver.py") as last:
        last.finish()
    killed = {path.name for path in struck.glob("killed-*")}
    assert killed == {f"killed-{m.kind}-{m.batch}" for m in drawn if m.kind != "driver"}
    assert len(drawn) == 20
    assert tables(spark, struck) == want


def test_moments_are_drawn_from_the_seed() -> None:
    assert moments(1) == moments(1) != moments(2)
    for seed in (1, 2):
        assert {(m.kind, m.point) for m in moments(seed)} >= {("driver", "computed")}
        assert len({m.batch for m in moments(seed)}) == 20
