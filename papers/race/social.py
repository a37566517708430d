"""Seeded social networks and demand rates for the placement benchmarks and experiments."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

__all__ = [
    "FACEBOOK",
    "RATE_MODELS",
    "facebook_graph",
    "facebook_like",
    "rates",
    "zipf_feeds",
    "zipf_graph",
]

FACEBOOK = Path(__file__).resolve().parents[3] / "shared" / "data" / "facebook_combined.txt.gz"
MOST_FRIENDS = 4956


def zipf_graph(users: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Everyone picks a Zipf(2) number of friends, between 1 and a tenth of all, at random."""
    rng = np.random.default_rng(seed)
    most = min(MOST_FRIENDS, users // 10)
    weight = 1.0 / np.arange(1, most + 1) ** 2
    picks = rng.choice(np.arange(1, most + 1), users, p=weight / weight.sum())
    a = np.repeat(np.arange(users, dtype=np.int32), picks)
    return _distinct(a, rng.integers(0, users, len(a), dtype=np.int32), users)


def facebook_like(users: int, demand_edges: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Degrees fall as k^-1.32 below 300 friends and as k^-3.38 above, scaled to the edge count."""
    rng = np.random.default_rng(seed)
    k = np.arange(1, MOST_FRIENDS + 1, dtype=float)
    weight = np.where(k < 300, k**-1.32, 300 ** (3.38 - 1.32) * k**-3.38)
    degree = rng.choice(k, users, p=weight / weight.sum())
    degree *= demand_edges / degree.sum()
    whole = np.floor(degree).astype(np.int64)
    whole += rng.random(users) < degree - whole
    stubs = np.repeat(np.arange(users, dtype=np.int32), whole)
    rng.shuffle(stubs)
    half = len(stubs) // 2
    return _distinct(stubs[:half], stubs[half : 2 * half], users)


def facebook_graph(path: Path = FACEBOOK) -> tuple[np.ndarray, np.ndarray]:
    """The 4,039 users and 88,234 friendships of SNAP's ego-Facebook."""
    with gzip.open(path, "rt") as file:
        pairs = np.loadtxt(file, dtype=np.int32, comments="#")
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _distinct(a: np.ndarray, b: np.ndarray, users: int) -> tuple[np.ndarray, np.ndarray]:
    key = np.minimum(a, b).astype(np.int64)
    key *= users
    key += np.maximum(a, b)
    key = key[a != b]
    key.sort()
    fresh = np.ones(len(key), bool)
    fresh[1:] = key[1:] != key[:-1]
    key = key[fresh]
    return (key // users).astype(np.int32), (key % users).astype(np.int32)


def zipf_feeds(users: int, seed: int = 2) -> np.ndarray:
    """Feed rates of 1 to 10 events a second, Zipf(2)."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, 11) ** 2
    return rng.choice(np.arange(1.0, 11.0), users, p=weight / weight.sum())


def _seldom(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    return _met(rng, pairs, rng.random(pairs) < 0.2), _met(rng, pairs, rng.random(pairs) < 0.2)


def _met(rng: np.random.Generator, pairs: int, meets: np.ndarray) -> np.ndarray:
    return np.where(meets, 10.0 ** rng.uniform(-3, 0, pairs), 0.0)


def _lognormal(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.minimum(np.exp(rng.normal(np.log(1e-3), 1.8, (2, pairs))), 1.0)
    return first, second


def _seldom_by_pair(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    meets = rng.random(pairs) < 0.2
    return _met(rng, pairs, meets), _met(rng, pairs, meets)


def _symmetric(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    rate = _met(rng, pairs, rng.random(pairs) < 0.2)
    return rate, rate.copy()


def _uniform(rng: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.random(pairs), rng.random(pairs)


RATE_MODELS = {
    "80% never meet, else log-uniform": _seldom,
    "log-normal, median 0.001, sigma 1.8": _lognormal,
    "never meeting drawn per pair": _seldom_by_pair,
    "symmetric, as the first": _symmetric,
    "uniform": _uniform,
}


def rates(model: str, pairs: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """How much of each end of a pair its view needs, when full location rates are 1."""
    return RATE_MODELS[model](np.random.default_rng(seed), pairs)
