"""How long are the sentences of the documentation, and which words should not be in it?

::

    python scripts/sentences.py [--longest N] [PAGE ...]

prints the number of sentences of each page, their mean length in words, and how many are longer
than 30; then the words of CONTRIBUTING's list that a page uses. It ends with 1 if there is such a
word, or if a page has more than 20 words a sentence on average. Code, tables, headings and links'
targets do not count.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 20.0
AVOID = (
    "told|tells of|dealt|dealt out|dear|sway|sways|heard of|believed|believes|goes by|go by|"
    "of one moment|whole when|held against|makes its way|for ever|settled|lingers|linger"
)


def pages() -> list[Path]:
    """Every page that a user reads."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    for folder in ("docs", "examples", "papers"):
        found += sorted((ROOT / folder).rglob("*.md"))
    return found


def prose(text: str) -> list[str]:
    """The paragraphs and list items of a page, without what is no sentence."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.S)
    text = re.sub(r"</?\w[^>\n]*>", "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks: list[str] = []
    for part in re.split(r"\n\s*\n", text):
        lines = [line for line in part.splitlines() if not re.match(r"\s*(\||#|>)", line)]
        items = re.split(r"\n(?=\s*[-*] |\s*\d+\. )", "\n".join(lines))
        blocks += [" ".join(item.split()) for item in items]
    return [block for block in blocks if re.search(r"[a-z]", block)]


def sentences(text: str) -> list[str]:
    """The sentences of a page; a colon, too, ends one before a list or an example."""
    found: list[str] = []
    for block in prose(text):
        plain = re.sub(r"`[^`]*`", "code", block)
        plain = re.sub(r"\b(e\.g|i\.e|et al)\.", r"\1", plain)
        found += [one for one in re.split(r"(?<=[.!?])[\"*)]*\s+(?=[A-Z*(\"0-9c])", plain) if one]
    return found


def avoided(text: str) -> list[str]:
    """The words to avoid that a page uses."""
    return sorted({m.lower() for m in re.findall(rf"\b(?:{AVOID})\b", " ".join(prose(text)), re.I)})


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
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
