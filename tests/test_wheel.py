"""The wheel as users install it: with its dependencies, read-only, run by one without a home.

The environment is new, and pip fills it with the wheel and the packages that its metadata names, at
the versions of constraints.txt. Borrowed from this machine: Java, pip and its cache.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from scripts.services.jars import Absent
from tests.correlation import twin
from tests.sinks.stories import needed
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import Feed, agree, found, scripted

ROOT = Path(__file__).parent.parent
NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
EXTRAS = {"emd", "cli", "text", "plots", "connect", "sinks", "kafka", "gpu", "metrics", "otel"}
EXTRAS |= {"video", "video-concepts", "video-text", "edge"}
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")

QUERY = """
import os, sys
from pathlib import Path
from pyspark.sql import SparkSession
import anabranch as ab

inputs, output = map(Path, sys.argv[1:])
assert [path for path in sys.path if "-packages" in path] == [str(Path(ab.__file__).parents[1])]
assert os.getuid() == 65534 and not os.access(Path(ab.__file__).parent, os.W_OK)
assert not os.access(os.path.expanduser("~"), os.W_OK)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = ab.configure(builder.config("spark.sql.session.timeZone", "UTC"), workers=2).getOrCreate()
sides = [
    spark.readStream.schema(spark.read.parquet(str(inputs / side)).schema)
    .option("maxFilesPerTrigger", 1).parquet(str(inputs / side))
    for side in ("left", "right")
]
pairs = ab.correlate(*sides, where=ab.cosine("v") >= 0.6, window=("3 seconds", "2 seconds"),
                     watermark="3 seconds")
query = (pairs.writeStream.format("parquet").option("path", str(output / "out"))
         .option("checkpointLocation", str(output / "check")).trigger(availableNow=True).start())
query.awaitTermination()
print(Path(ab.__file__).parent)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves files beside its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        ROOT / "anabranch", source / "anabranch", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in SOURCES:
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    made = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return next(folder.glob("*.whl"))


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_it_holds_the_package_its_types_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "anabranch").rglob("*.py")}
    page = ROOT / "anabranch/spark/dashboard/page"
    sources |= {str(path.relative_to(ROOT)) for path in page.iterdir()}
    sources |= {"anabranch/py.typed", "anabranch/video/network.json"}
    assert sources == {name for name in names if name.startswith("anabranch/")}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_its_metadata(wheel: Path) -> None:
    said = metadata(wheel)
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Requires-Python"] == ">=3.11"
    assert set(said.get_all("Provides-Extra", [])) >= EXTRAS
    needed = [line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert any(re.match(r"pyspark\[sql\].*>=4\.1", line) for line in needed)
    assert not any(line.lower().startswith(("pot", "typer", "rich")) for line in needed)


def test_its_description_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    said = metadata(wheel)
    text = str(said.get_payload())
    assert said["Description-Content-Type"] == "text/markdown"
    assert "ab.correlate" in text
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    assert [target for target in targets if "://" not in target] == []


def reachable(path: str) -> bool:
    """Whether somebody without rights can run or read it."""
    run = subprocess.run([*AS_NOBODY, "test", "-r", path], capture_output=True)
    return run.returncode == 0


def python() -> str:
    """A Python of this version that somebody without rights can run."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("setpriv") is None:
        raise Absent("only root can run a process as somebody else, and with setpriv")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for there in (os.path.realpath(sys.executable), f"/usr/bin/{version}"):
        if reachable(there):
            return there
    raise Absent(f"another user can run no {version} here: install one under /usr/bin")


def filled(folder: Path, wheel: Path) -> Path:
    """A new environment with a wheel and what it depends on, which nobody can write."""
    subprocess.run([python(), "-m", "venv", "--without-pip", folder / "env"], check=True)
    inside = folder / "env/bin/python"
    install = [sys.executable, "-m", "pip", "--python", inside, "install", "--quiet"]
    install += ["--disable-pip-version-check", "--no-compile", "-c", ROOT / "constraints.txt"]
    made = subprocess.run([*install, wheel], capture_output=True, text=True)
    if "Could not find a version" in made.stderr or "Failed to establish" in made.stderr:
        raise Absent(f"pip cannot reach the packages: {made.stderr[-300:]}")
    assert made.returncode == 0, made.stderr
    site = next((folder / "env/lib").glob("python*/site-packages"))
    subprocess.run(["chmod", "-R", "a-w", site], check=True)
    return inside


@pytest.fixture
def installed(wheel: Path) -> Iterator[tuple[Path, Path]]:
    """A Python with the wheel that nobody can write, and a folder that nobody may."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    mine = folder / "mine"
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    try:
        yield needed(lambda: filled(folder, wheel)), mine
    finally:
        shutil.rmtree(folder)


@pytest.mark.spark
def test_a_query_runs_for_a_user_without_home_or_rights(
    spark, installed: tuple[Path, Path], tmp_path: Path
) -> None:
    inside, mine = installed
    script = scripted(3, rows=(10, 10), seed=5)
    feed = Feed(mine / "feed").add(script)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "TMPDIR": str(mine),
        "PYSPARK_PYTHON": str(inside),
        **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
    }
    run = subprocess.run(
        [*AS_NOBODY, str(inside), "-c", QUERY, str(feed.folder), str(mine / "result")],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.split()[-1].startswith(str(inside.parents[1]))
    want = twin.pairs_in_time(script, SPANS, score, LATE)
    agree(found(spark.read.parquet(str(mine / "result/out"))), want)
