"""Filters that no default chain runs: those of the papers' chains, and others to compare with.

``ab.emd(filters=)`` takes each of them by name: ``normal``, ``latest-duals``, ``projections``,
``reference``, ``im`` (in `bounds.independent`), ``exchange`` and ``triangle``.
"""
