"""Make the notebooks of the examples: every script of the gallery, cut into cells and run.

::

    python scripts/notebooks.py [NAME ...]

writes ``examples/notebooks/NAME.ipynb`` with its outputs. A line ``# %%`` begins a cell,
``# %% [markdown]`` one of text; what stands under ``if __name__ == "__main__":`` runs like the
rest. Needs ``pip install -e '.[examples,notebooks]'``. One reads a file that ``ACCESS_LOG`` in the
environment names, or else the one of Debian's ``logstalgia``; without either it is left out.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
NOTEBOOKS = EXAMPLES / "notebooks"
GALLERY = ("aircraft", "news", "traces", "page_views", "friend_finder", "sensors")
FILES = {"page_views": ("ACCESS_LOG", Path("/usr/share/logstalgia/example.log"))}
"""What an example reads: the variable that names it, and where a package puts one."""
LONGEST = 900  # seconds for one cell
MAIN = 'if __name__ == "__main__":'


class Cell(NamedTuple):
    """A cell of a notebook: its kind, ``markdown`` or ``code``, and its text."""

    kind: str
    text: str


def cells(script: str) -> list[Cell]:
    r"""The cells of a script, the first of which is its docstring.

    Examples
    --------
    >>> for cell in cells('"Title."\nx = 1\n# %% [markdown]\n# ## Then\n# %%\nx'):
    ...     print(cell)
    Cell(kind='markdown', text='# Title')
    Cell(kind='code', text='x = 1')
    Cell(kind='markdown', text='## Then')
    Cell(kind='code', text='x')
    """
    tree = ast.parse(script)
    title, _, rest = (ast.get_docstring(tree) or "").partition("\n")
    found = [Cell("markdown", f"# {title.rstrip('.')}\n{rest.replace('::', '', 1)}".strip())]
    before, _, main = script.partition(f"\n{MAIN}\n")
    lines = before.splitlines()[tree.body[0].end_lineno :] + dedent(main).splitlines()
    kind, taken = "code", list[str]()
    for line in [*lines, "# %%"]:
        if not line.startswith("# %%"):
            taken.append(line)
            continue
        if text := "\n".join(taken).strip():
            found.append(Cell(kind, text if kind == "code" else _said(text)))
        kind, taken = "markdown" if "[markdown]" in line else "code", []
    return found


def _said(comment: str) -> str:
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in comment.splitlines())


def run(name: str) -> Any:
    """The notebook of an example, with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.v4.new_notebook()
    for number, cell in enumerate(cells((EXAMPLES / f"{name}.py").read_text())):
        make = getattr(nbformat.v4, f"new_{cell.kind}_cell")
        book.cells.append(make(cell.text, id=f"cell-{number}"))
    where = {"metadata": {"path": str(EXAMPLES)}}
    NotebookClient(book, timeout=LONGEST, resources=where, record_timing=False).execute()
    for cell in book.cells:  # Spark's log is of no use here, and names the machine
        if cell.cell_type == "code":
            cell.outputs = [it for it in cell.outputs if it.get("name") != "stderr"]
    book.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return book


def lacking() -> dict[str, str]:
    """Examples whose file is not there, with the variable that would name it."""
    for name, usual in FILES.values():
        if name not in os.environ and usual.exists():
            os.environ[name] = str(usual)
    return {example: name for example, (name, _) in FILES.items() if name not in os.environ}


def chosen(names: Sequence[str]) -> list[str]:
    """The examples of these names, or all whose data are there."""
    if unknown := set(names) - set(GALLERY):
        sys.exit(f"no example {', '.join(sorted(unknown))}; there are {', '.join(GALLERY)}")
    without = lacking()
    for name, variable in without.items() if not names else ():
        print(f"{name} is left out: {variable} names no file")
    return list(names) or [name for name in GALLERY if name not in without]


def main(names: Sequence[str]) -> None:
    """Make the notebooks of these names, or all."""
    import nbformat

    # The kernel imports this Anabranch, and Spark's workers this Python.
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["ANABRANCH_PROGRESS"] = "off"
    NOTEBOOKS.mkdir(exist_ok=True)
    for name in chosen(names):
        path = NOTEBOOKS / f"{name}.ipynb"
        nbformat.write(run(name), path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
