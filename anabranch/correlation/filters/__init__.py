"""Fused comparison kernels: fast filters that may err on the safe side, and exact decisions."""
