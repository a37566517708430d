"""Chromium from the system's packages, driven by Playwright, without a display.

    python -m scripts.services.browser ADDRESS PICTURE.png [dark]

takes a picture of a page.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scripts.services.jars import Absent

__all__ = ["browser", "picture"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def browser() -> Iterator[Any]:
    """A browser for the length of a block."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise Absent("Chromium is not installed: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        raise Absent("Playwright is not installed: pip install 'anabranch[pictures]'") from error
    # Its sandbox needs rights that root has given away; it opens only pages of our own.
    flags = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield running
        finally:
            running.close()


def picture(address: str, path: str, dark: bool = False) -> None:
    """A picture of a page of a query, as soon as its charts are drawn."""
    with browser() as running:
        scheme = "dark" if dark else "light"
        page = running.new_page(viewport={"width": 1240, "height": 900}, color_scheme=scheme)
        page.goto(address)
        page.locator("#panels .u-over").nth(2).wait_for()  # scripts in texts are forbidden there
        page.screenshot(path=path, full_page=True)


if __name__ == "__main__":
    picture(sys.argv[1], sys.argv[2], "dark" in sys.argv[3:])
