"""The quick start of every verb runs as it stands and prints what its page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import anabranch as ab

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = r"```{}\n(.*?)```"


def first_example(page: str, heading: str) -> tuple[str, str]:
    """The first example below a heading, and the output below it."""
    text = (DOCS / page).read_text().partition(f"## {heading}")[2]
    example = re.search(BLOCK.format("python"), text, re.DOTALL)
    assert example is not None, page
    output = re.search(BLOCK.format(""), text[example.end() :], re.DOTALL)
    assert output is not None, page
    return example[1], output[1]


def rows(printed: str) -> list[list[str]]:
    """The heading and the rows of a table that Spark printed, in any order."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    return sorted([cell.strip() for cell in line.strip("|").split("|")] for line in lines)


@pytest.mark.parametrize(
    ("page", "headings"),
    [
        ("correlate.md", ["Quick start", "Windows of rows"]),
        ("correlate.md", ["Quick start", "One stream"]),
        ("groups.md", ["Quick start", "Groups"]),
        ("correlate.md", ["Without a partner"]),
        ("predicates.md", ["Texts and sets"]),
        ("predicates.md", ["Places"]),
        ("emd.md", ["Quick start"]),
        ("nearest.md", ["Quick start"]),
        ("nearest.md", ["Conditions"]),
        ("assemble.md", ["Quick start"]),
        ("assemble.md", ["Compliance"]),
        ("traces.md", ["Quick start"]),
        ("rejects.md", ["Quick start"]),
        ("follow.md", ["Quick start"]),
        ("place.md", ["`ab.place_pairs`"]),
    ],
)
def test_examples_print_what_their_page_shows(spark, page: str, headings: list[str]) -> None:
    names = {"spark": spark, "F": F, "ab": ab}
    for heading in headings:  # the later ones use the rows of the first
        example, output = first_example(page, heading)
        example = re.sub(r"^spark = .*$", "", example, flags=re.M)  # the session of the tests
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(example, names)
        assert rows(said.getvalue()) == rows(output) != []


def test_calls_that_replace_spark_code_are_calls(spark) -> None:
    """All of the first table that are whole; those with ``...`` only name their verb."""
    table = (DOCS / "from-spark.md").read_text().partition("\n## ")[0]
    last = [line.split("|")[-2] for line in table.splitlines() if line.startswith("|")]
    calls = [code for cell in last for code in re.findall(r"`(ab\.[^`]*\))`", cell)]
    calls = [code for code in calls if "..." not in code and "fit_windows" not in code]
    columns = ("value AS id", "timestamp AS ts", "array(1D, 2D) AS v")
    table = spark.sql("SELECT 1L AS value, current_timestamp() AS timestamp").selectExpr(*columns)
    stream = spark.readStream.format("rate").load().selectExpr(*columns)
    names = {"ab": ab, "queries": spark.sql("SELECT 'q' AS query_id, array(1D, 2D) AS v")}
    kinds = table.selectExpr("id AS kind", "ts")
    names["groups"] = ab.assemble(kinds, key="kind", close=ab.close.after("1m"))
    for code in calls:
        rows = stream if "watermark=" in code else table
        assert eval(code, dict.fromkeys(("a", "b", "s", "objects"), rows) | names) is not None
    assert len(calls) >= 6
