"""A driver process of `ab.follow`: ``follow_driver.py FOLDER CALL [--kill N]``.

CALL is a JSON object, the arguments of the call over the views of `follow_world`. What it writes,
and when it is killed, is that of `into_files`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import anabranch as ab
from tests.spark.feeds import PATIENCE
from tests.spark.follow_world import views
from tests.spark.sessions import into_files, new_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("call", type=json.loads)
    parser.add_argument("--kill", type=int)
    given = parser.parse_args()
    spark = new_session(given.folder)
    into_files(ab.follow(spark, views(), **given.call), given.folder, given.kill, PATIENCE)


if __name__ == "__main__":
    main()
