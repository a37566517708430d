"""Jars from Maven, and Sparks that they are made for, in the ignored folder ``.services``.

    python -m scripts.services.jars            what there is to fetch
    python -m scripts.services.jars delta ...  fetch these
    python -m scripts.services.jars --paths delta    the same; prints what --jars takes

Connectors lag behind Spark: each set names the Spark it belongs to. Where that is not the Spark
that is installed, `python_with` makes an environment that has it, and everything else from here.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyspark

__all__ = ["SETS", "Absent", "fetched", "python_with", "unpacked"]

CACHE = Path(__file__).resolve().parents[2] / ".services"
SETS = {
    "kafka-broker": ["org.apache.kafka:kafka_2.13:3.9.2", "org.slf4j:slf4j-simple:1.7.36"],
    # Part by part: Maven does not have the token provider of every Spark, and it rarely changes.
    "spark-kafka": [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0!",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0!",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.12.0",
    ],
    # The newest of Avro that Maven had; its functions run on Spark 4.3 too.
    "spark-avro": ["org.apache.spark:spark-avro_2.13:4.1.1!"],
    "spark-protobuf": ["org.apache.spark:spark-protobuf_2.13:4.1.1!"],
    "delta": ["io.delta:delta-spark_4.2_2.13:4.4.0"],
    "iceberg": ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"],
    # Part by part: the bundle that Hadoop names holds all of Amazon's services, 600 MB of them.
    "s3a": [
        "org.apache.hadoop:hadoop-aws:3.5.0!",
        "software.amazon.awssdk:s3:2.35.4",
        "software.amazon.awssdk:s3-transfer-manager:2.35.4",
        "software.amazon.awssdk:sts:2.35.4",
        "software.amazon.awssdk:netty-nio-client:2.35.4",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1!",
    ],
    "postgres": ["org.postgresql:postgresql:42.7.7"],
}
"""The newest that Maven had when this was written; "!" is without what it depends on."""
SPARKS = {"4.2": "4.2.1", "4.1": "4.1.4"}


class Absent(RuntimeError):
    """A component cannot be had here."""


def unpacked(package: str, program: str) -> str:
    """A program of a Debian package, unpacked and not installed: installed, it would start."""
    folder = CACHE / f"{package}-debian"
    if not (folder / program).exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise Absent(f"Debian's {package} needs apt-get and dpkg")
        folder.mkdir(parents=True, exist_ok=True)
        run = subprocess.run(
            ["apt-get", "download", package], cwd=folder, capture_output=True, text=True
        )
        packages = sorted(folder.glob(f"{package}_*.deb"))
        if run.returncode or not packages:
            raise Absent(f"Debian's {package} cannot be had: {run.stderr[-300:]}")
        subprocess.run(["dpkg", "-x", str(packages[-1]), str(folder)], check=True)
    return str(folder / program)


@cache
def fetched(name: str) -> list[Path]:
    """The jars of a set with all that they need, fetched once."""
    folder = CACHE / "jars" / name
    wanted = " ".join(SETS[name])
    done = folder / "fetched"
    if not done.exists() or done.read_text() != wanted:
        if shutil.which("mvn") is None:
            raise Absent("Maven is not installed: apt-get install maven")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "pom.xml").write_text(_project(SETS[name]))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        run = subprocess.run(
            [*command, f"-DoutputDirectory={folder}"], cwd=folder, capture_output=True, text=True
        )
        if run.returncode:
            raise Absent(f"Maven could not fetch {wanted}: {run.stdout[-500:]}")
        done.write_text(wanted)
    return sorted(folder.glob("*.jar"))


def python_with(version: str) -> str:
    """A Python whose Spark is of this version, such as 4.2; the rest is that of this Python."""
    if pyspark.__version__.startswith(f"{version}."):
        return sys.executable
    home = CACHE / f"spark-{version}"
    python = home / "bin" / "python"
    done = home / "installed"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        commands = [
            [sys.executable, "-m", "venv", str(home)],
            [str(python), "-m", "pip", "install", "-q", "--no-deps", f"pyspark=={SPARKS[version]}"],
        ]
        for command in commands:
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                raise Absent(f"{' '.join(command)}: {run.stderr[-500:]}")
        # What is installed there comes first, so its Spark wins.
        here = [path for path in (*site.getsitepackages(), *sys.path) if "site-packages" in path]
        inside = next(home.glob("lib/python*/site-packages"))
        (inside / "zz-from-here.pth").write_text("\n".join(dict.fromkeys(here)) + "\n")
        done.touch()
    return str(python)


def java() -> str:
    """The program that runs jars."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if found is None:
        raise Absent("there is no Java: apt-get install openjdk-17-jre-headless")
    return found


def _project(coordinates: list[str]) -> str:
    parts = [one.split(":") for one in coordinates]
    alone = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
    )
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version.rstrip('!')}</version>{alone if version.endswith('!') else ''}"
        "</dependency>"
        for group, name, version in parts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>anabranch</groupId>"
        "<artifactId>services</artifactId><version>1</version>"
        f"<dependencies>{needed}</dependencies></project>"
    )


if __name__ == "__main__":
    by_path = "--paths" in sys.argv[1:]
    for each in (name for name in sys.argv[1:] if name != "--paths"):
        if by_path:
            print(*fetched(each), sep=",")
        else:
            print(each, *(path.name for path in fetched(each)), sep="\n  ")
    if not sys.argv[1:]:
        for each, coordinates in SETS.items():
            print(f"{each:14}", *coordinates)
