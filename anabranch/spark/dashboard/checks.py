"""What is wrong with a call of the board, said before anything is done."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch.calls import Check, is_names, is_whole
from anabranch.flow.folders import path_problems
from anabranch.spark.frames import is_frame, kind_of

__all__ = ["check_dashboard", "file_problems", "show_problems", "topic_problems"]

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,}")  # what addresses and cookies hold as it is
_NUMBERS = ("heat", "score", "began", "last")


def check_dashboard(query: Any, given: Mapping[str, Any]) -> None:
    """Refuse a wrong call of `ab.dashboard`."""
    check = Check()
    if is_frame(query) or not (hasattr(query, "recentProgress") or hasattr(query, "streams")):
        check.say(
            "query must be a streaming query, as .writeStream.start() returns it, or the Spark "
            f"session, got {kind_of(query)}"
        )
    port, host, token, show = (given[name] for name in ("port", "host", "token", "show"))
    if not is_whole(port, 0) or port > 65535:
        check.say(f"port must be a whole number from 0 (any free port) to 65535, got {port!r}")
    if not isinstance(host, str) or not host:
        check.say(f"host must be an address such as '127.0.0.1', got {host!r}")
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        check.say("token must have at least 16 letters, digits, '-', '_', '.' or '~', or be None")
    if show is not None and not is_names(show):
        check.say(f"show must be a list of column names, got {show!r}")
    if not isinstance(given["otel"], bool):
        check.say(f"otel must be True or False, got {given['otel']!r}")
    prediction, placement = given["prediction"], given["placement"]
    if prediction is not None and not hasattr(prediction, "windows"):
        check.say(f"prediction must be what ab.estimate_state returns, got {kind_of(prediction)}")
    if isinstance(placement, (str, os.PathLike)):
        problems = path_problems("placement", placement)
        if not problems and not Path(placement).is_dir():
            problems = [f"placement={os.fspath(placement)!r}: there is no such directory"]
        for problem in problems:
            check.say(problem)
    elif placement is not None and not hasattr(placement, "traffic"):
        check.say(
            "placement must be what ab.place returns, or the control directory of a hub, "
            f"got {kind_of(placement)}"
        )
    check.refuse("dashboard")


def show_problems(frame: Any, label: Any, search: Any, show: Sequence[str] | None) -> list[str]:
    """What is wrong with a call of `board.show`."""
    problems, columns = [], list(frame.columns)
    if not frame.isStreaming:
        problems.append("frame is a batch result; board.table(name, rows) puts one on the page")
    if not isinstance(label, str) or not label.strip():
        problems.append(f"label must be a text, got {label!r}")
    if search is not None and not {"rank", "distance", "object_id"} <= set(columns):
        problems.append(f"search={search!r} is for results of ab.nearest, got {columns}")
    if show is not None and not set(show) & set(columns):
        problems.append(f"show={list(show)!r} of the board names no column of {columns}")
    return problems


def topic_problems(found: Any) -> list[str]:
    """What is wrong with what `board.topics` is given.

    Examples
    --------
    >>> topic_problems(5)
    ['found must be a list of topics, got int']
    >>> topic_problems([{"topic": "a", "event": "grew", "rows": []}])
    ["topic 0 lacks 'heat', 'score', 'began', 'last'"]
    """
    if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, Sequence):
        return [f"found must be a list of topics, got {kind_of(found)}"]
    for number, topic in enumerate(found):
        if not isinstance(topic, Mapping):
            return [f"topic {number} must be a dictionary, got {kind_of(topic)}"]
        lacking = [name for name in ("topic", "event", *_NUMBERS, "rows") if name not in topic]
        if lacking:
            return [f"topic {number} lacks {', '.join(map(repr, lacking))}"]
        for name in _NUMBERS:
            if isinstance(topic[name], bool) or not hasattr(topic[name], "__float__"):
                return [f"{name} of topic {number} must be a number, got {topic[name]!r}"]
        rows = topic["rows"]
        whole = isinstance(rows, Sequence) and not isinstance(rows, (str, bytes))
        if not whole or any(not isinstance(r, Sequence) or len(r) != 3 for r in rows):
            return [f"rows of topic {number} must be a list of (channel, time, JPEG or None)"]
    return []


def note_problems(note: Any) -> list[str]:
    """What is wrong with the line above topics."""
    return [] if isinstance(note, str) else [f"note must be a text, got {kind_of(note)}"]


def file_problems(path: Any) -> list[str]:
    """What is wrong with the path of a file that is to be written."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        return [f"path must be that of a file to write, got {path!r}"]
    made = Path(path)
    if made.is_dir():
        return [f"path={os.fspath(path)!r} is a directory, not a file"]
    if not made.parent.is_dir():
        return [f"path={os.fspath(path)!r}: there is no directory {str(made.parent)!r}"]
    return []
