"""Operators in a row or a graph, by Whitt's Queueing Network Analyzer (1983).

Each operator is taken for G/G/c by itself; how regular its output is, is carried on to the next by
two moments. **Not validated**: unlike every other model here this one was not checked against
simulations of operator networks, and answers say so (`NetworkFigures.validated`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real

import numpy as np

from anabranch.errors import InvalidCall
from papers.dssis.queueing.manyserver import GGc, ggc

__all__ = ["NetworkFigures", "Operator", "operator_network"]


@dataclass(frozen=True)
class Operator:
    """One operator of a network.

    Attributes
    ----------
    service_mean, service_scv, servers
        Time per tuple, its variation, and how many work at once.
    input_rate, input_scv
        Tuples per second from outside, and the variation of their gaps.
    to
        Next operators and the tuples that each gets per tuple served here; below 1 for a filter,
        above 1 where tuples are copied.
    """

    service_mean: float
    service_scv: float = 1.0
    servers: int = 1
    input_rate: float = 0.0
    input_scv: float = 1.0
    to: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkFigures:
    """Figures of each operator, and of all together.

    `W` is the mean time in the network per tuple that comes in from outside.
    """

    operators: Mapping[str, GGc]
    rates: Mapping[str, float]
    arrival_scvs: Mapping[str, float]
    L: float
    W: float
    validated: bool = False


def operator_network(operators: Mapping[str, Operator]) -> NetworkFigures:
    """Predict a network of operators.

    Examples
    --------
    Two M/M/1 in a row, which is exact (Jackson):

    >>> found = operator_network({"union": Operator(0.5, input_rate=1.0, to={"group": 1.0}),
    ...                           "group": Operator(0.8)})
    >>> round(found.W, 9), found.validated     # 0.5 / 0.5 + 0.8 / 0.2
    (5.0, False)
    """
    names = list(operators)
    problems = [
        f"{name!r} sends to {other!r}, which is not in the network; there are {', '.join(names)}"
        for name, operator in operators.items()
        for other in operator.to
        if other not in operators
    ]
    problems += [
        f"{name!r} sends {share!r} tuples to {other!r}; it must be a finite number of at least 0"
        for name, operator in operators.items()
        for other, share in operator.to.items()
        if not (share >= 0 and math.isfinite(share))
    ]
    for name, operator in operators.items():
        inputs = {"input_rate": operator.input_rate, "input_scv": operator.input_scv}
        for what, value in inputs.items():
            if not (isinstance(value, Real) and value >= 0 and math.isfinite(value)):
                problems.append(
                    f"{what} of {name!r} must be a finite number of at least 0, got {value!r}"
                )
    if not problems and not any(operator.input_rate > 0 for operator in operators.values()):
        problems.append("no operator has an input_rate above 0: nothing comes in")
    if problems:
        raise InvalidCall("operator_network", problems)
    size = len(names)
    flow = np.zeros((size, size))
    for i, name in enumerate(names):
        for other, share in operators[name].to.items():
            flow[i, names.index(other)] = share
    outside = np.array([operators[name].input_rate for name in names])
    if np.any(np.abs(np.linalg.eigvals(flow)) >= 1 - 1e-12):
        raise InvalidCall(
            "operator_network",
            [
                "tuples go round or multiply without end in a cycle of the network: of what enters "
                "a cycle, some must leave it"
            ],
        )
    rates = np.linalg.solve(np.eye(size) - flow.T, outside)
    idle = [name for name, rate in zip(names, rates, strict=True) if rate <= 0]
    if idle:
        raise InvalidCall("operator_network", [f"nothing reaches {', '.join(map(repr, idle))}"])
    scvs = _arrival_scvs([operators[name] for name in names], flow, rates, outside)
    figures = {
        name: ggc(
            float(rates[i]),
            operators[name].service_mean,
            operators[name].servers,
            arrival_scv=float(scvs[i]),
            service_scv=operators[name].service_scv,
        )
        for i, name in enumerate(names)
    }
    L = sum(found.L for found in figures.values())
    return NetworkFigures(
        operators=figures,
        rates=dict(zip(names, rates.tolist(), strict=True)),
        arrival_scvs=dict(zip(names, scvs.tolist(), strict=True)),
        L=L,
        W=L / float(outside.sum()),
    )


def _arrival_scvs(
    operators: list[Operator],
    flow: np.ndarray,
    rates: np.ndarray,
    outside: np.ndarray,
) -> np.ndarray:
    """Whitt's linear equations: superposition, departure and splitting of flows."""
    size = len(operators)
    loads = np.array(
        [rate * o.service_mean / o.servers for rate, o in zip(rates, operators, strict=True)]
    )
    if np.any(loads >= 1):
        worst = int(np.argmax(loads))
        raise InvalidCall(
            "operator_network",
            [f"operator number {worst + 1} is used to {loads[worst]:.3g} and cannot keep up"],
        )
    matrix, right = np.eye(size), np.zeros(size)
    for j in range(size):
        arriving = flow[:, j] * rates / rates[j]
        fresh = outside[j] / rates[j]
        mixed = 1 / (fresh**2 + float(arriving @ arriving))
        weight = 1 / (1 + 4 * (1 - loads[j]) ** 2 * (mixed - 1))
        right[j] = 1 - weight + weight * fresh * operators[j].input_scv
        for i in np.flatnonzero(arriving > 0):
            kept = min(flow[i, j], 1.0)
            used, o = loads[i], operators[i]
            # Departures of i: 1 + (1 - u^2)(c_i - 1) + u^2/sqrt(m) (max(s, 0.2) - 1), then thinned.
            steady = 1 + used**2 * (max(o.service_scv, 0.2) - 1) / math.sqrt(o.servers)
            steady -= 1 - used**2
            right[j] += weight * arriving[i] * (kept * steady + 1 - kept)
            matrix[j, i] -= weight * arriving[i] * kept * (1 - used**2)
    return np.asarray(np.linalg.solve(matrix, right))
