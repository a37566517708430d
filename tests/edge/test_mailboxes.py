"""Mailboxes: what a device has had goes, in the stream and beside it; the newest frame stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.edge.mailboxes import MOST, Mailboxes
from anabranch.edge.overflow import Overflow

LARGE = 1 << 20


class Purged:
    """The broker, which notes up to where it was purged."""

    def __init__(self) -> None:
        self.up_to: list[int | None] = []

    async def purge_stream(self, name: str, seq: int | None = None, **more: Any) -> None:
        self.up_to.append(seq)


def mailboxes(folder: Path) -> tuple[Mailboxes, Purged]:
    js: Any = Purged()
    return Mailboxes(js, "DOWN", folder), js


def forget(boxes: Mailboxes, last: int) -> None:
    asyncio.run(boxes.forget({"ann": last}))


def put(boxes: Mailboxes, number: int, size: int) -> None:
    """As the relay does: to the stream if there is room."""
    if boxes.has_room("ann", size):
        boxes.found("ann", number, 1000 + number, size)
    else:
        boxes.keep_beside("ann", number, number, bytes(size))


def test_few_large_frames_that_were_had_make_room(tmp_path: Path) -> None:
    """A mailbox may be full with fewer frames than are worth a request otherwise."""
    boxes, js = mailboxes(tmp_path)
    for number in range(20):
        put(boxes, number, LARGE)
    assert not boxes.has_room("ann", LARGE) and len(list(tmp_path.iterdir())) == 1
    forget(boxes, 19)
    assert js.up_to == [1015] and boxes.has_room("ann", MOST - LARGE)
    assert boxes.numbers("ann") == [15, 19]  # the newest of either
    put(boxes, 20, LARGE)
    forget(boxes, 20)
    assert list(tmp_path.iterdir()) == [] and boxes.numbers("ann")[-1] == 20


def test_few_small_frames_are_not_worth_a_request(tmp_path: Path) -> None:
    boxes, js = mailboxes(tmp_path)
    for number in range(100):
        put(boxes, number, 9)
    forget(boxes, 99)
    assert js.up_to == []
    put(boxes, 100, 9)
    forget(boxes, 100)
    assert js.up_to == [1100] and boxes.numbers("ann") == [100]


def test_a_file_is_cut_though_the_stream_never_has_room(tmp_path: Path) -> None:
    """The broker is full: all frames of a device that is online go to its file."""
    boxes, _ = mailboxes(tmp_path)
    largest = 0
    for number in range(40):
        boxes.keep_beside("ann", number, number, bytes([number]) * (LARGE // 2))
        forget(boxes, number - 1)  # it is always one behind
        largest = max(largest, (tmp_path / "ann.frames").stat().st_size)
    assert largest < 3 * LARGE
    kept = boxes.numbers("ann")
    assert kept == list(range(kept[0], 40)) and len(kept) < 6

    async def contents() -> list[tuple[int, bytes]]:
        return [one async for one in boxes.contents("ann", 38)]

    assert [(n, content[:1]) for n, content in asyncio.run(contents())] == [
        (38, bytes([38])),
        (39, bytes([39])),
    ]
    again = Overflow(tmp_path)  # another process reads the same
    assert [number for number, _ in again.stored("ann")] == kept and again.newest("ann") == (39, 39)
    forget(boxes, 39)
    assert 39 in boxes.numbers("ann") and Overflow(tmp_path).newest("ann") == (39, 39)


def test_a_file_of_which_little_was_had_is_not_written_again(tmp_path: Path) -> None:
    boxes, _ = mailboxes(tmp_path)
    for number in range(10):
        boxes.keep_beside("ann", number, number, bytes(LARGE))
    before = (tmp_path / "ann.frames").stat()
    forget(boxes, 4)
    assert (tmp_path / "ann.frames").stat().st_ino == before.st_ino
    forget(boxes, 6)
    assert boxes.numbers("ann") == [6, 7, 8, 9]


def test_a_file_that_cannot_be_cut_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes, _ = mailboxes(tmp_path)
    for number in range(4):
        boxes.keep_beside("ann", number, number, bytes(LARGE))

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        forget(boxes, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["ann.frames"]
    assert boxes.numbers("ann") == [0, 1, 2, 3] == [n for n, _ in Overflow(tmp_path).stored("ann")]
    forget(boxes, 3)
    assert boxes.numbers("ann") == [3]
