"""A new generation of streams, after the broker has lost messages: what its relay begins with.

The log of placements and the relay's last state say what holds and who the devices are. All else
comes again: devices send every frame that they keep, the cloud all results that it sent to devices.
Places drop the rows and results that they have had. What is left of mailboxes and buckets stays in
front of what is new, for whoever has not read it.

Nothing that had been decided from lost messages is used. No boundary counts as retired, and no
watermark as heard, until devices have said so again: else rows that a place lacks would pass for
sent. Presumed watermarks of the log are left out for the same reason. Rows up to them are passed on
and counted as late, for places may have stopped to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.edge.mail import Covered, base_of
from anabranch.edge.placements import Entry
from anabranch.edge.relay_state import RelayState

__all__ = ["lost_frames", "recovered"]


def recovered(
    former: RelayState | None,
    entries: Iterable[Entry],
    buckets: int,
    covered: Mapping[str, Covered],
    generation: int,
    begun: Mapping[str, int] | None = None,
) -> RelayState:
    """The relay of a new generation, with what it has to tell everybody at once.

    Parameters
    ----------
    former
        By its last snapshot; None if there was none, for everything is kept by devices then.
    entries
        The whole log of placements.
    buckets
        Keys of the cloud's state.
    covered
        What is left of each subject, without a gap.
    generation
        Its number, one more than the former.
    begun
        The newest incarnation of each device that its mailbox speaks of, of what is left.

    Examples
    --------
    >>> relay = recovered(None, [], 1, {"in.0": Covered(6, 40)}, 1)
    >>> [(m.subject, m.frame.number, m.frame.extras) for m in relay.flush()]
    [('in.0', 1099511627776, {'after': 6})]
    """
    relay = RelayState(former.buckets if former is not None else buckets, covered, generation)
    for entry in entries:
        relay.book.enact_again(entry)
    relay.succeed(former, begun or {})
    return relay


def lost_frames(former: RelayState | None, covered: Mapping[str, Covered]) -> dict[str, int]:
    """Of each subject, how many frames are lost that a relay had written, as far as is known.

    Examples
    --------
    >>> former = RelayState(1, {"m.ann": Covered(9, 40), "in.0": Covered(3, 40)})
    >>> lost_frames(former, {"m.ann": Covered(6, 31), "in.0": Covered(3, 40)})
    {'m.ann': 3}
    """
    known = former.covered if former is not None else {}
    least = base_of(former.generation) - 1 if former is not None else -1
    left = {subject: max(least, covered.get(subject, Covered()).number) for subject in known}
    lost = {subject: found.number - left[subject] for subject, found in known.items()}
    return {subject: count for subject, count in sorted(lost.items()) if count > 0}
