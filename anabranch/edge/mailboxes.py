"""Where the frames of every mailbox are: in the broker's stream, or beside it.

A mailbox may take so much of the stream and no more, and none of it once the stream is full. What
goes beyond continues in a file of the hub, so that a device that is away for long harms nobody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from nats.js import JetStreamContext

from anabranch.edge.mail import Covered
from anabranch.edge.overflow import Overflow

__all__ = ["NO_SPACE", "Mailboxes", "beside"]

NO_SPACE = (10077, 10122)
"""Errors of JetStream: a stream is full."""

_SPARE = 100  # messages of a mailbox that are kept though its device has them
MOST = 16 << 20  # bytes of a mailbox in the stream
_LEAST = 1 << 20  # bytes that a device has had for which its file is written anew


def beside(folder: Path, generation: int) -> Path:
    """Where a hub keeps mailboxes of a generation beside the broker."""
    return folder / f"mailboxes-{generation}"


class _Kept(NamedTuple):
    number: int
    at: int  # the sequence in the stream, or the place in the file
    size: int
    beside: bool = False


class Mailboxes:
    """All mailboxes of a hub.

    Parameters
    ----------
    js
        With the cloud's rights.
    stream
        The one that holds them.
    folder
        Where files beside it are.
    """

    def __init__(self, js: JetStreamContext, stream: str, folder: Path) -> None:
        self._js, self._stream = js, stream
        self._beside = Overflow(folder)
        self._kept: dict[str, list[_Kept]] = {}  # in order of their numbers
        self._bytes: Counter[str] = Counter()  # in the stream
        for device in self._beside.devices():
            self._kept[device] = [
                _Kept(number, at, 0, True) for number, at in self._beside.stored(device)
            ]

    def found(self, device: str, number: int, sequence: int, size: int) -> None:
        """A frame is in the stream."""
        kept = self._kept.setdefault(device, [])
        # At the end, but for one that is read back while later ones are beside.
        kept.insert(bisect_left(kept, (number,)), _Kept(number, sequence, size))
        self._bytes[device] += size

    def devices(self) -> list[str]:
        """Who has a mailbox."""
        return sorted(self._kept)

    def numbers(self, device: str) -> list[int]:
        """The frames of a device that there are."""
        return [kept.number for kept in self._kept.get(device, ())]

    def covered(self) -> dict[str, Covered]:
        """What the files have, by subject."""
        newest = {device: self._beside.newest(device) for device in self._beside.devices()}
        return {f"m.{device}": Covered(*found) for device, found in newest.items() if found}

    def has_room(self, device: str, size: int) -> bool:
        """Whether a frame may go to the stream."""
        return self._bytes[device] + size <= MOST

    def keep_beside(self, device: str, number: int, position: int, content: bytes) -> None:
        """Keep a frame that may not, or for which the stream has no space."""
        at = self._beside.append(device, number, position, content)
        self._kept.setdefault(device, []).append(_Kept(number, at, len(content), True))

    def first(self, device: str) -> int:
        """The number of the first frame that is kept for a device; 0 if there is none."""
        kept = self._kept.get(device)
        return kept[0].number if kept else 0

    async def contents(self, device: str, first: int) -> AsyncIterator[tuple[int, bytes]]:
        """The frames of a mailbox from a number on."""
        kept = self._kept.get(device, [])
        for one in kept[bisect_left(kept, (first,)) :]:
            if one.beside:
                yield one.number, self._beside.read(device, one.at)
            else:
                stored = await self._js.get_msg(self._stream, one.at)
                if stored.data is not None:
                    yield one.number, stored.data

    def sync(self) -> None:
        """Have what is in files survive a power cut."""
        self._beside.sync()

    async def forget(self, seen: dict[str, int]) -> None:
        """Let go of what devices have processed, but for the newest: it says what is covered."""
        for device in list(self._kept):
            last = seen.get(device, -1)
            self._forget_beside(device, last)
            await self._forget_inside(device, last)

    def _forget_beside(self, device: str, last: int) -> None:
        """Drop a file that its device has had, or the half of it."""
        kept = self._kept[device]
        beside = [one for one in kept if one.beside]
        if not beside:
            return
        if beside[-1].number <= last and beside[-1] is not kept[-1]:
            self._beside.drop(device)
            self._kept[device] = [one for one in kept if not one.beside]
            return
        first = min(last, beside[-1].number)
        cut = next(one.at for one in beside if one.number >= first)
        # Half of it at least, so that what is yet to come is not written again and again.
        if cut >= max(_LEAST, self._beside.size(device) // 2) and self._beside.trim(device, cut):
            self._kept[device] = [
                one._replace(at=one.at - cut) if one.beside else one
                for one in kept
                if not one.beside or one.at >= cut
            ]

    async def _forget_inside(self, device: str, last: int) -> None:
        """Purge what its device has had, if that is worth a request."""
        inside = [one for one in self._kept[device] if not one.beside]
        first = min(last, inside[-1].number) if inside else -1
        crowded = not self.has_room(device, MOST // 2)
        if not inside or first <= inside[0].number:
            return
        if not crowded and first - inside[0].number < _SPARE:
            return
        begin = next(one for one in inside if one.number >= first)
        subject = f"m.{device}"
        await self._js.purge_stream(self._stream, subject=subject, seq=begin.at)
        gone = {one.at for one in inside if one.at < begin.at}
        self._kept[device] = [one for one in self._kept[device] if one.beside or one.at not in gone]
        self._bytes[device] = sum(one.size for one in inside if one.at not in gone)
