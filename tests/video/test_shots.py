"""Shots: any cutting into segments, any batching and any restart give those of one pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import BadRow, StateMismatch
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Task, check_settings
from anabranch.flow.slices import Slices
from anabranch.video.cutting import Cutter
from anabranch.video.planes import from_rgb
from anabranch.video.rows import ROWS
from anabranch.video.shot_kernel import FramePacking, ShotKernel, ShotsJob
from anabranch.video.signature import BYTES, signature
from tests.examples import examples
from tests.video import shot_twin
from tests.video.films import film, scene

FRAME = 40_000


def dissolve(one: Any, other: Any, count: int) -> list[np.ndarray]:
    shares = [(k + 1) / (count + 1) for k in range(count)]
    return [
        (a * (1 - share) + b * share).astype(np.uint8)
        for share, a, b in zip(shares, one, other, strict=False)
    ]


def faded(frames: Any) -> list[np.ndarray]:
    count = len(frames)
    return [(frame * (k / count)).astype(np.uint8) for k, frame in enumerate(frames)]


def story() -> list[np.ndarray]:
    """Cuts, a flash, a dissolve, a fade through black, and a long still."""
    first, second, third, fourth = (scene(n, 60) for n in range(4))
    flash = np.clip(first[30].astype(int) + 110, 0, 255).astype(np.uint8)
    frames = [*first[:30], flash, *first[31:50], *second[:40]]
    frames += [*dissolve(second[40:52], third[:12], 12), *third[12:50]]
    frames += [*faded(third[50:58])[::-1], *faded(fourth[:8]), *fourth[8:40]]
    return frames + [fourth[40]] * 80


FRAMES = story()
SIGS = [signature(from_rgb(frame)) for frame in FRAMES]


def told(frames: list[np.ndarray]) -> list[tuple[int, str]]:
    sigs = [signature(from_rgb(frame)) for frame in frames]
    times = [n * FRAME for n in range(len(sigs))]
    anchors = [time % 1_000_000 == 0 for time in times]
    return [
        (t, how) for t, how, _ in shot_twin.key_frames(sigs, times, [0] * len(sigs), anchors, 10**7)
    ]


def test_a_story_has_the_shots_that_it_was_made_of() -> None:
    found = told(FRAMES)
    assert [how for _, how in found] == ["start", "cut", "gradual", "fade"]
    places = [place for place, _ in found]
    assert places[:2] == [0, 50]  # and no flash at 30
    assert 100 <= places[2] <= 127 and 148 <= places[3] <= 190


def test_a_still_channel_has_key_frames_too() -> None:
    still = [scene(1, 1)[0]] * 1000
    assert told(still) == [(0, "start"), (250, "longest"), (500, "longest"), (750, "longest")]


def test_films_of_cuts_are_found_completely() -> None:
    lengths = [20, 33, 41, 25, 60, 30]
    cuts = np.cumsum(lengths)[:-1].tolist()
    found = told(film(lengths, seed=3))
    assert [place for place, how in found if how == "cut"] == cuts


# ---------------------------------------------------------------- laws


@st.composite
def channels(draw: st.DrawFn) -> tuple[list[bytes], list[int], list[int], list[bool]]:
    """Frames out of the story in stretches, with gaps and turns of the run between them."""
    sigs: list[bytes] = []
    times: list[int] = []
    runs: list[int] = []
    run, time = 0, draw(st.integers(0, 10**12))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(SIGS) - 1))
        count = draw(st.integers(1, 90))
        part = SIGS[begin : begin + count]
        sigs += part
        times += [time + n * FRAME for n in range(len(part))]
        runs += [run] * len(part)
        time = times[-1] + draw(st.sampled_from([FRAME, 1_000_000, 1_000_001, 5_000_000]))
        run += draw(st.sampled_from([0, 0, 1, 1000]))
    anchors = [time // 1_000_000 != (time - FRAME) // 1_000_000 for time in times]
    return sigs, times, runs, anchors


@settings(max_examples=examples(20))
@given(channels(), st.data())
def test_any_batching_gives_the_key_frames_of_one_pass(channel: Any, data: st.DataObject) -> None:
    sigs, times, runs, anchors = channel
    longest = data.draw(st.sampled_from([10**6, 3 * 10**6, 10**7]))
    want = shot_twin.key_frames(sigs, times, runs, anchors, longest)
    cutter = Cutter(longest)
    matrix = np.frombuffer(b"".join(sigs), np.uint8).reshape(-1, 320)
    cuts = data.draw(st.sets(st.integers(1, len(sigs)), max_size=8))
    edges = sorted({0, *cuts, len(sigs)})
    found = []
    for begin, end in pairwise(edges):
        part = slice(begin, end)
        arrays = (np.array(each[part]) for each in (times, runs, anchors))
        rows = list(range(begin, end))
        found += cutter.take(matrix[part], *arrays, rows, final=end == len(sigs))
    assert [(one.row, one.reason, one.began) for one in found] == want


def test_the_law_catches_a_cold_start_with_each_segment() -> None:
    """A segment that begins in a dissolve, or just before a cut, needs what came before it."""
    matrix = np.frombuffer(b"".join(SIGS), np.uint8).reshape(-1, 320)
    times = np.arange(len(SIGS)) * FRAME
    anchors, runs = times % 1_000_000 == 0, np.zeros(len(SIGS), int)
    edges = [0, *range(25, len(SIGS), 50), len(SIGS)]

    def parts(fresh: bool) -> list[tuple[int, str]]:
        cutter, found = Cutter(10**7), []
        for begin, end in pairwise(edges):
            cutter = Cutter(10**7) if fresh else cutter
            part = slice(begin, end)
            given = (matrix[part], times[part], runs[part], anchors[part])
            last = fresh or end == len(SIGS)
            found += cutter.take(*given, list(range(begin, end)), final=last)
        return [(one.row, one.reason) for one in found]

    assert parts(fresh=False) == told(FRAMES)
    cold = parts(fresh=True)
    assert {how for _, how in cold} >= {"start"} and cold != told(FRAMES)
    assert sum(how == "start" for _, how in cold) > 2  # a key frame for nothing, with each


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def rows_of(name: str, channel: Any, cuts: list[int]) -> pa.RecordBatch:
    """The rows of a channel that was cut into segments before these frames."""
    sigs, times, runs, anchors = channel
    columns: dict[str, Any] = {field.name: [None] * len(sigs) for field in ROWS}
    columns |= {"sig": sigs, "run": runs, "anchor": anchors, "channel": [name] * len(sigs)}
    columns["segment"] = [f"{sum(cut <= n for cut in cuts):04d}.ts" for n in range(len(sigs))]
    columns["id"] = [f"{name}/{n}" for n in range(len(sigs))]
    columns["features"] = [[float(n)] for n in range(len(sigs))]
    arrays = {field.name: pa.array(columns[field.name], field.type) for field in ROWS}
    return pa.RecordBatch.from_pydict({**arrays, "t": pa.array(times)})


@pytest.mark.parametrize("name", ["t", "channel"])
def test_a_frame_without_time_or_channel_is_named(name: str) -> None:
    sigs = [bytes(BYTES)] * 3
    rows = rows_of("a", (sigs, [1, 2, 3], [0, 0, 0], [True, False, False]), [])
    place = rows.schema.get_field_index(name)
    values = rows.column(name).to_pylist()
    column = pa.array([*values[:2], None], rows.column(name).type)
    bad = rows.set_column(place, name, column)
    with pytest.raises(BadRow, match=r"^frame 'a/2': its (time|channel) is null; repair the input"):
        FramePacking(2).pack(bad, None)


@settings(max_examples=examples(6))
@given(channels(), channels(), st.data())
def test_a_worker_that_is_stored_and_shuffled_gives_the_same(
    one: Any, other: Any, data: st.DataObject
) -> None:
    """Rows of a batch in any order, workers restored or living on, channels side by side."""
    both = {"north": one, "south": other}
    job = ShotsJob(3 * 10**6)
    want = {
        (f"{name}/{row}", how, began)
        for name, channel in both.items()
        for row, how, began in shot_twin.key_frames(*channel, job.longest)
    }
    steps: dict[int, list[pa.RecordBatch]] = {}
    for name, channel in both.items():
        cuts = sorted(data.draw(st.sets(st.integers(1, len(channel[0])), max_size=5)))
        rows = rows_of(name, channel, cuts)
        batches = data.draw(
            st.lists(st.integers(0, 3), min_size=len(cuts) + 1, max_size=len(cuts) + 1)
        )
        edges = [0, *cuts, len(channel[0])]
        for begin, end, batch in zip(edges, edges[1:], sorted(batches), strict=False):
            steps.setdefault(batch, []).append(rows.slice(begin, end - begin))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    packing = FramePacking(1)
    kernel = job.kernel(Slices(job.stays, job.notes()), Task(0))
    found = []
    for number in sorted(steps):
        blocks = []
        for rows in steps[number]:
            if rows.num_rows:
                shuffled = rows.take(pa.array(random.permutation(rows.num_rows)))
                blocks.append(Block.decode(packing.pack(shuffled, None).cells[0]))
        order = random.permutation(len(blocks))
        found += list(kernel.step([blocks[n] for n in order], 0, last=number == max(steps)))
        stored = kernel.snapshot()
        if stored is not None and data.draw(st.booleans()):
            kernel = job.kernel(Slices(job.stays, job.notes()), Task(0))
            kernel.restore(stored)
    rows_found = [row for batch in found for row in batch.to_pylist()]
    got = [(row["id"], row["reason"], us(row["began"])) for row in rows_found]
    assert set(got) == want and len(got) == len(want)
    assert all(row["features"] == [float(row["id"].partition("/")[2])] for row in rows_found)


def test_a_worker_holds_little() -> None:
    kernel = ShotKernel(10**7, Slices((0,), ShotsJob(1).notes()))
    times = [n * FRAME for n in range(len(SIGS))]
    channel = (SIGS, times, [0] * len(SIGS), [False] * len(SIGS))
    list(
        kernel.step(
            [Block.decode(FramePacking(1).pack(rows_of("a", channel, []), None).cells[0])], 0
        )
    )
    assert kernel.load.rows_left == len(SIGS)
    assert kernel.load.pairs == len(shot_twin.key_frames(*channel, 10**7)) >= 2
    assert kernel.load.state_rows <= 24
    stored = kernel.snapshot()
    assert stored is not None and len(stored) < 20_000
    assert kernel.snapshot() is None and kernel.due() is None


def test_other_rules_are_rejected() -> None:
    with pytest.raises(StateMismatch, match="begun with longest='10 seconds', and the call now"):
        check_settings(ShotsJob(10**7).settings, ShotsJob(5 * 10**6).settings)
    assert ShotsJob(1).settings["layout"] == "v3"
