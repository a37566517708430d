"""A kernel that lives on obeys the call that runs now, not the one that made it.

A query may be stopped and started with another `late`, or with watermarks of its inputs in its
place, in Python processes that still hold its kernels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.job import AssembleJob
from anabranch.flow.blocks import Block
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.queries import fixed_queries
from anabranch.plans.plan import RIGHT
from anabranch.testing.workers import LivingWorkers, Workers
from tests.assembly.test_laws import event
from tests.flow.test_check_kernel import packed
from tests.neighbours.runs import START, call_of, query_table

MS = 1000
KINDS = (Workers, LivingWorkers)


def object_at(ms: int, ident: int) -> Block:
    block = Block.of([START + ms * MS], {"id": np.array([ident]), "v": np.ones((1, 1))})
    return Block.decode(block.encode(side=RIGHT, nearest={"0": [1, None]}))


@pytest.mark.parametrize("kind", KINDS)
def test_objects_of_a_query_that_goes_by_watermarks_of_its_inputs_now(kind: Any) -> None:
    call = call_of(watermark="10 ms")
    table = fixed_queries(call, query_table([{"id": 1, "v": [0.0], "k": 9, "span": 90 * MS}]))[0]
    workers = kind(NearestJob(call, table.encode(**table.meta)))
    workers.step(0, [object_at(1, ident=1)], START)
    workers.job = replace(workers.job, nearest=replace(call, delay=None))
    # The watermark has passed it in this very step, as it passes what an aggregate emits.
    (hits,) = workers.step(0, [object_at(5, ident=2)], START + 6 * MS)
    assert hits["object_id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_an_assembly_that_goes_by_watermarks_of_its_inputs_now(kind: Any) -> None:
    def job(late: str | None) -> AssembleJob:
        types = {"key": "bigint", "ts": "timestamp", "tie": "bigint"}
        close = ab.close.gap("5 us")
        call, _ = plan_assembly([types], key="key", keep="tie", close=close, watermark=late)
        assert call is not None
        return AssembleJob(call, 1, streaming=True)

    workers = kind(job("3 us"))
    workers.step(0, [packed([event(1, 10)])], 9)
    workers.job = job(None)
    found = workers.step(0, [packed([event(1, 13), event(1, 21)])], 40)
    assert [tuple(row[n] for n in ("reason", "count")) for batch in found
            for row in batch.to_pylist()] == [("gap", 2), ("gap", 1)]  # fmt: skip
