"""Benchmarks: ratios of things timed in turns on one machine.

What bounds a rate is to be the processor. Some environments name an older one to the libraries
that multiply matrices, which halves a product of float32; ratios "of bare" would come out twice as
good. So those names go before numpy is imported, here and in processes that are started from here.
"""

import os

PINNED = (
    *("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_CBWR"),
    *("BLIS_ARCH_TYPE", "BLIS_MODEL_TYPE"),
    *("ONEDNN_MAX_CPU_ISA", "NPY_DISABLE_CPU_FEATURES"),
)
"""Variables by which libraries that multiply may be held to slower instructions."""

for _name in PINNED:
    os.environ.pop(_name, None)
