"""How much placement saves over uploading everything, by the price of downloads (figure 10).

    python -m papers.race.improvement          # 100K users, 8.6M demand edges; minutes
    python -m papers.race.improvement --quick  # the Facebook graph only; seconds

Two networks: one of the paper's size with Facebook-like degrees, and the real Facebook graph of
SNAP (left out where the file is missing). Five models of how much of a friend's location is
needed, because the paper's is not published; what decides is how far the two directions differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.flow.pictures import pyplot
from anabranch.placement import Placement, plan_graph
from anabranch.placement.graph import pair_graph
from benchmarks.origin import signed
from papers.race import social
from papers.style import PAGE, in_style, line_of, written

HERE = Path(__file__).parent
RATIOS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)


def improvement(
    name: str, a: np.ndarray, b: np.ndarray, users: int, model: str
) -> list[dict[str, Any]]:
    """One row per ratio of download to upload cost."""
    rate_a, rate_b = social.rates(model, len(a))
    rows = []
    for ratio in RATIOS:
        graph = pair_graph(a, b, rate_a, rate_b, sources=users, up=1.0, down=ratio)
        plan = plan_graph(graph)
        rows.append(
            {
                "network": name,
                "rates": model,
                "ratio": ratio,
                "improvement": plan.baseline_cost / plan.cost,
                "optimal": plan.optimal,
                **conflicts(plan),
            }
        )
        print(f"  {name}, {model}, {ratio:g}: {rows[-1]['improvement']:.2f}", flush=True)
    return rows


def conflicts(plan: Placement) -> dict[str, Any]:
    """How many groups of devices wanted the same views, and what they looked like."""
    sizes = [len(c.devices) for c in plan.components]
    cyclic = sum(c.method != "levelled tree" for c in plan.components)
    return {"conflicts": len(sizes), "largest": max(sizes, default=0), "cyclic": cyclic}


_NAMES = {  # as long as a legend allows; the page says what each model is
    "never meeting drawn per pair": "the first, but never meeting drawn per pair",
    "symmetric, as the first": "the first, but both need as much of each other",
}


@in_style
def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """The saving by ratio of costs, a panel for each network."""
    plt = pyplot()
    networks = list(dict.fromkeys(r["network"] for r in rows))
    figure, axes = plt.subplots(
        1, len(networks), figsize=(PAGE, 4.4), squeeze=False, layout="constrained", sharey=True
    )
    for axis, network in zip(axes[0], networks, strict=True):
        for model in social.RATE_MODELS:
            mine = [r for r in rows if r["network"] == network and r["rates"] == model]
            x = [r["ratio"] for r in mine]
            name = _NAMES.get(model, model)
            axis.plot(x, [r["improvement"] for r in mine], label=name, **line_of(model))
        axis.axhspan(3.5, 7.3, color="grey", alpha=0.15, label="range in the paper")
        axis.set(title=network, xlabel="download cost / upload cost")
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("times less traffic than uploading all")
    lines = axes[0][0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=2)
    written(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the Facebook graph only")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if social.FACEBOOK.exists():
        a, b = social.facebook_graph()
        for model in social.RATE_MODELS:
            rows += improvement(
                "Facebook, 4,039 users", a, b, int(max(a.max(), b.max())) + 1, model
            )
    if not options.quick:
        a, b = social.facebook_like(100_000, int(8_600_000 * 1.033))
        for model in social.RATE_MODELS:
            rows += improvement(
                f"synthetic, 100K users, {2 * len(a) / 1e6:.1f}M edges", a, b, 100_000, model
            )
    if not rows:
        sys.exit(f"the Facebook graph of SNAP is not there: {social.FACEBOOK.name}")
    name = "place-improvement" + ("-quick" if options.quick else "")
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / f"{name}.json").write_text(json.dumps(signed(rows), indent=1) + "\n")
    lines = ["| network | rates | " + " | ".join(f"{r:g}" for r in RATIOS) + " |"]
    lines += ["|---|---|" + "---|" * len(RATIOS)]
    for network in dict.fromkeys(r["network"] for r in rows):
        for model in social.RATE_MODELS:
            mine = [r for r in rows if r["network"] == network and r["rates"] == model]
            cells = " | ".join(f"{r['improvement']:.2f}" for r in mine)
            lines.append(f"| {network} | {model} | {cells} |")
    text = "\n".join(lines) + "\n"
    (HERE / "results" / f"{name}.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
