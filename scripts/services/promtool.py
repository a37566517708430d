"""Prometheus's own checker of rules, from the system's packages, or out of Debian's by hand.

python -m scripts.services.promtool check rules deploy/alerts.yml
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from scripts.services.jars import unpacked

__all__ = ["promtool"]


def promtool() -> str:
    """Where it is."""
    return shutil.which("promtool") or unpacked("prometheus", "usr/bin/promtool")


if __name__ == "__main__":
    sys.exit(subprocess.run([promtool(), *sys.argv[1:]]).returncode)
