"""Distributions fitted to times and sizes, and window sizes chosen from them.

==================  ========================================================================
`fit_windows`       size and timeout of windows, from a sample of events
`fit_hyper_erlang`  mixtures of Erlang branches by G-FIT, branches found by themselves
`fit_erlang`        one Erlang distribution, by likelihood
`fit_two_moments`   from mean and variation: Erlang mixture or balanced exponentials
`fit_three_moments` two phases from three moments
`Survival`          the distribution as seen, values that were cut off included
`window_array`      what windows of such a size and timeout hold
==================  ========================================================================
"""

from anabranch.assembly.fitting.distribution import Distribution
from anabranch.assembly.fitting.erlang import Erlang, HyperErlang
from anabranch.assembly.fitting.hypererlang import fit_erlang, fit_hyper_erlang
from anabranch.assembly.fitting.moments import fit_three_moments, fit_two_moments, moments_of
from anabranch.assembly.fitting.phasetype import PhaseType
from anabranch.assembly.fitting.survival import Survival
from anabranch.assembly.fitting.window_array import WindowArray, window_array
from anabranch.assembly.fitting.windows import WindowFit, choose_window, fit_windows
from anabranch.assembly.fitting.zeros import WithZeros

__all__ = [
    "Distribution",
    "Erlang",
    "HyperErlang",
    "PhaseType",
    "Survival",
    "WindowArray",
    "WindowFit",
    "WithZeros",
    "choose_window",
    "fit_erlang",
    "fit_hyper_erlang",
    "fit_three_moments",
    "fit_two_moments",
    "fit_windows",
    "moments_of",
    "window_array",
]
