"""docs/troubleshoot.md names every error of the library by its words, and says what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from anabranch import errors

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/troubleshoot.md").read_text()
RAISED = ("StateMismatch", "BadRow", "AnabranchError")
LEAST = 14  # letters that tell one text from another


def written(node: ast.expr) -> str:
    """The words of a text; what is put in is "…"."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return written(node.left) + written(node.right)
    return "…"


def messages() -> Iterator[tuple[str, str]]:
    """Where an error is made, and with which words."""
    for path in sorted((ROOT / "anabranch").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            if ast.unparse(node.func) in RAISED:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", written(node.args[0])


def told(words: str) -> bool:
    """Whether the page has any stretch of these words that is long enough."""
    stretches = [part.strip(" :;,.") for part in words.split("…")]
    return any(len(part) >= LEAST and part[:40].rstrip() in PAGE for part in stretches)


def test_every_error_is_on_the_page() -> None:
    found = list(messages())
    assert len(found) > 30
    # Words that come from elsewhere altogether say what they are there.
    assert {at: words for at, words in found if len(words) > LEAST and not told(words)} == {}


def test_every_class_is_on_the_page() -> None:
    classes = [name for name, of in vars(errors).items() if isinstance(of, type)]
    ours = [name for name in classes if issubclass(getattr(errors, name), Exception)]
    assert set(ours) >= set(RAISED)
    assert [name for name in ours if f"`{name}" not in PAGE] == []


def test_every_row_says_cause_and_remedy() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert [row for row in rows if len(re.split(r"(?<!\\)\|", row)) != 5] == []


def test_words_that_are_missing_are_found() -> None:
    assert not told("a text that no page has …")
    assert told("this checkpoint was begun with …")
