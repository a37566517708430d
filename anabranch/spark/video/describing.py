"""`ab.video.describe`: key frames with a vector to compare, concepts, and text on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    FloatType,
    StringType,
    StructType,
)

from anabranch.calls import TIMESTAMP, Check, Duration
from anabranch.errors import renamed
from anabranch.flow.metrics import metrics_name
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.layouts import NAMES, UNPICTURED
from anabranch.spark.operator import PACKED, Packer, over_batch, over_stream
from anabranch.spark.settings import partitions, setting_problems
from anabranch.video.captions import Line, joined
from anabranch.video.layout import inner
from anabranch.video.network import Network, lite0
from anabranch.video.pictures import decode
from anabranch.video.tickers import TIME, KeyPacking, TickersJob

__all__ = ["describe"]

_VECTOR = ArrayType(FloatType())
_BOX = pa.list_(pa.float32())
_LINES = pa.list_(pa.struct([("text", pa.string()), ("score", pa.float32()), ("box", _BOX)]))


@renamed(rejects="a key frame without channel or time stops the query; shots gives none")
def describe(
    keys: DataFrame,
    *,
    vector: str = "layout",
    concepts: Callable[[np.ndarray], Any] | None = None,
    text: Callable[[np.ndarray], Any] | None = None,
    ticker: Duration | None = "10 minutes",
    views: bool = False,
) -> DataFrame:
    """Key frames with more columns: a vector to compare, concepts, and the text on the screen.

    Parameters
    ----------
    keys
        The result of `ab.video.shots`, streaming or batch.
    vector
        ``"layout"``, the 576 numbers of the features; or ``"both"``, beside them the 1,280 of a
        network, so that the cosine is the mean of both. That needs the extra ``video-concepts``.
    concepts
        What pictures show: ``ab.video.lite0()``, ``ab.video.onnx(...)``, or any function from
        pictures (n, height, width, 3) to scores (n, c) that has ``names``.
    text
        What captions say: ``ab.video.ocr()``, or any function from pictures to a list of lines
        (text, score, box) for each.
    ticker
        A line that a channel has shown on more than a fifth of its key frames in this time, and on
        more than 10 of them, is left out of ``words``. None leaves none out; the step then has no
        state.
    views
        Whether to add ``views``: the layout of the whole picture, of its inner 84 % and of its
        inner 70 %. Crops and borders of copies then matter less.

    Returns
    -------
    DataFrame
        The same rows with ``vector``, but for those of pictures without any contrast, as of black:
        these have no direction and no vector, and the query's observedMetrics count them as
        ``blank``, under ``anabranch_described_``. So are rows left out that lack what the vector is
        made of, features or, with ``"both"``, a picture; they are counted as ``incomplete``. All
        else that a missing picture would say is null. With ``concepts``, whose names are in the
        column's metadata; with ``text``, its lines, and ``words``, those that say something as one
        text; with ``views``, three vectors.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> keys = spark.sql("SELECT 'a' AS id, array(3f, 4f) AS features, X'' AS picture")
    >>> ab.video.describe(keys).first().vector  # of length 1
    [0.6000000238418579, 0.800000011920929]
    """
    refuse_others("describe", {"keys": keys})
    check = Check(keys=column_types(keys))
    vector = check.choice("vector", vector, ("layout", "both"))
    for name, given, example in (
        ("concepts", concepts, "ab.video.lite0()"),
        ("text", text, "ab.video.ocr()"),
    ):
        if given is not None and not callable(given):
            check.say(f"{name} must be a function such as {example}, got {given!r}")
    names = getattr(concepts, "names", None)
    if concepts is not None and not isinstance(names, (tuple, list)):
        check.say("concepts must have names: set .names, a list of texts, on the function")
    views = check.flag("views", views)
    check.column("keys", "features", "vector", frozenset({"array<float>"}))
    if vector == "both" or views or concepts is not None or text is not None:
        check.column("keys", "picture", "pictures", frozenset({"binary"}))
        if "picture" in keys.columns and keys.schema["picture"].metadata.get(UNPICTURED):
            check.say(
                "pictures: these key frames come from frames with picture=None, and vector='both', "
                "views, concepts and text are made of pictures: leave picture= out there"
            )
    lasting = None
    if text is not None and ticker is not None:
        lasting = check.duration("ticker", ticker, 1)
        check.column("keys", "channel", "ticker", frozenset({"string"}))
        check.column("keys", "ts", "ticker", TIMESTAMP)
        for problem in setting_problems(keys.sparkSession, keys.isStreaming):
            check.say(problem)
    check.refuse("describe")
    network = lite0() if vector == "both" else None
    describer = _Describer(network, concepts, len(names or ()), text, bool(views))
    schema = StructType([*keys.schema.fields]).add("vector", _VECTOR)
    if views:
        schema.add("views", ArrayType(_VECTOR))
    if concepts is not None:
        schema.add("concepts", _VECTOR)
    if text is not None:
        line = StructType().add("text", StringType()).add("score", FloatType()).add("box", _VECTOR)
        schema.add("text", ArrayType(line)).add("words", StringType())
    found = keys.mapInArrow(describer, schema)
    if lasting is not None:
        found = _without_tickers(found, lasting)
    found = _with_contrast(found)
    for column in ("vector", "views") if views else ("vector",):
        found = found.withMetadata(column, dict(keys.schema["features"].metadata))
    return found if names is None else found.withMetadata("concepts", {NAMES: list(names)})


def _with_contrast(found: DataFrame) -> DataFrame:
    """The rows that can be compared; how many others there are is in the query's metrics."""
    incomplete = F.isnull("vector")
    blank = F.coalesce(F.forall("vector", lambda number: number == 0), F.lit(False))
    counted = (F.count_if(blank).alias("blank"), F.count_if(incomplete).alias("incomplete"))
    return found.observe(metrics_name("described"), *counted).filter(~blank & ~incomplete)


def _without_tickers(found: DataFrame, lasting: int) -> DataFrame:
    """The same rows, with lines that a channel shows all the time left out of ``words``."""
    rows = found.select(F.unix_micros("ts").alias(TIME), *(by_name(c) for c in found.columns))
    blocks = rows.mapInArrow(Packer(KeyPacking(partitions(found.sparkSession))), PACKED)
    job = TickersJob(lasting)
    if found.isStreaming:
        return over_stream(job, blocks, found.schema, metrics_name("describe"), timed=False)
    return over_batch(job, blocks, found.schema)


@dataclass(frozen=True)
class _Describer:
    """Describes the rows of an input; the function of a ``mapInArrow``."""

    network: Network | None
    concepts: Callable[[np.ndarray], Any] | None
    names: int
    text: Callable[[np.ndarray], Any] | None
    views: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            given = batch.column("features").to_pylist()
            features = [None if row is None else _unit(row) for row in given]
            columns: dict[str, list[Any]] = {"vector": features}
            functions = (self.network, self.concepts, self.text)
            if self.views or any(of is not None for of in functions):
                columns = self._with_pictures(features, batch.column("picture").to_pylist())
            made = [pa.array(of, _KINDS[name]) for name, of in columns.items()]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *made], [*batch.schema.names, *columns]
            )

    def _with_pictures(
        self, features: Sequence[np.ndarray | None], pictures: Sequence[bytes | None]
    ) -> dict[str, list[Any]]:
        said = ("text", "words") if self.text is not None else ()
        asked = {"views": self.views, "concepts": self.concepts is not None}
        names = ["vector", *(name for name, wanted in asked.items() if wanted), *said]
        found: dict[str, list[Any]] = {name: [] for name in names}
        for layout, jpeg in zip(features, pictures, strict=True):
            # One by one: what a picture gets must not depend on which others came with it.
            seen = {} if jpeg is None else self._seen(layout, decode(jpeg)[None])
            if self.network is None:
                seen["vector"] = layout
            for name, of in found.items():
                of.append(seen.get(name))
        return found

    def _seen(self, layout: np.ndarray | None, picture: np.ndarray) -> dict[str, Any]:
        """What one picture gives; nothing of what needs the features, where there are none."""
        found: dict[str, Any] = {}
        if self.network is not None and layout is not None:
            seen = _unit(self.network.embed(picture)[0]) if layout.any() else np.zeros(1280)
            found["vector"] = np.concatenate([layout, seen]).astype(np.float32)
        if self.views and layout is not None:
            found["views"] = [layout, *map(_unit, inner(picture[0]))]
        if self.concepts is not None:
            scores = np.asarray(self.concepts(picture), np.float32)
            if scores.shape != (1, self.names):
                raise ValueError(
                    f"concepts gave an array of shape {scores.shape} for one picture; it must "
                    f"be (1, {self.names}), one number for each of its names"
                )
            found["concepts"] = scores[0]
        if self.text is not None:
            lines = _lines(self.text(picture))
            found["text"] = [{**line._asdict(), "box": list(line.box)} for line in lines]
            found["words"] = joined(lines)
        return found


_KINDS = {
    "vector": pa.list_(pa.float32()),
    "views": pa.list_(pa.list_(pa.float32())),
    "concepts": pa.list_(pa.float32()),
    "text": _LINES,
    "words": pa.string(),
}


def _lines(said: Any) -> list[Line]:
    """What a function for ``text`` gave for one picture, as lines."""
    try:
        (told,) = said
        lines = [Line(*line) for line in told]
        if all(isinstance(line.text, str) and len(line.box) == 4 for line in lines):
            return [Line(t, float(score), box) for t, score, box in lines]
    except (TypeError, ValueError):
        pass  # the same answer: it is not of that shape
    raise ValueError(
        f"text gave {said!r} for one picture; it must be a list of one list, with a line "
        "(text, score, (left, top, right, bottom)) for each line of text in the picture"
    )


def _unit(row: Any) -> np.ndarray:
    """A vector of length 1; of nothing, as of a black frame, it is zero."""
    of = np.asarray(row, np.float32)
    length = float(np.sqrt((of.astype(np.float64) ** 2).sum()))
    return of / np.float32(length) if length else of
