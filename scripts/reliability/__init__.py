"""Proof that it runs for months: random calls and rows, long runs, and everything that can break.

Not part of the package. ``make fuzz``, ``make soak`` and ``make chaos`` run it, and
docs/reliability.md says what came out.
"""
