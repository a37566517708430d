"""The source of `ab.follow`: the hub's stream, and the request for views when a query starts.

To build a DataFrame has no lasting effect. The request is written by the one part of a query that
runs when it starts, and on its driver: the reader of its source.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from anabranch.edge.wishes import Requests, Wishes
from anabranch.spark.jetstream import JetStream, JetStreamReader, Offset

__all__ = ["Followed", "asking"]


class Followed(JetStream):
    """A stream of the hub, for a query that asks for views: options ``control`` and ``wishes``."""

    @classmethod
    def name(cls) -> str:
        return "anabranch.follow"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        given = dict(self.options)
        control, wishes = given.pop("control"), given.pop("wishes")
        return _Asking(given, control, Wishes.from_dict(json.loads(wishes)))


def asking(control: str, wishes: Wishes) -> dict[str, str]:
    """The options with which a query asks for views."""
    return {"control": control, "wishes": json.dumps(wishes.to_dict())}


class _Asking(JetStreamReader):
    def __init__(self, given: dict[str, str], control: str, wishes: Wishes) -> None:
        super().__init__(given)
        self._control = control
        self._wishes: Wishes | None = wishes

    def _ask(self) -> None:
        """Ask once in a start; the same request again changes nothing."""
        if self._wishes is not None:
            Requests(self._control).write(self._wishes)
            self._wishes = None

    def initialOffset(self) -> Offset:
        self._ask()
        return super().initialOffset()

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        self._ask()
        return super().latestOffset(start, limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._ask()
        super().prepareForTriggerAvailableNow()
