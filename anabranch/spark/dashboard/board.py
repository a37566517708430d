"""`dashboard`: a live page of running queries, served by the driver."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import AnabranchError, InvalidCall, extra, renamed
from anabranch.spark.dashboard.checks import (
    check_dashboard,
    file_problems,
    note_problems,
    show_problems,
    topic_problems,
)
from anabranch.spark.dashboard.feed import Feed, Query
from anabranch.spark.dashboard.prometheus import exposition
from anabranch.spark.dashboard.sample import sampled
from anabranch.spark.dashboard.saved import self_contained
from anabranch.spark.dashboard.search import searched
from anabranch.spark.dashboard.server import Channel, Server, is_loopback, page_files
from anabranch.spark.dashboard.telemetry import Telemetry
from anabranch.spark.dashboard.topics import MOST_TOPICS, topic_form
from anabranch.spark.dashboard.view import TAIL, View, encode
from anabranch.spark.frames import refuse_others
from anabranch.spark.listening import hearer_of, sessions

__all__ = ["Board", "dashboard"]

_TICK_SECONDS = 5.0  # between looks at a clock while nothing comes
_PAUSE_SECONDS = 0.5  # at least between two messages
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
    given = {"port": port, "host": host, "token": token, "show": show, "otel": otel}
    check_dashboard(query, {**given, "prediction": prediction, "placement": placement})
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
        self._only = str(query.id) if hasattr(query, "recentProgress") else None
        self._telemetry = _telemetry(self._only) if otel else None
        self._session = query if self._only is None else _session_of(query)
        self._feed = Feed() if self._session is None else hearer_of(self._session, Feed)
        self._show, self._open = show, is_loopback(address[0])
        self._view = view
        view.columns, view.away = show, not self._open
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
            self._feed.tell(self._telemetry)
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
        """Where the page is, for others too if they may; with the token if there is one."""
        host, port = map(str, self._server.server_address[:2])
        if self._server.everywhere:  # an address to listen at, which is none to open
            host = socket.gethostname()
        name = f"[{host}]" if ":" in host else host
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
        if problems := show_problems(frame, label, search, self._show):
            raise InvalidCall("show", problems)
        columns = list(frame.columns)
        asked = columns[0]  # the id of the search, whatever it is called
        if self._show is not None or not self._open:
            columns = [name for name in columns if name in (self._show or ())]
        if not columns:
            return frame
        if search is not None and asked in columns:
            frame = searched(frame, asked, search, columns)
        return sampled(frame, secrets.token_hex(4), label, columns)

    def table(self, name: str, rows: Any) -> None:
        """Put a table on the page, or a newer one of this name: what `ab.sla` found, for example.

        `rows` is a batch DataFrame, of which the first 200 rows are collected now.
        """
        refuse_others("table", {"rows": rows})
        if not isinstance(name, str) or not name.strip():
            raise InvalidCall("table", [f"name must be a text, got {name!r}"])
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

    def topics(self, found: Sequence[Mapping[str, Any]], *, note: str = "") -> None:
        """Put topics on the page in place of the former ones, with pictures side by side.

        Parameters
        ----------
        found
            The hottest first. Each has ``topic``, ``event``, ``heat``, ``score``, ``words``,
            ``began`` and ``last`` (seconds since 1970), and ``rows``: channel, time and JPEG of its
            key frames. The first 12 topics and 24 key frames of each are shown; one that is
            ``repeated``, if it says so, is greyed. Under ``show=`` the name of a topic, its words,
            the names of channels and pictures are there if ``topic``, ``words``, ``channel`` and
            ``jpeg`` are among its columns; so are ``concepts``. The page says how old a topic was
            when it was first shown, if it has an ``age``, in seconds, and which ``concepts`` were
            seen in it.
        note
            A line above all topics, for example how many were found. It is not shown under
            ``show=``.
        """
        if problems := [*topic_problems(found), *note_problems(note)]:
            raise InvalidCall("topics", problems)
        if self._view.rows:
            return
        forms = [topic_form(one, self._show) for one in found[:MOST_TOPICS]]
        with self._feed.lock:
            self._view.topics, self._view.note = forms, "" if self._show is not None else note
        self._feed.wake()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as it is now into one file that needs nothing else."""
        if problems := file_problems(path):
            raise InvalidCall("save", problems)
        made = Path(path)
        made.write_bytes(self_contained(page_files(), self._state()[2]))
        return made

    def stop(self) -> None:
        """End the page; the query runs on."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._telemetry is not None:
            self._feed.forget(self._telemetry)
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
        port = self._server.server_address[1]
        here = f", here http://127.0.0.1:{port}/" if self._server.everywhere else ""
        return f"ab.dashboard at {address}{here}" + (" (stopped)" if self._stopped.is_set() else "")

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


def _telemetry(only: str | None) -> Telemetry:
    with extra("otel", "otel=True", "opentelemetry"):
        return Telemetry(only)
