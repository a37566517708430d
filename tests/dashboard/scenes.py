"""Queries of every verb as the page sees them, without Spark: reports, a plan log and rows."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anabranch as ab
from anabranch.flow.announced import Announced, announce
from anabranch.flow.load import AssembleLoad, GroupsLoad, Load
from anabranch.plans.log import Entry, PlanLog
from tests.dashboard.reports import SECOND, START, report

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
PICTURE = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
MARKUP = "<img src=x onerror=\"document.title='attacked'\"><script>attacked=1</script>"


def story(batch: int) -> dict[str, str]:
    """A pair whose titles differ by a word, with a picture and with markup."""
    return {
        "left_id": str(batch),
        "right_id": str(batch + 900),
        "ts": f"2026-03-01 10:00:{batch % 60:02d}",
        "score": f"{0.9 + batch % 9 / 100:.3f}",
        "left_title": f"storm hits the coast {MARKUP}",
        "right_title": f"storm nears the coast {MARKUP}",
        "left_frame": PICTURE,
        "right_frame": PICTURE,
    }


def shown(rows: list[dict[str, str]], label: str = "matches") -> dict[str, Any]:
    """Rows as an observed metric of `board.show`."""
    return {f"anabranch_shown_1a2b_{label.encode().hex()}": {"load": [json.dumps(r) for r in rows]}}


def _observed(name: str, loads: list[Any], more: dict[str, Any]) -> dict[str, Any]:
    return {name: {"load": [load.to_json() for load in loads]}, **more}


def correlation(batches: int, control: Path, query: str = "1-correlate") -> Any:
    """Pairs under a plan that has changed and will change again."""
    log = PlanLog(str(control))
    log.begin(ab.broadcast(4))
    cause = {"rule": "shape", "why": "a grid makes fewer copies", "figures": {"left rate": 120.0}}
    log.write(Entry(1, 1, ab.grid(2, 2), 6, (0, 1), cause))
    log.write(Entry(2, 1, ab.grid(2, 2), 12, (1,), {}))
    log.append(ab.grid(4, 1), cause="trying a line")
    call = Announced(
        "Pairs of left and right rows with cosine('v') >= 0.9, at most 10 seconds apart",
        ab.broadcast(4),
        (10 * SECOND, 10 * SECOND),
        5 * SECOND,
        str(control),
    )
    announce("anabranch_correlate_5ce0", call)
    made = []
    for n in range(batches):
        rows = 60 + int(20 * math.sin(n / 5))
        loads = [
            Load(
                worker,
                rows_left=rows if worker == 0 else 0,
                rows_right=rows if worker == 1 else 0,
                copies_left=rows,
                copies_right=rows // 2,
                comparisons=rows * 150,
                pairs=n % 4,
                late=int(n % 9 == 0 and worker == 0),
                state_rows=rows * 10,
                state_bytes=rows * 4000,
                busy_seconds=0.3 + 0.05 * worker,
                newest_left=(START + 2 * n) * SECOND,
                newest_right=(START + 2 * n - 1) * SECOND,
            )
            for worker in range(4)
        ]
        observed = _observed("anabranch_correlate_5ce0", loads, shown([story(n)]))
        ends = [json.dumps({"news": {"0": 9 * n + more}}) for more in (0, n % 5)]
        kafka = SimpleNamespace(
            description="KafkaV2[Subscribe[news]]", endOffset=ends[0], latestOffset=ends[1]
        )
        files = SimpleNamespace(description="FileStreamSource[in]", latestOffset="null")
        sources = [kafka, files]
        seconds = 0.9 + 0.2 * math.sin(n / 3)
        made.append(
            report(
                n, *loads, query=query, seconds=seconds, observedMetrics=observed, sources=sources
            )
        )
    return running("news", query, made)


def search(batches: int, query: str = "2-nearest") -> Any:
    """Saved searches and their hits."""
    made = []
    for n in range(batches):
        load = Load(0, rows_right=40, copies_right=40, comparisons=4000, pairs=2, state_rows=900)
        hits = [
            {"query_id": name, "object_id": str(n), "entered_ts": f"10:00:{n % 60:02d}",
             "distance": f"{1 / (n + 1):.3f}", "rank": "1"}
            for name in ("ann", "bob")
        ]  # fmt: skip
        observed = _observed("anabranch_nearest_5ce0", [load], shown(hits, "hits"))
        made.append(report(n, load, verb="nearest", query=query, observedMetrics=observed))
    return running("offers", query, made)


def assembly(batches: int, query: str = "3-assemble") -> Any:
    """Page views that close for several reasons."""
    made = []
    for n in range(batches):
        load = AssembleLoad(
            0, rows=90, instances=20, revisions=1, timeouts=3, open_windows=50 + n % 7,
            state_rows=300, state_bytes=90_000, busy_seconds=0.2,
            reasons={"complete": 12, "gap": 5, "timeout": 3},
        )  # fmt: skip
        made.append(report(n, load, verb="assemble", query=query))
    return running("views", query, made)


def grouping(batches: int, query: str = "4-groups") -> Any:
    """Groups of stories, of which some pairs connect nothing."""
    made = []
    for n in range(batches):
        load = GroupsLoad(
            0, rows=30, opened=2, grown=8, closed=1, dropped=3, reasons={"repeated": 3},
            open_groups=5 + n % 3, waiting_pairs=4, state_rows=40, state_bytes=9000,
        )  # fmt: skip
        made.append(report(n, load, verb="groups", query=query))
    return running("stories", query, made)


def deduping(batches: int, query: str = "5-dedupe") -> Any:
    """Rows without their near-duplicates."""
    load = Load(0, rows_left=40, copies_left=40, comparisons=900, unmatched=30, matched=10)
    made = [report(n, load, verb="dedupe", query=query) for n in range(batches)]
    return running("posts", query, made)


def running(name: str, query: str, reports: list[Any]) -> Any:
    """A query that runs, as Spark gives it."""
    for one in reports:
        one.name = name
    return SimpleNamespace(
        id=query,
        runId="run",
        name=name,
        recentProgress=reports,
        isActive=True,
        exception=lambda: None,
        status={"isTriggerActive": False},
    )


def session(*queries: Any) -> Any:
    """A session in which these run, as far as a board asks for it."""
    found = {query.id: query for query in queries}
    streams = SimpleNamespace(active=list(queries), get=found.get, addListener=lambda _: None)

    class Session:
        """Can be referred to weakly, as a session can."""

    made: Any = Session()
    made.streams = streams
    return made
