"""Where a Markov chain is found in the long run.

Up to 400 states by Grassmann, Taksar and Heyman's elimination, which never subtracts and so keeps
every digit, also of probabilities like 1e-80. Above that a sparse factorisation of the chain seen
at its jumps, without pivoting off the diagonal, and refined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.errors import AnabranchError
from anabranch.fitting.distribution import Floats

__all__ = ["gth", "sparse_lu", "stationary"]

_DENSE = 400


def stationary(generator: Any) -> Floats:
    """Stationary probabilities of a generator, dense or scipy-sparse; rows sum to zero.

    States that are never returned to get probability 0.

    Examples
    --------
    >>> stationary(np.array([[-1.0, 1.0], [3.0, -3.0]])).tolist()
    [0.75, 0.25]
    """
    if generator.shape[0] <= _DENSE:
        dense = generator if isinstance(generator, np.ndarray) else generator.toarray()
        return gth(dense)
    return sparse_lu(generator)


def gth(generator: Floats) -> Floats:
    """By elimination without subtraction."""
    recurrent = _closed_class(generator)
    rates = np.array(generator[np.ix_(recurrent, recurrent)], dtype=np.float64)
    np.fill_diagonal(rates, 0.0)
    size = len(rates)
    for state in range(size - 1, 0, -1):
        leaving = rates[state, :state].sum()
        rates[:state, state] /= leaving
        rates[:state, :state] += np.outer(rates[:state, state], rates[state, :state])
    weights = np.zeros(size)
    weights[0] = 1.0
    for state in range(1, size):
        weights[state] = weights[:state] @ rates[:state, state]
    found = np.zeros(len(generator))
    found[recurrent] = weights / weights.sum()
    return found


def sparse_lu(generator: Any, refinements: int = 2) -> Floats:
    """By a sparse factorisation of the rate-scaled generator, with refinement."""
    from scipy import sparse
    from scipy.sparse.linalg import splu

    matrix = sparse.csr_array(generator)
    recurrent = _closed_class(matrix)
    matrix = matrix[recurrent][:, recurrent]
    leaving = -matrix.diagonal()
    # Seen at its jumps every row is of size one, however unlike the rates are.
    jumps = sparse.diags_array(1 / leaving) @ matrix
    system = sparse.csc_array(-jumps.T[1:, 1:])
    # The first state's share is set to one; its jumps feed the others. With a dominant diagonal
    # and everything of one sign, nothing is subtracted on the way, so small values stay exact.
    right = np.asarray(jumps[[0], 1:].toarray()).ravel()
    solver = splu(
        system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    found = solver.solve(right)
    for _ in range(refinements):
        found = found + solver.solve(right - system @ found)
    visits = np.maximum(np.concatenate([[1.0], found]), 0.0)
    answer = np.zeros(generator.shape[0])
    weights = visits / leaving
    answer[recurrent] = weights / weights.sum()
    return answer


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
