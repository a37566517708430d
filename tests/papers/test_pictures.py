"""The pictures of the papers: all of them are kept for light and dark pages, by one style sheet."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.flow.pictures import INKS
from papers.pictures import HERE, pictures
from papers.style import line_of


def test_every_picture_is_kept_for_light_and_dark_pages() -> None:
    every = pictures()
    assert len(every) >= 24
    wanted = {HERE / paper / "images" / f"{n}{of}.svg" for n, (paper, _) in every.items()
              for of in ("", "-dark")}  # fmt: skip
    assert {path for path in wanted if not path.exists()} == set()
    assert set(HERE.glob("*/images/*.svg")) == wanted


@pytest.mark.parametrize("name", ["emd-7", "knn-14"])
def test_a_picture_is_drawn_from_what_is_kept_in_the_ink_of_its_page(
    tmp_path: Path, name: str
) -> None:
    draw = pictures()[name][1]()
    for dark in (False, True):
        draw(tmp_path / f"{name}.svg", dark=dark)
        text = (tmp_path / f"{name}.svg").read_text()
        assert INKS[dark][0] in text and INKS[not dark][0] not in text
    assert line_of("ours")["color"] in text or name != "emd-7"
