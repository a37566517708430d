"""What the files around the code say of versions, commands and pages is so."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import anabranch
from benchmarks.marked import between

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


def test_the_changelog_names_the_versions_of_state() -> None:
    def version_of(name: str) -> str:
        found = re.search(r"^_VERSION = (\d+)", read(f"anabranch/{name}.py"), re.M)
        assert found is not None, name
        return found[1]

    versioned = {
        path.relative_to(ROOT / "anabranch").with_suffix("").as_posix()
        for path in (ROOT / "anabranch").rglob("*.py")
        if re.search(r"^_VERSION = ", path.read_text(), re.M)
    }
    in_table = ("flow/container", "edge/evaluator", "assembly/service_stats/store")
    beside = {
        "state of a device": "agent_state",
        "outbox": "outbox",
        "state of the relay": "relay_state",
    }
    assert versioned == {*in_table, *(f"edge/{name}" for name in beside.values())}
    row = " | ".join(map(version_of, in_table))
    assert f"| {anabranch.__version__} | {row} |" in read("CHANGELOG.md")
    said = ", ".join(f"{what} {version_of(f'edge/{name}')}" for what, name in beside.items())
    assert f"own: {said}." in " ".join(read("CHANGELOG.md").split())


def test_all_files_name_the_same_python() -> None:
    least = PROJECT["requires-python"].removeprefix(">=")
    minor = least.split(".")[1]
    assert f"version_info < (3, {minor})" in read("Makefile")
    for page in ("README.md", "docs/spark.md", "docs/compatibility.md"):
        named = re.findall(r"(?:Python \|?|Python )\s*(3\.\d+)(?:\+| or newer)", read(page))
        assert named and set(named) == {least}, page


def test_no_python_is_claimed_that_was_not_tried() -> None:
    claimed = {
        name.rpartition(" ")[2]
        for name in PROJECT["classifiers"]
        if re.search(r"Python :: 3\.\d+$", name)
    }
    tried = re.search(r"^\| Python \|.*\| ([^|]*)\|$", read("docs/compatibility.md"), re.M)
    assert tried is not None
    assert claimed == set(re.findall(r"3\.\d\d", tried[1])) - {"3.13"}
    workflow = set(re.findall(r'python: \[?"(3\.\d+)"', read(".github/workflows/test.yml")))
    image = re.search(r"FROM python:(3\.\d+)", read("deploy/Dockerfile"))
    assert image is not None and claimed | {image[1]} <= workflow


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
    table = between(read("docs/compatibility.md"), "compat")
    rows = re.findall(r"^\| (4\.\d)\.\d+ \|.*\| (\d+) of (\d+) \|", table, re.M)
    assert [row[0] for row in rows] == versions, "run `make compat`"
    # Skipped tests are counted too, and those that were added since a version was run.
    suite = [n for n in ast.parse(read("tests/compat/test_verbs.py")).body if is_test(n)]
    assert {count for _, _, count in rows} == {str(len(suite))}, "run `make compat`"
    assert [passed for _, passed, count in rows if passed != count] == [], "every Spark passes all"


def is_test(node: ast.stmt) -> bool:
    """Whether a statement is a test that runs once."""
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


def test_every_extra_is_on_the_page() -> None:
    """Those that users install; the others are for who works on the project."""
    table = read("docs/compatibility.md").partition("## Packages")[2]
    listed = set(re.findall(r"^\| `\[([\w-]+)\]` \|", table, re.M))
    ours = {"bench", "dev", "docs", "pictures", "services"}
    assert listed == set(PROJECT["optional-dependencies"]) - ours


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


def test_nothing_is_released_whose_tests_have_not_passed() -> None:
    release, test = (read(f".github/workflows/{name}.yml") for name in ("release", "test"))
    assert "  test:\n    uses: ./.github/workflows/test.yml\n" in release
    assert "  publish:\n    needs: [test, build]\n" in release
    assert "\n  workflow_call:\n" in test


def test_clean_removes_every_folder_that_is_made() -> None:
    made = set(re.findall(r"^(\.\w+)/$", read(".gitignore"), re.M))
    recipe = read("Makefile").partition("\nclean:\n")[2]
    assert len(made) > 5
    assert made - set(recipe.split()) == {".venv"} and "$(VENV)" in recipe


def test_services_run_in_ci_and_nothing_of_them_is_skipped_unseen() -> None:
    """A test of a real component leaves skipping to `needed`, which fails in CI."""
    assert "run: make services" in read(".github/workflows/slow.yml")
    assert 'CI"):' in read("tests/edge/conftest.py"), "its modules import nats at their top"
    seen = 0
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        whole = any("mark.services" in ast.unparse(n) for n in tree.body if is_marks(n))
        for part in [tree] if whole else [n for n in tree.body if isinstance(n, ast.FunctionDef)]:
            if whole or any("mark.services" in ast.unparse(of) for of in part.decorator_list):
                called = {ast.unparse(n.func) for n in ast.walk(part) if isinstance(n, ast.Call)}
                skips = {"pytest.skip"} | ({"pytest.importorskip"} - edge(path))
                assert not called & skips, path
                seen += 1
    assert seen > 15


def test_the_wheel_is_tested_by_root_and_with_ci_set() -> None:
    """Nobody else can run it as another user; elsewhere in CI its test would fail."""
    recipe = read("Makefile").partition("\nslow: setup\n")[2].partition("\n\n")[0]
    assert "--ignore=tests/test_wheel.py" in recipe
    assert "pytest tests/test_wheel.py" in read("Makefile").partition("\nwheel: setup\n")[2]
    called = re.findall(r"run: (.*make wheel)\n", read(".github/workflows/test.yml"))
    assert len(called) == 1 and re.fullmatch(r"sudo env .* CI=true make wheel", called[0])


def edge(path: Path) -> set[str]:
    """What modules of the edge may call; their conftest.py fails in CI before they are read."""
    return {"pytest.importorskip"} if path.parent.name == "edge" else set()


def is_marks(node: ast.stmt) -> bool:
    """Whether a statement marks all tests of its module."""
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def test_the_site_has_every_page_of_the_documentation() -> None:
    named = set(re.findall(r"([\w/-]+\.md)$", read("mkdocs.yml"), re.M)) - {"docs/api.md"}
    assert [name for name in named if not (ROOT / name).exists()] == []
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - named == {"docs/README.md"}


def test_rows_of_compatibility_name_the_commit_that_was_run() -> None:
    from scripts.compat import HEADINGS, commit, written

    old = "| 4.1.4 |" + " x |" * 8
    page = f"<!-- compat -->\n| Spark |\n| --- |\n{old}\n<!-- /compat -->"
    row = ["4.2.1", *["y"] * 8, commit()]
    made = written(page, {"4.2": row})
    assert made.splitlines()[3:5] == [f"{old}  |", f"| {' | '.join(row)} |"]
    assert HEADINGS[-1] == "commit" and written(made, {}) == made
    assert re.fullmatch(r"[0-9a-f]{7,}\+?", commit())
