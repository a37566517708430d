"""What a Python process needs before it works on data: compiled code, a quiet heap, one thread.

**Compiled code** is kept from run to run. numba notices that a function's own file has changed, but
not that another has from which a function was compiled into it: after an upgrade, or an edit, the
old code would go on running without a word. Here the folder of a module's compiled code is named by
the text of the module and of all that it imports from its own package. Code from other sources is
never found, an edit elsewhere costs nothing, and nothing is removed that a process may be using.
Code compiled ahead, in a folder that this process may only read, is linked into the one it writes.
numba itself insists on writing: on another kind of CPU, or for other types, it compiles anew.

**The heap.** Importing numpy, pandas, pyarrow and numba leaves about a million objects that live as
long as the process. A small micro-batch allocates enough to start full collections, and each walks
all of them: measured, two thirds of the CPU time of a small batch.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

__all__ = [
    "KERNELS",
    "cache_folder",
    "freeze_imports",
    "kept_folders",
    "njit",
    "single_threaded",
]

_PACKAGE = Path(__file__).parents[1]
_LOCK = threading.Lock()  # numba's setting below is one for the whole process
_UNUSED_SECONDS = 30 * 86_400

KERNELS: list[Any] = []
"""Every function of this process that numba compiles, whether it has done so or not."""


def njit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Like ``numba.njit``, with compiled code kept in a folder that this process may write.

    That is in `NUMBA_CACHE_DIR` if it is set, else beside the package, in the user's cache folder,
    or in a private one for temporary files; where none can be written, in memory alone. What was
    compiled into one of the first two is found, also where it can only be read.

    Examples
    --------
    >>> @njit(nogil=True)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """
    if function is None:
        return functools.partial(njit, **options)
    import numba

    folder = _folder(function.__code__.co_filename)
    if folder is None:
        return _kept(numba.njit(**options)(function))
    config: Any = numba.config
    with _LOCK:
        before, config.CACHE_DIR = config.CACHE_DIR, folder
        try:
            return _kept(numba.njit(cache=True, **options)(function))
        finally:
            config.CACHE_DIR = before


def _kept(kernel: Any) -> Any:
    KERNELS.append(kernel)
    return kernel


def cache_folder() -> Path | None:
    """Where this process keeps compiled code; None if no folder for it can be written."""
    return _root()


def kept_folders() -> list[Path]:
    """Where code of earlier runs may lie: folders to read, and last the one that is written."""
    root = _root()
    return [*_read_only(), *([] if root is None else [root])]


@functools.cache
def freeze_imports() -> None:
    """Take what is on the heap now out of every later collection; works once in a process."""
    gc.collect()
    gc.freeze()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Keep BLAS to one thread inside the block: a Spark task has one core."""
    found = _controller()
    with found.limit(limits=1, user_api="blas") if found is not None else nullcontext():
        yield


@functools.cache
def _controller() -> Any:
    # Looking for the loaded BLAS libraries takes milliseconds, so once per process.
    try:
        from threadpoolctl import ThreadpoolController
    except ModuleNotFoundError:  # an executor, whose OMP_NUM_THREADS Spark has set
        return None
    return ThreadpoolController()


@functools.cache
def _folder(file: str) -> str | None:
    """Where compiled code of a module is kept; None where it cannot be."""
    root = _root()
    path = Path(file)
    if root is None or not path.is_file():
        return None  # typed in, or in a zip file: there is no knowing what it is made from
    top = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
    text = hashlib.sha256()
    for source in sorted(_sources(path, (top, _PACKAGE.parent))):
        text.update(f"{source.name}\n".encode() + source.read_bytes())
    name = ".".join(path.relative_to(top).with_suffix("").parts)
    folder = root / f"{name}-{text.hexdigest()[:20]}"
    try:
        if not folder.exists():
            _forget_unused(root)
        folder.mkdir(exist_ok=True)
        os.utime(folder)
    except OSError:
        return None
    for ahead in _read_only():
        _link(ahead / folder.name, folder)
    return str(folder)


def _link(ahead: Path, folder: Path) -> None:
    """Let what another has compiled appear in a folder, unless there is something newer.

    numba never writes into a file: it puts another in its place, and so in the place of a link.
    """
    with suppress(OSError):
        # An index comes after the code that it names.
        for source in sorted(ahead.rglob("*.nb[ci]"), key=lambda path: (path.suffix, path)):
            made = folder / source.relative_to(ahead)
            made.parent.mkdir(exist_ok=True)
            with suppress(FileExistsError):
                made.symlink_to(source)


def _sources(path: Path, tops: tuple[Path, ...]) -> set[Path]:
    """A file and all those of its own package and this one that it imports, directly or not."""
    found: set[Path] = set()
    ahead = {path}
    while ahead:
        found |= ahead
        ahead = {file for source in ahead for file in _imported(source, tops)} - found
    return found


_IMPORT = re.compile(r"^(?:from +([\w.]+) +import +(\([^)]*\)|.*)|import +([\w.]+))", re.MULTILINE)


@functools.cache
def _imported(path: Path, tops: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files below `tops` that a file imports when it is loaded."""
    names = set()
    for base, parts, plain in _IMPORT.findall(path.read_text()):
        names |= {plain or base} | {f"{base}.{part}" for part in re.findall(r"\w+", parts)}
    places = [top.joinpath(*name.split(".")) for top in tops for name in names]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return tuple(file for file in files if file.is_file())


def _given() -> list[Path]:
    """The folders for compiled code that have the rights of the code itself."""
    import numba

    config: Any = numba.config
    named = [Path(config.CACHE_DIR).absolute() / "anabranch"] if config.CACHE_DIR else []
    return [*named, _PACKAGE / "__pycache__" / "compiled"]


@functools.cache
def _root() -> Path | None:
    """The first folder for compiled code that this process may write."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for root in [*_given(), Path(home) / "anabranch"]:
        if not root.is_absolute():
            continue  # a user without a home
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=root).close()
            return root
    return _temporary()


@functools.cache
def _read_only() -> list[Path]:
    """The folders that come before the one that is written: they can be read at most."""
    given, root = _given(), _root()
    return given[: given.index(root)] if root in given else given


def _temporary() -> Path | None:
    """A folder for temporary files that nobody else can write: compiled code is run unseen."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    root = Path(tempfile.gettempdir()) / f"anabranch-{user}"
    with suppress(OSError):
        root.mkdir(mode=0o700, exist_ok=True)
        state = root.lstat()
        private = not hasattr(os, "getuid") or (
            state.st_uid == os.getuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        )
        if stat.S_ISDIR(state.st_mode) and private:
            tempfile.TemporaryFile(dir=root).close()
            return root
    return None


def _forget_unused(root: Path) -> None:
    """Remove what was compiled from sources that nobody has run for a month."""
    for folder in root.iterdir():
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
