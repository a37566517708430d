"""What is late, and who must hear of every watermark: one rule for all kernels.

With `watermark=` in a call, rows at or before the watermark of their micro-batch are late. Where
inputs have watermarks of their own, late is what lies at or before the watermark of the *last*
step: operators upstream may emit rows once the watermark has passed them. Then the answer would
depend on when a worker had its last step. So every worker that a plan may use with the partitions
of the session, be it now or after a change or a restart, has a step in every micro-batch, with rows
or without. Workers that more partitions bring have had none: they must have one without rows first,
so a plan that sends them some at once is refused.
"""

from __future__ import annotations

from anabranch.errors import StateMismatch

__all__ = ["check_heard", "hearing", "late_until", "next_step"]


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


def check_heard(heard: int, workers: int) -> None:
    """Refuse rows for workers that have had no step, in a query in which so many have `heard`.

    Nothing was heard before the first rows: then nothing is late, for any worker.

    Examples
    --------
    >>> check_heard(0, 4), check_heard(4, 4)
    (None, None)
    >>> check_heard(2, 4)
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: the plan has 4 workers, and 2 know the watermark of \
this checkpoint: the others would accept rows that those reject as late; start with a plan of at \
most 2 workers until a micro-batch with rows has ended, then with this one
    """
    if heard and workers > heard:
        raise StateMismatch(
            f"the plan has {workers} workers, and {heard} know the watermark of this "
            "checkpoint: the others would accept rows that those reject as late; start with a plan "
            f"of at most {heard} workers until a micro-batch with rows has ended, then with this "
            "one"
        )
