"""Files of data that come inside installed packages."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["file_in"]


def file_in(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported; or one line that says what to do."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"the data of this example come with the package {package}: pip install {package}")
    return Path(found.submodule_search_locations[0]) / path
