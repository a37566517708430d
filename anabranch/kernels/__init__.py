"""Kernels: the state of one worker and the steps that change it; they know nothing of Spark."""
