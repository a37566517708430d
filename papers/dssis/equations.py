"""Distributions that the DSSIS paper prints, and what its calibrated trace is drawn from."""

from __future__ import annotations

import numpy as np

from anabranch.assembly.fitting import Erlang, HyperErlang, PhaseType

__all__ = ["EQ4", "EQ5", "EQ7", "EQ8", "EQ10", "calibrated", "calibrated_span"]

EQ4 = Erlang(100, 8.7963)
EQ5 = HyperErlang([0.0247, 0.9753], [1, 4], [0.0404, 0.3666])
# .0001 in equation 7 is rounded; .000127 gives back the mean of .9457 ms. In milliseconds.
EQ7 = PhaseType([1, 0], [[-1.1215, 0.000127], [0, -0.0021]])
# Equation 8 with its negative rate, a misprint, set to 0.
EQ8 = PhaseType(
    [1, 0, 0, 0],
    [
        [-378.3987, 378.3987, 0, 0],
        [0, -378.3987, 378.3987, 0],
        [0, 0, -12669.0969, 0],
        [0, 0, 0, -0.0512],
    ],
)
# Equation 10 is garbled; its mean and its 53 phases are taken.
EQ10 = Erlang(53, 53 / 0.6121)


def calibrated() -> tuple[np.ndarray, np.ndarray]:
    """Sizes of the calibrated trace: 1 + round(X)."""
    x = np.arange(1, 31)
    share = EQ4.cdf(x - 0.5) - EQ4.cdf(x - 1.5)
    return x, share / share.sum()


def calibrated_span() -> HyperErlang:
    """Its spans, the cap of 28 s left aside."""
    return HyperErlang([0.0247, 0.9753], [1, 4], [0.0404 / 0.68, 0.3666 / 0.68])
