"""Parts of pages that programs write, each between two marks of its own."""

from __future__ import annotations

__all__ = ["between", "put"]


def between(page: str, mark: str) -> str:
    r"""The lines between two marks of a page.

    Examples
    --------
    >>> between("a\n<!-- news -->\nold\n<!-- /news -->\nb", "news")
    'old\n'
    """
    return _split(page, mark)[1]


def put(page: str, mark: str, text: str) -> str:
    r"""A page with this text in the place of the one between its marks.

    Examples
    --------
    >>> put("a\n<!-- news -->\nold\n<!-- /news -->\nb", "news", "new")
    'a\n<!-- news -->\nnew\n<!-- /news -->\nb'
    """
    before, _, after = _split(page, mark)
    return f"{before}{text}\n{after}"


def _split(page: str, mark: str) -> tuple[str, str, str]:
    """What is before a part, with the mark; the part; and what is after it, with the other mark."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, found, rest = page.partition(begin)
    part, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"the page has no marks {begin.strip()} and {end}")
    return f"{before}{begin}", part, f"{end}{after}"
