"""State is asked for by types: of a schema that is text each task asks Spark what it means."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import BinaryType, LongType, StructType

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
    # Those of checkpoints that were begun with texts.
    fields = [(one.name, one.dataType, one.nullable) for schema in schemas for one in schema]
    assert fields == [
        *(("head", BinaryType(), True), ("number", LongType(), True), ("piece", BinaryType(), True))
    ]
