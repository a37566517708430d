"""Arrays lent to compiled code, which then does not count references to them.

numba counts references to an array that is handed on or taken out of a tuple, each time with an
instruction that locks memory. Between small pieces of work that is a third of the time.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["lent", "moved"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_intrinsic: Any = intrinsic  # whose callers do not pass what the compiler does


@_intrinsic
def lent(typing, held):
    """The same array, or tuple of arrays, without references that are counted.

    A compiled function may lend what it was handed, for its caller holds it until it returns. It
    may not lend what it made itself, unless to a function that it calls.
    """

    def generate(context, builder, signature, args):
        return _unowned(context, builder, signature.args[0], args[0])

    return held(held), generate


def _unowned(context, builder, kind: Any, value):
    """A value whose arrays have no owner."""
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, value, len(kind))
        kinds: Any = kind
        each = [_unowned(context, builder, *part) for part in zip(kinds, parts, strict=True)]
        return context.make_tuple(builder, kind, each)
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    return value


@_intrinsic
def moved(typing, values, begin, end, to, at):
    """Copy elements from begin to end to another place, perhaps of the same array.

    As one call: loops in compiled code must first find out whether their arrays overlap, which for
    few elements takes longer than to move them.
    """

    def generate(context, builder, signature, args):
        source, begin, end, target, at = args
        kind = signature.args[0]

        def place(array, position):
            data = context.make_array(kind)(context, builder, array).data
            return builder.gep(data, [position])

        size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        count = builder.sub(end, begin)
        cgutils.raw_memmove(builder, place(target, at), place(source, begin), count, size)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, values, types.int64), generate
