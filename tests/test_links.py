"""Every link of the documentation that names a file of this repository finds it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    page
    for folder in (".", "docs", "papers", "examples", "benchmarks")
    for page in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
]


def missing(page: Path) -> list[str]:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    return [name for name in files if name and not (page.parent / name).exists()]


def test_links_find_their_files():
    assert len(PAGES) > 15
    assert {str(p.relative_to(ROOT)): found for p in PAGES if (found := missing(p))} == {}


def test_a_wrong_link_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("[here](page.md#top) and [gone](nowhere.md)")
    assert missing(page) == ["nowhere.md"]
