"""What the files around the code say of versions, commands and pages is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import anabranch

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_all_files_name_the_same_version() -> None:
    version = anabranch.__version__
    assert f"version: {version}\n" in read("CITATION.cff")
    assert f"Version {version}," in read("README.md")
    assert re.search(r"^## (\d\S+)", read("CHANGELOG.md"), re.M)[1] == version  # type: ignore[index]
    assert f"| {version} |" in read("CHANGELOG.md")


def test_all_files_name_the_same_python() -> None:
    least = PROJECT["requires-python"].removeprefix(">=")
    minor = least.split(".")[1]
    assert f"version_info < (3, {minor})" in read("Makefile")
    for page in ("README.md", "docs/spark.md", "docs/compatibility.md"):
        named = re.findall(r"(?:Python \|?|Python )\s*(3\.\d+)(?:\+| or newer)", read(page))
        assert named and set(named) == {least}, page


def test_all_files_name_the_same_spark() -> None:
    ranges = {
        re.search(r">=[^ ]+", need)[0]  # type: ignore[index]
        for need in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["connect"]]
        if need.startswith("pyspark")
    }
    assert ranges == {">=4.1,<5"}
    versions = re.findall(r'"(4\.\d)"', read("scripts/compat.py"))
    matrix = re.search(r"spark: \[(.*)\]", read(".github/workflows/test.yml"))
    assert matrix is not None
    assert re.findall(r"4\.\d", matrix[1]) == versions == ["4.1", "4.2", "4.3"]
    table = read("docs/compatibility.md").partition("<!-- made by make compat -->")[2]
    rows = re.findall(r"^\| (4\.\d)\.\d+ \|.*\| (\d+) of (\d+) \|", table, re.M)
    assert [row[0] for row in rows] == versions, "run `make compat`"
    assert all(passed == count != "0" for _, passed, count in rows)


def test_tools_are_pinned_to_one_version() -> None:
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", read("constraints.txt"), re.M))
    hooks = set(re.findall(r'"(\w+)==([^"]+)"', read(".pre-commit-config.yaml")))
    assert hooks == {("ruff", pins["ruff"])}


def test_workflows_call_what_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.M))
    assert len(WORKFLOWS) == 4
    for workflow in WORKFLOWS:
        text = workflow.read_text()
        called = set(re.findall(r"make ([a-z]+)", text))
        assert called <= targets, workflow.name
        assert all((ROOT / name).exists() for name in re.findall(r"scripts/\S+\.py", text))
        assert "permissions:" in text, "a workflow says what it may do"
        assert "secrets." not in text, "nothing is published by a stored token"
    assert all(f"make {target}" in read("Makefile") for target in ("compat", "wheel", "docs"))


def test_the_site_has_every_page_of_the_documentation() -> None:
    named = set(re.findall(r"([\w/-]+\.md)$", read("mkdocs.yml"), re.M)) - {"docs/api.md"}
    assert [name for name in named if not (ROOT / name).exists()] == []
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - named == {"docs/README.md"}
