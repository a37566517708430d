"""How long are the sentences of the documentation, and which words should not be in it?

::

    python scripts/sentences.py [--longest N] [PAGE ...]

prints the number of sentences of each page, their mean length in words, and how many are longer
than 30; then the words of CONTRIBUTING's list that a page uses, or a message of the package. It
ends with 1 if there is such a word, or if a page has more than 20 words a sentence on average.
Cells of tables count where they hold sentences, of more than 8 words; shorter ones and headings
count for the words to avoid alone. Code and links' targets do not count.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 20.0
CELL = 8  # words of a cell that is no sentence
LIST = "| write | not |"


def pages() -> list[Path]:
    """Every page that a user reads."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    for folder in ("docs", "examples", "papers"):
        found += sorted((ROOT / folder).rglob("*.md"))
    return found


def without_code(text: str) -> str:
    """A page without blocks of code, tags and the targets of links."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.S)
    text = re.sub(r"</?\w[^>\n]*>", "", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def prose(text: str) -> list[str]:
    """The paragraphs and list items of a page, without what is no sentence."""
    text = without_code(text)
    blocks: list[str] = []
    for part in re.split(r"\n\s*\n", text):
        lines = [line for line in part.splitlines() if not re.match(r"\s*(\||#|>)", line)]
        items = re.split(r"\n(?=\s*[-*] |\s*\d+\. )", "\n".join(lines))
        blocks += [" ".join(item.split()) for item in items]
    return [block for block in blocks if re.search(r"[a-z]", block)]


def cells(text: str) -> list[str]:
    r"""The cells of tables that hold sentences, and not only a name or a value.

    Examples
    --------
    >>> cells("| a \\| b | what a reader has to read from its beginning to its end |\n|---|---|\n")
    ['what a reader has to read from its beginning to its end']
    """
    rows = [line for line in without_code(text).splitlines() if line.lstrip().startswith("|")]
    found = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    return [cell for cell in found if words(re.sub(r"`[^`]*`", "code", cell)) > CELL]


def sentences(text: str) -> list[str]:
    """The sentences of a page; a colon, too, ends one before a list or an example."""
    found: list[str] = []
    for block in [*prose(text), *cells(text)]:
        plain = re.sub(r"`[^`]*`", "code", block)
        plain = re.sub(r"\b(e\.g|i\.e|et al)\.", r"\1", plain)
        found += [one for one in re.split(r"(?<=[.!?])[\"*)]*\s+(?=[A-Z*(\"0-9c])", plain) if one]
    return found


def to_avoid(contributing: str) -> list[str]:
    r"""The words of CONTRIBUTING's list, but for those with a sense in brackets.

    Examples
    --------
    >>> to_avoid("| write | not |\n|---|---|\n| emit | hand out, tell (a result) |\n")
    ['hand out']
    """
    rows = list_of(contributing).splitlines()[2:]
    cells = [row.split("|")[2] for row in rows]
    found = [
        word.strip() for cell in cells for word in re.sub(r"[\w ]+\([^)]*\)", "", cell).split(",")
    ]
    return [word for word in found if word]


def list_of(contributing: str) -> str:
    """The table of words to avoid."""
    table = re.search(rf"^{re.escape(LIST)}\n(?:\|.*\n?)+", contributing, re.M)
    if table is None:
        raise SystemExit(f"CONTRIBUTING.md has no table that begins with {LIST}")
    return table[0]


def avoided(text: str) -> list[str]:
    """The words to avoid that a page uses, in sentences, tables or headings."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    text = text.replace(list_of(contributing), "")
    plain = re.sub(r"`[^`]*`", "code", without_code(text))
    return sorted({found.lower() for found in _odd().findall(" ".join(plain.split()))})


@cache
def _odd() -> re.Pattern[str]:
    """Any of the words to avoid."""
    odd = "|".join(map(re.escape, to_avoid((ROOT / "CONTRIBUTING.md").read_text())))
    return re.compile(rf"\b(?:{odd})\b", re.I)


def avoided_in_messages(source: str) -> list[str]:
    r"""The words to avoid in texts of a module: those of several words, but for docstrings.

    Examples
    --------
    >>> avoided_in_messages("'A row is told.'\nraise ValueError(f'{name} is dear')\ny = 'told'")
    ['dear']
    """
    if not _odd().search(source):  # as most: to read one takes longer
        return []
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]
    return avoided("\n\n".join(text for text in texts if " " in text))


def words(sentence: str) -> int:
    """The number of words, not counting signs."""
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def main() -> int:
    """Print the table; 1 if a page is too long-winded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--longest", type=int, default=0, help="also print the longest sentences")
    given = parser.parse_args()
    wrong = False
    for page in given.pages or pages():
        text = page.read_text()
        found = sorted(sentences(text), key=words)
        if not found:
            continue
        mean = sum(map(words, found)) / len(found)
        long = sum(words(one) > 30 for one in found)
        odd = avoided(text)
        wrong = wrong or mean > MOST or bool(odd)
        figures = f"{mean:5.1f} words, {len(found):4} sentences, {long:3} over 30"
        print(f"{figures}  {page}  {', '.join(odd)}")
        for one in found[::-1][: given.longest]:
            print(f"      {words(one):3}: {one}")
    for module in [] if given.pages else sorted((ROOT / "anabranch").rglob("*.py")):
        if odd := avoided_in_messages(module.read_text()):
            print(f"messages of {module}  {', '.join(odd)}")
            wrong = True
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
