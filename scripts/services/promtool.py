"""Prometheus's own checker of rules, from the system's packages, or out of Debian's by hand.

python -m scripts.services.promtool check rules deploy/alerts.yml
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from scripts.services.jars import CACHE, Absent

__all__ = ["promtool"]


def promtool() -> str:
    """Where it is. The package is unpacked, not installed: installed, it starts a server."""
    found = shutil.which("promtool")
    if found is not None:
        return found
    folder = CACHE / "prometheus"
    program = folder / "usr/bin/promtool"
    if not program.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise Absent("promtool is not installed: get Prometheus")
        folder.mkdir(parents=True, exist_ok=True)
        run = subprocess.run(
            ["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True
        )
        packages = sorted(folder.glob("prometheus_*.deb"))
        if run.returncode or not packages:
            raise Absent(f"Debian's prometheus cannot be had: {run.stderr[-300:]}")
        subprocess.run(["dpkg", "-x", str(packages[-1]), str(folder)], check=True)
    return str(program)


if __name__ == "__main__":
    sys.exit(subprocess.run([promtool(), *sys.argv[1:]]).returncode)
