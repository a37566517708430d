"""Compiled code does not outlive its sources, and needs no folder that a user may not have."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch
from anabranch.flow import process

PACKAGE = Path(anabranch.__file__).parent
INNER = "from pack.plain import njit\n@njit\ndef inner(x):\n    return x + {}\n"
OUTER = """
from pack.plain import njit
from pack.inner import (
    inner,
)
@njit
def outer(x):
    return inner(x)
"""
OURS = "from anabranch.flow.process import njit\n"
THEIRS = "import functools\nimport numba\nnjit = functools.partial(numba.njit, cache=True)\n"
CALL = "from pack.outer import outer; print(outer(1), sum(outer.stats.cache_hits.values()))"


def run(folder: Path) -> tuple[int, bool]:
    """What `outer` answers, and whether it was found compiled."""
    where = {**os.environ, "PYTHONPATH": f"{folder.parent}:{PACKAGE.parent}"}
    where["NUMBA_CACHE_DIR"] = str(folder.parent / "cache")
    made = subprocess.run(
        [sys.executable, "-c", CALL], env=where, capture_output=True, text=True, check=True
    )
    answer, hits = made.stdout.split()
    return int(answer), hits != "0"


@pytest.mark.parametrize("plain", [OURS, THEIRS])
def test_a_changed_function_is_compiled_anew_where_it_was_compiled_into(
    tmp_path: Path, plain: str
) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "plain.py").write_text(plain)
    (folder / "outer.py").write_text(OUTER)
    (folder / "inner.py").write_text(INNER.format(10))
    assert run(folder) == (11, False)
    (folder / "apart.py").write_text("an edit of what is not compiled in")
    assert run(folder) == (11, True)
    (folder / "inner.py").write_text(INNER.format(200))
    if plain == THEIRS:
        assert run(folder) == (11, True), "if this fails, numba has learned it, and we are done"
    else:
        assert run(folder) == (201, False)
        (folder / "inner.py").write_text(INNER.format(10))
        assert run(folder) == (11, True), "what other processes may be using is not removed"


def test_what_nobody_used_for_a_month_is_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(process, "_root", lambda: tmp_path)
    old, recent = tmp_path / "old-1", tmp_path / "recent-1"
    for folder, days in ((old, 31), (recent, 29)):
        folder.mkdir()
        (folder / "code").write_text("")
        then = time.time() - days * 86_400
        os.utime(folder, (then, then))
    made = process._folder.__wrapped__(__file__)
    assert {folder.name for folder in tmp_path.iterdir()} == {"recent-1", Path(made).name}


def test_what_a_module_imports_is_found() -> None:
    found = process._sources(PACKAGE / "plans" / "routing.py", (PACKAGE.parent,))
    names = {str(path.relative_to(PACKAGE)) for path in found}
    assert {"plans/routing.py", "plans/plan.py", "flow/process.py"} <= names
    assert not any(name.startswith(("spark", "cli")) for name in names)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A copy of the package that cannot be written, in a folder that others can read."""
    folder = Path(tempfile.mkdtemp())
    shutil.copytree(PACKAGE, folder / "anabranch", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "temporary").mkdir()
    (folder / "temporary").chmod(0o1777)
    for path in [*(folder / "anabranch").rglob("*"), folder / "anabranch", folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        path.chmod(0o755)
    shutil.rmtree(folder)


KERNEL = """
import numpy as np
from anabranch.flow import process
from anabranch.correlation.filters import exact
from anabranch.plans import routing
print(process._root())
"""


def as_nobody(folder: Path, program: str = KERNEL, **more: str) -> str:
    """What a process prints that has no home and may write nothing but temporary files."""
    where = {"PYTHONPATH": str(folder), "HOME": str(folder / "none"), "PATH": os.environ["PATH"]}
    where |= {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder / "temporary"), **more}
    command = [sys.executable, "-c", program]
    if os.geteuid() == 0:  # who may write everything, whatever the modes say
        command = ["setpriv", "--bounding-set=-dac_override", *command]
    made = subprocess.run(command, env=where, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


posix = pytest.mark.skipif(
    not hasattr(os, "geteuid") or (os.geteuid() == 0 and shutil.which("setpriv") is None),
    reason="needs the modes of POSIX, and root a way to obey them",
)


@posix
def test_without_a_home_compiled_code_goes_to_a_private_temporary_folder(read_only: Path) -> None:
    root = Path(as_nobody(read_only))
    assert root.parent == read_only / "temporary"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert list(root.iterdir())


@posix
@pytest.mark.parametrize("mode", [0o777, 0o500])
def test_a_folder_of_others_or_of_nobody_is_not_used(read_only: Path, mode: int) -> None:
    as_nobody(read_only)
    next((read_only / "temporary").iterdir()).chmod(mode)
    assert as_nobody(read_only) == "None"


@posix
def test_the_cache_that_a_user_names_is_used(read_only: Path) -> None:
    mine = read_only / "temporary" / "mine"
    assert as_nobody(read_only, NUMBA_CACHE_DIR=str(mine)) == str(mine / "anabranch")


AHEAD = """
from anabranch.flow import process
from pack.outer import outer
print(outer(1), sum(outer.stats.cache_hits.values()), process.cache_folder())
"""
OLDER = "import pickle; print(pickle.dumps('0.1', protocol=-1).hex())"


@posix
def test_code_compiled_ahead_is_found_where_it_can_only_be_read(read_only: Path) -> None:
    """As in an image: one has compiled, and another runs it who may write nothing there."""
    mine = read_only / "temporary"
    warmed, pack = mine / "warmed", mine / "pack"
    pack.mkdir()
    sources = {"__init__": "", "plain": OURS, "outer": OUTER, "inner": INNER.format(10)}
    for name, text in sources.items():
        (pack / f"{name}.py").write_text(text)
    where = {"NUMBA_CACHE_DIR": str(warmed), "PYTHONPATH": f"{read_only}:{mine}"}
    answer, hits, folder = as_nobody(read_only, AHEAD, **where).split()
    assert (answer, hits, folder) == ("11", "0", str(warmed / "anabranch"))
    before = sorted(warmed.rglob("*"))
    for path in [warmed, *before]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    answer, hits, folder = as_nobody(read_only, AHEAD, **where).split()
    assert (answer, hits, Path(folder).parent) == ("11", "1", mine)
    assert sorted(warmed.rglob("*")) == before
    # An index of another numba is not believed: what is compiled anew takes the place of the link.
    index = next(warmed.rglob("outer.outer*.nbi"))
    index.chmod(0o644)
    index.write_bytes(bytes.fromhex(as_nobody(read_only, OLDER)))
    assert as_nobody(read_only, AHEAD, **where).split() == ["11", "0", folder]
    assert as_nobody(read_only, AHEAD, **where).split() == ["11", "1", folder]
