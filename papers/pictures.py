"""Draw every picture of the papers from the results that are kept, for light and for dark pages.

::

    python -m papers.pictures [NAME ...]

writes ``papers/PAPER/images/NAME.svg`` and ``NAME-dark.svg``, by the style sheet `papers.style`.
Nothing is measured or simulated, but for the fits of the drawn trace, which has a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from papers.dssis import queues, windows
from papers.emd import picture as emd
from papers.knn.peers import drawing as knn
from papers.knn.peers.figures import PeerFigure
from papers.race import improvement
from papers.vico import decoded, on_spark
from papers.vico.simulation import drawing as vico
from papers.vico.simulation.figures import Figure

HERE = Path(__file__).parent
KNN = ("8", "9", "10", "11", "12", "13", "14", "15", "16", "error", "slack")

Draw = Callable[..., Any]


def stored(paper: str, name: str) -> Any:
    """A result that is kept beside its paper."""
    return json.loads((HERE / paper / "results" / f"{name}.json").read_text())


def pictures() -> dict[str, tuple[str, Callable[[], Draw]]]:
    """Of every picture its paper, and what reads its result and draws it to a path."""
    found: dict[str, tuple[str, Callable[[], Draw]]] = {
        "dssis-fits": ("dssis", lambda: queues.draw),
        "dssis-access-log": (
            "dssis",
            lambda: partial(windows.draw, stored("dssis", "dssis-windows")["access log"]["curves"]),
        ),
        "place-improvement": (
            "race",
            lambda: partial(improvement.plot, stored("race", "place-improvement")),
        ),
        "vico": ("vico", lambda: partial(on_spark.draw, stored("vico", "vico"))),
        "vico-decoded": ("vico", partial(_decoded, "saturated")),
        "vico-decoded-keys": ("vico", partial(_decoded, "key frames")),
        "vico-decoded-every": ("vico", partial(_decoded, "every frame")),
        "vico-decoded-8": (
            "vico",
            lambda: partial(decoded.draw_routing, stored("vico", "vico-decoded")),
        ),
    }
    for n in KNN:
        found[f"knn-{n}"] = ("knn", partial(_figure, knn.draw, PeerFigure.of_form, f"knn-{n}"))
    # Those that were simulated into the folder: python -m papers.vico --figure 9 --out ...
    for result in sorted((HERE / "vico" / "results").glob("vico-*.json")):
        name = result.stem
        if name in found:
            continue
        found[name] = ("vico", partial(_figure, vico.draw, Figure.of_form, name))
    for number in emd.FIGURES:
        found[f"emd-{number}"] = ("emd", partial(_emd, number))
        found[f"emd-decoded-{number}"] = ("emd", partial(_emd, number, "-decoded"))
    return found


def _decoded(what: str) -> Draw:
    return partial(decoded.draw, what, stored("vico", "vico-decoded"))


def _figure(draw: Draw, read: Callable[[Any], Any], name: str) -> Draw:
    return partial(draw, read(stored(name.partition("-")[0], name)))


def _emd(number: int, films: str = "") -> Draw:
    return partial(emd.draw, stored("emd", f"emd-figures{films}"), number)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the pictures of these names, or all."""
    parser = argparse.ArgumentParser(description="Draw the papers' pictures from kept results")
    parser.add_argument("names", nargs="*", metavar="NAME", help="emd-7, for example; else all")
    names, every = parser.parse_args(arguments).names, pictures()
    if unknown := set(names) - every.keys():
        sys.exit(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    for name in names or every:
        paper, read = every[name]
        draw, folder = read(), HERE / paper / "images"
        for dark, of in ((False, ""), (True, "-dark")):
            draw(folder / f"{name}{of}.svg", dark=dark)
        print(f"papers/{paper}/images/{name}.svg and {name}-dark.svg")


if __name__ == "__main__":
    main()
