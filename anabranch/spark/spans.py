"""`spans_of`: the spans in OpenTelemetry's messages, one row each."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from anabranch.assembly.otlp.decoding import REJECTED, Decoder
from anabranch.assembly.otlp.spans import SPANS as COLUMNS
from anabranch.calls import Check
from anabranch.errors import renamed
from anabranch.flow.metrics import SPANS, metrics_name
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.opening import opened
from anabranch.spark.totals import follow

__all__ = ["spans_of"]

_TYPES = {
    "start": TimestampType(),
    "end": TimestampType(),
    "duration": DoubleType(),
    "attributes": MapType(StringType(), StringType()),
    "is_root": BooleanType(),
}


@renamed(
    rejects="bad_rows='keep' emits a row with the reason for each rejected message, and "
    "bad_rows='drop' counts them"
)
def spans_of(frame: DataFrame, column: Any = "value", *, bad_rows: str = "fail") -> DataFrame:
    """The spans in messages of OTLP, as OpenTelemetry's exporters and Kafka carry them.

    Parameters
    ----------
    frame
        A streaming or batch DataFrame with one message per row: of a Kafka topic, or of files
        (``spark.read.format("binaryFile")``, or ``text`` with one JSON object per line).
    column
        The column of the messages: ``ExportTraceServiceRequest`` or ``TracesData``. Binary is
        protobuf, or JSON where it begins with ``{``; a string is OTLP/JSON.
    bad_rows
        Messages that are malformed, or null, or have a span without a usable id or time, are
        rejected whole. ``"fail"`` stops at the first and says why; ``"drop"`` leaves them out, and
        a stream counts them (``rejected_rows`` of `ab.metrics`); ``"keep"`` has a row for each,
        with the reason in the column `rejected` and null everywhere else.

    Returns
    -------
    DataFrame
        ``trace_id, span_id, parent_span_id`` (hexadecimal; a root has no parent), ``name``,
        ``kind`` (``server, client, internal, producer, consumer`` or ``unspecified``), ``service``
        (``service.name`` of the resource), ``start, end`` (null where unknown), ``duration``
        (seconds, to the nanosecond), ``status`` (``unset, ok, error``), ``attributes`` (text by
        name; lists and maps as JSON, bytes in base 64) and ``is_root``.

    Examples
    --------
    >>> import anabranch as ab
    >>> message = '''{"resourceSpans": [{"scopeSpans": [{"spans": [{
    ...     "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
    ...     "name": "GET /cart", "kind": 2, "startTimeUnixNano": "1544712660000000000",
    ...     "endTimeUnixNano": "1544712661500000000"}]}]}]}'''
    >>> spans = ab.spans_of(spark.createDataFrame([(message,)], ["value"]))
    >>> spans.select("span_id", "name", "kind", "duration", "is_root").collect()
    [Row(span_id='eee19b7ec3c1b174', name='GET /cart', kind='server', duration=1.5, is_root=True)]
    """
    refuse_others("spans_of", {"frame": frame})
    (frame,), (column,) = opened([frame], [column])
    check = Check(frame=column_types(frame))
    name = check.column("frame", check.name("column", column), "column", ("binary", "string"))
    check.choice("bad_rows", bad_rows, ("fail", "drop", "keep"))
    check.refuse("spans_of")
    fields = StructType()
    for field in (*COLUMNS.names, REJECTED):
        fields.add(field, _TYPES.get(field, StringType()))
    text = check.inputs["frame"][name] == "string"
    message = F.encode(F.ltrim(by_name(name)), "utf-8") if text else by_name(name)
    decode = Decoder(text, fail=bad_rows == "fail")
    found = frame.select(message.alias("message")).mapInArrow(decode, fields)
    if bad_rows == "keep":
        return found
    if bad_rows == "drop":
        if frame.isStreaming:
            follow(frame.sparkSession)
        rejected = F.count(REJECTED).alias("rejected_rows")
        found = found.observe(metrics_name(SPANS), rejected).filter(F.col(REJECTED).isNull())
    return found.drop(REJECTED)
