"""What a device keeps: rows until the cloud has them for good, frames, results and its state.

One SQLite file with a write-ahead log that is synced at every commit. Whatever has to be true
together is written in one transaction, so a device that is killed at any moment comes back as it
was after the last one.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import msgpack

from anabranch.edge.effects import Effects
from anabranch.edge.frames import Output, decode_output, encode_output
from anabranch.edge.own_stream import Row
from anabranch.edge.sections import Results
from anabranch.errors import AnabranchError, StateMismatch

__all__ = ["Outbox", "OutboxFull"]

_VERSION = 2
_TABLES = """
CREATE TABLE rows (stream TEXT, n INTEGER, t INTEGER, stamp INTEGER, content BLOB,
                   PRIMARY KEY (stream, n)) WITHOUT ROWID;
CREATE TABLE frames (number INTEGER PRIMARY KEY, content BLOB, done BLOB, acked REAL);
CREATE TABLE results (id INTEGER PRIMARY KEY AUTOINCREMENT, t INTEGER, content BLOB);
CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
"""


_LOG = 1000  # pages of SQLite's log after which they are moved into the file
_NOTES = 20  # how often the time is noted until a frame is let go of
_PORTION = 100  # rows or results that make room at once


class OutboxFull(AnabranchError):
    """A row was not kept: the cloud has not had enough of the rows before it, or a disk is full."""


class Outbox:
    """The store of one device in a folder.

    Parameters
    ----------
    folder
        Made if it is not there. A copy of it, or an older one put back, is another device's past:
        the cloud notices and stops it.
    limit
        Bytes that may be used, SQLite's log among them; `put` of the agent looks at `full` before
        it takes a row.
    keep
        Microseconds that rows and results stay after they are no longer needed, so that they can be
        compared with what the cloud has; None keeps them until `make_room`.
    release_after
        Seconds between an acknowledgement and a later one that lets go of its frame: ten sync
        intervals of the broker, which may lose what it has not synced when its power is cut. While
        the cloud is silent nothing is let go of. Only the time counts in which the outbox is open,
        be it in many short runs: a clock that is set forward, or was wrong before a restart, ages
        nothing.

    Examples
    --------
    >>> import tempfile
    >>> box = Outbox(tempfile.mkdtemp())
    >>> box.commit([Effects(rows=[Row("gps", 7, 10, None, {"x": 1.5})], state=b"s")])
    >>> state, rows, frames = box.load()
    >>> state, list(rows), list(frames)
    (b's', [Row(stream='gps', n=7, t=10, stamp=None, values={'x': 1.5})], [])
    >>> box.close()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        limit: int = 1 << 30,
        keep: int | None = None,
        release_after: float = 1200.0,
    ) -> None:
        self.limit, self.keep, self.release_after = limit, keep, release_after
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        # Commits and pruning run in threads, and one transaction is open at a time.
        self._one = Lock()
        self._path, self._done = path / "outbox.db", dict[str, int]()
        self._base = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, timeout=1
        )
        try:
            # Two agents with one outbox would give the same number to two frames.
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = FULL")
            self._check_version(path)
        except sqlite3.OperationalError as error:
            self._base.close()
            raise AnabranchError(
                f"the outbox in {path} cannot be opened ({error}): one agent uses it at a time"
            ) from error
        (self._page,) = self._base.execute("PRAGMA page_size").fetchone()
        pages = max(4, min(_LOG, limit // 16 // self._page))
        self._log = 2 * pages * self._page  # a commit that begins below the bound may end above it
        self._base.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        self._base.execute(f"PRAGMA journal_size_limit = {self._log}")
        (acked,) = self._base.execute("SELECT max(acked) FROM frames").fetchone()
        self._noted = self._note("open") or 0.0
        self._opened = time.monotonic() - max(acked or 0.0, self._noted)  # it goes on from there
        self.size = self._size()

    def _check_version(self, path: Path) -> None:
        (version,) = self._base.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._base.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_VERSION};"
                "INSERT INTO notes VALUES ('incarnation', 0);"
                f"INSERT INTO notes VALUES ('token', {secrets.randbits(62)}); COMMIT"
            )
        elif version != _VERSION:
            raise StateMismatch(
                f"the outbox in {path} is of version {version}, and this is {_VERSION}: "
                "use the release that wrote it until it is empty"
            )

    @property
    def incarnation(self) -> int:
        """What tells this outbox from one that was lost: 0 until the cloud has given it one."""
        return int(self._note("incarnation"))

    @property
    def token(self) -> int:
        """By which it asks for an incarnation: drawn when it was made."""
        return int(self._note("token"))

    @property
    def full(self) -> bool:
        """Whether there is no place for another row."""
        return self.size >= self.limit

    def load(self) -> tuple[bytes | None, Iterable[Row], Iterable[tuple[int, bytes]]]:
        """The state, the rows and the frames: what `AgentState.restore` takes."""
        rows = self._base.execute("SELECT stream, n, t, stamp, content FROM rows ORDER BY n")
        return (
            self._note("state"),
            (Row(s, n, t, stamp, msgpack.unpackb(content)) for s, n, t, stamp, content in rows),
            self.frames(),
        )

    def frames(self) -> Iterable[tuple[int, bytes]]:
        """All frames that are kept, also those that the cloud has acknowledged."""
        return self._base.execute("SELECT number, content FROM frames ORDER BY number")

    def commit(self, many: Sequence[Effects], done: Mapping[str, int] | None = None) -> None:
        """Keep all that these effects hold, in one transaction, synced when this returns.

        `done` says up to which row each stream's are in frames, or never will be.
        """
        rows = [
            (row.stream, row.n, row.t, row.stamp, msgpack.packb(dict(row.values)))
            for one in many
            for row in one.rows
        ]
        covered = msgpack.packb(dict(done or {}))
        # Frames are numbered anew by the one that brings an incarnation.
        given = next((one.incarnation for one in many if one.incarnation), 0)
        first = next((k for k, one in enumerate(many) if one.incarnation), 0)
        frames = [
            (number, content, covered) for one in many[first:] for number, content in one.frames
        ]
        results = [
            (max(int(times.max()) for times in found.t), encode_output(Output(0, (found,))))
            for one in many
            for found in one.results
        ]
        states = [("state", one.state) for one in many if one.state is not None]
        freed = max((one.freed for one in many), default=-1)
        with self._transaction() as run:
            self._base.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", rows)
            if given:
                run("UPDATE notes SET value = ? WHERE name = 'incarnation'", (given,))
                run("UPDATE rows SET n = n + ?1 WHERE n < 1 << 32", (given << 32,))
                run("DELETE FROM frames")
            self._base.executemany("INSERT INTO frames VALUES (?, ?, ?, NULL)", frames)
            self._base.executemany("INSERT INTO results (t, content) VALUES (?, ?)", results)
            self._base.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", states[-1:])
            if any(one.again for one in many):
                run("UPDATE frames SET acked = NULL")
            run(
                "UPDATE frames SET acked = ? WHERE number <= ? AND acked IS NULL",
                (time.monotonic() - self._opened, freed),
            )
        self._done.update(done or {})
        self.size = self._size()

    def results(self, after: int = -1) -> Iterator[tuple[int, Results]]:
        """Results by their number, of those that are kept."""
        found = self._base.execute(
            "SELECT id, content FROM results WHERE id > ? ORDER BY id", (after,)
        )
        for number, content in found:
            for one in decode_output(content).results:
                yield number, one

    @property
    def shown(self) -> int:
        """The number of the last result that the application has had."""
        return int(self._note("shown") or -1)

    def show(self, number: int) -> None:
        """The application has had all results up to this one."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO notes VALUES ('shown', ?)", (number,))

    def prune(self) -> None:
        """Delete what neither a restart nor a broker that went back can ask for."""
        # Acknowledgements are the clock; the newest one's frame is always kept.
        released = self._base.execute(
            "SELECT max(number), done FROM frames WHERE acked < ? + (SELECT acked FROM frames "
            "WHERE acked IS NOT NULL ORDER BY number DESC LIMIT 1)",
            (-self.release_after,),
        ).fetchone()
        if time.monotonic() - self._opened - self._noted >= self.release_after / _NOTES:
            self._note_time()
        with self._transaction() as run:
            if released[0] is not None:
                run("DELETE FROM frames WHERE number < ?", (released[0],))
                self._prune_rows(msgpack.unpackb(released[1]))
            if self.keep is not None:
                run(
                    "DELETE FROM results WHERE id <= ? AND t < (SELECT max(t) FROM results) - ?",
                    (self.shown, self.keep),
                )
        self.size = self._size()

    def _prune_rows(self, done: Mapping[str, int]) -> None:
        if self.keep is None:
            return
        self._base.executemany(
            "DELETE FROM rows WHERE stream = ?1 AND n < ?2 "
            "AND t < (SELECT max(t) FROM rows WHERE stream = ?1) - ?3",
            [(stream, n, self.keep) for stream, n in done.items()],
        )

    def make_room(self) -> bool:
        """Delete what nobody needs, the oldest first, until half of the limit is free.

        These are rows that the cloud has, or that nobody asked for, and results that were shown;
        also those that `keep` would have kept. Whether there is more room than before.
        """
        self.prune()
        before = self.size
        while self.size > self.limit // 2 and self._delete_some():
            self.size = self._size()
        with self._one, suppress(sqlite3.OperationalError):  # somebody reads: another time
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.size = self._size()
        return self.size < before

    def _delete_some(self) -> bool:
        """A portion of what nobody needs; False if there is none."""
        with self._transaction() as run:
            acked, waits = run(
                "SELECT max(number) FILTER (WHERE acked NOT NULL), max(acked IS NULL) FROM frames"
            ).fetchone()
            done = self._done
            if waits:  # else the cloud has all rows that are in frames, and asked for no others
                found = run("SELECT done FROM frames WHERE number = ?", (acked,)).fetchone()
                done = found and msgpack.unpackb(found[0])
            deleted = run(
                "DELETE FROM results WHERE id IN "
                "(SELECT id FROM results WHERE id <= ? ORDER BY id LIMIT ?)",
                (self.shown, _PORTION),
            ).rowcount
            for stream, n in (done or {}).items():
                deleted += run(
                    "DELETE FROM rows WHERE stream = ?1 AND n IN "
                    "(SELECT n FROM rows WHERE stream = ?1 AND n < ?2 ORDER BY n LIMIT ?3)",
                    (stream, n, _PORTION),
                ).rowcount
        return bool(deleted > 0)

    def close(self) -> None:
        """Close the file; what was committed is there."""
        self._note_time()
        self._base.close()

    def _note_time(self) -> None:
        """Note for how long it has been open, all runs together; this never goes back.

        A note that cannot be kept is left out: frames then stay a little longer.
        """
        now = max(time.monotonic() - self._opened, self._noted)
        with suppress(OutboxFull, sqlite3.Error), self._transaction() as run:
            run("INSERT OR REPLACE INTO notes VALUES ('open', ?)", (now,))
            self._noted = now

    def _note(self, name: str) -> Any:
        found = self._base.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return found and found[0]

    def _size(self) -> int:
        (pages,) = self._base.execute("PRAGMA page_count").fetchone()
        (free,) = self._base.execute("PRAGMA freelist_count").fetchone()
        try:
            log = os.path.getsize(f"{self._path}-wal")
        except FileNotFoundError:
            log = 0
        # The log may grow to its bound at any time.
        return int((pages - free) * self._page + max(log, self._log))

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., Any]]:
        run = self._base.execute
        with self._one:
            try:
                run("BEGIN IMMEDIATE")
                yield run
                run("COMMIT")
            except BaseException as error:
                if self._base.in_transaction:
                    run("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError) and _is_full(error):
                    raise OutboxFull(
                        f"the disk of {self._path.parent} is full ({error}): what was kept is "
                        "kept; make room, and put again"
                    ) from error
                raise


def _is_full(error: sqlite3.OperationalError) -> bool:
    """Whether there is no room: the second is what SQLite says of quotas and bounds of files."""
    return error.sqlite_errorcode in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
