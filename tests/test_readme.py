"""The README's example runs as it stands, only shorter."""

from __future__ import annotations

import re
from pathlib import Path

from tests.spark.feeds import happens

ROOT = Path(__file__).parent.parent


def test_the_example_runs(spark, capfd):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(example.strip().splitlines()) <= 16
    names: dict = {}
    exec(example.replace("seconds=30", "seconds=1"), names)
    query = names["query"]
    try:
        import anabranch as ab

        def compared() -> bool:
            return bool(ab.metrics(query).get("total", {}).get("comparisons"))

        happens(lambda: compared() or not query.isActive)
        assert compared(), query.exception()
        assert names["pairs"].columns == [
            "left_id",
            "right_id",
            "left_ts",
            "right_ts",
            "ts",
            "score",
        ]
    finally:
        query.stop()


def test_what_comes_before_installing_fits_on_a_screen():
    before, _, after = (ROOT / "README.md").read_text().partition("\n## Install\n")
    lines = [line for line in before.splitlines() if not line.startswith(("|---", "```"))]
    # A line is as long as a reader sees it, without the targets of links; the picture is tall.
    seen = [re.sub(r"\]\([^)]*\)", "]", line) for line in lines]
    rows = [15 if line.startswith("<img") else -(-len(line) // 115) for line in seen]
    assert after and sum(rows) <= 62
    for needed in (
        "Spark 4.1 to 4.3",
        "left_id|right_id",
        "## Which verb?",
        "**Speed.**",
        "demo.svg",
    ):
        assert needed in before


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
    assert len(pages) > 4
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
