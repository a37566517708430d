"""Progress reports as Spark makes them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from anabranch.flow.load import AssembleLoad, Load

START = 1_700_000_000
SECOND = 1_000_000


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(START + seconds, UTC).isoformat().replace("+00:00", "Z")


def report(
    batch: int,
    *loads: Any,
    verb: str = "correlate",
    seconds: float = 0.5,
    run: str = "run",
    query: str = "11112222-query",
    **more: Any,
) -> Any:
    """A micro-batch every two seconds, by default of a worker that found three pairs."""
    loads = loads or (AssembleLoad(0, rows=5, instances=2, open_windows=4),)
    if verb not in ("assemble", "groups") and isinstance(loads[0], AssembleLoad):
        loads = (Load(0, rows_left=5, rows_right=2, comparisons=10, pairs=3, state_rows=7),)
    return SimpleNamespace(
        **{
            "id": query,
            "runId": run,
            "name": "news",
            "batchId": batch,
            "timestamp": moment(2 * batch),
            "durationMs": {"triggerExecution": seconds * 1000},
            "eventTime": {"watermark": moment(2 * batch - 5)},
            "sources": [],
            "stateOperators": [SimpleNamespace(memoryUsedBytes=1000, commitTimeMs=5)],
            "observedMetrics": {
                f"anabranch_{verb}_1a2b": {"load": [load.to_json() for load in loads]}
            },
            **more,
        }
    )
