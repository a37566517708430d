"""What is late, and who must hear of every watermark: one rule for all kernels.

With `watermark=` in a call, rows at or before the watermark of their micro-batch are late. Where
inputs have watermarks of their own, late is what lies at or before the watermark of the *last*
step: operators upstream may emit rows once the watermark has passed them. Then the answer would
depend on when a worker had its last step. So every worker that a plan may use with the partitions
of the session, be it now or after a change or a restart, has a step in every micro-batch, with rows
or without. Workers that more partitions bring have had none, and take what others drop as late in
their first step.
"""

from __future__ import annotations

__all__ = ["hearing", "late_until", "next_step"]


def late_until(by_last_step: bool, reached: int, watermark: int) -> int:
    """The time up to which rows are late, where the last step went up to the time `reached`.

    Examples
    --------
    >>> late_until(False, 10, 20), late_until(True, 10, 20)
    (20, 10)
    """
    return min(reached, watermark) if by_last_step else watermark


def next_step(by_last_step: bool, reached: int) -> int | None:
    """When a worker must run next for the sake of what is late; None if that tells nothing."""
    return reached + 1 if by_last_step else None


def hearing(by_last_step: bool, workers: int) -> range:
    """Workers that get a cell of every batch, be it empty.

    The first counts what is rejected, and hears of every plan.

    Examples
    --------
    >>> hearing(False, 4), hearing(True, 4)
    (range(0, 1), range(0, 4))
    """
    return range(workers if by_last_step else 1)
