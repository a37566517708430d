"""Run the compatibility suite on every Spark version, and write down what was run.

Makes an environment per version under ``.compat`` (kept from run to run), runs ``tests/compat`` in
each, and writes the table of docs/compatibility.md. ``python -m scripts.compat 4.1`` runs one
version and leaves the rows of the others as they are.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.marked import between, put

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/compatibility.md"
SUITE = "tests/compat"
VERSIONS = ("4.1", "4.2", "4.3")
EXTRAS = "emd,text,cli,connect,edge,video,otel"  # what the suite compares, and starts
# Spark 4.1 leaves sockets of its own to the garbage collector; that is not for this suite to judge.
LENIENT = (
    "-Wdefault::ResourceWarning",
    "-Wdefault::pytest.PytestUnraisableExceptionWarning",
)
PACKED = ("pandas", "pyarrow", "numpy", "numba")
HEADINGS = ("Spark", "Python", "Java", *PACKED, "passed", "day", "commit")
PACKAGES = ("pyspark", *PACKED)
PRINT = f"""
import json, platform, importlib.metadata as m
print(json.dumps([platform.python_version(), *[m.version(p) for p in {PACKAGES!r}]]))
"""


def environment(version: str) -> Path:
    """The Python of an environment with the newest patch of a Spark version."""
    folder = ROOT / ".compat" / f"spark-{version}"
    python = folder / "bin/python"
    own = f"{ROOT}[{EXTRAS}]"
    wanted = own + (ROOT / "pyproject.toml").read_text() + (ROOT / "constraints.txt").read_text()
    stamp = folder / ".ready"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    folder.parent.mkdir(exist_ok=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pins = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not re.match(r"(pyspark|py4j)==", line)
    ]
    limits = folder / "constraints.txt"
    limits.write_text("\n".join(pins) + "\n")
    print(f"Spark {version}: installing into {folder.relative_to(ROOT)} ...", flush=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    spark = f"pyspark[sql,connect]=={version}.*"
    tests = ["pytest>=8", "hypothesis>=6.100"]
    subprocess.run([*install, "--upgrade", "-c", limits, spark, *tests, "-e", own], check=True)
    stamp.write_text(wanted)
    return python


def java() -> str:
    """The version of the Java that Spark starts here."""
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else "java"
    said = subprocess.run([command, "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found.group(1) if found else "unknown"


def counted(said: str) -> tuple[int, int]:
    """How many tests passed, and of how many: one that was skipped was not passed.

    Examples
    --------
    >>> counted("2 failed, 9 passed, 1 skipped, 3 deselected, 1 error in 61.20s")
    (9, 13)
    """
    last = next((line for line in reversed(said.splitlines()) if " in " in line), "")
    found = re.findall(r"(\d+) (passed|failed|skipped|xfailed|errors?)\b", last)
    words = {word: int(number) for number, word in found}
    return words.get("passed", 0), sum(words.values())


def run(version: str) -> tuple[bool, list[str]]:
    """Whether the suite passes on a version, and the row of the table."""
    python = environment(version)
    began = time.monotonic()
    made = subprocess.run(
        [python, "-m", "pytest", SUITE, "-m", "slow", "-p", "no:cacheprovider", "-rfEs", *LENIENT],
        cwd=ROOT,
        env={
            # A Spark that is installed on the machine is not the one that is asked for.
            **{name: text for name, text in os.environ.items() if name != "SPARK_HOME"},
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            "SPARK_TESTING": "1",  # a Connect server takes a port that is free
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    print(made.stdout[-6000:])
    passed, count = counted(made.stdout)
    whole = made.returncode == 0 and passed == count > 0
    shown = f"{passed} of {count}"
    said = subprocess.run([python, "-c", PRINT], capture_output=True, text=True, check=True)
    ours, spark, *packages = json.loads(said.stdout)
    day = datetime.now(UTC).date().isoformat()
    print(f"Spark {spark}: {shown} in {time.monotonic() - began:.0f} s", flush=True)
    return whole, [spark, ours, java(), *packages, shown, day, commit()]


def commit() -> str:
    """The commit that was run, with "+" if files differ from it."""

    def git(*command: str) -> str:
        run = ["git", *command]
        return subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    # This page is written after each version, and says nothing of the code.
    changed = git("status", "--porcelain", "--", ".", f":(exclude){PAGE.relative_to(ROOT)}")
    return git("rev-parse", "--short", "HEAD").strip() + ("+" if changed.strip() else "")


def written(text: str, rows: dict[str, list[str]]) -> str:
    """The page with these rows in place of those of the same Spark version.

    Rows of before there was a column of commits say none.
    """
    kept = {
        ".".join(cells[0].split(".")[:2]): [*cells, ""][: len(HEADINGS)]
        for line in between(text, "compat").splitlines()[2:]
        if len(cells := [c.strip() for c in line.strip().strip("|").split("|")])
        in (len(HEADINGS), len(HEADINGS) - 1)
    }
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(v for _, v in sorted((kept | rows).items()))]
    return put(text, "compat", "\n".join(f"| {' | '.join(line)} |" for line in lines))


def main() -> int:
    """Run the versions that are asked for, all by default."""
    asked = sys.argv[1:] or list(VERSIONS)
    unknown = [version for version in asked if version not in VERSIONS]
    if unknown:
        print(f"there is no Spark {', '.join(unknown)} here; there is {', '.join(VERSIONS)}")
        return 2
    failed = []
    for version in asked:
        whole, row = run(version)
        PAGE.write_text(written(PAGE.read_text(), {version: row}))
        failed += [] if whole else [version]
    if failed:
        print(f"the suite fails on Spark {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
