"""The long description of the package: README.md with links that hold outside the repository.

A package index shows the page alone, so a link to a file of the repository leads nowhere there.
With a `Repository` under ``[project.urls]`` such links are made to lead to it, at the tag of this
version. Without one they become plain text, and pictures become their descriptions: better no link
than an invented one.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PICTURE = re.compile(r'<img alt="([^"]*)" src="([^":]+)"[^>]*>')
LINK = re.compile(r"\[([^\]]+)\]\(([^):\s]+)\)")  # without a scheme: into the repository


def described(text: str, base: str | None) -> str:
    """The page, with links below `base`, or without them."""
    if base is None:
        return LINK.sub(r"\1", PICTURE.sub(r"*\1*", text))
    tag = re.search(r'^__version__ = "(.+)"', (ROOT / "anabranch/__init__.py").read_text(), re.M)
    assert tag is not None, "the package does not say its version"
    text = PICTURE.sub(rf'<img alt="\1" src="{base}/raw/v{tag[1]}/\2">', text)
    return LINK.sub(rf"[\1]({base}/blob/v{tag[1]}/\2)", text)


def base() -> str | None:
    """The address of the repository, if there is a public one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project.get("urls", {}).get("Repository")


if __name__ == "__main__":
    setup(
        long_description=described((ROOT / "README.md").read_text(), base()),
        long_description_content_type="text/markdown",
    )
