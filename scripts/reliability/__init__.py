"""Proof that it runs for months: random calls and rows, long runs, and everything that can break.

Not part of the package. ``make fuzz``, ``soak``, ``chaos``, ``worlds`` and ``kills`` run it, and
docs/reliability.md says what came out.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""

RESULTS = Path(__file__).parent / "results"
"""The reports that docs/reliability.md shows."""
