"""Parts of pages that programs write, each between two marks of its own."""

from __future__ import annotations

__all__ = ["put"]


def put(page: str, mark: str, text: str) -> str:
    r"""A page with this text in the place of the one between its marks.

    Examples
    --------
    >>> put("a\n<!-- news -->\nold\n<!-- /news -->\nb", "news", "new")
    'a\n<!-- news -->\nnew\n<!-- /news -->\nb'
    """
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"the page has no marks {begin.strip()} and {end}")
    return f"{before}{begin}{text}\n{end}{after}"
