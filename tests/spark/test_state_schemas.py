"""State is asked for by types: of a schema that is text each task asks Spark what it means."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructType

from anabranch.spark.follow_stream import _SENT, _STATE
from anabranch.spark.processor import Processor


class Handle:
    """Notes which state a processor asks for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *call: self.asked.append(call)


def test_no_schema_of_a_processor_is_text() -> None:
    handle: Any = Handle()
    Processor(None).init(handle)  # type: ignore[arg-type]
    assert [name for name, *_ in handle.asked] == ["head", "pieces"]
    schemas = [schema for _, *schemas in handle.asked for schema in schemas]
    assert all(isinstance(schema, StructType) for schema in schemas)


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        (_STATE, [("state", BinaryType())]),
        (_SENT, [("at", DoubleType()), ("frame", LongType()), ("results", BinaryType())]),
    ],
)
def test_they_are_those_of_checkpoints_that_were_begun_with_texts(
    schema: StructType, fields: list[tuple[str, Any]]
) -> None:
    assert [(one.name, one.dataType) for one in schema] == fields
    assert all(one.nullable for one in schema)
