"""Instances out of scattered invocations: policies, keys, and the kernel of one bucket."""
