"""What a worker must remember of plans, so that a wrong log is noticed and no plan stays too long.

A plan matters to a worker as long as a row is stored that may still meet others under it. The
router of a block says which plan stamped its rows, which plans it held live, and what they are.
Rows stored and rows arriving must have a plan in common, and it must be the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import StateMismatch

__all__ = ["PlanMemory", "check_newest"]


@dataclass
class PlanMemory:
    """The plans under which the rows stored in one worker were routed.

    `newest` is the newest time of the rows stamped with a plan, `live` the bits of the plans under
    which all of them were sent (bit i stands for plan ``epoch - i``), `plans` are fingerprints of
    all plans in those bits. None of them outlives the rows by which it got here.

    Examples
    --------
    >>> memory = PlanMemory()
    >>> memory.observe({"epoch": 1, "live": 0b11, "plans": {"0": "a", "1": "b"}, "newest": 50})
    >>> memory.forget(50)
    >>> memory == PlanMemory()
    True
    """

    newest: dict[int, int] = field(default_factory=dict)
    live: dict[int, int] = field(default_factory=dict)
    plans: dict[int, str] = field(default_factory=dict)

    def observe(self, meta: Mapping[str, Any]) -> None:
        """Check a block that arrives, by what its router wrote, and remember it if it has rows."""
        epoch, live = int(meta["epoch"]), int(meta["live"])
        for number in self.newest:
            behind = epoch - number
            common = live >> behind if behind >= 0 else self.live[number] >> -behind
            if not common & 1:
                raise StateMismatch(
                    f"rows of plan {number} are still in the window and rows of plan {epoch} "
                    "arrive, but they were not routed under a common plan, so pairs would be lost: "
                    "the plan log does not belong to this checkpoint, or a plan was retired too "
                    "early"
                )
        arriving = {int(number): str(found) for number, found in meta["plans"].items()}
        for number, found in arriving.items():
            if self.plans.get(number, found) != found:
                raise StateMismatch(
                    f"plan {number} is not the one that this checkpoint was begun with: restart "
                    "with the same plan=, partitions and plan log (ab.ranges also needs that the "
                    "first ab.emd(...) <= x with known bins compares the same columns), or begin a "
                    "new checkpoint"
                )
        last = meta.get("newest")
        if last is not None:
            self.newest[epoch] = max(self.newest.get(epoch, int(last)), int(last))
            self.live[epoch] = self.live.get(epoch, live) & live
            self.plans.update(arriving)
            self._prune()

    def forget(self, limit: int) -> None:
        """Forget plans of which no row later than `limit` was stored."""
        gone = [epoch for epoch, last in self.newest.items() if last <= limit]
        for epoch in gone:
            del self.newest[epoch], self.live[epoch]
        if gone:
            self._prune()

    def _prune(self) -> None:
        """Keep the plans that some stored row was sent under."""
        self.plans = {
            number: found
            for number, found in self.plans.items()
            if any(e >= number and bits >> (e - number) & 1 for e, bits in self.live.items())
        }

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `from_dict` reads."""
        return {
            "newest": {str(number): last for number, last in self.newest.items()},
            "live": {str(number): bits for number, bits in self.live.items()},
            "plans": {str(number): found for number, found in self.plans.items()},
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Mapping[str, Any]]) -> PlanMemory:
        """The memory that `to_dict` wrote.

        Examples
        --------
        >>> memory = PlanMemory({3: 50}, {3: 1}, {3: "a"})
        >>> PlanMemory.from_dict(memory.to_dict()) == memory
        True
        """
        return cls(
            {int(number): last for number, last in form["newest"].items()},
            {int(number): bits for number, bits in form["live"].items()},
            {int(number): found for number, found in form["plans"].items()},
        )


def check_newest(known: Collection[int], live: Collection[int]) -> None:
    """Raise if a worker has heard of a newer plan than any that is live in what arrives.

    The newest plan is live until a newer one has taken its place. So a log that knows only older
    ones was lost or left out, and a worker that took no notice would go on as if it were the only
    one to have heard of the change.

    Examples
    --------
    >>> check_newest({0, 1}, {1, 2})
    >>> check_newest({0, 1}, {0})
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: plan 1 is known to this checkpoint, and rows arrive under plan \
0: restart with control= and the plan log that belongs to it, or begin a new checkpoint
    """
    if known and live and max(known) > max(live):
        raise StateMismatch(
            f"plan {max(known)} is known to this checkpoint, and rows arrive under plan "
            f"{max(live)}: restart with control= and the plan log that belongs to it, or begin a "
            "new checkpoint"
        )
