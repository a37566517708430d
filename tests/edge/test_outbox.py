"""The outbox keeps what it said it has kept, whole transactions and no more."""

from __future__ import annotations

import random
import resource
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("msgpack", reason="pip install 'anabranch[edge]'")

from anabranch.edge import outbox as module
from anabranch.edge.agent_state import Effects
from anabranch.edge.outbox import Outbox, OutboxFull
from anabranch.edge.own_stream import Row
from anabranch.edge.sections import Results
from anabranch.errors import AnabranchError, StateMismatch

WRITER = Path(__file__).with_name("outbox_writer.py")


def row(n: int, t: int = 0, stamp: int | None = 1, stream: str = "gps") -> Row:
    return Row(stream, n, t, stamp, {"x": n / 2})


def rows_of(box: Outbox) -> list[int]:
    return [found.n for found in box.load()[1]]


def frames_of(box: Outbox) -> list[int]:
    return [number for number, _ in box.frames()]


def killed(folder: Path, points: list[tuple[str, int]]) -> None:
    """A writer is killed at these points, and nothing that it said is missing.

    It kills itself, or is killed as soon as it has ``said`` so many things.
    """
    incarnations, told = set(), -5
    for point, number in points:
        own = [] if point == "said" else [point, str(number)]
        run = subprocess.Popen(
            [sys.executable, str(WRITER), str(folder), *own],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert run.stdout is not None
        incarnations.add(run.stdout.readline())
        if point == "said":
            for _ in range(number):
                told = int(run.stdout.readline())
            run.send_signal(signal.SIGKILL)
        said = [int(line) for line in run.stdout.read().split("\n") if line]
        assert run.wait() == -signal.SIGKILL
        run.stdout.close()
        told = max([told, *said])
        box = Outbox(folder)
        state, rows, frames = box.load()
        kept = [found.n for found in rows]
        numbers = [number for number, _ in frames]
        box.close()
        assert kept == list(range(len(kept)))
        assert len(kept) in (told + 5, told + 10)  # one transaction more than it could say
        assert numbers == kept[::5]  # rows, frame and state of a transaction came together
        assert state == b"%d" % numbers[-1] if numbers else state is None
    assert len(incarnations) == 1


def test_a_killed_writer_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    killed(tmp_path, [("inside", 40), ("unsaid", 1), ("said", 2), ("inside", 300)])


@pytest.mark.slow
def test_a_hundred_killed_writers_lose_nothing(tmp_path: Path) -> None:
    rng, most = random.Random(2), {"inside": 2_000, "unsaid": 30, "said": 30}
    points = [(point, rng.randint(1, n)) for _ in range(34) for point, n in most.items()]
    killed(tmp_path, points)


def test_every_commit_is_synced(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    assert box._base.execute("PRAGMA synchronous").fetchone() == (2,)
    assert box._base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    box.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    box.commit([Effects(rows=[row(0)], frames=[(0, b"a")])])
    with pytest.raises(sqlite3.IntegrityError):
        box.commit([Effects(rows=[row(1)], frames=[(0, b"b")])])  # a number is given once
    assert rows_of(box) == [0]
    box.close()


def test_a_row_gets_its_stamp_later(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    box.commit([Effects(rows=[row(0, stamp=None), row(1, stamp=None)])])
    box.commit([Effects(rows=[row(0, stamp=4)])])
    assert [found.stamp for found in box.load()[1]] == [4, None]
    box.close()


def test_rows_stay_until_acknowledged_and_released_and_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    box = Outbox(tmp_path, keep=50, release_after=10.0)
    box.commit([Effects(rows=[row(n, t=n * 10) for n in range(10)])])
    box.commit([Effects(frames=[(0, b"0")])], done={"gps": 3})
    box.commit([Effects(frames=[(1, b"1")])], done={"gps": 9})
    box.prune()
    assert rows_of(box) == list(range(10))  # nothing is acknowledged
    box.commit([Effects(freed=0)])
    box.prune()
    assert rows_of(box) == list(range(10))  # the broker may still lose it
    now[0] += 11
    box.prune()
    assert rows_of(box) == list(range(10))  # it has: nothing was heard since
    box.commit([Effects(freed=1)])
    box.prune()
    assert rows_of(box) == [3, 4, 5, 6, 7, 8, 9]
    box.commit([Effects(frames=[(2, b"2")])], done={"gps": 9})
    now[0] += 11
    box.commit([Effects(freed=2)])
    box.prune()
    assert rows_of(box) == [4, 5, 6, 7, 8, 9]  # t from 90 - 50 on
    assert frames_of(box) == [1, 2]
    box.close()


def test_frames_wait_for_acknowledgements_however_long_the_cloud_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    box = Outbox(tmp_path, release_after=10.0)
    box.commit([Effects(frames=[(n, b"frame") for n in range(6)])])
    for n in range(4):
        now[0] += 4
        box.commit([Effects(freed=n)])
    now[0] += 1e6
    box.prune()
    assert frames_of(box) == [0, 1, 2, 3, 4, 5]  # 0 was released when 3 was acknowledged
    box.commit([Effects(again=True)])  # after a recovery all of them are sent again
    now[0] += 1e6
    box.prune()
    assert frames_of(box) == [0, 1, 2, 3, 4, 5]
    box.commit([Effects(freed=4)])
    box.commit([Effects(freed=5)])
    box.prune()
    assert frames_of(box) == [0, 1, 2, 3, 4, 5]
    box.close()


def test_a_clock_that_is_set_forward_lets_go_of_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the outbox is open, and while it is not: only time that surely passed counts."""
    now, wall = [5.0], [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "time", lambda: wall[0])
    box = Outbox(tmp_path, release_after=10.0)
    box.commit([Effects(frames=[(n, b"frame") for n in range(6)])])
    for n in range(3):
        box.commit([Effects(freed=n)])
        wall[0] += 1e6
        now[0] += 1
    box.prune()
    assert frames_of(box) == [0, 1, 2, 3, 4, 5]
    box.close()
    now[0], wall[0] = 2.0, wall[0] + 1e6  # the machine starts anew
    box = Outbox(tmp_path, release_after=10.0)
    box.commit([Effects(freed=3)])
    box.prune()
    assert frames_of(box) == [0, 1, 2, 3, 4, 5]
    now[0] += 8.5
    box.commit([Effects(freed=4)])
    box.prune()
    assert frames_of(box) == [1, 2, 3, 4, 5]  # 1 was acknowledged 10.5 open seconds before 4
    box.close()


@pytest.mark.parametrize("end", ["closed", "killed after pruning"])
def test_the_time_of_many_short_runs_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Each is acknowledged at its very beginning, and runs on for three seconds."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for run in range(6):
        box = Outbox(tmp_path, release_after=10.0)
        box.commit([Effects(frames=[(run, b"frame")])])
        box.commit([Effects(freed=run)])
        now[0] += 3
        if end == "closed":
            box.close()
        else:
            box.prune()
            box._base.close()
        now[0] = 7.0  # the machine starts anew
    box = Outbox(tmp_path, release_after=10.0)
    box.prune()
    assert frames_of(box) == [1, 2, 3, 4, 5]  # 0 and 1 were acknowledged 15 and 12 s before 5
    box.commit([Effects(again=True)])  # which takes back all acknowledgements, and no time
    box.close()
    box.close()  # a second time does no harm
    box = Outbox(tmp_path, release_after=10.0)
    box.commit([Effects(freed=5)])
    assert box._base.execute("SELECT max(acked) FROM frames").fetchone() == (18.0,)
    box.close()


def test_results_stay_until_shown(tmp_path: Path) -> None:
    box = Outbox(tmp_path, keep=5)
    one, two = (
        Results(0, (np.array([n]),) * 2, (np.array([n * 10]),) * 2, np.array([1]), np.array([0.5]))
        for n in (1, 2)
    )
    box.commit([Effects(results=[one, two])])
    box.prune()
    found = list(box.results(box.shown))
    assert [int(of.n[0][0]) for _, of in found] == [1, 2]
    box.show(found[0][0])
    box.prune()
    assert [int(of.n[0][0]) for _, of in box.results()] == [2]
    box.close()


def test_one_agent_at_a_time(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    with pytest.raises(AnabranchError, match="one agent uses it at a time"):
        Outbox(tmp_path)
    box.close()


def test_an_outbox_of_another_version_is_refused(tmp_path: Path) -> None:
    box = Outbox(tmp_path)
    box._base.execute("PRAGMA user_version = 9")
    box.close()
    with pytest.raises(StateMismatch, match="is of version 9"):
        Outbox(tmp_path)


def test_an_outbox_is_full_when_it_has_reached_its_limit(tmp_path: Path) -> None:
    box = Outbox(tmp_path, limit=100_000)
    assert not box.full
    box.commit([Effects(rows=[Row("gps", n, n, 0, {"x": "y" * 100}) for n in range(1000)])])
    assert box.full
    box.close()


def filled(box: Outbox, first: int = 0, text: str = "y" * 100) -> int:
    """Rows until it is full, all of them in acknowledged frames; the number of the next."""
    n = first
    while not box.full:
        rows = [Row("gps", n + k, n + k, 0, {"x": text}) for k in range(20)]
        n += 20
        box.commit([Effects(rows=rows, frames=[(n, b"frame")])], done={"gps": n - 1})
    return n


def test_what_nobody_needs_makes_room(tmp_path: Path) -> None:
    """Rows that the cloud has, and results that were shown, though `keep` would keep them."""
    box = Outbox(tmp_path, limit=200_000)
    n = filled(box)
    box.make_room()
    assert len(rows_of(box)) == n  # the cloud has none of them
    box.commit([Effects(freed=n - 20)])
    assert box.make_room() and not box.full and box.size <= 100_000 + 10_000
    left = rows_of(box)
    assert left == list(range(left[0], n)) and 40 < len(left) < n
    found = Results(0, (np.array([1]),), (np.array([1]),), np.array([1]), np.array([0.5]))
    while not box.full:
        box.commit([Effects(results=[found] * 50)])
    kept = [number for number, _ in box.results()]
    box.show(kept[9])
    assert box.make_room() and [number for number, _ in box.results()] == kept[10:]
    box.show(kept[-1])
    assert box.make_room() and not box.full
    box.close()


def test_rows_that_nobody_asked_for_make_room(tmp_path: Path) -> None:
    """No frame has them, so none is ever acknowledged."""
    box = Outbox(tmp_path, limit=200_000)
    n = 0
    while not box.full:
        rows = [Row("log", n + k, n + k, 0, {"x": "y" * 100}) for k in range(20)]
        n += 20
        box.commit([Effects(rows=rows)], done={"log": n - 6})
    assert box.make_room() and not box.full and rows_of(box)[-6:] == list(range(n - 6, n))
    box.close()


def test_a_folder_is_not_larger_than_its_limit(tmp_path: Path) -> None:
    """SQLite's log is counted, and what it may yet grow to."""
    limit, n = 400_000, 0
    box = Outbox(tmp_path, limit=limit)
    for _ in range(20):
        n = filled(box, n)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit + 20_000
        box.commit([Effects(freed=n)])
        assert box.make_room()
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit + 20_000
    assert n > 20_000
    box.close()


@pytest.mark.parametrize("bound", ["pages", "size of a file"])
def test_a_full_disk_takes_nothing_or_all(tmp_path: Path, bound: str) -> None:
    box = Outbox(tmp_path)
    n, frames = 0, list[int]()
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if bound == "pages":
            box._base.execute("PRAGMA max_page_count = 60")
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
        with pytest.raises(OutboxFull, match=r"the disk of .* is full \(.*\): what was kept is"):
            while True:
                rows = [Row("gps", n + k, 0, 0, {"x": "y" * 100}) for k in range(20)]
                box.commit([Effects(rows=rows, frames=[(n, b"frame")], state=b"%d" % n)])
                frames.append(n)
                n += 20
        for _ in range(2):
            with pytest.raises(OutboxFull, match="make room, and put again"):
                box.commit([Effects(rows=rows, frames=[(n, b"frame" * 20_000)], state=b"no")])
        assert rows_of(box) == list(range(n)) and frames_of(box) == frames
        assert box.load()[0] == b"%d" % frames[-1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    box._base.execute("PRAGMA max_page_count = 1000000")
    box.commit([Effects(rows=rows, frames=[(n, b"frame")], state=b"yes")])
    box.close()
    again = Outbox(tmp_path)
    assert rows_of(again) == list(range(n + 20)) and again.load()[0] == b"yes"
    again.close()


def test_threads_commit_and_prune_one_after_the_other(tmp_path: Path) -> None:
    box = Outbox(tmp_path, keep=0)

    def write(first: int) -> None:
        for n in range(first, first + 30):
            box.commit([Effects(rows=[row(n)])])
            box.prune()
            box.show(n)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, (0, 100, 200)))
    assert len(rows_of(box)) == 90
    box.close()
