"""Words of 64 bits as sets, for compiled code: what a processor does in one instruction."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["highest", "lowest", "ones"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_intrinsic: Any = intrinsic  # whose callers do not pass what the compiler does

_UNLESS_ZERO = ir.IntType(1)(True)


@_intrinsic
def ones(typing, word):
    """How many bits are set."""

    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@_intrinsic
def lowest(typing, word):
    """The place of the lowest bit that is set; of a word that has one."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], _UNLESS_ZERO)

    return types.int64(types.uint64), generate


@_intrinsic
def highest(typing, word):
    """The place of the highest bit that is set; of a word that has one."""

    def generate(context, builder, signature, args):
        return builder.sub(ir.IntType(64)(63), builder.ctlz(args[0], _UNLESS_ZERO))

    return types.int64(types.uint64), generate
