"""Compiled code that is older than its sources is removed before anything runs.

numba keeps compiled functions beside their sources. It notices that a function's own file has
changed, but not that another has from which a function was compiled into it: after an upgrade, or
an edit, the old code would go on running without a word.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

__all__ = ["forget_stale"]


def forget_stale(package: Path) -> bool:
    """Remove what was compiled from other sources than those of a package now; whether it was.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "loop.py").write_text("x = 1")
    >>> forget_stale(folder), forget_stale(folder)
    (True, False)
    """
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        state = path.stat()
        found.update(f"{path.relative_to(package)} {state.st_size} {state.st_mtime_ns}\n".encode())
    note = package / "__pycache__" / "compiled.stamp"
    with suppress(OSError):
        if note.read_text() == found.hexdigest():
            return False
    # Where this may not be written, neither may numba's cache: it is kept elsewhere, by user.
    with suppress(OSError):
        for path in [*package.rglob("*.nbi"), *package.rglob("*.nbc")]:
            path.unlink(missing_ok=True)
        note.parent.mkdir(exist_ok=True)
        note.write_text(found.hexdigest())
    return True
