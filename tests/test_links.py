"""Every link of the documentation that names a file of this repository finds it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from scripts import site

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


def test_the_site_has_every_file_that_its_pages_link_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "PAGES", tmp_path / "pages")
    site.gather()
    pages = [page for page in (tmp_path / "pages").rglob("*.md")]
    assert len(pages) > 15
    lost = {
        str(page.name): [there for there in site.linked(page) if not there.exists()]
        for page in pages
    }
    assert {name: found for name, found in lost.items() if found} == {}


def test_a_link_of_the_site_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.html").write_text('<h2 id="top"></h2><a href="in/b.html#here"></a>')
    links = ("../a.html#top", "../a.html#gone", "no.html", "#here", "#gone", "https://a.b/c#d")
    targets = "".join(f'<a href="{link}"></a>' for link in links)
    (tmp_path / "in/b.html").write_text(f'<a name="here"></a>{targets}')
    lost = [f"in/b.html: {link}" for link in ("../a.html#gone", "no.html", "#gone")]
    assert site.broken(tmp_path) == lost


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
