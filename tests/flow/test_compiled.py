"""Compiled code does not outlive the sources that it was made from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INNER = "import numba\n@numba.njit(cache=True)\ndef inner(x):\n    return x + {}\n"
OUTER = (
    "import numba\nfrom pack.inner import inner\n"
    "@numba.njit(cache=True)\ndef outer(x):\n    return inner(x)\n"
)
RUN = """
import sys
from pathlib import Path
from anabranch.flow.compiled import forget_stale
if {guard}:
    forget_stale(Path({folder!r}))
sys.path.insert(0, {parent!r})
from pack.outer import outer
print(outer(1))
"""


def run(folder: Path, guard: bool) -> int:
    code = RUN.format(guard=guard, folder=str(folder), parent=str(folder.parent))
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(made.stdout)


def test_a_changed_function_is_compiled_anew_where_it_was_compiled_into(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "outer.py").write_text(OUTER)
    (folder / "inner.py").write_text(INNER.format(10))
    assert run(folder, guard=True) == 11
    (folder / "inner.py").write_text(INNER.format(200))
    assert run(folder, guard=False) == 11, "if this fails, numba has learned it, and we are done"
    assert run(folder, guard=True) == 201
    assert run(folder, guard=True) == 201
