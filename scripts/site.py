"""Build the site of the documentation under ``site/``; fails if a link of it leads nowhere.

Pages are those of the repository, at the same paths, so that links hold in both. The reference is
made from the docstrings of the public names.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build/pages"
SITE = ROOT / "site"
FOLDERS = ("docs", "papers", "examples", "benchmarks")
LINK = re.compile(r"""\]\(([^)\s]+)\)|src(?:set)?="([^"]+)\"""")


def public() -> dict[str, str]:
    """Where each public name lives, as `anabranch/__init__.py` says; read, not imported."""
    tree = ast.parse((ROOT / "anabranch/__init__.py").read_text())
    found = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(target := node.targets[0], ast.Name)
        and target.id in ("__all__", "_HOME", "_NAMESPACES")
    }
    homes = {name: module for module, names in found["_HOME"].items() for name in names.split()}
    return {
        name: found["_NAMESPACES"].get(name) or f"{homes[name]}.{name}" for name in found["__all__"]
    }


def linked(page: Path) -> Iterator[Path]:
    """The files that a page of Markdown links to, be they there or not."""
    for found in LINK.findall(page.read_text()):
        parts = urlsplit("".join(found))
        if parts.path and not (parts.scheme or parts.netloc):
            yield (page.parent / unquote(parts.path)).resolve()


def gather() -> None:
    """The pages, what they show and the files that they link to, below one folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, PAGES)
    for folder in FOLDERS:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, PAGES / folder, ignore=skipped)
    for page in list(PAGES.rglob("*.md")):
        for there in linked(ROOT / page.relative_to(PAGES)):
            copy = PAGES / there.relative_to(ROOT)
            if there.is_file() and there.suffix != ".md" and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(there, copy)
    lines = [
        "# Reference",
        "",
        "All public names of `import anabranch as ab`, by their docstrings.",
        "",
    ]
    for where in public().values():
        lines += [f"::: {where}", ""]
    (PAGES / "docs/api.md").write_text("\n".join(lines))


class Links(HTMLParser):
    """The links of a page and the names that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what leads somewhere, and where something leads."""
        given = dict(attrs)
        self.names |= {name for key in ("id", "name") if (name := given.get(key))}
        for key in ("href", "src"):
            if (target := given.get(key)) and tag in ("a", "img"):
                self.targets.append(target)


def broken(site: Path) -> list[str]:
    """Links of a site that lead to no file of it, or to no such place of a page."""
    pages = {}
    for page in sorted(site.rglob("*.html")):
        pages[page.resolve()] = links = Links()
        links.feed(page.read_text(errors="replace"))
    lost = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            fragment = unquote(parts.fragment) if there in pages else ""
            if not there.exists() or (fragment and fragment not in pages[there].names):
                lost.append(f"{page.relative_to(site.resolve())}: {target}")
    return lost


def main() -> int:
    """Build, then follow every link."""
    gather()
    shutil.rmtree(SITE, ignore_errors=True)
    builder = Path(sys.executable).parent / "zensical"
    made = subprocess.run([builder, "build", "--clean"], cwd=ROOT, text=True, capture_output=True)
    print(made.stdout + made.stderr)
    if made.returncode:
        return made.returncode
    lost = broken(SITE)
    for line in lost:
        print(f"leads nowhere: {line}")
    reference = (SITE / "docs/api.html").read_text()
    missing = [where for where in public().values() if f'id="{where}"' not in reference]
    pages = len(list(SITE.rglob("*.html")))
    print(f"{pages} pages, {len(lost)} broken links; the reference lacks {missing or 'nothing'}")
    return 1 if lost or missing else 0


if __name__ == "__main__":
    sys.exit(main())
