"""``latest-duals``: duals as the EMD-DDSJ paper uses them (section 3.3)."""

from __future__ import annotations

from anabranch.correlation.emd.potentials import Learning

__all__ = ["LATEST"]

# For the left rows that follow, and no more than a few.
LATEST = Learning(room=8, rows=1, at_once=False, lessons=512, invests=False)
