"""For tests, yours and ours: the laws of plans and of kernels, and whole runs without Spark.

`check_plan` and `check_kernel` are the law suites that every plan and every kernel must pass; run
them on those of your own. `InProcess` runs a correlation with the same intake, router, kernels and
state layout as on Spark, micro-batch by micro-batch, in one process and without a clock. `Workers`
does the same with what is already packed, for any job.
"""

from __future__ import annotations

from anabranch.testing.correlating import InProcess, prepare, simple_types
from anabranch.testing.kernels import check_kernel
from anabranch.testing.plans import check_plan
from anabranch.testing.workers import Workers

__all__ = ["InProcess", "Workers", "check_kernel", "check_plan", "prepare", "simple_types"]
