"""The rows of Arrow batches that satisfy comparisons, as devices decide them.

Executors run it without what devices have: it imports nothing of `anabranch.edge`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.calls import FLOATING
from anabranch.errors import BadRow
from anabranch.flow.intake import Faults
from anabranch.flow.process import freeze_imports
from anabranch.predicates.conditions import RowConditions

__all__ = ["Deciding"]


@dataclass(frozen=True)
class Deciding:
    """The function of a ``mapInArrow``: rows in which no compared value is missing, or an error.

    `where` are comparisons, `columns` the types of a feed's columns; `names` are those of the
    batches' columns, in which `id` says which row it is.
    """

    where: list[Any]
    columns: Mapping[str, str]
    id: str
    names: list[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that match, batch by batch."""
        freeze_imports()
        conditions = RowConditions(self.where, self.columns)
        compared = dict.fromkeys(name for name, _, _ in self.where)
        for batch in batches:
            came = dict(zip(self.names, batch.columns, strict=True))
            faults = Faults("row", came[self.id], drop=True)
            for name in compared:
                column = came[name]
                faults.where(column.is_null(), f"{name!r} is null")
                if self.columns[name] in FLOATING:
                    faults.where(pc.invert(pc.is_finite(column)), f"{name!r} is not finite")
            if faults.count:
                raise BadRow(
                    f"{'; '.join(faults.problems)}; repair the input, or filter such rows out"
                )
            values = {n: came[n].to_numpy(zero_copy_only=False) for n in compared}
            yield batch.take(pa.array(conditions.decide(values, batch.num_rows)))
