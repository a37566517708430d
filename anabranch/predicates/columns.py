"""A column as a predicate holds it: its name, or an expression that Spark has yet to name."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import InvalidCall

__all__ = ["Expression", "Named", "column_of"]

# Spark numbers the arguments of lambdas, and prints where in memory something is: both change from
# one start to the next.
_NUMBERED = re.compile(r"\b([xyz])_\d+\b")
_ADDRESS = re.compile(r"@[0-9a-f]+\b")


@dataclass(frozen=True)
class Expression:
    """A Column of Spark, which only Spark can read; two of the same text are the same.

    Examples
    --------
    >>> Expression.of("Column<'transform(v, x_7 -> *(x_7, 2))'>")
    transform(v, x -> *(x, 2))
    """

    text: str
    column: Any = field(compare=False)

    @classmethod
    def of(cls, column: Any) -> Expression:
        """The expression that a Column is."""
        text = str(column).removeprefix("Column<'").removesuffix("'>")
        return cls(_ADDRESS.sub("", _NUMBERED.sub(r"\1", text)), column)

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


Named = str | Expression


def column_of(verb: str, value: Any, name: str = "") -> Named:
    """A column as the caller gives it as `name`, by its name or as a Column of Spark.

    Examples
    --------
    >>> column_of("cosine", "payload.v")
    'payload.v'
    >>> column_of("cosine", 5, "left")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: cosine cannot start: left: a column is a name, 'v' or \
'payload.v', or a Column of Spark, F.col('v'); got 5
    """
    if isinstance(value, Expression) or (isinstance(value, str) and value):
        return value
    spark = sys.modules.get("pyspark.sql")  # who holds a Column has imported it
    if spark is not None and isinstance(value, spark.Column):
        return Expression.of(value)
    what = "a column is a name, 'v' or 'payload.v', or a Column of Spark, F.col('v')"
    raise InvalidCall(verb, [f"{name}{': ' * bool(name)}{what}; got {value!r}"])
