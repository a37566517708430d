"""Figures of the paper: ``python -m papers.knn --help``."""

from papers.knn.cli import app

app()
