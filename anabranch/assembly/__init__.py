"""Instances out of scattered events: policies, keys, and the kernel of one bucket."""
