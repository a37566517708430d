"""What a hub and its devices left out, in words: nothing is lost silently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.edge.definitions import Stream
from anabranch.edge.known import LATE_ROWS

__all__ = ["Losses", "reported"]

_USUAL = {"frames that were there", "frames after a gap", "entries out of order"}
"""What every lost connection brings, and what is sent again."""
_KEPT = {"waits for space", "frames kept beside the broker"}
"""What says that the broker is full; nothing is left out."""
_WHY = ("do not fit", "a full device dropped")
_MOST = 1 << 32  # rows that an outbox has left out; of all incarnations they are less than 2**64


def reported(
    device: str, extras: Mapping[str, Any], streams: Sequence[Stream], before: dict[int, list[int]]
) -> dict[str, int]:
    """What a frame says anew of rows that were left out: how many do not fit, or were dropped.

    An outbox counts from 0. `before` is what it has said of each stream, and becomes what it says.
    """
    found, losses = {}, extras.get("losses")
    for number, counts in losses.items() if isinstance(losses, dict) else ():
        # Anybody who is enrolled may send anything.
        known = type(number) is int and 0 <= number < len(streams)
        whole = isinstance(counts, list) and [type(one) for one in counts] == [int, int]
        if known and streams[number].home == device and whole:
            had = before.get(number, [0, 0])
            now = [max(min(count, _MOST), old) for count, old in zip(counts, had, strict=True)]
            before[number] = now
            for what, count, old in zip(_WHY, now, had, strict=True):
                if count > old:
                    found[f"rows of {streams[number].name} that {what}"] = count - old
    return found


class Losses:
    """Says what is new of counts, and sums them up for the story.

    Examples
    --------
    >>> losses, streams = Losses(), [Stream("gps[ann]", "ann", {})]
    >>> counts = {"late rows of gps[ann]": 3, "sections of a foreign stream": 12,
    ...           "frames that were there": 7}
    >>> counts |= reported("ann", {"losses": {0: [2, 0]}}, streams, {})
    >>> for line in losses.due(counts): print(line)
    gps[ann]: rows came after the watermark and are left out; the story counts them
    left out so far: sections of a foreign stream, 12
    left out so far: rows of gps[ann] that do not fit, 2
    >>> list(losses.due({**counts, "sections of a foreign stream": 99})), losses.cause(counts)
    ([], {'late': {'gps[ann]': 3}, 'left out': {'sections of a foreign stream': 12, \
'rows of gps[ann] that do not fit': 2}})
    """

    def __init__(self) -> None:
        self._said: dict[str, int] = {}  # how many digits the last count had that was said
        self._summed: dict[str, dict[str, int]] = {}  # for the story

    def due(self, counts: Mapping[str, int]) -> Iterator[str]:
        """What is to be said now: what is new, and what has grown tenfold."""
        for what, count in counts.items():
            digits = len(str(count))
            if what in _USUAL or digits <= self._said.get(what, 0):
                continue
            late = what.startswith(LATE_ROWS)
            if late and what not in self._said:
                what_of = "rows came after the watermark and are left out; the story counts them"
                yield f"{what.removeprefix(LATE_ROWS)}: {what_of}"
            elif not late:
                full = what in _KEPT
                yield f"{'the broker is full' if full else 'left out so far'}: {what}, {count:,}"
            self._said[what] = digits

    def cause(self, counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """What the next entry of the log says of it, if it has changed."""
        late = {what: n for what, n in counts.items() if what.startswith(LATE_ROWS)}
        others = {what: n for what, n in counts.items() if what not in _USUAL | _KEPT | late.keys()}
        found = {
            "late": {what.removeprefix(LATE_ROWS): n for what, n in late.items()},
            "left out": others,
        }
        found = {what: numbers for what, numbers in found.items() if numbers}
        before, self._summed = self._summed, found
        return {what: numbers for what, numbers in found.items() if numbers != before.get(what)}
