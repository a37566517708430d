"""Every example in the documentation of `place` runs."""

from __future__ import annotations

import doctest
from pathlib import Path


def test_examples_in_the_docs_run() -> None:
    path = Path(__file__).parents[2] / "docs" / "place.md"
    text = path.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, "place.md", str(path), 0)
    found = doctest.DocTestRunner().run(test)
    assert found.attempted > 10 and found.failed == 0
