"""Where a Markov chain is found in the long run.

Up to 400 states by Grassmann, Taksar and Heyman's elimination, which never subtracts and so keeps
every digit, also of probabilities like 1e-80. Above that a sparse factorisation of the chain seen
at its jumps, without pivoting off the diagonal, refined, and put back into the equations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.assembly.fitting.distribution import Floats
from anabranch.errors import AnabranchError

__all__ = ["gth", "sparse_lu", "stationary"]

_DENSE = 400
_LARGE = 1e150
_RESIDUAL = 1e-12
_UNSOLVED = (
    "the chain of {:,} states could not be solved: its probabilities are too unlike for numbers of "
    "64 bits; take less room, or rates that are less unlike"
)


def stationary(generator: Any, *, crowded: bool = False) -> Floats:
    """Stationary probabilities of a generator, dense or scipy-sparse.

    Only the rates between different states are read. States that are never returned to get
    probability 0.

    Parameters
    ----------
    generator
        The rates.
    crowded
        Whether the chain is mostly near its last state, as an overloaded queue is, rather than near
        its first.

    Examples
    --------
    >>> stationary(np.array([[-1.0, 1.0], [3.0, -3.0]])).tolist()
    [0.75, 0.25]
    """
    if generator.shape[0] <= _DENSE:
        dense = generator if isinstance(generator, np.ndarray) else generator.toarray()
        return gth(dense)
    return sparse_lu(generator, crowded=crowded)


def gth(generator: Floats) -> Floats:
    """By elimination without subtraction."""
    recurrent = _closed_class(generator)
    rates = np.array(generator[np.ix_(recurrent, recurrent)], dtype=np.float64)
    np.fill_diagonal(rates, 0.0)
    given = rates.copy()
    size = len(rates)
    for state in range(size - 1, 0, -1):
        leaving = rates[state, :state].sum()
        rates[:state, state] /= leaving
        rates[:state, :state] += np.outer(rates[:state, state], rates[state, :state])
    weights = np.zeros(size)
    weights[0] = 1.0
    for state in range(1, size):
        weights[state] = weights[:state] @ rates[:state, state]
        # In an overloaded queue they grow from level to level, beyond what a float holds.
        if weights[state] > _LARGE:
            weights[: state + 1] /= weights[state]
    weights /= weights.sum()
    going = weights * given.sum(axis=1)
    apart = np.abs(weights @ given - going).max()
    if not apart <= _RESIDUAL * going.max():  # so for NaN as well
        raise AnabranchError(_UNSOLVED.format(size))
    found = np.zeros(len(generator))
    found[recurrent] = weights
    return found


def sparse_lu(generator: Any, refinements: int = 2, *, crowded: bool = False) -> Floats:
    """By a sparse factorisation of the rate-scaled generator, with refinement."""
    from scipy import sparse

    matrix = sparse.csr_array(generator)
    recurrent = _closed_class(matrix)
    rates = matrix[recurrent][:, recurrent]
    # The diagonal is the sum of a row, where a slow rate beside a fast one has lost its digits.
    rates = sparse.csr_array(rates - sparse.diags_array(rates.diagonal()))
    leaving = np.asarray(rates.sum(axis=1)).ravel()
    # Seen at its jumps every row is of size one, however unlike the rates are.
    jumps = sparse.csr_array(sparse.diags_array(1 / leaving) @ rates)
    # All shares are found relative to one state's. If that one is next to never visited, the
    # system is singular but for rounding: then another one has to do.
    size = len(recurrent)
    anchors = (size - 1, 0) if crowded else (0, size - 1)
    for anchor in anchors:
        visits = _visits(jumps, anchor, refinements)
        if visits is not None:
            break
    else:
        raise AnabranchError(_UNSOLVED.format(size))
    answer = np.zeros(generator.shape[0])
    weights = visits / leaving
    answer[recurrent] = weights / weights.sum()
    return answer


def _visits(jumps: Any, anchor: int, refinements: int) -> Floats | None:
    """How often each state is visited, in sum once; None if that cannot be told from `anchor`."""
    from scipy import sparse
    from scipy.sparse.linalg import splu

    others = np.delete(np.arange(jumps.shape[0]), anchor)
    system = sparse.csc_array(sparse.eye_array(len(others)) - jumps[others][:, others].T)
    # The anchor's share is set to one; its jumps feed the others. With a dominant diagonal
    # and everything of one sign, nothing is subtracted on the way, so small values stay exact.
    right = np.asarray(jumps[[anchor]][:, others].toarray()).ravel()
    try:
        solver = splu(
            system,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # exactly singular
        return None
    found = solver.solve(right)
    for _ in range(refinements):
        found = found + solver.solve(right - system @ found)
    visits = np.insert(found, anchor, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        visits = visits / visits.sum()
        apart = np.abs(jumps.T @ visits - visits).max()
    good = apart <= _RESIDUAL and visits.min() >= -_RESIDUAL  # false for NaN as well
    return np.maximum(visits, 0.0) if good else None


def _closed_class(generator: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The states among which the chain ends up."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    graph = sparse.csr_array(generator).tocoo()
    real = (graph.row != graph.col) & (graph.data > 0)
    start, end = graph.row[real], graph.col[real]
    size = generator.shape[0]
    links = sparse.csr_array((np.ones(len(start)), (start, end)), shape=(size, size))
    count, label = connected_components(links, directed=True, connection="strong")
    left = np.zeros(count, dtype=bool)
    left[label[start][label[start] != label[end]]] = True
    if (~left).sum() != 1:
        raise AnabranchError(
            f"the chain has {int((~left).sum())} sets of states that it never leaves, so where it "
            "ends up depends on where it starts; connect them or model them apart"
        )
    return np.flatnonzero(~left[label])
