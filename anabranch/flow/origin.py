"""Where a result comes from: its date and the code.

Needs Python alone, and git if it is there.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["line", "origin", "package_hash", "signed"]

_ROOT = Path(__file__).parents[2]

_RESULTS = (":!benchmarks/results", ":!papers/*/results", ":!scripts/reliability/results")


def origin() -> dict[str, Any]:
    """When and from which code a result comes: date, commit, and whether files differed from it.

    The hash of the package says which code it was where the commit cannot: on another machine, to
    which files were copied, or before they were committed. ``python -m benchmarks.origin`` prints
    that of the files as they are.

    Examples
    --------
    >>> list(origin())
    ['date', 'package', 'commit', 'changed_since_commit']
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    commit, found = _git("rev-parse", "--short", "HEAD"), {"date": now, "package": package_hash()}
    if commit is None:  # an installed package, or a copy of the files
        return {**found, "commit": "unknown", "changed_since_commit": "unknown"}
    # Results are written into the tree as benchmarks go; they are not what is measured.
    changed = _git("status", "--porcelain", "--", ".", *_RESULTS)
    return {**found, "commit": commit, "changed_since_commit": changed != ""}


def line() -> str:
    """The same on one line, for a page.

    Examples
    --------
    >>> line().startswith("From ")
    True
    """
    return "From " + ", ".join(f"{name.replace('_', ' ')} {of}" for name, of in origin().items())


def signed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a result that is a list, each with where it comes from.

    Examples
    --------
    >>> [list(row) for row in signed([{"n": 1}])]
    [['n', 'origin']]
    """
    said = origin()
    return [{**row, "origin": said} for row in rows]


def package_hash() -> str:
    """What the names and bytes of all modules of the package come to.

    Examples
    --------
    >>> len(package_hash())
    12
    """
    found = hashlib.sha256()
    for path in sorted((_ROOT / "anabranch").rglob("*.py")):
        found.update(f"{path.relative_to(_ROOT).as_posix()}\n".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:12]


def _git(*words: str) -> str | None:
    """What git answers; None if it cannot, or if the package is not what its folder keeps."""
    if not (_ROOT / "benchmarks" / "origin.py").exists():
        return None
    try:
        said = subprocess.run(
            ["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()
