"""The two times that no row has: one before all of them, and one after.

Both leave as much room again: a window or a delay may be added or taken off without an overflow.
"""

from __future__ import annotations

__all__ = ["BEGINNING", "FOREVER"]

FOREVER = 1 << 62
"""After every time: a deadline that does not come, an entry that does not expire."""
BEGINNING = -FOREVER
"""Before every time: the watermark of a batch query, under which nothing is late or expires, or one
that is not known yet."""
