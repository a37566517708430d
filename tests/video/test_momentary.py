"""Errors of the moment stop a task, which is repeated; errors of a file are counted."""

from __future__ import annotations

import errno
import io
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.video import decoding, momentary, rows
from anabranch.video.momentary import momentary as of_the_moment
from anabranch.video.planning import Folder, Planner
from anabranch.video.segments import Segment, list_starts
from tests.video.films import film, segmented, write
from tests.video.reads import ROWS_ALONE, START, read, rows_and_report
from tests.video.test_hostile import flipped

av = pytest.importorskip("av")
FRAMES = film([20, 20])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    segmented(tmp_path / "a", FRAMES, (20,))
    return tmp_path / "a"


def planned(folder: Path) -> Any:
    planner = Planner(Folder(str(folder), START, closed="all"))
    return planner.between({}, planner.latest({}))


@contextmanager
def no_handles() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, hard))
    try:
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for handle in held:
            os.close(handle)


def test_without_a_file_handle_nothing_is_lost(folder: Path) -> None:
    plan = planned(folder)
    want = rows_and_report(plan, ROWS_ALONE)
    path = str(folder / "0000.ts")
    with no_handles():
        for what in (lambda: decoding.probe(path), lambda: rows_and_report(plan, ROWS_ALONE)):
            with pytest.raises(OSError, match="Too many open files"):
                what()
    got = rows_and_report(plan, ROWS_ALONE)
    assert got[0] == want[0] and got[1]["bad"] == 0


class Failing(io.FileIO):
    """A file on a share that goes away."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() > 0:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(min(size or 0, 4000)) or b""


@pytest.mark.parametrize("kind", ["ts", "mkv", "mp4", "avi"])
def test_a_share_that_goes_away_is_not_the_end_of_a_film(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / f"a.{kind}", FRAMES)
    monkeypatch.setattr(Path, "open", lambda self, mode: Failing(self))
    with pytest.raises(OSError, match=rf"Input/output error: .*a\.{kind}"):
        list(decoding.decoded(str(path), decoding.Faults()))
    with pytest.raises(OSError, match="Input/output error"):
        decoding.probe(str(path))


def test_what_the_system_said_is_not_forgotten_for_a_later_error() -> None:
    """A demuxer that could not read asks for other places, which may be none."""

    class Away(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "the share is away")

    source = momentary.Source(Away(), "a.mp4")
    with pytest.raises(OSError, match="away"):
        source.read(10)
    with pytest.raises(ValueError):
        source.seek(-5)
    with pytest.raises(OSError):
        source._asked(lambda: (_ for _ in ()).throw(OSError(errno.EINVAL, "no place")).__next__())
    with pytest.raises(OSError, match="away"):
        source.check()


def test_a_share_that_is_away_when_files_are_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(*given: Any, **named: Any) -> Any:
        raise OSError(errno.ESTALE, "Stale file handle")

    (folder / "live.csv").write_text("0000.ts,0,1\n")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", stale)
        with pytest.raises(OSError, match="Stale"):
            list_starts(folder)
    monkeypatch.setattr(Path, "stat", stale)
    with pytest.raises(OSError, match="Stale"):
        Segment.of("a", folder / "0000.ts")


def test_without_memory_a_task_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: Any) -> Any:
        raise MemoryError

    plan = planned(folder)
    with monkeypatch.context() as patched:
        patched.setattr(rows, "signature", none)
        with pytest.raises(MemoryError):
            rows_and_report(plan, ROWS_ALONE)

    class Packet:
        decode = none

    monkeypatch.setattr(decoding, "_packets", lambda *given: iter([Packet()]))
    with pytest.raises(MemoryError):
        rows_and_report(plan, ROWS_ALONE)


def test_what_a_damaged_file_claims_is_its_own_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FFmpeg says EIO and ENOMEM of some, and says so whenever they are read."""
    seen = set()
    for kind in ("mkv", "mp4"):
        whole = write(tmp_path / f"whole.{kind}", FRAMES[:25]).read_bytes()
        path = tmp_path / f"a.{kind}"
        for seed in range(250):
            path.write_bytes(flipped(whole, seed, 1 + seed % 40))
            try:
                with av.open(str(path), metadata_errors="replace") as opened:
                    list(opened.demux(video=0))
            except (OSError, MemoryError) as error:
                if error.args[0] in (errno.EIO, errno.ENOMEM):
                    seen.add(error.args[0])
                    assert read(path)[1]["segments"] == 1
            except Exception:
                continue
    assert errno.ENOMEM in seen  # EIO depends on what a writer draws by lot
    short = av.error.MemoryError(errno.ENOMEM, "Cannot allocate memory")
    assert not of_the_moment(short)
    assert of_the_moment(av.error.OSError(errno.ESTALE, "Stale file handle"))

    def full(*given: Any) -> Any:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(momentary.mmap, "mmap", full)
    assert of_the_moment(short)


def test_a_file_that_nobody_may_read_is_bad(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever repeats the task may not read it either."""
    of = Path.open

    def denied(self: Path, mode: str) -> Any:
        if self.name == "0000.ts":
            raise PermissionError(errno.EACCES, "Permission denied")
        return of(self, mode)

    monkeypatch.setattr(Path, "open", denied)
    found, report = read(folder)
    assert (len(found), report["bad"]) == (20, 1)
    assert report["problems"] == ["a/0000.ts: cannot be opened: Permission denied"]
