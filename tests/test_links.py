"""Every link of the documentation that names a file of this repository finds it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    page
    for folder in (".", ".github", "docs", "papers", "examples", "benchmarks")
    for page in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
]


def missing(page: Path) -> list[str]:
    text = page.read_text()
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    return [name for name in files if name and not (page.parent / name).exists()]


def test_links_find_their_files():
    assert len(PAGES) > 15
    assert {str(p.relative_to(ROOT)): found for p in PAGES if (found := missing(p))} == {}


def test_a_wrong_link_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text('[here](page.md#top), [gone](nowhere.md) and <img alt="a" src="no.svg">')
    assert missing(page) == ["nowhere.md", "no.svg"]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as links use them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    names = (
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found)
        for found in re.findall(r"^#+ (.*)$", text, re.M)
    )
    return {re.sub(r"[^\w\- ]", "", name.lower()).strip().replace(" ", "-") for name in names}


def test_the_description_of_the_package_has_no_link_into_the_repository(monkeypatch):
    """A package index shows the page alone; with an address, every file is named below it."""
    monkeypatch.syspath_prepend(str(ROOT))
    described = importlib.import_module("setup").described
    text = (ROOT / "README.md").read_text()
    plain = described(text, None)
    assert re.findall(r"\]\((?!https?:)[^)]+\)", plain) == [] and "<img" not in plain
    placed = described(text, "https://example.org/a/b")
    targets = re.findall(r"\]\(([^)\s]+)\)", placed) + re.findall(r'src="([^"]+)"', placed)
    assert len(targets) > 20
    assert all(target.startswith(("https://example.org/a/b/", "http")) for target in targets)


def test_links_into_pages_find_their_headings():
    lost = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", page.read_text()):
            name, _, heading = target.partition("#")
            there = page.parent / name if name else page
            if "://" not in target and there.suffix == ".md" and heading not in anchors(there):
                lost.append(f"{page.relative_to(ROOT)}: {target}")
    assert lost == []
