"""``ab.emd("hist", ground=...) <= 0.5``: similar by the Earth Mover's Distance.

How much mass must be moved how far to turn one histogram into the other. The measure only says
what to compare; `anabranch.correlation.emd` computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from anabranch.correlation.emd.filters import CHAINS, read_filters
from anabranch.correlation.emd.ground import Ground, read_ground
from anabranch.errors import InvalidCall, renamed
from anabranch.predicates import Compared, VectorMeasure
from anabranch.predicates.terms import columns_text

__all__ = ["EmdMeasure", "emd"]


@dataclass(frozen=True, repr=False, eq=False)
class EmdMeasure(VectorMeasure):
    """The Earth Mover's Distance of two histograms."""

    ground: Ground = field(default_factory=lambda: Ground("line", None))
    filters: tuple[str, ...] = ()
    unit: bool = False
    exact_scores: bool = True

    def __repr__(self) -> str:
        ground = self.ground
        usual = read_filters("default", ground)[0]
        chain = next((n for n, names in CHAINS.items() if names == self.filters), None)
        given = [columns_text(self.left, self.right), f"ground={ground.text}"]
        if ground.kind == "points" and (ground.metric != "euclidean" or ground.square):
            given.append(f"metric={ground.metric!r}")
        if self.unit:
            given.append("normalize=None")
        if ground.scale is not None:
            given.append(f"scale={ground.scale!r}")
        if self.filters != usual:
            given.append(f"filters={chain or list(self.filters)!r}")
        if not self.exact_scores:
            given.append("scores='bound'")
        if self.dim is not None and ground.table is None:
            given.append(f"dim={self.dim!r}")
        return f"emd({', '.join(given)})"

    @property
    def label(self) -> str:
        """What stored histograms mean: the ground distance, and whether they must sum to 1."""
        return f"emd {self.ground.digest} {'unit' if self.unit else 'mass'}"

    def problems_with(self, term: Compared) -> list[str]:
        """What is wrong with this measure in a comparison."""
        if term.threshold < 0:
            return [f"{term!r}: a distance is never negative, so compare with 0 or more"]
        return []


@renamed()
def emd(
    left: Any,
    right: Any = None,
    *,
    ground: Any = "line",
    metric: str | None = None,
    normalize: str | None = "mass",
    scale: float | str | None = None,
    filters: str | Sequence[str] = "default",
    scores: str = "exact",
    dim: int | None = None,
) -> EmdMeasure:
    """Earth Mover's Distance of two histograms (arrays of as many masses as there are bins).

    Parameters
    ----------
    left, right
        Columns; the same one of both sides if `right` is left out.
    ground
        How far apart bins are: ``"line"`` (in a row, 1 apart), ``"circle"`` (the same, closed), an
        array of positions (one number or one row of coordinates per bin), or a square matrix of
        distances, which must be a metric.
    metric
        For coordinates: ``"euclidean"`` (default) or ``"manhattan"``. Give it as well if there are
        as many coordinates as bins, or the array is taken for a matrix.
    normalize
        ``"mass"`` divides each histogram by its sum; None demands that it is 1 already.
    scale
        Divides every ground distance: a number, or ``"max"`` for the greatest of them.
    filters
        ``"default"``, ``"paper"`` (EMD-DDSJ's chain), ``"head-sj"``, or a list of names. They
        change the cost, never the pairs.
    scores
        ``"exact"``: the score of a pair is its distance. ``"bound"`` is faster where bins have
        coordinates or a matrix: a pair that an upper bound shows to match is not solved, and its
        score is that upper bound. On lines and circles scores are always exact.
    dim
        The number of bins of a line or circle; needed for ``ab.ranges`` and to drop bad rows.

    Examples
    --------
    >>> emd("hist") <= 4
    emd('hist', ground='line') <= 4
    >>> emd("hist", ground=[[0, 0], [0, 1], [1, 0]], scale="max") <= 0.1
    emd('hist', ground=[[0, 0], [0, 1], [1, 0]], scale='max') <= 0.1
    >>> emd("hist", ground=range(64)) <= 4
    emd('hist', ground=<64 positions, line-d9496dbd>) <= 4
    >>> emd("hist", ground="ring")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: emd cannot start: ground must be 'line', 'circle', positions of \
the bins or a matrix of distances, got 'ring'
    """
    found, wrong = read_ground(ground, metric, scale, dim)
    names, more = read_filters(filters, found)
    wrong = wrong + more
    if normalize is not None and not (isinstance(normalize, str) and normalize == "mass"):
        wrong.append(f"normalize must be 'mass' or None, got {normalize!r}")
    if not (isinstance(scores, str) and scores in ("bound", "exact")):
        wrong.append(f"scores must be 'bound' or 'exact', got {scores!r}")
    if not wrong and found.kind in ("points", "matrix") and find_spec("ot") is None:
        wrong.append(
            "a ground of positions or distances needs the package POT, here and on the executors: "
            "pip install 'anabranch[emd]'"
        )
    if wrong:
        raise InvalidCall("emd", wrong)
    bins = found.bins if dim is None else dim
    return EmdMeasure(
        "emd",
        left,
        left if right is None else right,
        bins,
        found,
        names,
        normalize is None,
        scores == "exact",
    )
