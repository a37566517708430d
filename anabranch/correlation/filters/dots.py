"""Dot products of bytes by the instructions that processors have for them.

A *tile* is a few left rows against a few right ones, held in registers: every step takes four more
places of all vectors and adds their products to 32-bit sums. What a tile says is only which sums
reach the bound of their row; sums never leave the registers. Left vectors are signed bytes, right
ones are moved up by a constant where an instruction wants them unsigned, which adds the same to all
sums of a left row and so is part of its bound.

How both are laid out, and by which instruction they meet, is an `Instructions`; the type of one
tells the compiler which, so code for one is never taken for another's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba.core import config, types
from numba.extending import intrinsic

__all__ = [
    "Avx2",
    "Instructions",
    "Neon",
    "Vnni256",
    "Vnni512",
    "available",
    "lowest_bit",
    "reaching",
    "room",
]

_BYTE, _WORD, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)


class Vnni512(NamedTuple):
    """Of x86 with AVX-512 VNNI: one instruction multiplies and adds 64 bytes."""

    rows: int = 8  # of a tile
    cols: int = 32
    shift: int = 128  # what right bytes are moved up by
    most: int = 127  # the greatest size of a right byte before that


class Vnni256(NamedTuple):
    """Of x86 with AVX-VNNI, which takes 32 bytes at once."""

    rows: int = 6
    cols: int = 16
    shift: int = 128
    most: int = 127


class Avx2(NamedTuple):
    """Of x86 with AVX2, which adds two products within 16 bits: right vectors have 7 bits."""

    rows: int = 4
    cols: int = 16
    shift: int = 64
    most: int = 63


class Neon(NamedTuple):
    """Of ARM with the dot product extension, which multiplies signed bytes."""

    rows: int = 6
    cols: int = 16
    shift: int = 0
    most: int = 127


Instructions = Vnni512 | Vnni256 | Avx2 | Neon

# The features of a processor, by LLVM's names, that each needs; the best first.
_NEEDS: dict[type, tuple[tuple[str, ...], ...]] = {
    Vnni512: (("avx512f", "avx512bw", "avx512vnni"),),
    Vnni256: (("avxvnni",), ("avx512vl", "avx512vnni")),
    Avx2: (("avx2",),),
    Neon: (("neon", "dotprod"),),
}
_LANES: dict[type, int] = {Vnni512: 16, Vnni256: 8, Avx2: 8, Neon: 4}  # sums in a register


@functools.cache
def available() -> tuple[Instructions, ...]:
    """What code compiled by this process may use, the fastest first."""
    # Whoever names a processor or its features for numba decides what code it gets.
    if getattr(config, "CPU_NAME", None) or getattr(config, "CPU_FEATURES", None):
        return ()
    host = binding.get_host_cpu_features()
    found = [
        kind()
        for kind, ways in _NEEDS.items()
        if any(all(host.get(name, False) for name in way) for way in ways)
    ]
    return tuple(found)


class Work(NamedTuple):
    """Two blocks as bytes, and what their sums must reach."""

    by: Instructions
    left: np.ndarray  # groups of rows: of each a word of four bytes, then of each the next one
    right: np.ndarray  # panels of columns, likewise
    steps: int  # words of a vector
    starts: np.ndarray  # where the sums of a right row begin
    bounds: np.ndarray  # what the sums of a left row must reach
    masks: np.ndarray  # which sums of a tile do
    span: int  # panels that are gone through at once
    stride: int  # between groups, so that the first ones are a sample


@intrinsic
def reaching(typing, work, group, panel):  # type: ignore[no-untyped-def]
    """Whether any sum of a tile reaches its row's bound; if so, the masks of `work` say which.

    Bit c of ``masks[r, v]`` is for row r of the group and column c of the v-th register's part of
    the panel.
    """
    fields = dict(zip(work.fields, work.types, strict=True))
    kind = fields["by"].instance_class

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def part(name: str) -> Any:
            return builder.extract_value(args[0], work.fields.index(name))

        def words(name: str, *sizes: Any) -> Any:
            """Where an array's words begin, from a number of things of some size on."""
            array = context.make_array(fields[name])(context, builder, part(name))
            first = functools.reduce(builder.mul, sizes, _LONG(1))
            return builder.gep(builder.bitcast(array.data, _WORD.as_pointer()), [first])

        rows, cols, steps = _LONG(kind().rows), _LONG(kind().cols), part("steps")
        _, group, panel = args
        tile = _Tile(
            builder,
            kind,
            words("left", group, rows, steps),
            words("right", panel, cols, steps),
            words("starts", panel, cols),
            words("bounds", group, rows),
            words("masks", _LONG(0)),
        )
        return tile.run(steps)

    return types.boolean(work, types.int64, types.int64), generate


@intrinsic
def lowest_bit(typing, word):  # type: ignore[no-untyped-def]
    """The place of the lowest bit that is set in a word of 32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.cttz(args[0], ir.IntType(1)(True)), _LONG)

    return types.int64(types.int32), generate


class _Tile:
    """Writes the code of one tile."""

    def __init__(
        self, builder: Any, kind: type, left: Any, right: Any, start: Any, bounds: Any, masks: Any
    ) -> None:
        self.builder, self.left, self.right = builder, left, right
        self.start, self.bounds, self.masks = start, bounds, masks
        self.lanes = _LANES[kind]
        self.rows, self.vectors = kind().rows, kind().cols // self.lanes
        self.sums = ir.VectorType(_WORD, self.lanes)
        self.dot = _DOTS[kind](builder, self.lanes)

    def run(self, steps: Any) -> Any:
        """The whole tile; whether any sum reaches its bound."""
        builder, before = self.builder, self.builder.block
        starts = [self._load(self.start, v * self.lanes) for v in range(self.vectors)]
        body, after = (builder.append_basic_block(name) for name in ("step", "compare"))
        builder.branch(body)
        builder.position_at_end(body)
        step = builder.phi(_LONG)
        step.add_incoming(_LONG(0), before)
        sums = [[builder.phi(self.sums) for _ in starts] for _ in range(self.rows)]
        added = self._step(step, sums)
        onward = builder.add(step, _LONG(1))
        step.add_incoming(onward, body)
        for held, new in zip(sums, added, strict=True):
            for phi, begin, value in zip(held, starts, new, strict=True):
                phi.add_incoming(begin, before)
                phi.add_incoming(value, body)
        builder.cbranch(builder.icmp_signed("<", onward, steps), body, after)
        builder.position_at_end(after)
        return self._compare(added)

    def _step(self, step: Any, sums: list[list[Any]]) -> list[list[Any]]:
        """Four more places of all vectors."""
        builder = self.builder
        words = builder.gep(self.right, [builder.mul(step, _LONG(self.vectors * self.lanes))])
        right = [self._load(words, v * self.lanes) for v in range(self.vectors)]
        left = builder.gep(self.left, [builder.mul(step, _LONG(self.rows))])
        added = []
        for r, row in enumerate(sums):
            same = self._spread(left, r)
            added.append([self.dot(s, b, same) for s, b in zip(row, right, strict=True)])
        return added

    def _compare(self, sums: list[list[Any]]) -> Any:
        builder = self.builder
        found = [
            builder.icmp_signed(">=", value, self._spread(self.bounds, r))
            for r, row in enumerate(sums)
            for value in row
        ]
        bits = ir.IntType(self.lanes)
        hit = builder.icmp_unsigned(
            "!=", builder.bitcast(functools.reduce(builder.or_, found), bits), bits(0)
        )
        with builder.if_then(hit, likely=False):
            for place, mask in enumerate(found):
                word = builder.zext(builder.bitcast(mask, bits), _WORD)
                builder.store(word, builder.gep(self.masks, [_LONG(place)]))
        return hit

    def _load(self, words: Any, place: int) -> Any:
        at = self.builder.gep(words, [_LONG(place)])
        value = self.builder.load(self.builder.bitcast(at, self.sums.as_pointer()))
        value.align = 4
        return value

    def _spread(self, words: Any, place: int) -> Any:
        """One word in all lanes."""
        word = self.builder.load(self.builder.gep(words, [_LONG(place)]))
        word.align = 4
        none = ir.Constant(self.sums, ir.Undefined)
        single = self.builder.insert_element(none, word, _WORD(0))
        return self.builder.shuffle_vector(single, none, ir.Constant(self.sums, [0] * self.lanes))


Dot = Callable[[Any, Any, Any], Any]  # of sums, right words and left words: new sums


def _vnni(builder: Any, lanes: int) -> Dot:
    sums = ir.VectorType(_WORD, lanes)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    function = builder.module.declare_intrinsic(name, (), ir.FunctionType(sums, [sums] * 3))
    return lambda total, right, left: builder.call(function, [total, right, left])


def _avx2(builder: Any, lanes: int) -> Dot:
    sums, shorts, small = (ir.VectorType(ir.IntType(b), 256 // b) for b in (32, 16, 8))
    declare = builder.module.declare_intrinsic
    pairs = declare("llvm.x86.avx2.pmadd.ub.sw", (), ir.FunctionType(shorts, [small, small]))
    fours = declare("llvm.x86.avx2.pmadd.wd", (), ir.FunctionType(sums, [shorts, shorts]))
    ones = ir.Constant(shorts, [1] * 16)

    def dot(total: Any, right: Any, left: Any) -> Any:
        products = builder.call(pairs, [builder.bitcast(x, small) for x in (right, left)])
        return builder.add(total, builder.call(fours, [products, ones]))

    return dot


def _neon(builder: Any, lanes: int) -> Dot:
    sums, small = ir.VectorType(_WORD, lanes), ir.VectorType(_BYTE, 4 * lanes)
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    kind = ir.FunctionType(sums, [sums, small, small])
    function = builder.module.declare_intrinsic(name, (), kind)
    return lambda total, right, left: builder.call(
        function, [total, builder.bitcast(right, small), builder.bitcast(left, small)]
    )


_DOTS: dict[type, Callable[[Any, int], Dot]] = {
    Vnni512: _vnni,
    Vnni256: _vnni,
    Avx2: _avx2,
    Neon: _neon,
}


def room(by: Instructions) -> np.ndarray:
    """Where `reaching` leaves its masks: by row and register."""
    return np.zeros((by.rows, by.cols // _LANES[type(by)]), np.int32)
