"""Frames of a device on their way: numbered, chained by checksums, kept until acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.edge.copies import checksum, other_past
from anabranch.edge.frames import Down, decode_up
from anabranch.edge.mail import generation_of

__all__ = ["Sending"]


class Sending:
    """The frames after the last one that the cloud has acknowledged.

    Examples
    --------
    >>> frames = Sending(window=10)
    >>> [frames.add(content) for content in (b"zero", b"one", b"two!")]
    [0, 1, 2]
    >>> frames.due(), frames.due()   # no more than the window, and none twice
    ([b'zero', b'one'], [])
    >>> frames.acknowledge(0)
    >>> frames.due(), frames.acked, sorted(frames.kept)
    ([b'two!'], 0, [1, 2])
    >>> frames.hold([(0, b"zero")])   # the cloud has lost what it had
    >>> frames.due(), frames.acked
    ([b'zero', b'one'], -1)
    """

    def __init__(self, window: int) -> None:
        self._window = window  # bytes that may be under way
        self.next = 0
        self.check = 0  # checksum of the frame before that
        self.acked = -1
        self.sent = -1
        self.kept: dict[int, bytes] = {}
        self.generation = 0  # of the broker's streams, in which the frames were last numbered
        self.asked: list[int] = []  # what the cloud asked for, until all frames are at hand

    def add(self, content: bytes) -> int:
        """The next frame; its number."""
        number, self.next = self.next, self.next + 1
        self.check, self.kept[number] = checksum(content), content
        return number

    def hold(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Send all of these again, and those that are here: they reach up to the next."""
        self.kept = dict(sorted({**dict(frames), **self.kept}.items()))
        self.acked = self.sent = min(self.kept, default=self.next) - 1

    def ask(self, asked: list[int] | None) -> bool:
        """Whether all frames are needed again, in a new generation of the broker's streams."""
        if not asked or asked[0] <= max([self.generation, *self.asked[:1]]):
            return False
        self.asked = list(asked)
        return True

    def resume(self, frames: Iterable[tuple[int, bytes]]) -> str:
        """Begin in the generation that asked, with all frames that are kept; why not, if so."""
        generation, had, check = self.asked
        self.generation, self.asked = generation, []
        self.hold(frames)
        return other_past(had, check, self.next, self.kept)

    def resumed(self) -> list[int]:
        """What a hello says of it: the generation, the first frame, checksum of the one before."""
        first = self.kept.get(self.acked + 1)
        before = self.check if first is None else decode_up(first).before
        return [self.generation, self.acked + 1, before]

    def to_form(self) -> list[Any]:
        """All of it but the frames, as numbers."""
        return [self.next, self.check, self.acked, self.generation, self.asked]

    def load(self, form: list[Any]) -> None:
        """Take what `to_form` wrote."""
        self.next, self.check, self.acked, self.generation, self.asked = form

    def outlived(self, down: Down) -> bool:
        """Whether the cloud has forgotten what it acknowledged, and has not said why."""
        if generation_of(down.number) != self.generation:
            return False
        # After a recovery it says -1 until it has heard from where on frames come again.
        return down.acked < self.acked and (down.acked >= 0 or not self.generation)

    def acknowledge(self, number: int) -> None:
        """The cloud has all up to this one."""
        self.acked = number
        self.kept = {n: frame for n, frame in self.kept.items() if n > number}

    def due(self) -> list[bytes]:
        """What is to be sent now, in order, as far as the window allows."""
        found: list[bytes] = []
        if self.sent >= self.next - 1:
            return found
        under_way = sum(len(frame) for n, frame in self.kept.items() if n <= self.sent)
        for number, frame in self.kept.items():
            if number <= self.sent:
                continue
            if under_way and under_way + len(frame) > self._window:
                break
            under_way += len(frame)
            self.sent = number
            found.append(frame)
        return found
