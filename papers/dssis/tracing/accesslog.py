"""A web server's access log as events: pages are kinds, their objects subordinates.

A request for an object (an image, a script, a style sheet) belongs to the page that its referrer
names; any other request is a page itself, the primary event of an instance. An object without
a referrer belongs to no page that we know of.
"""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import dataclass
from datetime import datetime

import numpy as np

__all__ = ["AccessLog", "read_access_log"]

_LINE = re.compile(
    r'(?P<client>\S+) \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+)[^"]*" '
    r'\d+ \S+ "(?P<referrer>[^"]*)"'
)
_OBJECTS = frozenset({"png", "css", "js", "ico", "jpg", "jpeg", "gif", "svg", "woff", "ttf"})
_HOST = re.compile(r"^https?://[^/]*")


@dataclass(frozen=True)
class AccessLog:
    """Requests in the order of the log, as arrays; names are whole numbers.

    `truth` numbers the instances: requests of one client for one page and its objects, in which no
    two neighbours are further apart than the gap that was asked for. `lines` counts all lines of
    the log, `unreadable` and `without_page` those left out.
    """

    t: np.ndarray
    kind: np.ndarray
    client: np.ndarray
    is_page: np.ndarray
    truth: np.ndarray
    kinds: list[str]
    lines: int
    unreadable: int
    without_page: int

    @property
    def key(self) -> np.ndarray:
        """Head and client as one number."""
        found: np.ndarray = self.kind * (int(self.client.max()) + 1) + self.client
        return found


def read_access_log(path: str | os.PathLike[str], gap: float = 300.0) -> AccessLog:
    r"""Read a log in the combined format, gzipped or not.

    Parameters
    ----------
    path
        The file.
    gap
        Seconds of silence that end an instance, for the truth.

    Examples
    --------
    >>> import tempfile
    >>> line = '1.2.3.4 - - [17/May/2015:10:05:{:02d} +0000] "GET {} HTTP/1.1" 200 9 "{}" "agent"'
    >>> with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
    ...     print(line.format(3, "/blog/", "-"), line.format(5, "/a.png", "http://x.com/blog/"),
    ...           line.format(9, "/b.png", "-"), "nonsense", sep="\n", file=file, flush=True)
    ...     log = read_access_log(file.name)
    >>> log.kinds, log.kind.tolist(), log.truth.tolist(), log.without_page, log.unreadable
    (['/blog/'], [0, 0], [0, 0], 1, 1)
    """
    opened = gzip.open if os.fspath(path).endswith(".gz") else open
    times, kinds, clients, pages = [], [], [], []
    lines = unreadable = without_page = 0
    with opened(path, "rt", errors="replace") as file:
        for line in file:
            lines += 1
            match = _LINE.match(line)
            if match is None:
                unreadable += 1
                continue
            page = _bare(match["path"])
            is_page = page.rsplit(".", 1)[-1].lower() not in _OBJECTS
            if not is_page and match["referrer"] in ("-", ""):
                without_page += 1
                continue
            kinds.append(page if is_page else _bare(_HOST.sub("", match["referrer"])))
            clients.append(match["client"])
            pages.append(is_page)
            moment = datetime.strptime(match["time"], "%d/%b/%Y:%H:%M:%S %z")
            times.append(int(moment.timestamp()) * 1_000_000)
    names, kind = np.unique(np.array(kinds, object), return_inverse=True)
    _, client = np.unique(np.array(clients, object), return_inverse=True)
    t = np.array(times, np.int64)
    key = kind * (int(client.max()) + 1) + client
    order = np.lexsort((t, key))
    fresh = np.diff(key[order], prepend=-1) != 0
    fresh |= np.diff(t[order], prepend=0) > gap * 1e6
    truth = np.empty(len(t), np.int64)
    truth[order] = np.cumsum(fresh) - 1
    return AccessLog(
        t, kind, client, np.array(pages), truth, names.tolist(), lines, unreadable, without_page
    )


def _bare(path: str) -> str:
    """The path without query and fragment."""
    return path.split("?", 1)[0].split("#", 1)[0] or "/"
