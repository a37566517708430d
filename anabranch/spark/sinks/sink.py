"""How every sink writes a micro-batch: consume it, look whether it is there, commit it with a note.

The order matters. Since Spark 4.1 a stateful query stops with STATE_STORE_COMMIT_VALIDATION_FAILED
if `foreachBatch` returns before all partitions of the batch were computed, so a batch that is
already there has to be computed as well. And it should be computed once: a second time loads the
state again.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from anabranch.calls import Check, is_whole
from anabranch.errors import InvalidCall
from anabranch.flow.delivery import (
    Progress,
    app_problems,
    is_new,
    offsets_mark,
    refuse_elsewhere,
    refuse_other_columns,
    refuse_replanned,
)
from anabranch.flow.zones import in_utc
from anabranch.spark.checkpoint import Checkpoint
from anabranch.spark.frames import is_case_sensitive, kind_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DRIVER", "SPARK", "Batch", "Sink", "Target", "Writer"]

DRIVER, SPARK = "driver", "spark"
"""Ways to a target: through the driver as one Arrow table, or from the executors by Spark."""

_LOG = logging.getLogger("anabranch.sinks")
_QUERY = "sql.streaming.queryId"


@dataclass(frozen=True)
class Batch:
    """A micro-batch that has been consumed.

    Attributes
    ----------
    app, number, query
        Whose it is; `query` is "" where Spark does not say.
    frame
        The rows in Spark; computed again if it is used when there is a `table`.
    table
        The rows as Arrow, if they go through the driver.
    rows
        How many there are.
    mark
        What tells it from another batch of its number, see `anabranch.flow.delivery`.
    """

    app: str
    number: int
    query: str
    frame: DataFrame
    table: pa.Table | None
    rows: int
    mark: str = ""

    @property
    def note(self) -> Progress:
        """What the target notes of it."""
        return Progress(self.number, self.query, self.mark)

    def reached(self, step: str) -> None:
        """Note how far the batch has come; between any two of these a kill does no harm."""
        _LOG.debug("%s batch %d: %s", self.app, self.number, step)


class Writer(ABC):
    """A target as it is opened for one batch."""

    done: Progress | None = None
    """The newest batch that it holds of this app; None if it holds none."""
    columns: Mapping[str, str] | None = None
    """Its columns and their types; None if it is not there yet, or has none."""

    @abstractmethod
    def write(self, columns: Mapping[str, str]) -> None:
        """Write the batch and the note that it is there, as one; `columns` if it is to be made."""


class Target(ABC):
    """Where results go. Holds what names the place; connections are opened when needed."""

    verb: ClassVar[str]
    packages: ClassVar[Sequence[str]] = ()
    """What has to be installed to go through the driver."""
    extra: ClassVar[str] = "sinks"
    place: str

    @abstractmethod
    def open(self, batch: Batch) -> AbstractContextManager[Writer]:
        """Look what is there, ready to write."""

    def shaped(self, frame: DataFrame) -> DataFrame:
        """The rows as the target takes them."""
        return frame

    def types(self, frame: DataFrame) -> Mapping[str, str]:
        """The columns of a result as the target would call them."""
        return {field.name: field.dataType.simpleString() for field in frame.schema}

    def spark_problem(self, spark: SparkSession) -> str | None:
        """What the session lacks to write there by itself; None if nothing."""
        return None

    def place_problem(self, spark: SparkSession) -> str | None:
        """Why the place is not the same one for the driver and for Spark; None if it is."""
        return None

    def driver_loss(self, frame: DataFrame) -> str | None:
        """What of these rows would be another value if they went through the driver, or None."""
        return None

    def elsewhere(self, batch: Batch) -> Progress | None:
        """What the way that the batch does not take finds of its app; None if nothing."""
        return None

    def driver_problem(self) -> str | None:
        """What is not installed here; None if nothing."""
        missing = [name for name in self.packages if find_spec(name) is None]
        if not missing:
            return None
        return f"{' and '.join(missing)} not installed: pip install 'anabranch[{self.extra}]'"


class Sink:
    """A callable for ``foreachBatch`` that writes every micro-batch exactly once."""

    def __init__(self, target: Target, app: str, via: str | None, small: int) -> None:
        check = Check()
        for problem in app_problems(app):
            check.say(problem)
        check.whole("small", small, least=0)
        way = None if via is None else check.choice("via", via, (DRIVER, SPARK))
        missing = target.driver_problem() if way == DRIVER and isinstance(via, str) else None
        if missing:
            check.say(missing)
        check.refuse(target.verb)
        self.target = target
        self.app = app
        self.via = via
        self.small = int(small)
        self._called: int | None = None

    def __repr__(self) -> str:
        return f"ab.{self.target.verb}({self.target.place!r}, app={self.app!r})"

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write one micro-batch, unless it is there already."""
        if not hasattr(frame, "sparkSession") or not is_whole(number, least=0):
            called = "foreachBatch calls a sink with a DataFrame and the number of a batch"
            got = f"{kind_of(frame)} and {number!r}"
            raise InvalidCall(self.target.verb, [f"{called}, got {got}"])
        target, query = self.target, query_of(frame)
        planned = planned_of(frame, query, number)
        before, self._called = self._called, number
        refuse_alike(target.verb, frame)
        lost = None if self.via == SPARK else target.driver_loss(frame)
        way = self._way(frame.sparkSession, lost)
        with consumed(target.shaped(frame), way, self.small) as (kept, table, rows):
            mark = offsets_mark(planned) if planned else f"rows={rows}"
            batch = Batch(self.app, number, query, kept, table, rows, mark)
            batch.reached("consumed")
            if not rows:  # nothing to repeat, so nothing to note
                return
            with target.open(batch) as writer:
                if way is None and writer.done is None:
                    refuse_elsewhere(self.app, target.place, target.elsewhere(batch))
                if not is_new(self.app, batch.note, writer.done):
                    self._repeated(batch, writer.done, before)
                    return
                columns = target.types(frame)
                refuse_other_columns(target.verb, target.place, writer.columns, columns)
                writer.write(columns)
        batch.reached("written")

    def _repeated(self, batch: Batch, done: Progress | None, before: int | None) -> None:
        """A batch is there already; what is left to see where Spark does not say whose it is.

        Through Connect a sink is made anew for every start of the query, and only the first batch
        of a start is a repeated one.
        """
        if not batch.query and before is not None and before < batch.number:
            refuse_replanned(self.app, batch.number)
        if done is not None and batch.note.contradicts(done):
            _LOG.warning(
                "%s batch %d is there already, with %s and not %s: if an older checkpoint was "
                "restored, rows of this batch are lost (docs/operate.md, Restore)",
                *(batch.app, batch.number, done.mark, batch.mark),
            )
        batch.reached("was there already")

    def _way(self, spark: SparkSession, lost: str | None = None) -> str | None:
        """How rows travel; None if their number is to decide."""
        split = self.target.place_problem(spark)
        if split:
            raise InvalidCall(self.target.verb, [split])
        no_driver = None if self.via == SPARK else self.target.driver_problem() or lost
        no_spark = None if self.via == DRIVER else self.target.spark_problem(spark)
        if self.via is None:
            if no_driver and no_spark:
                raise InvalidCall(self.target.verb, list(dict.fromkeys([no_driver, no_spark])))
            return DRIVER if no_spark else SPARK if no_driver else None
        problem = no_driver or no_spark
        if problem:
            raise InvalidCall(self.target.verb, [f"via={self.via!r}: {problem}"])
        return self.via


def refuse_alike(verb: str, frame: DataFrame) -> None:
    """Raise for columns of one name: targets that take them cannot be read by Spark afterwards."""
    spelt: dict[str, list[str]] = {}
    for name in frame.columns:
        spelt.setdefault(name.lower(), []).append(name)
    alike = [names for names in spelt.values() if len(names) > 1]
    if alike and is_case_sensitive(frame):
        alike = [names for names in alike if len(set(names)) < len(names)]
    if alike:
        problems = [f"columns {', '.join(map(repr, names))} have one name" for names in alike]
        raise InvalidCall(verb, [f"{problem}: rename all but one" for problem in problems])


@contextmanager
def consumed(
    frame: DataFrame, way: str | None, small: int
) -> Iterator[tuple[DataFrame, pa.Table | None, int]]:
    """The rows after all of them were computed, once; and their number.

    Whether they are few is known when they are there, so Spark keeps them until it is decided.
    """
    if way == DRIVER:
        table = in_utc(frame.toArrow())
        yield frame, table, table.num_rows
        return
    kept = frame.persist()
    try:
        rows = kept.count()
        table = in_utc(kept.toArrow()) if way is None and rows <= small else None
        yield kept, table, rows
    finally:
        kept.unpersist()


def query_of(frame: Any) -> str:
    """The id of the query that a micro-batch belongs to, which its checkpoint keeps.

    Spark Connect does not say.
    """
    from pyspark.sql.utils import is_remote

    if is_remote() or not hasattr(frame, "_jdf"):
        return ""
    return frame.sparkSession.sparkContext.getLocalProperty(_QUERY) or ""


def planned_of(frame: Any, query: str, number: int) -> str:
    """What the checkpoint of a running query says of a batch; "" where Spark hides it."""
    if not query:
        return ""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    spark = frame.sparkSession
    try:
        running = spark._jsparkSession.sharedState().activeStreamingQueries()
        found = running.get(spark._jvm.java.util.UUID.fromString(query))
        return (found and Checkpoint(spark, found.resolvedCheckpointRoot()).offsets(number)) or ""
    except Py4JJavaError:
        raise  # a checkpoint that cannot be read just now
    except Py4JError as error:  # a Spark of other insides, or one that lets nobody look there
        _LOG.info("how batch %d was planned is not known: %s", number, error)
        return ""
