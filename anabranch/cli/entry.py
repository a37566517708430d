"""Where the command ``anabranch`` begins: it says what it needs before it imports it."""

from __future__ import annotations

import sys

from anabranch.errors import AnabranchError, extra

__all__ = ["run"]


def run() -> None:
    """Run the command line, or say what it needs."""
    try:
        with extra("cli", "the command line", "typer"), extra("cli", "the command line", "rich"):
            from anabranch.cli.main import main
    except AnabranchError as error:
        sys.exit(str(error))
    main()
