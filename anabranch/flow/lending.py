"""Arrays lent to compiled code, which then does not count references to them.

numba counts references to an array that is handed on or taken out of a tuple, each time with an
instruction that locks memory. Between small pieces of work that is a third of the time.
"""

from __future__ import annotations

from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["lent"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"


@intrinsic
def lent(typing, held):
    """The same array, or tuple of arrays, without references that are counted.

    A compiled function may lend what it was handed, for its caller holds it until it returns. It
    may not lend what it made itself, unless to a function that it calls.
    """

    def generate(context, builder, signature, args):
        return _unowned(context, builder, signature.args[0], args[0])

    return held(held), generate


def _unowned(context, builder, kind, value):
    """A value whose arrays have no owner."""
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, value, len(kind))
        each = [_unowned(context, builder, *part) for part in zip(kind, parts, strict=True)]
        return context.make_tuple(builder, kind, each)
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    return value
