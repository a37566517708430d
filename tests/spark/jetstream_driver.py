"""A driver process that reads a stream: ``jetstream_driver.py FOLDER OPTIONS [--kill N]``.

OPTIONS is a JSON object. What it writes, and when it is killed, is that of `into_files`: offsets of
that micro-batch are written, and its end is not.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.spark.feeds import PATIENCE
from tests.spark.sessions import into_files, new_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("options", type=json.loads)
    parser.add_argument("--kill", type=int)
    given = parser.parse_args()
    spark = new_session(given.folder)
    from anabranch.spark.jetstream import JetStream

    spark.dataSource.register(JetStream)
    rows = spark.readStream.format("jetstream").options(**given.options).load()
    into_files(rows, given.folder, given.kill, PATIENCE)


if __name__ == "__main__":
    main()
