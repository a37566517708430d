"""The simulated newsroom: its truth is true, its writer whole, its verdict strict."""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import anabranch as ab
from anabranch.spark.demo.broadcast import SECOND, Newsroom, pairs_in_window
from anabranch.spark.demo.verdict import Measured, Streamed, Verdict
from anabranch.spark.demo.writer import LiveWriter
from tests.spark.feeds import happens

SMALL = Newsroom(duration=150, rates=(20, 12), stories=15, seed=3)


@pytest.fixture(scope="module")
def sent():
    return SMALL.broadcast()


# ---------------------------------------------------------------- the newsroom


def test_the_same_seed_broadcasts_the_same(sent):
    again = SMALL.broadcast()
    other = Newsroom(duration=150, rates=(20, 12), stories=15, seed=4).broadcast()
    assert again.stories == sent.stories
    for a, b, c in zip(sent.channels, again.channels, other.channels, strict=True):
        for name in ("id", "t", "arrival", "v"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert a.title == b.title
        assert not np.array_equal(a.t[:50], c.t[:50])


def test_due_stories_are_alike_and_nothing_else_is(sent):
    left, right = sent.channels
    unit = [f.v / np.linalg.norm(f.v, axis=1, keepdims=True) for f in (left, right)]
    cosine = unit[0].astype(np.float64) @ unit[1].T.astype(np.float64)
    near = np.abs(left.t[:, None] - right.t[None, :]) <= SMALL.window * SECOND
    hits = {(int(left.id[i]), int(right.id[j])) for i, j in np.argwhere(near & (cosine >= 0.9))}
    assert hits == sent.due
    assert len(sent.due) == 9
    # What is not a story is far from being one.
    told = [(s.left, s.right) for s in sent.stories]
    rest = cosine[
        ~np.isin(left.id, [a for a, _ in told])[:, None]
        | ~np.isin(right.id, [b for _, b in told])[None, :]
    ]
    assert rest.max() < SMALL.threshold - 0.15


def test_traps_are_too_far_apart_or_too_unlike(sent):
    window = int(SMALL.window * SECOND)
    traps = [story for story in sent.stories if not story.due]
    apart = [story for story in traps if abs(story.gap) > window]
    unlike = [story for story in traps if story.cosine < SMALL.threshold]
    assert len(apart) == len(unlike) == 3 and len(traps) == 6
    assert all(story.cosine > SMALL.threshold for story in apart)
    # The edges of the window: exactly on it is in, a microsecond beyond is out.
    assert abs(sent.stories[0].gap) == window and sent.stories[0].due
    assert abs(sent.stories[1].gap) == window + 1 and not sent.stories[1].due


def test_rows_arrive_out_of_order_but_only_stragglers_late(sent):
    for frames in sent.channels:
        assert 0.1 < frames.out_of_order < 0.3
        assert (np.diff(frames.arrival) >= 0).all()
        assert sorted(frames.id.tolist()) == list(range(len(frames)))
        delay = (frames.arrival - frames.t)[~frames.straggler]
        assert delay.min() >= 0 and delay.max() <= SMALL.late * SECOND / 4
    assert sent.stragglers > 0
    late = {int(i) for i in sent.channels[0].id[sent.channels[0].straggler]}
    assert not late & {story.left for story in sent.stories}


def test_short_broadcasts_have_no_room_for_far_traps():
    short = Newsroom(duration=20, rates=(10, 10), stories=10, seed=1).broadcast()
    assert len(short.due) == 8
    assert short.stragglers == 0


def test_settings_that_make_no_sense_are_refused_together():
    with pytest.raises(ab.errors.InvalidCall) as refused:
        Newsroom(duration=0, stories=-1, threshold=0.99)
    assert len(refused.value.problems) == 3


def test_the_slice_keeps_every_story(sent):
    positions = sent.slice(200)
    for side, (frames, of) in enumerate(zip(sent.channels, positions, strict=True)):
        ids = set(frames.id[of].tolist())
        assert {(s.left, s.right)[side] for s in sent.stories} <= ids
        assert 150 < len(of) < 500
        assert (np.diff(frames.t[of]) >= 0).all()


def test_pairs_in_window_equals_brute_force(sent):
    a, b = (frames.t[:300] for frames in sent.channels)
    brute = int((np.abs(a[:, None] - b[None, :]) <= 10 * SECOND).sum())
    assert pairs_in_window(a, b, 10 * SECOND) == brute


def test_the_writer_sends_every_row_once_and_whole(sent, tmp_path):
    folders = (tmp_path / "left", tmp_path / "right")
    for folder in folders:
        folder.mkdir()
    writer = LiveWriter(sent, folders, speed=300, tick=0.02)
    writer.start()
    happens(lambda: writer.rows > 0)
    assert 0 < writer.rows < sent.rows  # the clock has not begun
    writer.go()
    writer.join(timeout=20)
    assert writer.finished and writer.error is None
    for folder, frames in zip(folders, sent.channels, strict=True):
        files = sorted(folder.iterdir())
        assert len(files) > 3 and not [f for f in files if f.name.startswith(".")]
        ids = np.concatenate([pq.read_table(f)["id"].to_numpy() for f in files])
        np.testing.assert_array_equal(ids, frames.id)


def test_the_writer_begins_with_a_row_however_slow_the_channels(tmp_path):
    slow = Newsroom(duration=30, rates=(0.1, 0.1), stories=0, seed=5).broadcast()
    writer = LiveWriter(slow, (tmp_path, tmp_path), speed=1)
    writer.go()
    writer.start()
    happens(lambda: list(tmp_path.glob("*.parquet")))
    writer.stop()
    assert writer.error is None


def test_the_writer_stops_when_told_and_reports_what_stopped_it(sent, tmp_path):
    writer = LiveWriter(sent, (tmp_path, tmp_path / "missing"), speed=1)
    writer.start()
    writer.stop()
    assert not writer.is_alive() and not writer.finished
    assert isinstance(writer.error, OSError)


# ---------------------------------------------------------------- the verdict


def streamed(sent, **changes):
    due = sorted(sent.due)
    exact = sent.comparisons(SMALL.window, stragglers=True)
    values = {"found": due, "rows": sent.rows, "comparisons": exact, "compared": exact}
    return Streamed(**{**values, "seconds": 2.0, **changes})


def test_the_verdict_tells_good_from_bad(sent):
    due = sorted(sent.due)
    assert Verdict(sent, SMALL.window, streamed(sent)).good
    missed = Verdict(sent, SMALL.window, streamed(sent, found=due[1:]))
    assert not missed.good and missed.missed == {due[0]}
    false = Verdict(sent, SMALL.window, streamed(sent, found=[*due, (0, 0)]))
    assert not false.good and false.false == {(0, 0)}
    twice = Verdict(sent, SMALL.window, streamed(sent, found=[*due, due[0]]))
    assert not twice.good and twice.twice == 1
    lost = Verdict(sent, SMALL.window, streamed(sent, comparisons=17))
    assert not lost.good and lost.compared_once is False


def test_the_verdict_checks_comparisons_only_when_lateness_is_certain(sent):
    none = sent.comparisons(SMALL.window, stragglers=False)
    all_late = streamed(sent, late=sent.stragglers, comparisons=none)
    assert Verdict(sent, SMALL.window, all_late).compared_once is True
    some_late = Verdict(sent, SMALL.window, streamed(sent, late=sent.stragglers + 1))
    assert some_late.compared_once is None and some_late.good


def test_the_verdict_holds_the_other_join_against_ours(sent):
    a, b = sorted(sent.due)[0]
    ids = (frozenset({a}), frozenset({b}))
    same = Measured(2, 100, 4.0, {(a, b)}, ids, complete=True)
    differs = Measured(2, 100, 4.0, set(), ids, complete=True)
    good = Verdict(sent, SMALL.window, streamed(sent), same)
    assert good.good and good.join_rate == 25
    assert not Verdict(sent, SMALL.window, streamed(sent), differs).good
    console = Console(file=io.StringIO(), width=100)
    console.print(good)
    assert f"{good.rate / 25:,.0f} times as many" in console.file.getvalue()
