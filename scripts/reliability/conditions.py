"""Random conditions of `correlate`, each with its twin: what is bad, and what holds of values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from scripts.reliability import exactly
from scripts.reliability.exactly import outcome
from scripts.reliability.odd import Odd
from tests.correlation import alike_twin, emd_twin

__all__ = ["Clause", "Leaf", "Truth", "cell", "draw_clause"]

Truth = frozenset[bool | None]
_VECTORS = {"cosine": exactly.cosine, "dot": exactly.dot, "euclidean": exactly.euclidean,
            "manhattan": exactly.manhattan, "hamming": exactly.hamming}  # fmt: skip
_OPS = (">=", ">", "<=", "<")


def cell(column: str) -> str:
    """Where a row has the value of a column, which may be called `id` or `t`."""
    return f"={column}"


@dataclass(frozen=True)
class Leaf:
    """One compared column: its type, values, and what its twin says of them."""

    column: str
    type: pa.DataType
    predicate: Any
    value: Callable[[Odd], Any]
    bad: Callable[[Any], bool]
    holds: Callable[[Any, Any], Truth]

    def truth(self, a: Any, b: Any) -> Truth:
        """Of two values; unknown if one is null."""
        return frozenset({None}) if a is None or b is None else self.holds(a, b)


@dataclass(frozen=True)
class Clause:
    """A predicate of several leaves."""

    predicate: Any
    leaves: tuple[Leaf, ...]
    inside: tuple[bool, ...]  # which of them are inside |
    combine: Callable[..., bool | None]

    def is_bad(self, row: dict[str, Any]) -> bool:
        """Whether a row can never be compared."""
        for leaf, inside in zip(self.leaves, self.inside, strict=True):
            value = row[cell(leaf.column)]
            if (value is None and not inside) or (value is not None and leaf.bad(value)):
                return True
        return False

    def truth(self, a: dict[str, Any], b: dict[str, Any]) -> Truth:
        """What may hold of two good rows."""
        parts = [leaf.truth(a[cell(leaf.column)], b[cell(leaf.column)]) for leaf in self.leaves]
        return frozenset(self.combine(*some) for some in product(*parts))


def draw_clause(odd: Odd, columns: list[str]) -> Clause:
    """One leaf, or two or three in a random formula."""
    leaves = tuple(odd.pick(_KINDS)(odd, name) for name in columns)
    p = [leaf.predicate for leaf in leaves]
    both, any_, not_ = alike_twin.all_of, alike_twin.any_of, alike_twin.not_
    if len(leaves) == 1:
        if odd.chance(0.15):
            return Clause(~p[0], leaves, (False,), not_)
        return Clause(p[0], leaves, (False,), lambda x: x)
    if len(leaves) == 2:
        if odd.chance(0.5):
            return Clause(p[0] & p[1], leaves, (False, False), lambda *x: both(x))
        return Clause(p[0] | p[1], leaves, (True, True), lambda *x: any_(x))
    return Clause(
        p[0] & (p[1] | ~p[2]),
        leaves,
        (False, True, True),
        lambda x, y, z: both([x, any_([y, not_(z)])]),
    )


def _vector(odd: Odd, column: str) -> Leaf:
    kind = odd.pick(list(_VECTORS))
    dim = odd.pick([1, 2, 3, 5, 8, 9, 17]) if odd.chance(0.97) else odd.pick([64, 300, 2048])
    single, op = odd.chance(0.5), odd.pick(_OPS)
    threshold = odd.pick({"cosine": [0, 0.5, 0.9, 1, -1, -0.3], "hamming": [0, 1, 2, 5]}.get(
        kind, [0, 0.5, 1, 3, 10, 1e-30, 1e30, 1e200]))  # fmt: skip

    def bad(v: list[Any]) -> bool:
        wrong = len(v) != dim or any(x is None or not math.isfinite(x) for x in v)
        if wrong or sum(Fraction(x) ** 2 for x in v) > Fraction(1.7e308):
            return True
        return kind == "cosine" and not any(v)

    def holds(a: list[float], b: list[float]) -> Truth:
        return outcome(*_VECTORS[kind](a, b), op, threshold)

    if kind == "hamming":
        holds = lambda a, b: _decided(exactly.hamming(a, b)[0], op, threshold)  # noqa: E731
    measure = getattr(ab, kind)(column, dim=dim)
    element = pa.float32() if single else pa.float64()
    draw = lambda odd: odd.vector(dim, single, 0.99 if kind != "hamming" else 0.95)  # noqa: E731
    return Leaf(column, pa.list_(element), _compared(measure, op, threshold), draw, bad, holds)


def _histogram(odd: Odd, column: str) -> Leaf:
    dim, op, threshold = odd.pick([1, 2, 5, 12]), odd.pick(["<=", "<"]), odd.pick([0.1, 0.5, 1, 3])

    def draw(odd: Odd) -> Any:
        if odd.chance(0.9):
            return [float(odd.below(6)) for _ in range(dim)]
        return odd.vector(dim, False, 0.9)

    def bad(v: list[Any]) -> bool:
        if len(v) != dim or any(x is None or not math.isfinite(x) or x < 0 for x in v):
            return True
        return not any(v) or sum(Fraction(x) ** 2 for x in v) > Fraction(1.7e308)

    measure, exact = ab.emd(column, dim=dim), exactly.emd_line
    if odd.chance(0.3):
        measure, exact = ab.emd(column, ground="circle", dim=dim), exactly.emd_circle
    holds = lambda a, b: outcome(*exact(a, b), op, threshold)  # noqa: E731
    return Leaf(column, pa.list_(pa.float64()), _compared(measure, op, threshold), draw, bad, holds)


def _spread_out(odd: Odd, column: str) -> Leaf:
    """Histograms over points of a plane; a linear program knows its answer to nine digits."""
    points = odd.random.sample([(x, y) for x in range(4) for y in range(4)], odd.pick([2, 3, 4]))
    ground = np.array(points, float)
    costs = np.sqrt(((ground[:, None] - ground[None]) ** 2).sum(axis=2))
    op, threshold = odd.pick(["<=", "<"]), odd.pick([0.1, 0.5, 1, 2])

    def draw(odd: Odd) -> Any:
        return [float(odd.below(4)) for _ in range(len(points) + odd.chance(0.02))]

    @cache
    def apart(a: tuple[float, ...], b: tuple[float, ...]) -> float:
        return emd_twin.emd(np.array(a), np.array(b), costs)

    holds = lambda a, b: outcome(apart(tuple(a), tuple(b)), 1000.0, op, threshold)  # noqa: E731
    bad = lambda v: len(v) != len(points) or not any(v)  # noqa: E731
    predicate = _compared(ab.emd(column, ground=ground, metric="euclidean"), op, threshold)
    return Leaf(column, pa.list_(pa.float64()), predicate, _or_null(draw), bad, holds)


def _custom(odd: Odd, column: str) -> Leaf:
    """A function that tells its sides apart."""
    factor, least = 2 + odd.below(4), odd.below(4)

    def matches(left: Any, right: Any) -> Any:
        return (factor * left[column][:, None] + right[column][None, :]) % 5 <= least

    holds = lambda a, b: frozenset({(factor * a + b) % 5 <= least})  # noqa: E731
    draw = _or_null(lambda odd: odd.below(20) - 5)
    predicate = ab.custom(matches, left=column, right=column)
    return Leaf(column, pa.int64(), predicate, draw, _never, holds)


def _bits(odd: Odd, column: str) -> Leaf:
    op, threshold = odd.pick(_OPS), odd.pick([0, 1, 3, 64])
    if odd.chance(0.5):
        predicate = _compared(ab.hamming(column), op, threshold)
        holds = lambda a, b: _decided(((a ^ b) & (2**64 - 1)).bit_count(), op, threshold)  # noqa: E731
        return Leaf(column, pa.int64(), predicate, _or_null(Odd.whole), _never, holds)
    size = odd.pick([1, 8, 9])
    draw = _or_null(lambda odd: odd.random.randbytes(size if odd.chance(0.97) else odd.below(12)))

    def differ(a: bytes, b: bytes) -> Truth:
        bits = (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()
        return _decided(bits, op, threshold)

    predicate = _compared(ab.hamming(column, dim=size), op, threshold)
    return Leaf(column, pa.binary(), predicate, draw, lambda v: len(v) != size, differ)


def _band(odd: Odd, column: str) -> Leaf:
    kind = odd.pick(["int", "bigint", "double", "float", "decimal", "date", "timestamp"])
    limit = odd.pick([0, 1, 3, 10**9])
    if kind in ("int", "bigint"):
        bits, type_ = (32, pa.int32()) if kind == "int" else (64, pa.int64())
        holds = lambda a, b: _decided(abs(a - b), "<=", limit)  # noqa: E731
        draw = _or_null(lambda odd: odd.whole(bits))
        return Leaf(column, type_, ab.within(column, limit), draw, _never, holds)
    if kind in ("double", "float"):
        single, limit = kind == "float", odd.pick([0, 0.5, 3, 1e100])

        def near(a: float, b: float) -> Truth:
            apart = abs(Fraction(a) - Fraction(b))
            return outcome(exactly._float(apart), max(abs(a), abs(b)), "<=", limit)

        type_ = pa.float32() if single else pa.float64()
        draw = _or_null(lambda odd: odd.real(single, 0.93))
        bad = lambda x: not math.isfinite(x)  # noqa: E731
        return Leaf(column, type_, ab.within(column, limit), draw, bad, near)
    if kind == "decimal":
        return _decimal(odd, column)
    if kind == "date":
        day = lambda odd: dt.date(2024, 1, 1) + dt.timedelta(days=odd.below(5))  # noqa: E731
        extreme = lambda odd: odd.pick([dt.date.min, dt.date.max])  # noqa: E731
        draw = _or_null(lambda odd: day(odd) if odd.chance(0.9) else extreme(odd))
        holds = lambda a, b: _decided(abs((a - b).days), "<=", 2)  # noqa: E731
        return Leaf(column, pa.date32(), ab.within(column, "2 days"), draw, _never, holds)
    holds = lambda a, b: _decided(abs(a - b), "<=", 5)  # noqa: E731
    draw = _or_null(lambda odd: odd.whole() if odd.chance(0.1) else 10**15 + odd.below(20))
    return Leaf(column, pa.timestamp("us", "UTC"), ab.within(column, "5 us"), draw, _never, holds)


def _decimal(odd: Odd, column: str) -> Leaf:
    precision, scale = odd.pick([(5, 2), (18, 4), (38, 0), (38, 12), (38, 18), (38, 38)])
    most = 10**precision - 1

    def draw(odd: Odd) -> Any:
        units = odd.below(30) - 10 if odd.chance(0.85) else odd.pick([most, -most, 2**63, -(2**63)])
        units = max(-most, min(most, units))
        return Decimal((units < 0, tuple(map(int, str(abs(units)))), -scale))

    limit = odd.pick(["0", "0.01", "3"])
    holds = lambda a, b: _decided(abs(Fraction(a) - Fraction(b)), "<=", Fraction(limit))  # noqa: E731
    type_ = pa.decimal128(precision, scale)
    return Leaf(column, type_, ab.within(column, limit), _or_null(draw), _never, holds)


def _key(odd: Odd, column: str) -> Leaf:
    draw, type_ = odd.pick([
        (Odd.text, pa.string()), (Odd.whole, pa.int64()), (lambda odd: odd.whole(32), pa.int32()),
        (lambda odd: dt.date(2024, 1, 1 + odd.below(3)), pa.date32())])  # fmt: skip
    if odd.chance(0.7):
        same = lambda a, b: frozenset({a == b})  # noqa: E731
        return Leaf(column, type_, ab.same(column), _or_null(draw), _never, same)
    unlike = lambda a, b: frozenset({a != b})  # noqa: E731
    return Leaf(column, type_, ab.differs(column), _or_null(draw), _never, unlike)


def _text(odd: Odd, column: str) -> Leaf:
    if odd.chance(0.6):
        op, threshold = odd.pick(_OPS), odd.pick([0, 1, 2, 5])
        holds = lambda a, b: _decided(alike_twin.edit(a, b), op, threshold)  # noqa: E731
        predicate = _compared(ab.edit(column), op, threshold)
    else:
        op, threshold = odd.pick([">=", ">"]), odd.pick([0.5, 0.8, 0.95])
        holds = lambda a, b: _decided(alike_twin.jaro_winkler(a, b), op, threshold)  # noqa: E731
        predicate = _compared(ab.jaro_winkler(column), op, threshold)
    short = _or_null(lambda odd: odd.text()[:30])
    return Leaf(column, pa.string(), predicate, short, _never, holds)


def _set(odd: Odd, column: str) -> Leaf:
    texts, op, threshold = odd.chance(0.5), odd.pick([">=", ">"]), odd.pick([0.3, 0.5, 1])

    def draw(odd: Odd) -> Any:
        made = [odd.text() if texts else odd.whole(32) for _ in range(odd.below(5))]
        return [*made, None] if odd.chance(0.02) else made

    exact = Fraction(str(threshold))
    holds = lambda a, b: _decided(alike_twin.jaccard(a, b), op, exact)  # noqa: E731
    predicate = _compared(ab.jaccard(column), op, threshold)
    type_ = pa.list_(pa.string() if texts else pa.int32())
    return Leaf(column, type_, predicate, _or_null(draw), lambda v: None in v, holds)


_KINDS = (_vector, _vector, _vector, _histogram, _histogram, _spread_out, _bits, _bits, _band,
          _band, _band, _key, _key, _text, _set, _custom)  # fmt: skip


def _or_null(draw: Callable[[Odd], Any]) -> Callable[[Odd], Any]:
    return lambda odd: None if odd.chance(0.03) else draw(odd)


def _never(value: Any) -> bool:
    return False


def _decided(value: Any, op: str, threshold: Any) -> Truth:
    """A comparison without rounding."""
    held = {">=": value >= threshold, ">": value > threshold,
            "<=": value <= threshold, "<": value < threshold}[op]  # fmt: skip
    return frozenset({held})


def _compared(measure: Any, op: str, threshold: Any) -> Any:
    return {">=": measure.__ge__, ">": measure.__gt__, "<=": measure.__le__, "<": measure.__lt__}[
        op
    ](threshold)
