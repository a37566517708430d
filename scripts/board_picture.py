"""The picture of the page of `ab.dashboard`, light and dark, of a real query.

    python -m scripts.board_picture

correlates the two news channels of the demo for two minutes as if they were sent now, and writes
docs/images/dashboard.png and dashboard-dark.png. It needs Chromium and Playwright
(``pip install 'anabranch[pictures]'``); without them it says so, changes nothing and fails.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.demo.broadcast import BEGIN, SECOND, Newsroom
from anabranch.spark.demo.writer import LiveWriter, write_rows
from scripts.services.browser import browser, picture
from scripts.services.jars import Absent

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SCHEMA = "id long, ts timestamp, title string, v array<float>"
BATCHES, PATIENCE = 24, 300.0


class SentNow(LiveWriter):
    """Rows whose times are those of the clock, so that the page shows a lag as a live query has."""

    _began = 0

    def go(self) -> None:
        """Start the clock; rows sent from here on are of now."""
        self._began = int(time.time() * SECOND)
        super().go()

    def _send(self, until: int, number: int) -> None:
        shift = (self._began or int(time.time() * SECOND)) - BEGIN
        for side, frames in enumerate(self.broadcast.channels):
            done = self._sent[side]
            upto = int(np.searchsorted(frames.arrival, until, side="right"))
            if upto > done:
                table = frames.table(slice(done, upto))
                moved = pc.add(table["ts"], pa.scalar(shift, pa.duration("us")))
                at = table.schema.get_field_index("ts")
                write_rows(table.set_column(at, "ts", moved), self.folders[side], number)
                self._sent[side] = upto


def draw(folder: Path) -> None:
    """Run the query until there is something to see, and take both pictures."""
    room = Newsroom(duration=900, rates=(120, 80), stories=120, seed=7)
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    spark = ab.configure(builder.getOrCreate(), workers=4)
    spark.sparkContext.setLogLevel("ERROR")
    sides = (folder / "left", folder / "right")
    for side in sides:
        side.mkdir()
    writer = SentNow(room.broadcast(), sides, 1)
    with ab.dashboard(spark) as board:
        left, right = (spark.readStream.schema(SCHEMA).parquet(str(side)) for side in sides)
        pairs = ab.correlate(
            left,
            right,
            where=ab.cosine("v") >= room.threshold,
            window=f"{room.window:g} seconds",
            watermark=f"{room.late:g} seconds",
            keep=["title"],
            plan=ab.adaptive(4),
            control=str(folder / "control"),
        )
        start = board.show(pairs, "stories").writeStream.format("noop").queryName("news")
        start = start.option("checkpointLocation", str(folder / "checkpoint"))
        query = start.trigger(processingTime="6 seconds").start()
        try:
            writer.start()
            until = time.monotonic() + PATIENCE
            while not query.recentProgress and time.monotonic() < until:
                time.sleep(1)
            writer.go()
            while len(query.recentProgress) < BATCHES and time.monotonic() < until:
                time.sleep(1)
            for name, dark in (("dashboard", False), ("dashboard-dark", True)):
                picture(board.url, str(IMAGES / f"{name}.png"), dark)
                print(f"docs/images/{name}.png")
        finally:
            writer.stop()
            query.stop()
    spark.stop()


def main() -> None:
    """Draw, or say why not."""
    try:
        with browser():
            pass
    except Absent as missing:
        sys.exit(f"the picture of the page CANNOT BE DRAWN, the old one stays: {missing}")
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))


if __name__ == "__main__":
    main()
