"""How fast does state come back, and how long is a restarted query slow?

::

    python -m benchmarks.state [--only bytes | read | restart] [--mb 200] [--out FOLDER]

*bytes*, in seconds of the processor: what a slice of 4 MB takes in the store, to write and to read,
as it was encoded and as it is stored. Reading has two halves: the JVM pickles a value, by Spark's
own pickler in a JVM of its own, and Python reads the very pickle that Spark sends. *read*, Spark on
two cores, in seconds of the clock: a stateful operator that reads so many megabytes of slices in
each micro-batch, all ways in turns, by two workers at once and by one alone. A task has one
connection to its state, over which one request follows the other, so slices cannot be fetched by
several threads at once; what can be done is to fetch the next while one is decoded (*ahead*).
*restart*: `correlate` with so many megabytes of state for
each of two workers, stopped, and started again in a new process, in which later all Python workers
are killed; both ways in turns. 1000 MB take about as many on disk and four times as many in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.flow import stored as layout
from anabranch.flow.blocks import Block
from anabranch.flow.stored import in_parts, place_of, restored, stored
from benchmarks.correlate_spark import Bench, Feed
from benchmarks.measuring import Row, Screen, beside_earlier, in_turns, machine, ratio

SLICE = 4 << 20
ROUNDS = 3
_FORMS = ("as encoded", "as stored")
_AHEAD = "as stored, fetched ahead"


def bytes_of(screen: Screen, megabytes: int) -> dict[str, Any]:
    """Slices of vectors and of plain numbers."""
    details: dict[str, Any] = {}
    for name, block in _slices():
        plain = block.encode()
        kept = stored(plain)
        # What the JVM makes of bytes: a text of as many characters, as protocol 2 has it.
        sent = {
            "as encoded": pickle.dumps((bytearray(plain),), 2),
            "as stored": pickle.dumps((bytearray(kept),), 2),
        }
        variants: dict[str, Callable[[], object]] = {
            f"read {form}": partial(_unpickled, data) for form, data in sent.items()
        }
        variants["write as encoded"] = block.encode
        variants["write as stored"] = partial(_written, block)
        seconds = in_turns(variants, 7)
        size = len(kept) / len(plain)
        per_row = f"{len(plain) / len(block):.0f} and {len(kept) / len(block):.0f} bytes a row"
        screen.add(Row("bytes", f"{name}: stored", size, "of before", 1.0, True, note=per_row))
        faster = ratio(seconds["read as encoded"], seconds["read as stored"])
        screen.add(Row("bytes", f"{name}: read in Python", faster, "times"))
        sides = _in_jvm({"as encoded": plain, "as stored": kept})
        if sides is not None:
            seconds |= {f"pickle {form}": values for form, values in sides.items()}
            faster = ratio(sides["as encoded"], sides["as stored"])
            screen.add(Row("bytes", f"{name}: pickled in the JVM", faster, "times"))
            both = [
                len(plain) / (1 << 20) / (statistics.median(seconds[f"read {form}"]) + median)
                for form, median in ((f, statistics.median(sides[f])) for f in _FORMS)
            ]
            note = f"MB of a core's second; {both[0]:.0f} before"
            screen.add(Row("bytes", f"{name}: pickled and read", both[1], "MB/s", note=note))
        details_of_codecs = _codecs(screen, name, plain)
        more = statistics.median(seconds["write as stored"]) / len(plain) * (1 << 20) * 1e3
        screen.add(Row("bytes", f"{name}: written in Python", more, "ms a MB"))
        details[name] = {
            "seconds": seconds,
            "bytes": [len(plain), len(kept)],
            "rows": len(block),
            "codecs": details_of_codecs,
        }
    return details


def _codecs(screen: Screen, name: str, plain: bytes) -> dict[str, Any]:
    """The same slice in bytes below 128 with other codecs; reading is what Python does of it."""
    sent = {label: _by(codec, plain) for label, codec in _CODECS.items()}
    variants: dict[str, Callable[[], object]] = {}
    for label, codec in _CODECS.items():
        assert _read_by(codec, sent[label], len(plain)) == plain
        data = pickle.dumps((bytearray(sent[label][1]),), 2)
        variants[f"read {label}"] = partial(_received, codec, data, sent[label][0], len(plain))
        variants[f"write {label}"] = partial(_by, codec, plain)
    seconds = in_turns(variants, 5)
    for label in _CODECS:
        pace = [statistics.median(seconds[f"{how} {label}"]) for how in ("read", "write")]
        each = [f"{len(plain) / (1 << 20) / value:.0f}" for value in pace]
        note = f"read at {each[0]}, written at {each[1]} MB of a core's second in Python"
        share = len(sent[label][1]) / len(plain)
        screen.add(Row("bytes", f"{name}: stored with {label}", share, "of before", note=note))
    return seconds


_CODECS: dict[str, pa.Codec | None] = {
    "zstd 1": pa.Codec("zstd", compression_level=1),
    "zstd 3": pa.Codec("zstd", compression_level=3),
    "lz4": pa.Codec("lz4_raw"),
    "no codec": None,
}


def _by(codec: pa.Codec | None, plain: bytes) -> tuple[int, bytes]:
    """The length of what is compressed, and what is stored of it."""
    flat = layout._together(plain)
    short = flat.tobytes() if codec is None else codec.compress(flat, asbytes=True)
    return len(short), bytes(layout._HEAD) + layout._to_sevens(short)


def _read_by(codec: pa.Codec | None, sent: tuple[int, bytes], size: int) -> bytes:
    flat: Any = layout._from_sevens(sent[1], sent[0])
    return bytes(layout._apart(flat if codec is None else codec.decompress(flat, size)))


def _received(codec: pa.Codec | None, data: bytes, short: int, size: int) -> Any:
    flat: Any = layout._from_sevens(pickle.loads(data)[0], short)
    return layout._apart(flat if codec is None else codec.decompress(flat, size))


def _in_jvm(values: Mapping[str, bytes]) -> dict[str, list[float]] | None:
    """Seconds in which Spark's pickler packs each of these; None without a JDK."""
    import pyspark

    program = Path(__file__).with_name("state_pickled.java")
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(number)) for number in range(len(values))]
        for file, value in zip(files, values.values(), strict=True):
            file.write_bytes(value)
        call = ["java", "-cp", str(jars), str(program), *map(str, files)]
        try:
            said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
    lines = [[float(word) for word in line.split()] for line in said.splitlines()]
    return dict(zip(values, lines, strict=True))


def _unpickled(data: bytes) -> Block:
    return Block.decode(restored(pickle.loads(data)[0]))


def _written(block: Block) -> bytes:
    return stored(block.encode())


def _slices() -> Iterator[tuple[str, Block]]:
    random = np.random.default_rng(1)
    for width in (64, 576):
        rows = SLICE // (4 * width + 16)
        vectors = random.standard_normal((rows, width), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
        yield f"vectors of {width}", _block(rows, random, s0=vectors)
    rows = SLICE // 32
    yield "two numbers", _block(rows, random, s0=random.random(rows), s1=random.random(rows))


def _block(rows: int, random: np.random.Generator, **columns: np.ndarray) -> Block:
    t = 10**15 + np.sort(random.integers(0, 10**7, rows))
    return Block.of(t, {"id": np.arange(rows), **columns, "lead": np.ones(rows, bool)})


def read(screen: Screen, megabytes: int) -> dict[str, Any]:
    """A stateful operator that reads all its slices in every micro-batch."""
    ways = [(form, workers) for workers in (2, 1) for form in (*_FORMS, _AHEAD)]
    found: dict[str, list[float]] = {_named(*way): [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        bench = Bench(Path(folder), False, screen.step)
        feed = Feed.write(bench.room("feed"), 6, 10)
        try:
            for turn in range(ROUNDS):
                for form, workers in ways:
                    name = _named(form, workers)
                    screen.step(f"read: {megabytes} MB by {name}, round {turn + 1}")
                    seconds = _reading(bench, feed, form, megabytes, workers)
                    found[name].append(megabytes / statistics.median(seconds))
        finally:
            bench.stop()
    for name, rates in found.items():
        screen.add(Row("read", f"read by {name}", statistics.median(rates), "MB/s"))
    for workers, who in ((2, ""), (1, ", one worker alone")):
        rate = {form: found[_named(form, workers)] for form in (*_FORMS, _AHEAD)}
        times = ratio(rate["as stored"], rate["as encoded"])
        screen.add(Row("read", f"as stored against as encoded{who}", times, "times"))
        times = ratio(rate[_AHEAD], rate["as stored"])
        screen.add(Row("read", f"fetched ahead against one after the other{who}", times, "times"))
    return {"megabytes": megabytes, "rates": found}


def _named(form: str, workers: int) -> str:
    return f"one worker {'of two' if workers == 2 else 'alone'}, {form}"


def _reading(bench: Bench, feed: Feed, form: str, megabytes: int, workers: int) -> list[float]:
    """Seconds in which a worker reads its slices, of the micro-batches after the first."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    pieces = max(1, (megabytes << 20) // SLICE)
    log = bench.room("seconds")

    # A class inside a function travels to Spark's workers by value; they cannot import this file.
    class Reader(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._pieces = handle.getMapState("pieces", "number long", "piece binary")
            self._counts = handle.getMapState("counts", "number long", "count int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            import time
            from concurrent.futures import ThreadPoolExecutor

            import pandas as pd

            for _ in rows:
                pass
            began = time.perf_counter()
            if self._pieces.containsKey((0,)):
                if form == _AHEAD:
                    with ThreadPoolExecutor(1) as thread:
                        coming = thread.submit(self._fetch, 0)
                        for number in range(pieces):
                            data = coming.result()
                            if number + 1 < pieces:
                                coming = thread.submit(self._fetch, number + 1)
                            Block.decode(restored(data))
                else:
                    for number in range(pieces):
                        Block.decode(restored(self._fetch(number)))
                with log.open("a") as file:
                    file.write(f"{time.perf_counter() - began}\n")
            else:
                rows_ = SLICE // 272
                for number in range(pieces):
                    vectors = np.random.default_rng(number).standard_normal((rows_, 64))
                    block = Block.of(np.arange(rows_), {"s0": vectors.astype(np.float32)})
                    plain = block.encode()
                    parts = [plain] if form == "as encoded" else in_parts(stored(plain))
                    for part, piece in enumerate(parts):
                        self._pieces.updateValue((place_of(number, part),), (piece,))
                    self._counts.updateValue((number,), (len(parts),))
            yield pd.DataFrame({"worker": [key[0]]})

        def _fetch(self, number: int) -> bytes:
            (count,) = self._counts.getValue((number,))
            keys = [(place_of(number, part),) for part in range(count)]
            return b"".join(self._pieces.getValue(key)[0] for key in keys)

        def close(self) -> None:
            pass

    left, right = feed.streams(bench.spark)
    frame = (
        left.union(right)
        .select((F.col("id") % workers).cast("int").alias("worker"), "id")
        .groupBy("worker")
        .transformWithStateInPandas(
            Reader(), outputStructType="worker int", outputMode="Append", timeMode="None"
        )
    )
    bench.drain(frame)
    return [float(line) for line in log.read_text().split()]


def restart(screen: Screen, megabytes: int) -> dict[str, Any]:
    """A query with state, started again in a new process, and its workers killed there."""
    found: dict[str, list[list[list[float]]]] = {form: [] for form in _FORMS}
    for turn in range(2):
        for form in _FORMS:
            screen.step(f"restart: {megabytes} MB a worker, {form}, round {turn + 1}")
            with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
                for part in ("fill", "again"):
                    call = [sys.executable, "-m", "benchmarks.state_restart", folder, part]
                    made = subprocess.run(
                        [*call, form, str(megabytes)], stdout=subprocess.PIPE, check=True, text=True
                    )
                found[form].append(json.loads(made.stdout.splitlines()[-1]))
    note = f"{megabytes} MB a worker"
    for form, runs in found.items():
        for place, after in enumerate(("a restart", "all Python workers were killed")):
            each = [run[place] for run in runs]
            first = statistics.median(run[0] - statistics.median(run[2:]) for run in each)
            what = f"first micro-batch after {after}, beyond a later one, {form}"
            screen.add(Row("restart", what, first, "s", note=note))
            slow = statistics.median(
                sum(second > 1.2 * statistics.median(run[2:]) for second in run) for run in each
            )
            what = f"micro-batches after {after} of more than 1.2 of a later one, {form}"
            screen.add(Row("restart", what, slow, "", note=note))
    return {"megabytes": megabytes, "seconds": found}


SECTIONS = {"bytes": bytes_of, "read": read, "restart": restart}


def main() -> int:
    """Run the sections asked for; 1 if a target is not met."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=SECTIONS)
    parser.add_argument("--mb", type=int, default=200, help="state of each worker")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    call = parser.parse_args()
    screen, about = Screen(), machine()
    details = {name: SECTIONS[name](screen, call.mb) for name in call.only or SECTIONS}
    screen.table("state")
    call.out.mkdir(parents=True, exist_ok=True)
    rows = [row.to_dict() for row in screen.rows]
    result = {"benchmark": "state", "machine": about, "rows": rows, "details": details}
    path = call.out / "state.json"
    path.write_text(json.dumps(beside_earlier(path, result), indent=1) + "\n")
    return 0 if all(row.met is not False for row in screen.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
