"""What makes a pair: ``cosine("v") >= 0.9``, ``within("x", 0.5) & same("room")``.

A *measure* gives a number for a pair of rows; compared with a threshold it becomes a *term*; terms
combined with ``&``, ``|`` and ``~`` are a *predicate*. Nothing here computes.

A column is given by name, ``"v"``, inside a struct, ``"payload.v"``, or as a Column of Spark,
``F.col("v").cast("array<float>")``. Without a second one it stands for both inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.errors import InvalidCall, renamed
from anabranch.predicates.bounds import Between
from anabranch.predicates.columns import Named, column_of
from anabranch.predicates.measures import Custom, PairMeasure, ScoreFunction, VectorMeasure
from anabranch.predicates.terms import Compared, Either, Measure, Negated, Predicate, Term
from anabranch.predicates.values import Differs, Same, Within

__all__ = [
    "Between",
    "Compared",
    "Custom",
    "Differs",
    "Either",
    "Measure",
    "Negated",
    "PairMeasure",
    "Predicate",
    "Same",
    "Term",
    "VectorMeasure",
    "Within",
    "cosine",
    "custom",
    "differs",
    "dot",
    "euclidean",
    "hamming",
    "manhattan",
    "same",
    "within",
]


@renamed()
def cosine(left: Any, right: Any = None, *, dim: int | None = None) -> VectorMeasure:
    """Cosine of the angle between two vectors, -1 to 1.

    Examples
    --------
    >>> cosine("v") >= 0.9
    cosine('v') >= 0.9
    >>> cosine("title_vec", "body_vec", dim=384) > 0.5
    cosine('title_vec', 'body_vec') > 0.5
    """
    return VectorMeasure("cosine", left, left if right is None else right, dim)


@renamed()
def dot(left: Any, right: Any = None, *, dim: int | None = None) -> VectorMeasure:
    """Dot product of two vectors.

    Examples
    --------
    >>> dot("v") >= 12
    dot('v') >= 12
    """
    return VectorMeasure("dot", left, left if right is None else right, dim)


@renamed()
def euclidean(left: Any, right: Any = None, *, dim: int | None = None) -> VectorMeasure:
    """Euclidean distance of two vectors.

    Examples
    --------
    >>> euclidean("position") <= 2.5
    euclidean('position') <= 2.5
    """
    return VectorMeasure("euclidean", left, left if right is None else right, dim)


@renamed()
def manhattan(left: Any, right: Any = None, *, dim: int | None = None) -> VectorMeasure:
    """Sum of the absolute differences of two vectors.

    Examples
    --------
    >>> manhattan("profile") > 10
    manhattan('profile') > 10
    """
    return VectorMeasure("manhattan", left, left if right is None else right, dim)


@renamed()
def hamming(left: Any, right: Any = None, *, dim: int | None = None) -> VectorMeasure:
    """Number of differing bits (binary, long) or of differing elements (arrays).

    Examples
    --------
    >>> hamming("fingerprint") <= 3
    hamming('fingerprint') <= 3
    """
    return VectorMeasure("hamming", left, left if right is None else right, dim)


@renamed()
def within(left: Any, *right_and_limit: Any, low: Any = None, high: Any = None) -> Within | Between:
    """``|left - right| <= limit``: ``within(column, limit)`` or ``within(left, right, limit)``.

    One name stands for the column on both sides; with two, the first is the left input's and the
    second the right input's. The limit comes last: of numbers a number, of dates and timestamps a
    duration. Decimals of any precision and scale are compared exactly, and beside them whole
    numbers; their limit may be a number, a ``Decimal`` or text.

    For `nearest`, ``low <= left <= high``: ``within(column, low=..., high=...)`` takes the bounds
    of each query from its own columns. Without one of them that side is open.

    Examples
    --------
    >>> within("price", 0.5)
    within('price', 0.5)
    >>> within("bid", "ask", 0.5)
    within('bid', 'ask', 0.5)
    >>> within("amount", "total", "0.01")
    within('amount', 'total', Decimal('0.01'))
    >>> within("published", "2 days")
    within('published', '2 days')
    >>> within("price", low="min_price", high="max_price")
    within('price', low='min_price', high='max_price')
    >>> within("amount", 0.01, "total")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: within cannot start: the limit comes last: write \
within('amount', 'total', 0.01)
    """
    if low is not None or high is not None:
        if right_and_limit:
            problem = "a limit and bounds were both given: write within('price', 0.5), or"
            raise InvalidCall("within", [f"{problem} within('price', low='min', high='max')"])
        return Between(left, low, high)
    if len(right_and_limit) == 2 and _is_column(right_and_limit[1]):
        limit, right = right_and_limit
        if not _is_column(limit):
            what = f"within({left!r}, {right!r}, {limit!r})"
            raise InvalidCall("within", [f"the limit comes last: write {what}"])
    if len(right_and_limit) == 1:
        return Within(left, left, right_and_limit[0])
    if len(right_and_limit) == 2:
        return Within(left, right_and_limit[0], right_and_limit[1])
    raise InvalidCall(
        "within",
        [
            "write within(column, limit), for example within('price', 0.5), or within(left, right, "
            "limit), for example within('bid', 'ask', 0.5); or, for ab.nearest, within(column, "
            "low=..., high=...)"
        ],
    )


@renamed()
def same(left: Any, right: Any = None) -> Same:
    """Equality of two columns; it lets the join spread by key.

    Examples
    --------
    >>> same("room"), same("host", "server")
    (same('room'), same('host', 'server'))
    """
    return Same(left, left if right is None else right)


@renamed()
def differs(left: Any, right: Any = None) -> Differs:
    """Two columns are not the same: many channels in one stream, each against all others.

    Examples
    --------
    >>> (cosine("v") >= 0.9) & differs("channel")
    (cosine('v') >= 0.9) & differs('channel')
    """
    return Differs(left, left if right is None else right)


@renamed()
def custom(
    function: ScoreFunction, left: Any | Sequence[Any], right: Any | Sequence[Any]
) -> Custom:
    """Any vectorised function of two column batches.

    `function` gets two mappings from column name to a one-dimensional array with n and m rows and
    returns an n by m matrix of booleans, or of scores to compare with a threshold. The type of a
    column alone decides the array: numbers and booleans as such, dates and timestamps as
    ``datetime64``, anything else as objects; of an array column each is a numpy array, and
    ``np.stack`` makes a matrix of them. Rows with nulls are bad rows and not shown. A cell must
    depend on its own two rows alone, since the library is free to choose which rows it shows
    together. A single column may be given by its name alone. Of one stream, ``left`` are the
    earlier rows, by time and id, so a function need not be the same either way round.

    Examples
    --------
    >>> def ratio(l, r):
    ...     return l["size"][:, None] / r["size"][None, :]
    >>> custom(ratio, left=["size"], right=["size"]) >= 0.5
    custom(ratio, left=['size'], right=['size']) >= 0.5
    """
    return Custom(function, _names("left", left), _names("right", right))


def _names(side: str, columns: Any) -> tuple[Named, ...]:
    """Columns of a custom function; one may be given by its name alone."""
    names = (columns,) if not isinstance(columns, (list, tuple)) else tuple(columns)
    return tuple(column_of("custom", name, side) for name in names)


def _is_column(value: Any) -> bool:
    try:
        column_of("within", value)
    except InvalidCall:
        return False
    return True
