"""The HTTP server of a board: four addresses to read, nothing to change.

On loopback whoever can reach it may read it, so the Host header must name loopback: a page of
another site that makes its own name point here (DNS rebinding) is turned away. Elsewhere every
request needs the token, as a cookie, or as a header ``Authorization: Bearer``; a first visit may
bring it as ``?token=``, and is sent on without it.
"""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

__all__ = ["MOST_PAGES", "PAGE", "Channel", "Server", "is_loopback", "page_files"]

MOST_PAGES = 64
"""Pages that may be open at a time."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")
PAGE = files(__package__) / "page"
_KINDS = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ALIVE_SECONDS = 15.0  # between signs of life of a stream of events
_PATIENCE = 30.0  # for a page that does not read or a request that does not come


def is_loopback(host: str) -> bool:
    """Whether a name means this machine alone.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.7")]
    [True, True, True, False, False]
    """
    return host in LOOPBACK


def page_files() -> dict[str, bytes]:
    """The files of the page."""
    return {name: (PAGE / name).read_bytes() for name in _KINDS}


class Channel:
    """The newest message, encoded once, for any number of pages that wait for it.

    `arrived` is called when a page comes, so that it need not wait for the next micro-batch.
    """

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._changed = threading.Condition()
        self._message, self._number, self._closed = b"", 0, False
        self.listeners = 0

    def publish(self, message: bytes) -> None:
        """A new message; pages that were slow skip the one before."""
        with self._changed:
            self._message, self._number = message, self._number + 1
            self._changed.notify_all()

    def close(self) -> None:
        """No more messages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def after(self, number: int, seconds: float) -> tuple[int, bytes] | None:
        """The newest message if it is newer, or an empty one after so long; None at the end."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._closed:
                left = until - time.monotonic()
                if self._number > number:
                    return self._number, self._message
                if left <= 0:
                    return number, b""
                self._changed.wait(left)
        return None

    @contextmanager
    def listening(self) -> Iterator[bool]:
        """Count a page for as long as it listens; false if there are too many."""
        with self._changed:
            room = self.listeners < MOST_PAGES
            self.listeners += room
        try:
            if room:
                self._arrived()
            yield room
        finally:
            with self._changed:
                self.listeners -= room


class Server(ThreadingHTTPServer):
    """Serves the page, its events, its state and its metrics.

    Parameters
    ----------
    host, port
        Where to listen; port 0 is any that is free.
    token
        What requests must bring; None if anybody who can reach it may read.
    answers
        Functions for ``/api/state.json`` and ``/metrics``: status, type and content.
    channel
        Where the messages of ``/events`` come from.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None,
        answers: Mapping[str, Callable[[], tuple[int, str, bytes]]],
        channel: Channel,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.token, self.answers, self.channel = token, answers, channel
        self.any_host, self.everywhere = not is_loopback(host), host in EVERYWHERE
        self.files = page_files()
        super().__init__((host, port), _Handler)
        # Browsers keep cookies by host, not by port: two boards must not share one.
        self.cookie = f"anabranch_board_{self.server_address[1]}"

    def server_bind(self) -> None:
        """Bind without asking for the name of the host, which may take long offline."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that went away is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _PATIENCE
    server_version = "anabranch"
    sys_version = ""
    _answers: ClassVar[tuple[str, ...]] = ("GET", "HEAD")

    def do_GET(self) -> None:
        """Answer a request to read."""
        address = urlsplit(self.path)
        if not self._known_host():
            return self._say(421, "this page is served to loopback names only")
        given = parse_qs(address.query).get("token", [""])[0]
        if given and self._is_token(given):
            return self._send_on(address.path, given)
        if self.server.token is not None and not self._may():
            return self._say(401, "this page needs its token: open the address that board.url has")
        name = "index.html" if address.path == "/" else address.path[1:]
        if name in self.server.files:
            return self._answer(200, _KINDS[name], self.server.files[name])
        if address.path in self.server.answers:
            return self._answer(*self.server.answers[address.path]())
        if address.path == "/events":
            return self._events()
        return self._say(404, "there are /, /events, /api/state.json and /metrics")

    do_HEAD = do_GET  # noqa: N815

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of the protocol; a method that is not there can only be one that changes."""
        if code == 501:
            code, message = 405, "only GET and HEAD: nothing here can be changed"
        self._say(code, message or "bad request")

    def log_message(self, format: str, *args: Any) -> None:
        """The driver's standard error is not ours."""

    def _known_host(self) -> bool:
        """Whether the request names loopback, on any port: it may have come through a tunnel."""
        if self.server.any_host:
            return True
        host = self.headers.get("Host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return is_loopback(name.lower())

    def _may(self) -> bool:
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        cookies: SimpleCookie = SimpleCookie()
        with suppress(CookieError):
            cookies.load(self.headers.get("Cookie", ""))
        mine = self.server.cookie
        cookie = cookies[mine].value if mine in cookies else ""
        return self._is_token(bearer) or self._is_token(cookie)

    def _is_token(self, given: str) -> bool:
        token = self.server.token
        return token is not None and hmac.compare_digest(given.encode(), token.encode())

    def _send_on(self, path: str, token: str) -> None:
        # Away from the address, which is copied and logged, into a cookie.
        self.send_response(303)
        self.send_header("Location", path if path.startswith("/") and path[1:2] != "/" else "/")
        rules = "HttpOnly; SameSite=Strict; Path=/"
        self.send_header("Set-Cookie", f"{self.server.cookie}={token}; {rules}")
        self._finish(b"")

    def _say(self, code: int, text: str) -> None:
        self._answer(code, "text/plain; charset=utf-8", f"{text}\n".encode())

    def _answer(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        if code == 405:
            self.send_header("Allow", ", ".join(self._answers))
        self._finish(content)

    def _finish(self, content: bytes) -> None:
        self.send_header("Content-Length", str(len(content)))
        self._end()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _end(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def _events(self) -> None:
        with self.server.channel.listening() as room:
            if not room:
                return self._say(503, f"{MOST_PAGES} pages are open already")
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self._end()
            if self.command == "HEAD":
                return None
            self.wfile.write(b"retry: 2000\n\n")
            number = 0
            while (found := self.server.channel.after(number, _ALIVE_SECONDS)) is not None:
                number, message = found
                self.wfile.write(b"data: " + message + b"\n\n" if message else b": alive\n\n")
        return None
