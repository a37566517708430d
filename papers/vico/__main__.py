"""Figures of the paper: ``python -m papers.vico --help``."""

from papers.vico.cli import app

app()
