"""The programs behind the pictures: drawings can be made, and the recorder reads a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import cast  # noqa: E402
import pictures  # noqa: E402
import sentences  # noqa: E402


@pytest.mark.parametrize("name", [*pictures.DRAWN, "place", "story", "notebook"])
def test_a_picture_is_drawn_for_light_and_dark_pages(tmp_path: Path, name: str) -> None:
    for dark in (False, True):
        pictures.draw(name, tmp_path / f"{dark}.svg", dark)
    assert (tmp_path / "True.svg").read_text() != (tmp_path / "False.svg").read_text()


def test_pages_of_the_docs_have_short_sentences() -> None:
    long = {}
    for page in sentences.pages():
        found = sentences.sentences(page.read_text())
        mean = sum(map(sentences.words, found)) / max(1, len(found))
        if mean > sentences.MOST:
            long[page.name] = mean
    assert long == {}


def test_pages_of_the_docs_use_the_words_of_the_field() -> None:
    odd = {page.name: sentences.avoided(page.read_text()) for page in sentences.pages()}
    assert {name: found for name, found in odd.items() if found} == {}
    assert sentences.avoided("A row is told.\n\n| settled |\n`dear`") == ["settled", "told"]
    listed = sentences.to_avoid(
        "| write | not |\n|---|---|\n| a b | c, d (of e), f g |\n\n| h | i |"
    )
    assert listed == ["c", "f g"]


def test_messages_of_the_package_use_the_words_of_the_field() -> None:
    modules = list((SCRIPTS.parent / "anabranch").rglob("*.py"))
    odd = {str(it): sentences.avoided_in_messages(it.read_text()) for it in modules}
    assert {name: found for name, found in odd.items() if found} == {}
    source = "'A row is told.'\nraise ValueError(f'{x} is dear')\ny = 'told'"
    assert sentences.avoided_in_messages(source) == ["dear"]


def test_a_cell_of_a_table_counts_if_it_holds_a_sentence() -> None:
    table = (
        "| name | meaning |\n|---|---|\n| `a` | a short one |\n| b \\| c | " + "long " * 9 + "|\n"
    )
    assert [sentences.words(one) for one in sentences.sentences(table)] == [9]


def test_sentences_are_told_apart_and_counted() -> None:
    page = (
        "# Title\n\nOne two three. Four `a b` five: [six](x.md)\n\n| a | b c d |\n\n- Seven eight."
    )
    found = sentences.sentences(page)
    assert [sentences.words(one) for one in found] == [3, 4, 2]


def test_the_recorder_goes_back_up_and_keeps_colours() -> None:
    screen = cast.Screen()
    screen.write("find 1\r\nstatus 10%\r\x1b[2K\x1b[1m\x1b[32mfind 2\x1b[0m\r\nstatus 20%")
    assert screen.shown() == (
        "find 1",
        '<tspan fill="#56d364" font-weight="bold">find 2</tspan>',
        "status 20%",
    )


def test_frames_shorten_waits_and_keep_the_end() -> None:
    shots = cast.frames([(0.0, "a\r\n"), (60.0, "b\r\n"), (61.0, "c\r\n")])
    assert [shown for _, shown in shots] == [("a",), ("a", "b"), ("a", "b", "c")]
    assert [stays for stays, _ in shots] == [cast.LONGEST, 0.5, cast.LAST]
    assert "<use" in cast.drawn(shots)


def test_a_page_that_cannot_be_drawn_is_said_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts import board_picture
    from scripts.services.jars import Absent

    def absent() -> None:
        raise Absent("Chromium is not installed")

    monkeypatch.setattr(board_picture, "browser", absent)
    with pytest.raises(SystemExit, match=r"CANNOT BE DRAWN.*Chromium is not installed") as left:
        board_picture.main()
    assert left.value.code not in (0, None)
