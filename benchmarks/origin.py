"""Where a result comes from: its date, the code and the processor.

Needs Python alone, and git if it is there.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["origin", "package_hash", "processor"]

_RESULTS = (":!benchmarks/results", ":!papers/*/results", ":!scripts/reliability/results")


def origin() -> dict[str, Any]:
    """When and from which code a result comes: date, commit, and whether files differed from it.

    The hash of the package says which code it was where the commit cannot: on another machine, to
    which files were copied, or before they were committed. ``python -m benchmarks.origin`` prints
    that of the files as they are.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    commit, found = _git("rev-parse", "--short", "HEAD"), {"date": now, "package": package_hash()}
    if commit is None:  # an installed package, or a copy of the files
        return {**found, "commit": "unknown", "changed_since_commit": "unknown"}
    # Results are written into the tree as benchmarks go; they are not what is measured.
    changed = _git("status", "--porcelain", "--", ".", *_RESULTS)
    return {**found, "commit": commit, "changed_since_commit": changed != ""}


def package_hash() -> str:
    """What the names and bytes of all modules of the package come to."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted((root / "anabranch").rglob("*.py")):
        found.update(f"{path.relative_to(root).as_posix()}\n".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:12]


def processor() -> str:
    """The name of the processor, and which wide instructions it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    found = {key.strip(): value.strip() for key, value in fields.items()}
    wide = [flag for flag in ("avx2", "avx512f") if flag in found.get("flags", "").split()]
    return " ".join([found.get("model name", "unknown"), *wide])


def _git(*words: str) -> str | None:
    """What git answers; None if it cannot."""
    root = Path(__file__).parents[1]
    try:
        said = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


if __name__ == "__main__":
    print(package_hash())
