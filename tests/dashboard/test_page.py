"""The page's own files: colours that can be read, names for screen readers, what is vendored."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from anabranch.spark.dashboard.server import PAGE

TEXTS = {
    "ink": (
        "ground",
        "panel",
        "good-back",
        "warn-back",
        "bad-back",
        "off-back",
        "mark",
    ),
    "faint": ("ground", "panel"),
    "left": ("panel",),
    "right": ("panel",),
    **{light: (f"{light}-back",) for light in ("good", "warn", "bad", "off")},
}


def themes() -> dict[str, dict[str, str]]:
    text = (PAGE / "style.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    return {
        name: dict(re.findall(r"--([\w-]+): (#\w{6});", part))
        for name, part in (("light", light), ("dark", dark))
    }


def brightness(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(theme: str) -> None:
    colours = themes()[theme]
    for ink, grounds in TEXTS.items():
        for ground in grounds:
            high, low = sorted(
                (brightness(colours[ink]), brightness(colours[ground])), reverse=True
            )
            assert (high + 0.05) / (low + 0.05) >= 4.5, (theme, ink, ground)


def test_both_themes_name_the_same_colours() -> None:
    light, dark = themes().values()
    assert light.keys() == dark.keys()


def test_landmarks_and_live_regions_are_there() -> None:
    text = (PAGE / "index.html").read_text()
    for part in (
        'lang="en"',
        "<main",
        "<nav aria-label",
        "<header",
        "<footer",
        'aria-live="polite"',
    ):
        assert part in text
    assert re.search(r'<a class="skip" href="#main"', text)


def test_the_vendored_chart_library_has_its_licence() -> None:
    assert "uPlot (v1.6.32)" in (PAGE / "uPlot.iife.min.js").read_text()[:200]
    assert "MIT License" in (PAGE / "uPlot.LICENSE").read_text()


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("name", ["app.js", "charts.js"])
def test_scripts_can_be_read(name: str) -> None:
    subprocess.run(["node", "--check", str(PAGE / name)], check=True)
