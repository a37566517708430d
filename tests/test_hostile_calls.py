"""Whatever is given in place of an argument: the call works, or says which one and what it may be.

DataFrames and sessions are stand-ins that know their schema alone: what passes all checks and would
begin to work on them ends there.
"""

from __future__ import annotations

import inspect
import math
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

import anabranch as ab
from anabranch.errors import AnabranchError
from tests.test_names import NAMESPACES

WRONG: list[Any] = [
    *(None, True, 5, -1, 0.5, math.nan, math.inf),
    *("", "no such thing", b"x", [], (), {}, [None], {"no": object()}),
    *(np.array([1.0, 2.0]), np.array([]), pd.Series([1.0]), object()),
]
# What says what is allowed.
ALLOWED = re.compile(
    r"\bmust\b|\bwrite\b|such as|for example|leave|\bneeds?\b|needed by|\bgive\b|\bname\b|add "
    r"|there (?:is|are)\b|it has|takes|names unknown|goes with|may be|\bname[sd]?\b|is missing"
    r"|is no condition on these columns|: no file|\bbetween\b|is not there|cannot read|is empty"
    r"|the (?:plan|sample) has|known are"
)
PACKAGE = re.compile(
    r"needs the package \w+: pip install|must be a classic SparkSession, got tests"
)


class Passed(Exception):
    """All checks have passed, and the work would begin."""


class Frame(DataFrame):
    """A DataFrame of which only the schema is known."""

    def __new__(cls, *_: Any, **__: Any) -> Frame:
        return object.__new__(cls)

    def __init__(self, streaming: bool = False, **columns: str) -> None:
        made = T.StructType([T.StructField(n, _TYPES[kind]) for n, kind in columns.items()])
        known = {"schema": made, "columns": list(columns), "isStreaming": streaming}
        object.__setattr__(self, "known", {**known, "sparkSession": Session()})

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name == "known":
            return object.__getattribute__(self, name)
        known = object.__getattribute__(self, "known")
        if name not in known:
            raise Passed(name)
        return known[name]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


_TYPES: dict[str, T.DataType] = {
    "long": T.LongType(),
    "int": T.IntegerType(),
    "double": T.DoubleType(),
    "text": T.StringType(),
    "bytes": T.BinaryType(),
    "time": T.TimestampType(),
    "vector": T.ArrayType(T.FloatType()),
    "ints": T.ArrayType(T.IntegerType()),
    "truth": T.BooleanType(),
}


_SHOT = {"id": "text", "channel": "text", "ts": "time"}


class Conf:
    """Settings of a session."""

    def get(self, name: str, default: Any = None) -> Any:
        """Those that verbs ask for."""
        provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        known = {"spark.sql.shuffle.partitions": "8", "spark.sql.caseSensitive": "false"}
        return provider if name.endswith("providerClass") else known.get(name, default)

    def set(self, name: str, value: str) -> None:
        """Asked once all checks have passed."""
        raise Passed


class Session:
    """A session that has settings, and nothing else."""

    def __init__(self) -> None:
        self.conf = Conf()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("getOrCreate", "recentProgress"):
            raise AttributeError(name)
        if name in ("createDataFrame", "read", "readStream", "streams", "version"):
            return Later()
        raise Passed(name)


class Later:
    """What is there, and ends the test when it is used."""

    def __getattr__(self, name: str) -> Any:
        raise Passed(name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise Passed


class Query:
    """A query that runs; to look at it ends the test."""

    id, runId = "query", "run"  # noqa: N815

    @property
    def recentProgress(self) -> list[Any]:
        """None yet."""
        return []

    @property
    def isActive(self) -> bool:
        """Asked once all checks have passed."""
        raise Passed


ROWS = Frame(id="long", ts="time", v="vector", x="double", name="text")
ASKED = Frame(query_id="long", v="vector")
SEEN = Frame(
    **{"kind": "text", "seq": "int", "revision": "int", "opened": "time", "closed": "time"},
    **{"reason": "text", "count": "long", "usual_count": "long", "duration": "double"},
)
PAIRS = Frame(left_id="long", right_id="long", ts="time", score="double")
TOP = Frame(query_id="long", rank="int", id="long", score="double", ts="time")
TALK = Frame(
    **{f"{side}_{name}": kind for side in ("left", "right") for name, kind in _SHOT.items()},
    **{"ts": "time", "score": "double"},
)
FILM = Frame(
    **{"id": "text", "channel": "text", "ts": "time", "segment": "text", "run": "long"},
    **{"pts": "long", "anchor": "truth", "sig": "bytes", "features": "vector", "grey": "ints"},
    **{"grey_centred": "ints", "phash": "long", "picture": "bytes"},
)
LIVE_FILM = Frame(True, id="text", channel="text", ts="time", picture="bytes")
SPANS = Frame(value="bytes")
EVENTS = pa.table({"kind": np.repeat(np.arange(40), 3), "ts": np.arange(120) * 1_000_000})
FIT = ab.fit_windows(EVENTS)
NEAR = ab.cosine("v") >= 0.9
TABLE = [("w", "p", 10.0), ("w", "q", 2.0)]
GPS = ab.feed("gps", "car", columns="car string, lat double")
VIEW = ab.view("near", {GPS: None}, where=[("lat", ">", 0)])
PLACED = VIEW.over(pd.DataFrame({"car": ["ann"]}))
PLAN = ab.place(TABLE, "own")
VECTORS = np.eye(3)

# A call that works, by what it takes; the parameters are those of its signature.
CALLS: dict[str, dict[str, Any]] = {
    "configure": {"spark": Session()},
    **{name: {"left": "v"} for name in ("cosine", "dot", "euclidean", "manhattan", "hamming")},
    **{name: {"left": "name"} for name in ("edit", "jaro_winkler", "jaccard", "same", "differs")},
    "emd": {"left": "v"},
    "haversine": {"lat": "lat", "lon": "lon"},
    "within": {"left": "x", "low": "a", "high": "b"},
    "custom": {"function": max, "left": "x", "right": "x"},
    **{name: {"workers": 4} for name in ("broadcast", "segments", "ranges", "keyed", "adaptive")},
    **{name: {"workers": 4} for name in ("selective", "ssp", "csp")},
    "grid": {"rows": 2, "cols": 2},
    "triangle": {"groups": 2},
    "correlate": {"left": ROWS, "right": ROWS, "where": NEAR, "window": "5 s"},
    "dedupe": {"stream": ROWS, "where": NEAR, "window": "5 s"},
    "groups": {"pairs": PAIRS, "gap": "5 s", "streams": 2},
    "nearest": {"objects": ROWS, "queries": ASKED, "by": "v", "k": 3, "window": "5 s"},
    "top": {"frame": TOP},
    "assemble": {"inputs": ROWS, "key": "name", "close": ab.close.gap("5 s")},
    "spans_of": {"frame": SPANS},
    "sla": {"instances": SEEN, "promises": "2 seconds"},
    "rank_services": {"instances": SEEN, "promises": "2 seconds"},
    "place": {"inputs": TABLE, "sources": "own"},
    "place_pairs": {"pairs": Frame(a="text", b="text", rate_a="double", rate_b="double")},
    "feed": {"name": "gps", "by": "car"},
    "view": {"name": "near", "inputs": {GPS: None}, "where": [("lat", ">", 0)]},
    "follow": {"spark": Session(), "views": PLACED, "broker": "tls://hub:1", "control": "/log"},
    "fit_windows": {"sample": EVENTS},
    "estimate_state": {"rate": 2.0, "windows": FIT},
    "metrics": {"query": Query()},
    "watch": {"query": Query()},
    "dashboard": {"query": Query()},
    "rejects": {"spark": Session(), "path": "rejects"},
    "rescale": {"checkpoint": "checkpoint", "workers": 4, "spark": Session()},
    "assembly.ServiceStats": {"path": "stats", "promises": "2 seconds"},
    "assembly.StateEstimate.beside": {"observed": {"open_windows": 3}},
    "assembly.WindowFit.plot": {"path": "fit.svg"},
    "assembly.ServiceStats.update": {"instances": SEEN},
    "assembly.ServiceStats.get": {"service": "a"},
    "close.after": {"duration": "5 s"},
    "close.count": {"n": 3, "timeout": "5 s"},
    "close.gap": {"duration": "5 s"},
    "close.learned": {},
    "close.until": {"marker": "last"},
    "placement.CoreNetwork": {"links": [("e", "w", 1.0)], "attached": {"p": "e"}},
    "placement.Placement.draw": {"path": "map.svg"},
    "placement.Placement.explain": {"view": "w"},
    "placement.Placement.replan": {"changes": [("w", "p", 3.0)]},
    "placement.PlacementLog": {"path": "log"},
    "placement.PlacementLog.views": {"views": PLACED},
    "placement.Switcher": {"plan": PLAN, "move_cost": 1.0},
    "placement.Switcher.observe": {"changes": [("w", "p", 3.0)]},
    "placement.Switcher.adopt": {"plan": PLAN},
    "placement.template": {"name": "near", "inputs": {GPS: 1.0}},
    "plans.PlanLog": {"path": "log"},
    "plans.PlanLog.append": {"plan": ab.grid(2, 2)},
    "plans.PlanLog.begin": {"plan": ab.grid(2, 2)},
    "plans.PlanLog.draw": {"path": "story.svg"},
    "sinks.delta": {"path": "rows", "app": "mine"},
    "sinks.iceberg": {"table": "lake.news.pairs", "app": "mine"},
    "sinks.kafka": {"servers": "broker:9092", "topic": "pairs", "app": "mine"},
    "sinks.parquet": {"path": "rows", "app": "mine"},
    "sinks.postgres": {"dsn": "host=db", "table": "pairs", "app": "mine"},
    "video.archive": {"keys": LIVE_FILM, "path": "keys"},
    "video.calibrate": {"vectors": VECTORS, "clips": ["a", "b", "c"]},
    "video.describe": {"keys": FILM},
    "video.frames": {"spark": Session(), "path": "films"},
    "video.lite0": {},
    "video.ocr": {},
    "video.onnx": {"path": "net.onnx", "names": ["cat"]},
    "video.shots": {"frames": FILM},
    "video.table": {"spark": Session(), "path": "."},
    "video.topics": {"pairs": TALK, "near": "5 s", "gap": "5 s"},
}
# Objects that a call returns: nobody makes them by hand.
RETURNED = {"assembly.StateEstimate", "assembly.WindowFit", "placement.Placement"}


def begun_log() -> Any:
    """A log that has something to draw."""
    log = ab.plans.PlanLog("log")
    if not log.entries():
        log.begin(ab.broadcast(2))
    return log


# Methods are called on these.
OWNERS: dict[str, Callable[[], Any]] = {
    "assembly.ServiceStats": lambda: ab.assembly.ServiceStats("stats", "2 seconds"),
    "assembly.StateEstimate": lambda: ab.estimate_state(2.0, windows=FIT),
    "assembly.WindowFit": lambda: FIT,
    "placement.Placement": lambda: PLAN,
    "placement.PlacementLog": lambda: ab.placement.PlacementLog("log"),
    "placement.Switcher": lambda: ab.placement.Switcher(PLAN, 1.0),
    "plans.PlanLog": begun_log,
}
# What a message calls a parameter where it does not give its name.
ALSO: dict[tuple[str, str], str] = {
    (name, "promises"): "promise" for name in ("sla", "rank_services", "assembly.ServiceStats")
}
ALSO["assemble", "inputs"] = "input"


def function_of(name: str) -> Callable[..., Any]:
    """What a line of the table calls."""
    owner, _, method = name.rpartition(".")
    if owner in OWNERS:
        found: Callable[..., Any] = getattr(OWNERS[owner](), method)
        return found
    found = ab  # type: ignore[assignment]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def fault(error: Exception, name: str, parameter: str, star: bool) -> str | None:
    """What is wrong with an error; None if it says which parameter and what is allowed."""
    text, word = str(error), ALSO.get((name, parameter), parameter)
    if not isinstance(error, (AnabranchError, TypeError, ValueError)):
        return type(error).__name__
    if isinstance(error, AnabranchError) and PACKAGE.search(text):
        return None  # asked for last, when all else was right
    if not star and word not in text:
        return f"{type(error).__name__} that does not name it"
    return None if ALLOWED.search(text) else "nothing is said to be allowed"


def has_passed(error: Exception) -> bool:
    """Whether all checks have passed; Spark makes no Column without a session, and says so."""
    if isinstance(error, (Passed, PySparkException)):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, AssertionError) and "pyspark" in last.filename


def test_every_public_call_is_tried() -> None:
    flat = [name for name in ab.__all__ if name not in NAMESPACES]
    inside = [f"{s}.{name}" for s, names in NAMESPACES.items() if s != "errors" for name in names]
    assert {*flat, *inside} - RETURNED <= CALLS.keys()


@pytest.fixture(autouse=True)
def nothing_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No server, no program, and files only where nobody keeps any."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("anabranch.spark.dashboard.board.Board", Later())
    monkeypatch.setattr("anabranch.spark.rescale.Checkpoint", Later())
    monkeypatch.setattr("anabranch.assembly.fitting.windows.plot_windows", Later())


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_named_with_what_is_allowed(name: str) -> None:
    good, failed = CALLS[name], []
    for parameter, described in inspect.signature(function_of(name)).parameters.items():
        for wrong in WRONG:
            star = described.kind is inspect.Parameter.VAR_POSITIONAL
            positional = (wrong,) if star else ()
            given = good if star else {**good, parameter: wrong}
            if star:
                given = {n: value for n, value in good.items() if n not in ("low", "high")}
                positional = (given.pop("left"), wrong)
            try:
                function_of(name)(*positional, **given)
            except Exception as error:
                if not has_passed(error) and (why := fault(error, name, parameter, star)):
                    failed.append(f"{parameter}={wrong!r}: {why}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_of_the_table_pass_all_checks(name: str) -> None:
    """Else the wrong arguments would be rejected for something else."""
    if name in ("rescale", "video.lite0", "video.ocr", "video.onnx"):
        pytest.skip("needs a session, a program or a package")
    try:
        function_of(name)(**CALLS[name])
    except Exception as error:
        if not has_passed(error):
            raise
