"""Where a result comes from: its date, the code and the processor.

Needs Python alone, and git if it is there.
"""

from __future__ import annotations

import platform
from pathlib import Path

from anabranch.flow.origin import line, origin, package_hash, signed

__all__ = ["line", "origin", "package_hash", "processor", "signed"]


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


if __name__ == "__main__":
    print(package_hash())
