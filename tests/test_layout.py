"""Pure modules stay pure: only `anabranch/spark/` may import pyspark."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "anabranch"


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


def test_pyspark_is_imported_only_in_the_spark_folder():
    files = [
        path for path in PACKAGE.rglob("*.py") if "spark" not in path.relative_to(PACKAGE).parts
    ]
    assert len(files) > 15
    assert {path.name for path in files if "pyspark" in imported(path)} == set()


def test_the_rule_can_fail():
    assert "pyspark" in imported(PACKAGE / "spark" / "correlate.py")


def test_importing_anabranch_does_not_import_spark():
    code = "import sys, anabranch.testing, anabranch.cli.main; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists():
    import anabranch as ab

    assert [name for name in ab.__all__ if not hasattr(ab, name)] == []


def test_files_are_short():
    long = {
        p.name: n for p in PACKAGE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 450
    }
    assert long == {}
