"""Two maps that meet once, and how they change while a query runs."""

# Every kind of plan that a log may hold is known as soon as anything of this folder is.
from anabranch.plans import hashed, ranges, segments

__all__ = ["hashed", "segments", "ranges"]
