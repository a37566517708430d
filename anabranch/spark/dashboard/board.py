"""`dashboard`: a live page of running queries, served by the driver."""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.calls import Check, is_names, is_whole
from anabranch.errors import AnabranchError, InvalidCall, extra, renamed
from anabranch.flow.folders import path_problems
from anabranch.spark.dashboard.feed import Feed, Query
from anabranch.spark.dashboard.prometheus import exposition
from anabranch.spark.dashboard.sample import sampled
from anabranch.spark.dashboard.saved import self_contained
from anabranch.spark.dashboard.search import searched
from anabranch.spark.dashboard.server import Channel, Server, is_loopback, page_files
from anabranch.spark.dashboard.telemetry import Telemetry
from anabranch.spark.dashboard.topics import MOST_TOPICS, topic_form
from anabranch.spark.dashboard.view import TAIL, View, encode
from anabranch.spark.frames import is_frame, kind_of, refuse_others
from anabranch.spark.listening import hearer_of, sessions

__all__ = ["Board", "dashboard"]

_TICK_SECONDS = 5.0  # between looks at a clock while nothing comes
_PAUSE_SECONDS = 0.5  # at least between two messages
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,}")  # what addresses and cookies hold as it is
_TABLE_ROWS = 200
_LOG = logging.getLogger("anabranch")
_JSON = "application/json; charset=utf-8"


@renamed()
def dashboard(
    query: Any,
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    show: Sequence[str] | None = None,
    prediction: Any = None,
    placement: Any = None,
    otel: bool = False,
) -> Board:
    """A live page of a streaming query, or of all queries of a session, served by this driver.

    Parameters
    ----------
    query
        What ``DataFrame.writeStream.start()`` returned, running or ended; or a Spark session, whose
        queries are shown as they come.
    port
        Where to listen; 0 is any port that is free.
    host
        By default this machine alone can open the page. Any other address needs a token.
    token
        A secret of at least 16 letters and digits that every request must bring. Elsewhere than on
        loopback one is made up if none is given; ``board.url`` has it.
    show
        Columns whose contents ``board.show`` may send to the page. By default all on loopback, and
        none elsewhere.
    prediction
        What `ab.estimate_state` returned: shown beside what is seen.
    placement
        What `ab.place` returned: planned traffic by link against everything uploaded. Or the
        control directory of a hub: what crossed each link in the last minute beside its plan.
    otel
        Also report to OpenTelemetry: metrics, and one span per micro-batch, through the providers
        that the process has set.

    Returns
    -------
    Board
        ``url``, ``stop()``, ``save(path)``, ``show(frame)``, ``table(name, rows)``,
        ``topics(found)``; also a context manager.

    Examples
    --------
    >>> import anabranch as ab
    >>> with ab.dashboard(spark) as board:
    ...     board.url.startswith("http://127.0.0.1:")
    True
    """
    check = Check()
    if is_frame(query) or not (hasattr(query, "recentProgress") or hasattr(query, "streams")):
        check.say(
            "query must be a streaming query, as .writeStream.start() returns it, or the Spark "
            f"session, got {kind_of(query)}"
        )
    if not is_whole(port, 0) or port > 65535:
        check.say(f"port must be a whole number from 0 (any free port) to 65535, got {port!r}")
    if not isinstance(host, str) or not host:
        check.say(f"host must be an address such as '127.0.0.1', got {host!r}")
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        check.say("token must have at least 16 letters, digits, '-', '_', '.' or '~', or be None")
    if show is not None and not is_names(show):
        check.say(f"show must be a list of column names, got {show!r}")
    if prediction is not None and not hasattr(prediction, "windows"):
        check.say(f"prediction must be what ab.estimate_state returns, got {kind_of(prediction)}")
    if isinstance(placement, (str, os.PathLike)):
        for problem in path_problems("placement", placement):
            check.say(problem)
    elif placement is not None and not hasattr(placement, "traffic"):
        check.say(
            "placement must be what ab.place returns, or the control directory of a hub, "
            f"got {kind_of(placement)}"
        )
    check.refuse("dashboard")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    return Board(query, (host, int(port)), token, show, View(prediction, placement), otel)


class Board:
    """A page that is being served; made by `ab.dashboard`."""

    def __init__(
        self,
        query: Any,
        address: tuple[str, int],
        token: str | None,
        show: Sequence[str] | None,
        view: View,
        otel: bool = False,
    ) -> None:
        self._telemetry = _telemetry() if otel else None
        self._only = str(query.id) if hasattr(query, "recentProgress") else None
        self._session = query if self._only is None else _session_of(query)
        self._feed = Feed() if self._session is None else hearer_of(self._session, Feed)
        self._show, self._open = show, is_loopback(address[0])
        self._view = view
        view.columns = show
        if show is None and not self._open:
            view.rows = "Contents of rows are off beyond loopback: name columns with show=[...]."
        self._channel = Channel(self._feed.wake)
        answers = {"/api/state.json": self._state, "/metrics": self._metrics}
        try:
            self._server = Server(*address, token, answers, self._channel)
        except OSError as error:
            wrong = f"host={address[0]!r}, port={address[1]}: {error.strerror or error}"
            raise InvalidCall("dashboard", [f"{wrong}; port=0 takes any that is free"]) from error
        self._token, self._told, self._told_topics = token, 0, view.topics
        self._stopped = threading.Event()
        if self._telemetry is not None:
            self._feed.tell(self._report)
        self._feed.look()
        for handle in [query] if self._only is not None else query.streams.active:
            self._feed.add(handle)
        self._threads = [
            threading.Thread(target=target, name=f"anabranch-board-{name}", daemon=True)
            for name, target in (("http", self._serve), ("feed", self._follow))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        """Where the page is; with the token if there is one."""
        host, port = self._server.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{name}:{port}/" + (f"?token={self._token}" if self._token else "")

    def show(self, frame: DataFrame, label: str = "matches", search: Any = None) -> DataFrame:
        """The same result, of which the newest rows of each micro-batch are shown on the page.

        Start the query from what this returns. A few rows of each micro-batch travel in Spark's
        progress reports, so Spark's own log and event log may hold them too. Pairs are shown side
        by side; pictures where a column holds PNG or JPEG of at most 32 KB.

        Parameters
        ----------
        frame
            A streaming result, or any other stream, such as one of rejected rows.
        label
            The heading on the page.
        search
            The id of a saved search, if the frame is a result of `nearest`: of this one the page
            has every row, as the ranks of each micro-batch, and not only the newest of all.
        """
        refuse_others("show", {"frame": frame})
        columns = list(frame.columns)
        problems = []
        if not isinstance(label, str) or not label.strip():
            problems.append(f"label must be a text, got {label!r}")
        if search is not None and not {"rank", "distance", "object_id"} <= set(columns):
            problems.append(f"search={search!r} is for results of ab.nearest, got {columns}")
        if problems:
            raise InvalidCall("show", problems)
        asked = columns[0]  # the id of the search, whatever it is called
        if self._show is not None or not self._open:
            columns = [name for name in columns if name in (self._show or ())]
        if not columns or not frame.isStreaming:
            return frame
        if search is not None and asked in columns:
            frame = searched(frame, asked, search, columns)
        return sampled(frame, secrets.token_hex(4), label, columns)

    def table(self, name: str, rows: Any) -> None:
        """Put a table on the page, or a newer one of this name: what `ab.sla` found, for example.

        `rows` is a batch DataFrame, of which the first 200 rows are collected now.
        """
        refuse_others("table", {"rows": rows})
        if rows.isStreaming:
            raise InvalidCall("table", ["rows is streaming: call table inside foreachBatch"])
        if self._view.rows:
            return
        kept = [c for c in rows.columns if self._show is None or c in self._show]
        found = rows.select(*kept).limit(_TABLE_ROWS).collect() if kept else []
        with self._feed.lock:
            self._view.tables[name] = [
                {key: str(value) for key, value in row.asDict().items()} for row in found
            ]
        self._feed.wake()

    def topics(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Put topics on the page in place of the former ones, with pictures side by side.

        Parameters
        ----------
        found
            The hottest first. Each has ``topic``, ``event``, ``heat``, ``score``, ``words``,
            ``began`` and ``last`` (seconds since 1970), and ``rows``: channel, time and JPEG of its
            key frames. The first 12 topics and 24 key frames of each are shown; one that is
            ``repeated``, if it says so, is greyed. Under ``show=`` the name of a topic, its words,
            the names of channels and pictures are there if ``topic``, ``words``, ``channel`` and
            ``jpeg`` are among its columns.
        """
        if self._view.rows:
            return
        forms = [topic_form(one, self._show) for one in found[:MOST_TOPICS]]
        with self._feed.lock:
            self._view.topics = forms
        self._feed.wake()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as it is now into one file that needs nothing else."""
        made = Path(path)
        made.write_bytes(self_contained(page_files(), self._state()[2]))
        return made

    def stop(self) -> None:
        """End the page; the query runs on."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._telemetry is not None:
            self._feed.forget(self._report)
        self._feed.look_away()
        self._feed.wake()
        self._channel.close()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join(_TICK_SECONDS)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        address = self.url.partition("?")[0]  # without the token: this is printed and logged
        return f"ab.dashboard at {address}" + (" (stopped)" if self._stopped.is_set() else "")

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)

    def _follow(self) -> None:
        """Take in what comes, and tell the pages that are open."""
        seen = -1
        while not self._stopped.is_set():
            seen = self._feed.wait(seen, _TICK_SECONDS)
            try:
                self._take_in()
                if self._channel.listeners:
                    self._channel.publish(self._message())
            except Exception:  # one report that cannot be read must not end the page
                _LOG.warning("the board could not show the newest figures", exc_info=True)
            self._stopped.wait(_PAUSE_SECONDS)

    def _take_in(self) -> None:
        self._feed.take_in(self._find)
        for query in self._queries():
            with suppress(Exception):
                if query.active and query.handle is not None and not query.handle.isActive:
                    error = query.handle.exception()
                    query.end(None if error is None else str(error))
            for history in list(query.histories.values()):
                with suppress(OSError, ValueError, AnabranchError):  # only workers may reach them
                    history.look_at_rejects(query.id)

    def _report(self, query: Query, verb: str, progress: Any) -> None:
        """Pass a micro-batch on to OpenTelemetry; others of the session are not ours to report."""
        if self._telemetry is not None and self._only in (None, query.id):
            self._telemetry(query, verb, progress)

    def _find(self, ident: str) -> Any:
        with suppress(Exception):  # a session that has stopped answers nothing
            return None if self._session is None else self._session.streams.get(ident)
        return None

    def _queries(self) -> list[Query]:
        every = list(self._feed.queries.values())
        return every if self._only is None else [q for q in every if q.id == self._only]

    def _message(self) -> bytes:
        with self._feed.lock:
            queries = self._queries()
            state = self._view.state(queries, TAIL)
            shown = sum(query.shown for query in queries)
            if shown != self._told:
                self._told, state["rows"] = shown, self._view.rows_of(queries)
                state["searches"] = self._view.searches_of(queries)
            if self._view.topics is not self._told_topics:
                self._told_topics = state["topics"] = self._view.topics
            return encode(state)

    def _state(self) -> tuple[int, str, bytes]:
        self._take_in()
        with self._feed.lock:
            queries = self._queries()
            state = self._view.state(queries)
            rows = self._view.rows_of(queries)
            whole = {"searches": self._view.searches_of(queries), "topics": self._view.topics}
            return 200, _JSON, encode({**state, "rows": rows, **whole})

    def _metrics(self) -> tuple[int, str, bytes]:
        self._take_in()
        try:
            with extra("metrics", "/metrics", "prometheus_client"), self._feed.lock:
                return (200, *exposition(self._queries()))
        except AnabranchError as error:
            return 501, "text/plain; charset=utf-8", f"{error}\n".encode()


def _session_of(query: Any) -> SparkSession | None:
    """The session that runs a query; None if it has ended, or nobody knows its session."""
    active = SparkSession.getActiveSession()
    for session in [*sessions(), *([] if active is None else [active])]:
        with suppress(Exception):
            if session.streams.get(str(query.id)) is not None:
                return session
    return None


def _telemetry() -> Telemetry:
    with extra("otel", "otel=True", "opentelemetry"):
        return Telemetry()
