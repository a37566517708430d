"""Java's classes of Spark, kept from one start to the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.spark import class_archive
from anabranch.spark.class_archive import NoArchive, archive, make_archive, use_archive


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for compiled code with nothing in it, and no options."""
    monkeypatch.setattr(class_archive, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(class_archive, "kept_folders", lambda: [tmp_path / "older", tmp_path])
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    return tmp_path


def java_of(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A Java of this version, which can do nothing."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\necho no such thing; exit 1\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(folder))


def put(folder: Path) -> Path:
    """An archive of the present Java in a folder."""
    name = class_archive._name()
    assert name is not None
    (folder / name).mkdir(parents=True)
    file = folder / name / "spark-7.jsa"
    file.write_bytes(b"classes")
    return file


def test_without_a_file_nothing_is_asked_of_java(root: Path) -> None:
    use_archive()
    assert archive() is None and "SPARK_SUBMIT_OPTS" not in os.environ


def test_the_file_is_used_beside_the_options_of_the_user(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = put(root)
    assert archive() == written
    read_only = put(root / "older")
    assert archive() == read_only
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    use_archive()
    given = os.environ["SPARK_SUBMIT_OPTS"]
    assert given.startswith(f'-Xmx1g "-XX:SharedArchiveFile={read_only}" -Xshare:auto')
    use_archive()
    assert os.environ["SPARK_SUBMIT_OPTS"] == given


def test_a_file_that_was_cut_is_not_used(root: Path) -> None:
    """Java would die of it."""
    cut, whole = put(root / "older"), put(root)
    cut.write_bytes(b"class")
    assert archive() == whole
    whole.write_bytes(b"")
    assert archive() is None


def test_a_file_in_use_is_not_forgotten(root: Path) -> None:
    folder = put(root).parent
    os.utime(folder, (0, 0))
    use_archive()
    assert folder.stat().st_mtime > 0


@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa"])
def test_who_has_said_how_is_left_alone(
    option: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", option)
    use_archive()
    assert os.environ["SPARK_SUBMIT_OPTS"] == option


def test_another_java_has_another_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_of(root / "jdk", monkeypatch, "17.0.1")
    put(root)
    assert archive() is not None
    java_of(root / "jdk", monkeypatch, "17.0.2")
    assert archive() is None


def test_a_java_that_writes_nothing_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_of(root / "jdk", monkeypatch, "17.0.1")
    with pytest.raises(NoArchive, match="wrote no archive"):
        make_archive()
    assert archive() is None and list(root.rglob("rehearsal-*")) == []
    monkeypatch.setenv("JAVA_HOME", str(root / "nowhere"))
    with pytest.raises(NoArchive, match="there is no java"):
        make_archive()
    monkeypatch.setattr(class_archive, "cache_folder", lambda: None)
    with pytest.raises(NoArchive, match="NUMBA_CACHE_DIR"):
        make_archive()


_SECOND = """
from pyspark.sql import SparkSession
import anabranch as ab
spark = ab.configure(SparkSession.builder.master("local[1]"), workers=1).getOrCreate()
spark.range(3).count()
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_second_session_takes_its_classes_from_the_file(tmp_path: Path) -> None:
    where = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    where.pop("SPARK_SUBMIT_OPTS", None)
    make = "from anabranch.spark.class_archive import make_archive; print(make_archive())"
    run = subprocess.run([sys.executable, "-c", make], env=where, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).stat().st_size > 50_000_000
    log = tmp_path / "loaded.txt"
    # Beside ours, as a user's own options.
    where["SPARK_SUBMIT_OPTS"] = f"-Xlog:class+load:file={log}"
    run = subprocess.run([sys.executable, "-c", _SECOND], env=where, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded = [line for line in log.read_text().splitlines() if "org.apache.spark." in line]
    shared = [line for line in loaded if "shared objects file (top)" in line]
    assert len(shared) > 0.5 * len(loaded) > 1000  # what Spark makes as it runs is in no file
