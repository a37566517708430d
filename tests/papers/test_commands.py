"""Every command that a page of the papers names can be run, with the options it is shown with."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import runpy
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("papers/**/*.md"), ROOT / "Makefile"]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "papers")
    for path in (ROOT / folder).rglob("*.py")
    if path.stem not in ("__init__", "__main__")
)


def commands(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """The modules that are run, each with the names of its options."""
    found = re.findall(r"python -m ((?:papers|benchmarks)[\w.]*)([^`\n#]*)", text)
    return [(module, tuple(re.findall(r"--[\w-]+", rest))) for module, rest in found]


SHOWN = sorted({shown for page in PAGES for shown in commands(page.read_text())})


@cache
def help_of(module: str) -> str:
    """What `python -m module --help` prints."""
    said = io.StringIO()
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore", RuntimeWarning)  # the module may be imported already
        patch.setattr(sys, "argv", [module, "--help"])
        patch.setenv("COLUMNS", "200")
        with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__", alter_sys=False)
    assert not ended.value.code
    return said.getvalue()


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name: str) -> None:
    if name == "benchmarks.gpu_product":
        pytest.importorskip("triton", reason="Triton is not installed: it comes with [gpu]")
    importlib.import_module(name)


@pytest.mark.parametrize(("module", "options"), SHOWN)
def test_every_option_of_a_page_is_taken(module: str, options: tuple[str, ...]) -> None:
    known = set(re.findall(r"--[\w-]+", help_of(module)))
    assert set(options) <= known


def test_every_page_has_commands() -> None:
    for page in ROOT.glob("papers/*/README.md"):
        assert commands(page.read_text()), page
    assert commands("`python -m papers.knn --figure 8 --no-such 3`, and so on") == [
        ("papers.knn", ("--figure", "--no-such"))
    ]


def test_what_a_page_names_is_there() -> None:
    lost = []
    for page in ROOT.glob("papers/**/*.md"):
        for name in re.findall(
            r"`((?:tests|papers|anabranch|benchmarks)[/.][\w/.]+)`", page.read_text()
        ):
            if not (ROOT / name).exists() and not resolves(name):
                lost.append(f"{page.relative_to(ROOT)}: {name}")
    assert lost == []


def resolves(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    module, _, rest = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ImportError:
        return "/" not in name and bool(module) and hasattr(importlib.import_module(module), rest)
    return True
