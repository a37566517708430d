"""What views find in rows, in lines too plain to be wrong."""

from __future__ import annotations

from typing import Any

from anabranch.placement.views import Views

Row = dict[str, Any]  # key, n, t in microseconds, and the columns


def sampled(rows: list[Row], key: str, tick: int, share: float) -> list[Row]:
    """The first row of every tick whose number, with its 32 bits reversed, is below the share."""
    found, seen = [], set()
    for row in sorted(rows, key=lambda row: row["n"]):
        cell = row["t"] // tick if tick else row["n"]
        priority = int(f"{cell % 2**32:032b}"[::-1], 2) / 2**32 if tick else 0.0
        if row["key"] == key and cell not in seen and priority < share:
            found.append(row)
        seen |= {cell} if row["key"] == key else set()
    return found


def results(views: Views, tables: dict[str, list[Row]], holds: Any) -> set[tuple[Any, ...]]:
    """(view, n, n) of every pair, (view, n) of every row; `holds` decides the condition."""
    found = set()
    before, after = views.view.definition.window
    for name, of_view in views.rows.groupby("view"):
        sides = []
        for stream, share in zip(of_view["input"], of_view["share"], strict=True):
            feed, key = stream[:-1].split("[")
            tick = next(part.tick for part in views.view.feeds if part.name == feed)
            sides.append(sampled(tables[feed], key, tick, share))
        if len(sides) == 1:
            found |= {(name, a["n"]) for a in sides[0] if holds(a)}
            continue
        for a in sides[0]:
            for b in sides[1]:
                if -before <= a["t"] - b["t"] <= after and holds(a, b):
                    found.add((name, a["n"], b["n"]))
    return found
