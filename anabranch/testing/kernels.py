"""The laws of kernels, for every kernel: yours and ours."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Job
from anabranch.testing.workers import LivingWorkers, Workers

__all__ = ["Step", "check_kernel"]

Step = tuple[Sequence[Block], int]
"""What arrives in a micro-batch, and its watermark."""

_WORKER = 0
# Numbers are stored as text, and some arrays compressed: a few bytes come and go.
_IDLE_STEPS, _SLACK_BYTES = 20, 64


def check_kernel(
    job: Job,
    steps: Sequence[Step],
    expected: Sequence[Any] | None = None,
    *,
    answer: Callable[[list[dict[str, Any]]], Sequence[Any]] = list,
    remains: int = 0,
    batches: Literal["any", "in order", "as given"] = "any",
    seed: int = 0,
) -> None:
    """Raise `AssertionError` unless the kernel of `job` obeys the laws of kernels.

    One worker takes the steps, and then the time until nothing can be stored any more. The answer
    must be the expected one, and stay the same

    - whatever the order in which the rows of a micro-batch come,
    - however the rows are cut into micro-batches, as long as the same ones are late,
    - if steps fail, before the end or at it, and are run again,
    - whether a kernel lives on from step to step or is read from what is stored,
    - if it is run only where there are rows, or where it said that it is due.

    Each time nothing may be left at the end but what `remains`, and idle steps may add nothing.

    Parameters
    ----------
    job
        Opens the kernels; its results are in event time, not in that of their arrival.
    steps
        What arrives in each micro-batch at worker 0, and its watermark, in microseconds.
    expected
        The whole answer, in any order; None if only the laws are to be tried.
    answer
        Makes the answer out of all rows of the result, where it is not the rows themselves.
    remains
        Rows that may stay without end, as where windows hold the newest so many rows.
    batches
        How rows may be cut into micro-batches. ``"in order"`` is for a kernel to which rows come
        in the order of their times; each micro-batch then has the watermark of its newest row.
        ``"as given"`` is for one whose micro-batches another kernel has made.
    seed
        Orders, batches and failures are drawn with it.

    Examples
    --------
    >>> from anabranch.assembly import close
    >>> from anabranch.assembly.call import plan_assembly
    >>> from anabranch.assembly.job import AssembleJob
    >>> import pyarrow as pa
    >>> schema = {"page": "bigint", "ts": "timestamp"}
    >>> call, _ = plan_assembly([schema], key="page", close=close.gap("5 us"), watermark="1 us")
    >>> columns = {"w": np.array([[7, 7, 7, 0, 1, 0]] * 3), "k0": pa.array([7] * 3)}
    >>> rows = Block.of([1, 3, 20], columns)
    >>> check_kernel(AssembleJob(call, 1, streaming=True), [([rows], 0)], [(1, 2), (20, 1)],
    ...              answer=lambda found: [(row["opened"], row["count"]) for row in found])
    """
    random = np.random.default_rng(seed)
    steps = _to_the_end(job, steps)
    law = _Law(job, answer, remains)
    want = law.found("as given", steps) if expected is None else list(expected)
    law.check("as given", steps, want)
    for _ in range(2):
        law.check("rows in another order", _in_other_order(steps, random), want)
    cut = {"any": _cut, "in order": _cut_in_order, "as given": _as_given}[batches]
    law.check("a row at a time", cut(steps, random, True), want)
    for _ in range(3):
        law.check("in other micro-batches", cut(steps, random), want)
    law.check("steps that failed and ran again", steps, want, failing=random)
    law.check("kernels that live on", steps, want, workers=LivingWorkers(job))
    for some in (steps, cut(steps, random)):
        how: Any = {"failing": random, "workers": LivingWorkers(job)}
        law.check("kernels that live on for a while", some, want, **how)
    law.check("run only when due", steps, want, only_due=True)
    law.check("run only when due", cut(steps, random), want, only_due=True)


class _Law:
    """One job, run in many ways."""

    def __init__(self, job: Job, answer: Callable[..., Sequence[Any]], remains: int) -> None:
        self.job, self.answer, self.remains = job, answer, remains

    def check(self, way: str, steps: Sequence[Step], want: Sequence[Any], **how: Any) -> None:
        """Compare the answer of a run with what it must be."""
        got = self.found(way, steps, **how)
        ours, theirs = (Counter(map(repr, answer)) for answer in (got, want))
        lost, extra = theirs - ours, ours - theirs
        assert not lost and not extra, (
            f"{self.job.verb}, {way}: {lost.total()} of {len(want)} results are missing, such as "
            f"{list(lost)[:2]}; {extra.total()} should not be there, such as {list(extra)[:2]}"
        )

    def found(
        self,
        way: str,
        steps: Sequence[Step],
        failing: np.random.Generator | None = None,
        workers: Workers | None = None,
        only_due: bool = False,
    ) -> Sequence[Any]:
        """The answer of a run; what is left at its end is checked."""
        workers = workers or Workers(self.job)
        rows: list[dict[str, Any]] = []
        for arrivals, now in steps:
            if only_due and not arrivals and not workers.is_due(_WORKER, now):
                continue
            if failing is not None:
                _fail(workers, arrivals, now, failing)
            for batch in workers.step(_WORKER, [_sent(block) for block in arrivals], now):
                rows += batch.to_pylist()
        self._check_rest(way, workers, steps[-1][1])
        return self.answer(rows)

    def _check_rest(self, way: str, workers: Workers, now: int) -> None:
        kernel = workers.kernel(_WORKER)
        left = kernel.slices.rows
        assert left <= self.remains, (
            f"{self.job.verb}, {way}: {left} rows stay stored, and {self.remains} may be"
        )
        sizes = []
        for later in range(_IDLE_STEPS + 1):
            more = workers.step(_WORKER, [], now + later)
            assert not any(batch.num_rows for batch in more), (
                f"{self.job.verb}, {way}: results come when everything has expired"
            )
            sizes.append(sum(map(len, (*workers.heads.values(), *workers.pieces.values()))))
        assert sizes[-1] < sizes[0] + _SLACK_BYTES, (
            f"{self.job.verb}, {way}: {_IDLE_STEPS} idle steps made {sizes[-1]} bytes of state out "
            f"of {sizes[0]}"
        )


def _fail(
    workers: Workers, arrivals: Sequence[Block], now: int, random: np.random.Generator
) -> None:
    """Begin a step whose task fails somewhere, perhaps with its process: nothing is stored."""
    results = iter(workers.kernel(_WORKER).step([_sent(block) for block in arrivals], now))
    stop = None if random.random() < 0.5 else int(random.integers(0, 3))
    for _ in itertools.islice(results, stop):
        pass
    if isinstance(workers, LivingWorkers) and random.random() < 0.5:
        workers.forget()


def _sent(block: Block) -> Block:
    """A block as it arrives: it has travelled."""
    return Block.decode(block.encode(**block.meta))


def _part(block: Block, rows: np.ndarray) -> Block:
    return replace(block.take(rows), meta=dict(block.meta))


def _to_the_end(job: Job, steps: Sequence[Step]) -> list[Step]:
    """The steps, and one when nothing can be stored any more."""
    times = [int(block.t.max()) for arrivals, _ in steps for block in arrivals if len(block)]
    last = max((now for _, now in steps), default=0)
    end = max([last, *times]) + 2 * max(job.stays) + 1
    return [*steps, ([], end)]


def _in_other_order(steps: Sequence[Step], random: np.random.Generator) -> list[Step]:
    """The same micro-batches, with blocks cut in two and all rows and blocks mixed up."""
    mixed: list[Step] = []
    for arrivals, now in steps:
        parts = []
        for block in arrivals:
            order = random.permutation(len(block))
            half = int(random.integers(0, len(block) + 1))
            parts += [_part(block, rows) for rows in (order[:half], order[half:])]
        mixed.append(([parts[n] for n in random.permutation(len(parts))], now))
    return mixed


def _cut(steps: Sequence[Step], random: np.random.Generator, latest: bool = False) -> list[Step]:
    """The same rows in other micro-batches, such that the same ones are late.

    A row later than its watermark may come earlier, or after others under the same watermark. The
    others stay, for they are late, or would be after another step. Time goes on in smaller steps
    where that makes none of them late. `latest` leaves all rows in their micro-batch, each alone.
    """
    moved: list[list[Block]] = [[] for _ in steps]
    for number, (arrivals, now) in enumerate(steps):
        for block in arrivals:
            goal = np.full(len(block), number)
            if not latest:
                goal[block.t > now] = random.integers(0, number + 1, int((block.t > now).sum()))
            for at in np.unique(goal) if len(block) else [number]:
                moved[at].append(_part(block, np.flatnonzero(goal == at)))
    found: list[Step] = []
    for (_, now), blocks in zip(steps, moved, strict=True):
        first, *others = _rounds(blocks, now, random, latest)
        if found and all((block.t > now).all() for block in first):
            found += [([], int(mark)) for mark in _between(found[-1][1], now, random)]
        found += [(part, now) for part in (first, *others)]
    return found


def _cut_in_order(
    steps: Sequence[Step], random: np.random.Generator, each: bool = False
) -> list[Step]:
    """The same rows in other micro-batches, by rising time; equal times stay together."""
    blocks = [block for arrivals, _ in steps for block in arrivals if len(block)]
    if not blocks:
        return list(steps)
    times = np.unique(np.concatenate([block.t for block in blocks]))
    share = 1.0 if each else random.random()
    ends = times[(random.random(len(times)) < share) | (times == times[-1])]
    found: list[Step] = []
    for number, end in enumerate(ends.tolist()):
        places = [np.flatnonzero(np.searchsorted(ends, block.t) == number) for block in blocks]
        parts = [_part(b, rows) for b, rows in zip(blocks, places, strict=True) if len(rows)]
        found.append((parts, end))
    return [*found, ([], max(steps[-1][1], found[-1][1]))]


def _as_given(steps: Sequence[Step], random: np.random.Generator, each: bool = False) -> list[Step]:
    """The same micro-batches, of which none can be cut."""
    return list(steps)


def _rounds(
    blocks: Sequence[Block], now: int, random: np.random.Generator, each: bool
) -> list[list[Block]]:
    """One micro-batch as several; what its watermark has passed comes in the first of them."""
    count = sum(len(block) for block in blocks) if each else 3
    rounds: list[list[Block]] = [[] for _ in range(max(1, count))]
    place = 0
    for block in blocks:
        turns = place + np.arange(len(block)) if each else random.integers(0, 3, len(block))
        place += len(block)
        turns = np.where(block.t > now, turns, 0)
        for turn in np.unique(turns) if len(block) else [0]:
            rounds[turn].append(_part(block, np.flatnonzero(turns == turn)))
    return rounds[:1] + [part for part in rounds[1:] if part]


def _between(before: int, now: int, random: np.random.Generator) -> Iterator[int]:
    """Watermarks between two, in order."""
    if now > before:
        yield from np.sort(random.integers(before, now, 2)).tolist()
