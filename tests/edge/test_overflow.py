"""Mailboxes beside the broker: whole after a kill, in order, gone when they have been had."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from anabranch.edge.overflow import Overflow
from anabranch.errors import AnabranchError, InvalidCall


def filled(folder: Path) -> Overflow:
    beside = Overflow(folder)
    for number in range(5, 9):
        beside.append("ann", number, 10 * number, bytes([number]) * number)
    return beside


def test_frames_are_read_back_by_another_process(tmp_path: Path) -> None:
    filled(tmp_path / "new").sync()
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    again = Overflow(tmp_path / "new")
    assert again.devices() == ["ann"] and again.newest("ann") == (8, 80)
    found = {number: again.read("ann", at) for number, at in again.stored("ann")}
    assert found == {number: bytes([number]) * number for number in range(5, 9)}
    again.append("ann", 9, 90, b"")
    assert [number for number, _ in again.stored("ann")] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("lost", [1, 8, 24, 31])
def test_half_a_frame_is_cut_off(tmp_path: Path, lost: int) -> None:
    filled(tmp_path)
    path = tmp_path / "ann.frames"
    path.write_bytes(path.read_bytes()[:-lost])
    again = Overflow(tmp_path)
    assert again.newest("ann") == (7, 70)
    again.append("ann", 8, 80, b"eight")
    assert [number for number, _ in Overflow(tmp_path).stored("ann")] == [5, 6, 7, 8]


def test_a_frame_that_is_damaged_ends_the_file(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "ann.frames"
    content = bytearray(path.read_bytes())
    content[24] ^= 1  # in the first frame
    path.write_bytes(content)
    assert Overflow(tmp_path).newest("ann") is None and path.stat().st_size == 0


def test_what_was_had_is_dropped(tmp_path: Path) -> None:
    beside = filled(tmp_path)
    beside.drop("ann")
    beside.drop("bob")
    beside.sync()
    assert beside.newest("ann") is None and not list(tmp_path.iterdir())


def test_no_file_is_written_outside_the_folder(tmp_path: Path) -> None:
    beside = filled(tmp_path / "in")
    with pytest.raises(InvalidCall, match="a device is named by"):
        beside.append("../out", 9, 90, b"nine")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_disk_that_is_full_leaves_whole_frames(tmp_path: Path) -> None:
    """It takes a part of a frame, and then no more."""
    beside = filled(tmp_path)
    path = tmp_path / "ann.frames"
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 30, limits[1]))
    try:
        with pytest.raises(AnabranchError, match=r"a frame for ann cannot be kept in .* make room"):
            beside.append("ann", 9, 90, b"nine" * 9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and beside.newest("ann") == (8, 80)
    beside.append("ann", 9, 90, b"nine" * 9)
    assert [number for number, _ in Overflow(tmp_path).stored("ann")] == [5, 6, 7, 8, 9]
