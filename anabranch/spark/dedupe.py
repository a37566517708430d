"""The verb `dedupe`: the rows of a stream without an earlier one that is alike."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from anabranch.calls import MISSING, Duration, is_names
from anabranch.correlation.call import plan_correlation
from anabranch.errors import InvalidCall, renamed
from anabranch.plans.controller import Adaptive
from anabranch.plans.plan import Plan
from anabranch.predicates import Predicate
from anabranch.spark.carriage import carry_problems, names_of
from anabranch.spark.correlate import begin, control_problems
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.lateness import WATERMARK, lateness_problems
from anabranch.spark.opening import opened
from anabranch.spark.rejects import rejection_of, rejection_problems
from anabranch.spark.settings import room_problems, setting_problems

__all__ = ["dedupe"]


@renamed(late="watermark", collect="keep")
def dedupe(
    stream: DataFrame,
    *,
    where: Predicate = MISSING,
    window: Duration = MISSING,
    time: Any = "ts",
    id: Any = "id",
    keep: Any = None,
    watermark: Duration | None = None,
    plan: Plan | Adaptive | None = None,
    control: str | None = None,
    bad_rows: str = "fail",
    rejects: str | None = None,
) -> DataFrame:
    """The rows of a stream (or table) that have no earlier row within `window` that is alike.

    Rows are alike if `where` holds of them; earlier is by time, and at one time by id. It does not
    matter whether the earlier row was itself emitted: of a chain of rows, each alike the one
    before, only the first comes out. So the result depends on the rows alone, and not on plan,
    batching or order of arrival. In a stream a row comes once the watermark has passed it.

    Parameters
    ----------
    stream
        A streaming or batch DataFrame.
    where
        What makes two rows alike, for example ``ab.cosine("v") >= 0.95``.
    window
        How far back to look: a duration.
    time, id
        Column names. Times are timestamps; ids are long, int or string and unique.
    keep
        The columns to carry beside time and id, a name or a list; by default all. Rows wait with
        what they carry for the window, so fewer columns make less state.
    watermark
        Streaming: how far a row may lag behind the newest time seen. Leave it out if the input has
        a watermark on its time column.
    plan, control, bad_rows, rejects
        As in `correlate`.

    Returns
    -------
    DataFrame
        The rows that come out, with all their columns or those to keep; of a table in the order
        of time and id. In a stream `time` carries the watermark.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> table = spark.sql('''SELECT id, timestamp_seconds(1700000000 + id) AS ts,
    ...                             floor(id / 3) AS x FROM range(9)''')
    >>> first = ab.dedupe(table, where=ab.same("x"), window="1 minute")
    >>> [(row.id, row.x) for row in first.collect()]
    [(0, 0), (3, 1), (6, 2)]
    """
    refuse_others("dedupe", {"stream": stream})
    columns = stream.columns
    (frame,), (time, id, keep, where) = opened((stream,), (time, id, keep), where)
    spark = frame.sparkSession
    settings = plan if isinstance(plan, Adaptive) else None
    types = column_types(frame)

    def spelt(name: Any) -> str:  # Spark need not tell upper from lower case
        return next(iter(types.named(str(name))), str(name))

    own = [spelt(name) for name in (id, time)]
    kept = columns if keep is None else names_of(keep)
    kept = [name for name in kept if spelt(name) not in own]
    found, problems = plan_correlation(
        types,
        None,
        where=where,
        window=window,
        time=time,
        id=id,
        keep=kept if keep is None or isinstance(keep, str) or is_names(keep) else keep,
        watermark=watermark,
        plan=plan if settings is None else settings.start,
        bad_rows=bad_rows,
        how="dedupe",
    )
    problems += setting_problems(spark, frame.isStreaming)
    problems += carry_problems("column", frame, kept)
    problems += lateness_problems({"stream": frame}, {"stream": time}, watermark)
    problems += control_problems(spark, settings, control, frame.isStreaming, watermark)
    problems += room_problems(spark, plan)
    problems += rejection_problems(rejects, {"stream": stream})
    if problems or found is None:
        raise InvalidCall("dedupe", problems)
    rejection = rejection_of("dedupe", rejects, {"stream": stream}, [found.left.vectors])
    rows = begin(found, (frame,), settings, control, rejection)
    if keep is not None:
        chosen = [*own, *map(spelt, kept)]
        columns = [name for name in columns if name in chosen]
        columns += [name for name in chosen if name not in columns]
    if not frame.isStreaming:
        rows = rows.orderBy(*(by_name(f"right_{name}") for name in reversed(own)))
    # In a stream rows come out when the watermark passes them, which so continues in their time.
    marks = {own[1]: {WATERMARK: 0}} if frame.isStreaming else {}
    return rows.select(
        *(by_name(f"right_{name}").alias(name, metadata=marks.get(name, {})) for name in columns)
    )
