"""A driver process to be killed: it goes on with the lives in a folder, and changes their plans.

``python -m scripts.reliability.driver FOLDER STEPS`` ends well once every life has committed so
many micro-batches, and prints `ENDED` and why if a query ends before.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from scripts.reliability.lives import LIVES, PATIENT, Life, committed
from tests.spark.sessions import new_session

__all__ = ["ENDED", "main"]

ENDED = "The driver has ended for a cause: "
"""What follows in its output is an error, and no chatter."""

# Of 4 tries of a task each may lose its process.
MASTER = "local[2,4]"
_AT_ONCE = "0 seconds"


def run(spark: Any, lives: list[Life], steps: int, every: float) -> None:
    """Until all lives are so far."""
    queries = [_begun(spark, life) for life in lives]
    changed = time.monotonic()
    waiting = list(zip(lives, queries, strict=True))
    while waiting:
        time.sleep(0.2)
        waiting = [(life, life.going(spark, _AT_ONCE, query)[0]) for life, query in waiting]
        for life, query in list(waiting):
            if committed(life.checkpoint) >= steps - 1:
                query.stop()
                waiting.remove((life, query))
        if time.monotonic() - changed > every:
            changed = time.monotonic()
            for life in lives:
                life.change_plan()


def _begun(spark: Any, life: Life) -> Any:
    """The query of a life once it has committed something: one at a time, for starts take much."""
    before, query = committed(life.checkpoint), life.start(spark, _AT_ONCE)
    while committed(life.checkpoint) == before:
        time.sleep(0.2)
        query, _ = life.going(spark, _AT_ONCE, query)
    return query


def session(options: argparse.Namespace) -> Any:
    """A session that is patient with processes that a busy machine starts late."""
    settings = {
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": options.zone,
    }
    if options.scratch:
        settings["spark.local.dir"] = str(options.scratch)
    if options.kafka:
        from scripts.services.jars import fetched

        settings["spark.jars"] = ",".join(map(str, fetched("spark-kafka")))
    spark = new_session(options.folder, options.master, 2, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> None:
    """Run to the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between plan changes")
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--kafka", help="servers with the numbers of the streams")
    parser.add_argument("--scratch", type=Path, help="where Spark puts what it needs for a while")
    parser.add_argument("--zone", default="UTC", help="time zone of the session")
    options = parser.parse_args()
    os.environ.update(PATIENT)
    try:
        spark = session(options)
        lives = [Life(verb, options.folder / verb, options.kafka) for verb in LIVES]
        run(spark, lives, options.steps, options.every)
        spark.stop()
    except Exception as error:
        raise SystemExit(f"{ENDED}{type(error).__name__}: {error}") from error


if __name__ == "__main__":
    main()
