"""Sums over two vectors in eight lanes and one fixed tree: the same to the last bit everywhere.

A pair of rows has one score, whatever plan, tile, batch or algorithm brings it together. So every
sum that decides is made here, in float64 and without fast-math: element c goes into lane ``c % 8``,
and the lanes are added as a tree of fixed shape.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from anabranch.flow.process import njit

__all__ = [
    "PRODUCTS",
    "SIZES",
    "SQUARES",
    "Directions",
    "directions",
    "squared_norms",
    "summed",
    "tree",
]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

# What is added up: squares of differences, their sizes, or products.
SQUARES, SIZES, PRODUCTS = 0, 1, 2
_LINES = 4  # of the processor's cache; of longer rows it finds the others by itself
# Squared norms inside these bounds, their products and their quotients are far from float64's ends.
_LEAST, _MOST = 2.0**-450, 2.0**450


@njit(inline="always")
def tree(lanes):  # pragma: no cover
    """The sum of eight lanes."""
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + (
        (lanes[4] + lanes[5]) + (lanes[6] + lanes[7])
    )


@njit(inline="always")
def _term(kind, u, v):  # pragma: no cover
    a, b = np.float64(u), np.float64(v)
    if kind == PRODUCTS:
        return a * b
    e = a - b
    return e * e if kind == SQUARES else abs(e)


@intrinsic
def _eights(typing, kind, u, v, whole, lanes):
    """Fill `lanes` with the sums of the first `whole` terms, a multiple of eight.

    A compiler may not vectorise this loop by itself, since it cannot know that `lanes` lies apart
    from the vectors; written as vectors, it is five times as fast and adds in the same order.
    """
    double, index = ir.DoubleType(), ir.IntType(64)
    eight = ir.VectorType(double, 8)

    def generate(context, builder, signature, args):
        def at(place, number):
            """The eight numbers from the one with this number on."""
            of = signature.args[place]
            single = ir.FloatType() if of.dtype == types.float32 else double
            array = context.make_array(of)(context, builder, args[place])
            first = builder.gep(builder.bitcast(array.data, single.as_pointer()), [number])
            return builder.bitcast(first, ir.VectorType(single, 8).as_pointer())

        def read(place, number):
            found = builder.load(at(place, number), align=4)
            return found if found.type == eight else builder.fpext(found, eight)

        def term(kind, c):
            x, y = read(1, c), read(2, c)
            if kind == PRODUCTS:
                return builder.fmul(x, y)
            apart = builder.fsub(x, y)
            if kind == SQUARES:
                return builder.fmul(apart, apart)
            outline = ir.FunctionType(eight, [eight])
            size = builder.module.declare_intrinsic("llvm.fabs.v8f64", (), outline)
            return builder.call(size, [apart])

        def loop(kind):
            """All whole eights, with their terms added to eight sums."""
            before, turn = builder.block, builder.append_basic_block("eight")
            after = builder.append_basic_block("eights")
            builder.branch(turn)
            builder.position_at_end(turn)
            c, sums = builder.phi(index), builder.phi(eight)
            added, onward = builder.fadd(sums, term(kind, c)), builder.add(c, index(8))
            for phi, start, value in ((c, index(0), onward), (sums, zeros, added)):
                phi.add_incoming(start, before)
                phi.add_incoming(value, turn)
            builder.cbranch(builder.icmp_signed("<", onward, args[3]), turn, after)
            builder.position_at_end(after)
            builder.store(added, at(4, index(0)), align=8)

        zeros = ir.Constant(eight, [0.0] * 8)
        builder.store(zeros, at(4, index(0)), align=8)
        some = builder.icmp_signed(">", args[3], index(0))
        for number in (SQUARES, SIZES, PRODUCTS):
            mine = builder.icmp_signed("==", args[0], index(number))
            with builder.if_then(builder.and_(some, mine)):
                loop(number)
        return context.get_dummy_value()

    return types.void(types.int64, u, v, types.int64, lanes), generate


@intrinsic
def fetch(typing, vectors, i):
    """Ask for the first lines of a row, so that the processor need not wait for them later."""

    def generate(context, builder, signature, args):
        of = signature.args[0]
        array = context.make_array(of)(context, builder, args[0])
        byte, flag = ir.IntType(8), ir.IntType(32)
        sizes = [flag(n) for n in (0, 3, 1)]  # to read, to be kept, data
        outline = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), flag, flag, flag])
        asked = builder.module.declare_intrinsic("llvm.prefetch", [byte.as_pointer()], outline)
        stride = builder.extract_value(array.strides, 0)
        first = builder.bitcast(array.data, byte.as_pointer())
        row = builder.gep(first, [builder.mul(args[1], stride)])
        for line in range(_LINES):
            builder.call(asked, [builder.gep(row, [ir.IntType(64)(64 * line)]), *sizes])
        return context.get_dummy_value()

    return types.void(vectors, types.int64), generate


@njit(inline="always")
def summed(kind, u, v, lanes):  # pragma: no cover
    """The sum of the terms of `kind` over two vectors; `lanes` is scratch for eight numbers."""
    d = len(u)
    whole = d - d % 8
    _eights(kind, u, v, whole, lanes)  # type: ignore[call-arg]
    for c in range(whole, d):
        lanes[c - whole] += _term(kind, u[c], v[c])
    return tree(lanes)


def squared_norms(vectors: np.ndarray) -> np.ndarray:
    """The squared norm of each vector, summed as dot products are.

    Examples
    --------
    >>> squared_norms(np.array([[3.0, 4.0]])).tolist()
    [25.0]
    """
    out = np.empty(len(vectors))
    _norms(vectors, out)
    return out


class Directions(NamedTuple):
    """Vectors for a cosine, which does not ask for their lengths, and their squared norms."""

    vectors: np.ndarray
    norms: np.ndarray


def directions(vectors: np.ndarray) -> Directions:
    """The vectors, those of extreme length multiplied by a power of two, with squared norms.

    A squared norm near the ends of float64 has lost digits, or all of them. A power of two changes
    no digit, and depends on the row alone, so a row has the same cosines in whatever block it
    travels. If no row is extreme, the vectors are returned as they are.

    Examples
    --------
    >>> found = directions(np.array([[3e-162, 4e-162], [3.0, 4.0]]))
    >>> float(found.vectors[0, 0] / found.vectors[0, 1]), float(found.norms[1])
    (0.75, 25.0)
    >>> bool(2.0**-450 < found.norms[0] < 2.0**450)
    True
    """
    norms = squared_norms(vectors)
    extreme = np.flatnonzero(~((norms >= _LEAST) & (norms <= _MOST)))
    if vectors.dtype != np.float64 or not len(extreme):  # squares of float32 are never extreme
        return Directions(vectors, norms)
    scaled = vectors.copy()
    largest = np.abs(scaled[extreme]).max(axis=1, initial=0.0)
    scaled[extreme] = np.ldexp(scaled[extreme], -np.frexp(largest)[1][:, None])
    scaled.flags.writeable = False  # as blocks are, or the loops would be compiled once more
    return Directions(scaled, squared_norms(scaled))


@njit(nogil=True)
def _norms(x, out):  # pragma: no cover
    lanes = np.empty(8)
    for p in range(len(x)):
        out[p] = summed(PRODUCTS, x[p], x[p], lanes)
