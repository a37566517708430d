"""``anabranch warm``: what it compiled, another process finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    where = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def warm() -> tuple[int, int, int]:
        command = [sys.executable, "-m", "anabranch.cli.main", "warm", "--quiet"]
        run = subprocess.run(command, env=where, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert str(tmp_path / "anabranch") in run.stdout
        found = re.search(r"(\d+) of \d+ kernels .* in (\d+) forms, (\d+) of them now", run.stdout)
        assert found is not None, run.stdout
        return int(found[1]), int(found[2]), int(found[3])

    kernels, forms, made = warm()
    assert kernels > 130
    assert made > 100
    assert warm() == (kernels, forms, 0)
