"""Rows that lie in clusters: whole balls of them are ruled out by their centres.

The rows of a block are gathered about centres, so that each *ball* has a radius. By the triangle
inequality a row that is too far from a centre meets no row of its ball; one that is too near meets
none where far rows are asked for; and a dot product changes within a ball by no more than the
radius times the length of the row. The balls that are left are compared by bytes (see `quantised`).
On data without clusters almost no ball is ruled out, which a sample of rows tells.

Letters of the compiled loops, beside those of `tiles`: `b` is a ball, `n` a place among the rows
that may meet it, `r` a row of a tile, `v` a register of its columns, `s` a step of four bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from anabranch.correlation.filters.dots import Instructions, Work, lowest_bit, reaching, room
from anabranch.correlation.filters.products import make_operand
from anabranch.correlation.filters.quantised import (
    Bytes,
    limits_of,
    padded,
    rounded,
    row_bytes,
    sign_of,
)
from anabranch.correlation.filters.tiles import (
    Candidates,
    Pair,
    admit,
    may_meet,
    put,
    scratch,
    stamp_of,
    uniform,
)
from anabranch.flow.blocks import Block
from anabranch.flow.goals import Goal, Operand, goal_of
from anabranch.flow.process import njit

__all__ = ["Search", "ball_search", "likely_share"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_LAST = np.iinfo(np.int32).max
_PER_BALL = 48  # rows: of more, balls are too wide; of fewer, registers are half empty
_ROUNDS = 2  # of moving centres to the middle of their rows
_SAMPLE = 256
_AT_ONCE = 8192  # rows whose products with the centres are held
_SLACK = 2e-5  # of a cosine: what float32 and angles near 0 may get wrong


class Balls(NamedTuple):
    """The rows of a block by the ball that they are in."""

    centres: np.ndarray
    squares: np.ndarray  # of the norms of the centres
    radius: np.ndarray  # an angle for cosine, else a distance
    first: np.ndarray  # panel of each ball, and at last their number
    order: np.ndarray  # the row at each place of the panels, -1 where there is none
    bytes: Bytes
    middle: Bytes  # of the centres


class Search(NamedTuple):
    """The rows of one block, and the balls of another that each may meet."""

    rows: np.ndarray  # float32, turned round where far rows are asked for
    own: np.ndarray  # what a row's product with a centre has to reach is `own + far`
    far: np.ndarray  # likewise, of each ball
    balls: Balls
    source: np.ndarray  # bytes of the rows
    bounds: np.ndarray
    work: Work  # with room for one group of rows
    apart: Work  # rows against centres
    turned: bool  # whether the balls are those of the left block

    def share(self) -> float:
        """About which share of all pairs is left, as places in registers."""
        some = np.unique(np.linspace(0, len(self.rows) - 1, _SAMPLE).astype(int))
        products = self.rows[some] @ self.balls.centres.T
        left = products >= self.own[some, None] + self.far
        places = np.diff(self.balls.first) * self.work.by.cols
        return float((left @ places).mean() / max(1, (self.balls.order >= 0).sum()))

    def candidates(self, pair: Pair) -> Iterator[Candidates]:
        """Every pair that may reach the goal."""
        _, out = scratch()
        by, free = self.work.by, uniform(pair) and pair.whole and may_meet(pair)
        groups, at_once = -(-len(self.rows) // by.rows), max(1, _AT_ONCE // by.rows)
        for top in range(0, groups, at_once):
            begin, meeting = _meeting(self, top, min(top + at_once, groups))
            at = np.zeros(3, np.int64)
            while at[0] < len(self.far):
                found = _walk(self, pair.stamps, free, begin, meeting, at, out)
                if found:
                    yield out.first(found)


def ball_search(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, by: Instructions
) -> Search | None:
    """The search for pairs with the balls of the larger block; None where there is none."""
    rows, others, turned = _sides(pair)
    key = _key(slot, kind, by)
    balls = others.derive(key, lambda of: _balls(make_operand(of, slot, kind), kind, by))
    sign = sign_of(kind, upward)
    given, a = make_operand(rows, slot, kind), row_bytes(rows, slot, kind, by, sign)
    goal = goal_of(kind, a.scale, balls.bytes.scale, upward, threshold)
    limits = limits_of(a, balls.bytes, goal, by)
    if limits is None or a.scale.exponent or balls.bytes.scale.exponent:
        return None
    own, far = _needed(given, balls.squares, balls.radius, kind, sign, goal)
    steps = -(-a.scale.width // 4)
    centres = limits_of(a, balls.middle, Goal(1.0, np.float32(0), -own, -far), by)
    if centres is None:
        return None
    places = padded(centres[0], by.cols, 0), padded(centres[1], by.rows, _LAST)
    apart = Work(by, a.packed, balls.middle.packed, steps, *places, room(by), 0, 0)
    starts, bounds = (values.astype(np.int32) for values in limits)
    group = np.zeros(4 * steps * by.rows, np.uint8)
    ends = np.zeros(by.rows, np.int32)
    work = Work(by, group, balls.bytes.packed, steps, starts, ends, room(by), 0, 0)
    return Search(
        given.matrix * np.float32(sign), own, far, balls, a.packed, bounds, work, apart, turned
    )


def likely_share(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, by: Instructions
) -> float:
    """About which share of all pairs balls leave, before they are made; 0 where they are.

    Rows taken by chance are the centres. A quarter of some others lie as near to one as all rows of
    a ball are then taken to lie: on data in clusters that is about their size.
    """
    rows, others, _ = _sides(pair)
    if others.has_derived(_key(slot, kind, by)):
        return 0.0
    count = max(2, len(others) // _PER_BALL)
    chosen = np.random.default_rng(0).permutation(len(others))[: count + _SAMPLE]
    some = np.unique(np.linspace(0, len(rows) - 1, _SAMPLE).astype(int))
    given, centres, near = (
        make_operand(Block.of(np.zeros(len(at)), {slot: of.columns[slot][at]}), slot, kind)
        for of, at in ((rows, some), (others, chosen[:count]), (others, chosen[count:]))
    )
    if not len(near.matrix) or any(one.scale.exponent for one in (given, centres, near)):
        return 0.0
    squares, products = centres.scale.norms, near.matrix @ centres.matrix.T
    if kind == "cosine":
        apart = np.arccos(np.clip(products.max(axis=1), -1.0, 1.0))
    else:
        nearest = near.scale.norms + (squares - 2 * products).min(axis=1)
        apart = np.sqrt(np.maximum(0.0, nearest))
    sign, goal = sign_of(kind, upward), goal_of(kind, given.scale, near.scale, upward, threshold)
    radius = np.full(count, np.quantile(apart, 0.25))
    own, far = _needed(given, squares, radius, kind, sign, goal)
    reached = sign * (given.matrix @ centres.matrix.T) >= own[:, None] + far
    return float(reached.mean())


def _sides(pair: Pair) -> tuple[Block, Block, bool]:
    """The smaller block, the larger one, and whether that is the left one."""
    turned = len(pair.left) > len(pair.right)
    return (pair.right, pair.left, True) if turned else (pair.left, pair.right, False)


def _key(slot: str, kind: str, by: Instructions) -> tuple[str, str, bool, str]:
    return "balls", slot, kind == "cosine", type(by).__name__


def _needed(
    rows: Operand, squares: np.ndarray, radius: np.ndarray, kind: str, sign: int, goal: Goal
) -> tuple[np.ndarray, np.ndarray]:
    """What a row's product with a centre has to reach: a part of the row and one of the ball.

    With a sign of -1 it is the product of the row turned round, whose cosines and dot products are
    to be large where the row's are to be small.
    """
    if kind == "cosine":
        # Vectors of length 1 have it but for a rounding.
        widest = math.acos(min(1.0, max(-1.0, float(goal.low) - _SLACK)))
        far = np.cos(np.minimum(np.pi, radius + widest)) - _SLACK
        return np.zeros(len(rows.matrix), np.float32), far.astype(np.float32)
    size = (rows.scale.largest + math.sqrt(squares.max()) + radius.max()) ** 2
    slack = 4 * (rows.scale.width + 8) * 2.0**-24 * size
    if kind == "dot":
        # ab = ac + a(b - c) <= ac + |a| r, and |a| is at most that of the longest row.
        far = float(goal.low) - rows.scale.largest * radius - slack
        return np.zeros(len(rows.matrix), np.float32), far.astype(np.float32)
    if sign > 0:
        # Near rows have 2ab - aa - bb >= low.
        nearest = math.sqrt(max(0.0, -float(goal.low)))
        far = (squares - (nearest + radius) ** 2) / 2 - slack
    else:
        # Far ones have aa + bb - 2ab >= low: |a - c| is at least the root of it less the radius.
        farthest = math.sqrt(max(0.0, float(goal.low)))
        far = (np.maximum(0.0, farthest - radius) ** 2 - squares) / 2 - slack
    return (sign * rows.scale.norms / 2).astype(np.float32), far.astype(np.float32)


def _balls(operand: Operand, kind: str, by: Instructions) -> Balls:
    matrix, scale = operand
    centres, ball = _gathered(matrix, kind == "cosine")
    used, ball = np.unique(ball, return_inverse=True)
    centres = centres[used]
    exact = centres.astype(np.float64)
    squares = np.square(exact).sum(axis=1)
    if kind == "cosine":
        inner = np.einsum("nd,nd->n", matrix, exact[ball]) / np.sqrt(squares[ball])
        apart = np.arccos(np.clip(inner - _SLACK, -1.0, 1.0))
    else:
        apart = np.sqrt(np.square(matrix - exact[ball]).sum(axis=1)) * (1 + 1e-6)
    radius = np.zeros(len(used))
    np.maximum.at(radius, ball, apart)
    counts = np.bincount(ball)
    first = np.concatenate([[0], np.cumsum(-(-counts // by.cols))])
    rows = np.argsort(ball, kind="stable")
    begin = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = first[ball[rows]] * by.cols + np.arange(len(rows)) - begin[ball[rows]]
    order = np.full(first[-1] * by.cols, -1, np.int32)
    order[place] = rows
    laid_out, norms = np.zeros((len(order), scale.width), np.float32), np.zeros(len(order))
    laid_out[place], norms[place] = matrix[rows], scale.norms[rows]
    moved = Operand(laid_out, scale._replace(norms=norms))
    found = rounded(moved, by.cols, by.most, shift=by.shift)
    size = scale._replace(norms=squares, largest=float(np.sqrt(squares.max())))
    middle = rounded(Operand(centres, size), by.cols, by.most, shift=by.shift)
    return Balls(centres, squares, radius, first, order, found, middle)


def _gathered(matrix: np.ndarray, directions: bool) -> tuple[np.ndarray, np.ndarray]:
    """Centres, and the number of each row's.

    Half of the centres are rows taken by chance; others are then taken among rows that are far
    from all, so that small clusters get one too.
    """
    random = np.random.default_rng(0)
    count = max(2, len(matrix) // _PER_BALL)
    centres = matrix[random.choice(len(matrix), max(1, count // 2), replace=False)]
    own = np.square(matrix).sum(axis=1)
    near, _ = _nearest(matrix, centres)
    for _ in range(2):
        chance = np.maximum(near + own, 0.0).astype(np.float64)
        if chance.sum() == 0:
            break
        more = random.choice(len(matrix), max(1, count // 4), p=chance / chance.sum())
        centres = np.concatenate([centres, matrix[np.unique(more)]])
        near = np.minimum(near, _nearest(matrix, centres[-len(np.unique(more)) :])[0])
    for _ in range(_ROUNDS):
        _, ball = _nearest(matrix, centres)
        sums = np.zeros_like(centres)
        _add_up(matrix, ball, sums)
        sizes = (
            np.sqrt(np.square(sums).sum(axis=1))
            if directions
            else np.bincount(ball, minlength=len(centres))
        )
        moved = sizes > 0
        centres = centres.copy()
        centres[moved] = sums[moved] / sizes[moved, None]
    return centres, _nearest(matrix, centres)[1]


def _nearest(matrix: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The squared distance to the nearest centre, less the row's own square; and which it is."""
    found, which = np.empty(len(matrix), np.float32), np.empty(len(matrix), np.int64)
    squares = np.square(centres).sum(axis=1)
    for top in range(0, len(matrix), _AT_ONCE):
        part = slice(top, top + _AT_ONCE)
        products = matrix[part] @ centres.T
        _least(products, squares, found[part], which[part])
    return found, which


@njit(nogil=True)
def _least(products, squares, found, which):  # pragma: no cover
    for r in range(len(products)):
        least, at = np.inf, 0
        for c in range(products.shape[1]):
            value = squares[c] - 2 * products[r, c]
            if value < least:
                least, at = value, c
        found[r], which[r] = least, at


@njit(nogil=True)
def _add_up(matrix, ball, sums):  # pragma: no cover
    for i in range(len(matrix)):
        for e in range(matrix.shape[1]):
            sums[ball[i], e] += matrix[i, e]


@njit(nogil=True)
def _meeting(search, top, bottom):  # pragma: no cover
    """The rows of some groups that may meet each ball: where those of a ball begin, and all."""
    work, count = search.apart, len(search.far)
    by, masks = work.by, work.masks
    lanes, each = by.cols // masks.shape[1], by.rows * by.cols
    listed, found = np.empty((2, 64 * each), np.int32), 0
    begin = np.zeros(count + 1, np.int64)
    for group in range(top, bottom):
        for panel in range(-(-count // by.cols)):
            if not reaching(work, group, panel):  # type: ignore[call-arg]
                continue
            if found + each > listed.shape[1]:
                more = np.empty((2, 2 * listed.shape[1]), np.int32)
                more[:, :found] = listed[:, :found]
                listed = more
            for r in range(by.rows):
                for v in range(masks.shape[1]):
                    mask = masks[r, v]
                    while mask:
                        b = panel * by.cols + v * lanes + lowest_bit(mask)
                        mask &= mask - 1
                        if b < count:
                            listed[0, found], listed[1, found] = b, group * by.rows + r
                            begin[b + 1] += 1
                            found += 1
    begin = np.cumsum(begin)
    rows, at = np.empty(found, np.int64), begin.copy()
    for n in range(found):
        b = listed[0, n]
        rows[at[b]] = listed[1, n]
        at[b] += 1
    return begin, rows


@njit(nogil=True)
def _walk(search, stamps, free, begin, meeting, at, out):  # pragma: no cover
    """Go on from `at`, a ball, a place among its rows and a panel, until `out` is nearly full."""
    work, balls = search.work, search.balls
    by, found = work.by, 0
    while at[0] < len(search.far):
        ball = at[0]
        first, last = balls.first[ball], balls.first[ball + 1]
        while begin[ball] + at[1] < begin[ball + 1]:
            n = begin[ball] + at[1]
            rows = meeting[n : min(n + by.rows, begin[ball + 1])]
            _gather(search, rows)
            for panel in range(first + at[2], last):
                if found + by.rows * by.cols > len(out.left):
                    at[2] = panel - first
                    return found
                if reaching(work, 0, panel):  # type: ignore[call-arg]
                    found = _take(search, rows, panel * by.cols, stamps, free, out, found)
            at[1], at[2] = at[1] + by.rows, 0
        at[0], at[1] = ball + 1, 0
    return found


@njit(nogil=True)
def _gather(search, rows):  # pragma: no cover
    """Put the bytes and bounds of some rows where a group of them is looked for."""
    work = search.work
    together, steps = work.by.rows, work.steps
    source, group = search.source.view(np.uint32), work.left.view(np.uint32)
    for r in range(together):
        work.bounds[r] = search.bounds[rows[r]] if r < len(rows) else _LAST
    for r in range(len(rows)):
        tile, place = divmod(rows[r], together)
        begin = tile * steps * together + place
        for s in range(steps):
            group[s * together + r] = source[begin + s * together]


@njit(nogil=True)
def _take(search, rows, start, stamps, free, out, found):  # pragma: no cover
    """Propose the pairs of a tile whose bits are set."""
    work, order, turned = search.work, search.balls.order, search.turned
    masks = work.masks
    lanes = work.by.cols // masks.shape[1]
    for r in range(len(rows)):
        # Right rows have no such stamp; whose it is then does not matter.
        mine = stamp_of(0 if turned else rows[r], stamps)
        for v in range(masks.shape[1]):
            mask = masks[r, v]
            while mask:
                other = order[start + v * lanes + lowest_bit(mask)]  # type: ignore[call-arg]
                mask &= mask - 1
                if other < 0:
                    continue
                good = True
                if not free:
                    mine = stamp_of(other, stamps) if turned else mine
                    good = admit(mine, rows[r] if turned else other, stamps)
                if turned:
                    found = put(out, found, other, rows[r], good)
                else:
                    found = put(out, found, rows[r], other, good)
    return found
