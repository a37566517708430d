"""The figures of a running query as a small picture: what a batch did, and a bar a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.flow.pictures import COLOURS, plain_number
from anabranch.flow.sketch import WIDTH, Sketch

__all__ = ["figures_html"]

_WORKERS = 16  # that are drawn
_FLOW = (
    *("rows_in", "pairs", "unmatched_rows", "emitted_rows", "duplicates", "hits"),
    *("instances", "revisions", "groups_opened", "groups_closed"),
)
_BAD = ("late_rows", "rejected_rows", "dropped")
_STATE = (
    *("state_rows", "state_bytes", "open_windows", "waiting_rows"),
    *("open_groups", "waiting_pairs"),
)


def figures_html(figures: Mapping[str, Any]) -> str:
    """The picture of what `ab.metrics` returned, of every verb of the query."""
    page = Sketch()
    if figures.get("verb") is None:
        page.text(0, 12, "no micro-batch has been reported yet")
        return page.html("no figures yet")
    top = 0.0
    for one in (figures, *figures.get("also", ())):
        top = _verb(page, one, top) + 12
    return page.html(f"figures of {figures.get('verb', 'a query')}")


def _verb(page: Sketch, one: Mapping[str, Any], top: float) -> float:
    title = f"{one.get('verb')}: no micro-batch has done work yet"
    if one.get("batch") is not None:
        title = f"{one.get('verb')}, micro-batch {one['batch']}: {one.get('seconds', 0.0):.3g} s"
    page.text(0, top + 12, title, bold=True, room=WIDTH)
    page.text(0, top + 30, _named(one, _FLOW), room=WIDTH)
    page.text(0, top + 46, _named(one, _STATE), faint=True, room=WIDTH)
    y = top + 50
    if any(one.get(name) for name in _BAD):
        page.text(0, y + 12, _named(one, _BAD), colour=COLOURS["bad"], room=WIDTH)
        y += 16
    workers = one.get("workers", ())
    most = max((worker.get("busy_seconds", 0.0) for worker in workers), default=0.0)
    for worker in workers[:_WORKERS]:
        busy = worker.get("busy_seconds", 0.0)
        page.text(0, y + 16, f"worker {worker.get('worker', '')}")
        wide = 320 * busy / most if most else 0.0
        page.box(80, y + 4, max(1.0, wide), 14, COLOURS["grid"], fill=0.6)
        words = f"{busy:.3g} s, {plain_number(worker.get('rows_in', 0))} rows"
        page.text(88 + wide, y + 16, words, faint=True, room=WIDTH - 88 - wide)
        y += 20
    if len(workers) > _WORKERS:
        page.text(0, y + 14, f"and {len(workers) - _WORKERS:,} more workers", faint=True)
        y += 16
    return y


def _named(one: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Those of the figures that there are: "rows in 800, pairs 70"."""
    shown = [f"{name.replace('_', ' ')} {plain_number(one[name])}" for name in names if name in one]
    return ", ".join(shown)
