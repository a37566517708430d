"""The exact queue MAP/PH[a,b]/1/N: one server, phase-type service, batches, a finite room.

The model of the DSSIS paper for stateless operators (a = b = 1) and for count windows (a = b = the
window), after Gupta and Laxmi's MAP/G[a,b]/1/N, solved as one Markov chain. The server waits until
`a` tuples are there and then takes up to `b`; tuples that find the room full are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.assembly.fitting.distribution import Distribution
from anabranch.assembly.fitting.erlang import HyperErlang
from anabranch.assembly.fitting.phasetype import PhaseType
from anabranch.calls import is_whole
from anabranch.errors import InvalidCall
from papers.dssis.queueing.arrivals import MAP, renewal
from papers.dssis.queueing.stationary import stationary

__all__ = ["QueueFigures", "bulk_queue"]

_MOST_STATES = 400_000


@dataclass(frozen=True)
class QueueFigures:
    """What a queue does in the long run; times in the unit of the input.

    Attributes
    ----------
    L, Lq
        Mean number in the system and waiting.
    W, Wq
        Mean time in the system and waiting, of tuples that were not lost.
    P_busy, P_busy_arrival
        Probability that the server is busy at any time, and as an arriving tuple finds it. They
        differ unless arrivals are Poisson.
    P_loss
        Probability that an arriving tuple is lost.
    rate, effective_rate
        Arrivals per unit of time, and those that are not lost.
    utilisation
        Load offered to the server: 1 or more means that it cannot keep up.
    states
        Size of the chain that was solved.
    storage
        Bytes in the system on average, if a tuple's size was given.
    """

    L: float
    Lq: float
    W: float
    Wq: float
    P_busy: float
    P_busy_arrival: float
    P_loss: float
    rate: float
    effective_rate: float
    utilisation: float
    states: int
    storage: float | None = None

    def __repr__(self) -> str:
        lines = [
            f"  in system   L  {self.L:<12.6g} W  {self.W:.6g}",
            f"  waiting     Lq {self.Lq:<12.6g} Wq {self.Wq:.6g}",
            f"  busy        {self.P_busy:.6g} of time, {self.P_busy_arrival:.6g} of arrivals",
            f"  lost        {self.P_loss:.4g} of arrivals",
            f"  rate        {self.rate:.6g}, utilisation {self.utilisation:.4g}",
        ]
        if self.storage is not None:
            lines.append(f"  storage     {self.storage:,.0f} bytes")
        return "QueueFigures(\n" + "\n".join(lines) + ")"


def bulk_queue(
    arrivals: MAP | PhaseType | HyperErlang,
    service: PhaseType | HyperErlang,
    room: int,
    *,
    a: int = 1,
    b: int | None = None,
    tuple_bytes: float | None = None,
) -> QueueFigures:
    """Solve MAP/PH[a,b]/1/N.

    Parameters
    ----------
    arrivals
        A `MAP`, or the distribution of independent gaps.
    service
        Time to serve a batch, whatever its size.
    room
        How many tuples may wait, those in service not counted (N).
    a, b
        The server starts with at least `a` and takes at most `b` tuples; `b` is `a` by default.
    tuple_bytes
        Size of a tuple, for the storage.

    Examples
    --------
    M/M/1 with room for 3: the probability of a full system is known.

    >>> from papers.dssis.queueing import poisson
    >>> from anabranch.assembly.fitting import Erlang
    >>> figures = bulk_queue(poisson(0.5), Erlang(1, 1.0), room=3)
    >>> round(figures.P_loss * (1 - 0.5**5) / (0.5**4 * 0.5), 12)
    1.0
    """
    b = a if b is None else b
    arrivals = _arrivals(arrivals)
    service = _service(service)
    problems = [
        f"{name} must be a whole number of at least {least}, got {value!r}"
        for name, value, least in (("room", room, 1), ("a", a, 1), ("b", b, 1))
        if not is_whole(value, least)
    ]
    if not problems and not a <= b:
        problems.append(f"a must be at most b, got a={a} and b={b}")
    if not problems and room < a:
        problems.append(
            f"room must hold at least a={a} tuples, got {room}: the server would never start"
        )
    states = a * arrivals.phases + (room + 1) * arrivals.phases * service.phases
    if not problems and states > _MOST_STATES:
        problems.append(
            f"the chain would have {states:,} states, more than {_MOST_STATES:,}; take less room "
            "(or linear_law for a batch queue at low load), or fewer phases"
        )
    if problems:
        raise InvalidCall("bulk_queue", problems)

    chain = _Chain(arrivals, service, int(room), int(a), int(b))
    crowded = arrivals.rate * service.mean >= b
    steady = stationary(chain.generator(), crowded=crowded)
    return _figures(chain, steady, arrivals, service, tuple_bytes)


def _figures(
    chain: _Chain, steady: Any, arrivals: MAP, service: PhaseType, tuple_bytes: float | None
) -> QueueFigures:
    split = chain.a * arrivals.phases
    idle = steady[:split].reshape(chain.a, arrivals.phases)
    busy = steady[split:].reshape(chain.room + 1, arrivals.phases, service.phases).sum(axis=2)
    coming = arrivals.D1.sum(axis=1)
    rate = arrivals.rate
    loss = float(busy[-1] @ coming) / rate
    waiting = float(np.arange(chain.a) @ idle.sum(axis=1))
    waiting += float(np.arange(chain.room + 1) @ busy.sum(axis=1))
    # Not one less the loss, of which nothing might be left in a flood.
    kept = float((idle.sum(axis=0) + busy[:-1].sum(axis=0)) @ coming)
    L = waiting + kept * service.mean
    return QueueFigures(
        L=L,
        Lq=waiting,
        W=L / kept,
        Wq=waiting / kept,
        P_busy=float(busy.sum()),
        P_busy_arrival=float(busy.sum(axis=0) @ coming) / rate,
        P_loss=loss,
        rate=rate,
        effective_rate=kept,
        utilisation=rate * service.mean / chain.b,
        states=len(steady),
        storage=None if tuple_bytes is None else L * tuple_bytes,
    )


@dataclass(frozen=True)
class _Chain:
    """States: idle with n < a waiting, by arrival phase; busy with n waiting, by both phases."""

    arrivals: MAP
    service: PhaseType
    room: int
    a: int
    b: int

    def generator(self) -> Any:
        from scipy import sparse

        D0, D1 = self.arrivals.D0, self.arrivals.D1
        phases, stages = self.arrivals.phases, self.service.phases
        one, many = np.eye(phases), np.eye(stages)
        start = self.service.alpha[None, :]
        finish = self.service.exit[:, None]
        # Blocks between levels; idle levels first, then busy ones.
        idle, busy = self.a, self.room + 1
        grid: list[list[Any]] = [[None] * (idle + busy) for _ in range(idle + busy)]
        for n in range(idle):
            grid[n][n] = sparse.csr_array(D0)
            if n + 1 < idle:
                grid[n][n + 1] = sparse.csr_array(D1)
        # The a-th tuple starts the server; nobody is left waiting.
        grid[idle - 1][idle] = sparse.csr_array(np.kron(D1, start))
        stay = sparse.csr_array(np.kron(D0, many) + np.kron(one, self.service.T))
        arrive = sparse.csr_array(np.kron(D1, many))
        again = sparse.csr_array(np.kron(one, finish @ start))
        rest = sparse.csr_array(np.kron(one, finish))
        for n in range(busy):
            row = idle + n
            # A tuple that finds the room full is lost: only its phase changes.
            grid[row][row] = stay if n + 1 < busy else stay + arrive
            if n + 1 < busy:
                grid[row][row + 1] = arrive
            if n >= self.a:
                to = idle + n - min(n, self.b)
                grid[row][to] = again if grid[row][to] is None else grid[row][to] + again
            else:
                grid[row][n] = rest
        sizes = [phases] * idle + [phases * stages] * busy
        return _assembled(grid, sizes)


def _assembled(grid: list[list[Any]], sizes: list[int]) -> Any:
    """One sparse matrix out of the blocks that are there."""
    from scipy import sparse

    at = np.concatenate([[0], np.cumsum(sizes)])
    rows, columns, values = [], [], []
    for i, line in enumerate(grid):
        for j, block in enumerate(line):
            if block is not None:
                found = sparse.coo_array(block)
                rows.append(found.row + at[i])
                columns.append(found.col + at[j])
                values.append(found.data)
    size = int(at[-1])
    return sparse.csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(size, size),
    )


def _arrivals(given: Any) -> MAP:
    if isinstance(given, MAP):
        return given
    if isinstance(given, HyperErlang):
        given = given.phase_type()
    if isinstance(given, PhaseType):
        return renewal(given)
    raise InvalidCall("bulk_queue", [_refusal("arrivals", "a MAP, ", given)])


def _service(given: Any) -> PhaseType:
    if isinstance(given, HyperErlang):
        return given.phase_type()
    if isinstance(given, PhaseType):
        return given
    raise InvalidCall("bulk_queue", [_refusal("service", "", given)])


def _refusal(name: str, more: str, given: Any) -> str:
    hint = "; fit_two_moments(mean, scv) makes one" if not isinstance(given, Distribution) else ""
    return (
        f"{name} must be {more}a PhaseType or a HyperErlang distribution, got "
        f"{type(given).__name__}{hint}"
    )
