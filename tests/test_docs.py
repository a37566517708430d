"""The documentation names what there is: public names, and every parameter of every verb."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

import anabranch as ab
from anabranch.flow.load import Load

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "papers").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]


def test_every_name_in_the_docs_exists() -> None:
    wrong = []
    for page in PAGES:
        for name in set(re.findall(r"\bab\.([A-Za-z_]+(?:\.[A-Za-z_0-9]+)?)", page.read_text())):
            first, _, second = name.partition(".")
            # What is in a namespace is written with it.
            there = first in ab.__all__ or first.startswith("_")
            if isinstance(getattr(ab, first, None), ModuleType) and second:
                there = hasattr(getattr(ab, first), second)
            wrong += [] if there else [f"{page.relative_to(ROOT)}: ab.{name}"]
    assert wrong == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one, or a text in the package.

    Settings of Spark and topics of Kafka are such texts; metrics are named after the figures of a
    load.
    """
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:end])
        if path.is_dir() or path.with_suffix(".py").is_file():
            if end == len(parts):
                return True
            module = importlib.import_module(".".join(parts[:end]))
            try:
                attrgetter(".".join(parts[end:]))(module)
            except AttributeError:
                break
            return True
    if len(parts) == 2 and parts[1] in {figure.name for figure in fields(Load)}:
        return True
    written = re.compile(rf'"{re.escape(name)}[".]')
    return any(written.search(path.read_text()) for path in (ROOT / "anabranch").rglob("*.py"))


def test_every_dotted_name_in_the_docs_exists() -> None:
    pages = [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY"))]
    named = {
        (page, found)
        for page in pages
        for found in re.findall(r"(?<![\w/.])anabranch(?:\.[A-Za-z_]\w*)+", page.read_text())
    }
    assert len(named) > 10
    assert not exists("anabranch.flow.nothing") and not exists("anabranch.plans.plan.Nothing")
    wrong = [f"{page.relative_to(ROOT)}: {name}" for page, name in named if not exists(name)]
    assert sorted(wrong) == []


def test_every_test_that_the_docs_name_exists() -> None:
    named = {
        found
        for page in PAGES
        for found in re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", page.read_text())
    }
    text = {file: (ROOT / "tests" / file).read_text() for file, _ in named}
    assert named
    assert [one for one in sorted(named) if f"\ndef {one[1]}(" not in text[one[0]]] == []


def parameters(page: str, heading: str) -> set[str]:
    """The names in the first column of the first table below a heading."""
    text = (ROOT / "docs" / page).read_text().partition(f"\n{heading}\n")[2]
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)  # what examples print
    table = re.search(r"(?:^\|.*\n)+", text, re.M)
    assert table is not None, f"{page} has no table below {heading}"
    cells = [line.split("|")[1] for line in table[0].splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def taken(function: object) -> set[str]:
    """The parameters of a function that have a name."""
    found = inspect.signature(function).parameters  # type: ignore[arg-type]
    return {name for name, it in found.items() if it.kind is not it.VAR_KEYWORD}


@pytest.mark.parametrize(
    ("verb", "page", "heading"),
    [
        ("correlate", "correlate.md", "## Parameters"),
        ("dedupe", "groups.md", "## Parameters"),
        ("groups", "groups.md", "### `ab.groups`"),
        ("emd", "emd.md", "## Parameters"),
        ("nearest", "nearest.md", "## Parameters"),
        ("assemble", "assemble.md", "## Parameters"),
        ("place", "place.md", "## Parameters"),
        ("place_pairs", "place.md", "#### `ab.place_pairs`"),
        ("rank_services", "assemble.md", "### `ab.rank_services`"),
        ("follow", "follow.md", "## Parameters"),
        ("feed", "follow.md", "### `ab.feed`"),
        ("view", "follow.md", "### `ab.view`"),
        ("spans_of", "traces.md", "## Parameters"),
        ("fit_windows", "fitting.md", "## Parameters"),
        ("estimate_state", "fitting.md", "## Estimate the state"),
        ("adaptive", "adaptation.md", "## Parameters"),
        ("dashboard", "dashboard.md", "## Parameters"),
        ("rescale", "operate.md", "## Rescale"),
        ("video.frames", "video.md", "## Parameters"),
        ("video.shots", "video.md", "## Shots: `ab.video.shots`"),
        ("video.describe", "video.md", "## Describe: `ab.video.describe`"),
        ("video.topics", "video.md", "## Topics: `ab.video.topics`"),
    ],
)
def test_a_page_names_every_parameter_of_its_verb(verb: str, page: str, heading: str) -> None:
    assert parameters(page, heading) == taken(attrgetter(verb)(ab))


HEADER = ["name", "type", "default", "streaming / batch", "meaning"]


def tables_of_parameters() -> list[tuple[str, list[list[str]]]]:
    """Every table of parameters of every page, with its page."""
    found = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.M):
            lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
            rows = [[cell.strip() for cell in line] for line in lines]
            if rows[0][0] == "name" and "default" in rows[0]:
                found.append((page.name, rows))
    return found


def test_a_parameter_has_a_type_and_says_if_it_is_for_streams_or_tables() -> None:
    tables = tables_of_parameters()
    assert len(tables) >= 26 and {"assemble.md", "video.md"} <= {page for page, _ in tables}
    for page, rows in tables:
        assert rows[0] == HEADER, (page, rows[0])
        for row in rows[2:]:
            assert len(row) == 5 and row[0] and row[4], (page, row)
            assert row[3].partition(";")[0] in {"both", "streaming", "batch", "neither"}, (
                page,
                row,
            )
            # What another table has said already, or no use is made of, has no type here.
            elsewhere = "as of `ab." in row[4] or row[3] == "neither"
            assert (row[1] and row[2]) or elsewhere, (page, row)


@pytest.mark.parametrize(
    "page",
    [
        *("correlate.md", "emd.md", "nearest.md", "assemble.md", "place.md", "fitting.md"),
        *("follow.md", "video.md", "groups.md", "traces.md"),
    ],
)
def test_a_verb_is_shown_then_listed_then_explained(page: str) -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / page).read_text(), re.M)
    assert headings[:2] == ["Quick start", "Parameters"]
    last = ["Quick start", "Parameters", "Semantics", "Limits", "Cost"]
    assert [heading for heading in headings if heading in last] == last


def test_the_policy_that_learns_has_a_table_of_its_own() -> None:
    assert parameters("assemble.md", "### Learned windows") == taken(ab.close.learned)


def test_end_markers_have_a_table_of_their_own() -> None:
    assert parameters("assemble.md", "### End markers") == taken(ab.close.until)


def test_sinks_have_a_table_of_their_own() -> None:
    named = parameters("connect.md", "### Parameters")
    sinks = [getattr(ab.sinks, name) for name in ab.sinks.__all__]
    common = set.intersection(*map(taken, sinks))
    own = {"path", "table", "dsn", "servers", "topic"}  # in the table of sinks
    assert named == set.union(*map(taken, sinks)) - own
    assert common == {"app", "via", "small"}


def test_compliance_has_a_table_of_its_own() -> None:
    heading = "## Compliance: `ab.sla`, `ab.rank_services`"
    assert parameters("assemble.md", heading) == taken(ab.sla)
