"""A packed environment in place of one that is installed on every machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.services.cluster import cluster
from scripts.services.jars import Absent
from tests.cluster.driver import feed_of
from tests.correlation import twin
from tests.sinks.stories import installed, needed
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import agree, found, scripted
from tests.spark.processes import ROOT, driver

pytestmark = [pytest.mark.services, pytest.mark.spark]
# What executors need beside Spark, which they bring.
NEEDED = ("numpy", "numba", "pyarrow", "pandas", "protobuf")
INSIDE = "./env/bin/python"


def packed(folder: Path) -> tuple[Path, Path]:
    """An environment with Anabranch in it, and the same in one file."""
    home, archive = folder / "home", folder / "env.tar.gz"
    python = home / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    for command in (
        [sys.executable, "-m", "venv", str(home)],
        [*install, *NEEDED],
        [*install, "--no-deps", str(ROOT)],
        [sys.executable, "-m", "venv_pack", "-q", "-p", str(home), "-o", str(archive)],
    ):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise Absent(f"{' '.join(command)}: {run.stderr[-500:]}")
    return home, archive


def test_a_packed_environment_and_the_trap_of_client_mode(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("venv_pack")
    home, archive = needed(lambda: packed(tmp_path))
    script = scripted(3, rows=(10, 12), seed=5)
    feed = feed_of(tmp_path, "correlate").add(script)
    with cluster(path="") as running:
        monkeypatch.setenv("SPARK_LOCAL_IP", running.host)
        call = ("correlate", "--master", running.address, "--python", INSIDE)
        more = ("--set", f"spark.archives={archive}#env")
        # Spark tries the operator out in a Python on the driver, where nothing was unpacked.
        with driver(tmp_path, *call, *more, script="../cluster/driver.py") as run:
            assert run.process.wait(300) != 0
            assert f'Cannot run program "{INSIDE}"' in run.log.read_text(errors="replace")
        (tmp_path / "env").symlink_to(home)
        with driver(tmp_path, *call, *more, script="../cluster/driver.py") as run:
            run.finish()
    agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, score, LATE))
