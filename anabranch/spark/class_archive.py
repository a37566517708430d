"""Java's classes of Spark, read and checked once and kept for the next start.

Up to its first micro-batch Spark's process loads thousands of classes out of its jars, and checks
each of them. Java can write what it has made of them into one file when it ends, and map that file
into memory when it starts again (class data sharing). The file holds for one Java and one set of
jars; Java looks at both, and starts as it always did where they are others. It does not look at
the rest of the file, and dies of one that was cut: so its name tells how long it is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.flow.process import cache_folder, kept_folders

__all__ = ["NoArchive", "archive", "make_archive", "use_archive"]

_OPTIONS = "SPARK_SUBMIT_OPTS"  # what Spark's scripts give to the Java of a driver
# Where the file does not fit Java says so at each start; that it is not used is no fault.
_SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
# What this module starts, to have Spark load what a first micro-batch needs.
_REHEARSAL = """
import sys
from pyspark.sql import SparkSession
import anabranch as ab

folder = sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.warehouse.dir", folder + "/warehouse")
spark = ab.configure(builder, workers=2).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = "id", "timestamp_seconds(1700000000 + id) ts", "array(1f, float(id)) v"
spark.range(40).selectExpr(*rows).write.parquet(folder + "/rows")
stream = spark.readStream.schema("id long, ts timestamp, v array<float>").parquet(folder + "/rows")
pairs = ab.correlate(stream, where=ab.cosine("v") >= 0.9, window="5 seconds", watermark="1 second")
writer = pairs.writeStream.format("parquet").option("checkpointLocation", folder + "/state")
writer.trigger(availableNow=True).start(folder + "/pairs").awaitTermination()
spark.read.parquet(folder + "/pairs").count()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()  # it ends when nobody speaks to it any more, and writes the file then
java.wait()
"""


class NoArchive(AnabranchError, RuntimeError):
    """Java did not write the file."""


def use_archive() -> None:
    """Let the next Java that Spark's scripts start in this process use the file, if there is one.

    By the environment: an option of the session would take the place of what the user's own files
    of settings say.
    """
    given = os.environ.get(_OPTIONS, "")
    if "-Xshare" in given or "SharedArchiveFile" in given or (found := archive()) is None:
        return
    with suppress(OSError):
        os.utime(found.parent)  # what nobody uses is forgotten in the end
    os.environ[_OPTIONS] = f'{given} "-XX:SharedArchiveFile={found}" {_SILENT}'.strip()


def archive() -> Path | None:
    """The file that was kept for this Java and this Spark, or None."""
    name = _name()
    if name is None:
        return None
    files = (file for folder in kept_folders() for file in sorted((folder / name).glob("*.jsa")))
    return next((file for file in files if file.stat().st_size == _size(file)), None)


def _size(file: Path) -> int:
    """How many bytes the name of a file says that it has."""
    return int(size) if (size := file.stem.removeprefix("spark-")).isdigit() else -1


def make_archive() -> Path:
    """Start Spark once, run a small query, and keep what Java made of its classes.

    Raises
    ------
    NoArchive
        If no folder can be written, there is no Java, or it did not write the file.
    """
    root, name = cache_folder(), _name()
    if root is None:
        raise NoArchive("no folder can be written: set NUMBA_CACHE_DIR to one that can")
    if name is None:
        raise NoArchive("there is no java: install a JDK 17 or newer, or set JAVA_HOME")
    (root / name).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root / name, prefix="rehearsal-") as folder:
        made = Path(folder) / "spark.jsa"
        options = {_OPTIONS: f'"-XX:ArchiveClassesAtExit={made}" {_SILENT}'}
        command = [sys.executable, "-c", _REHEARSAL, folder]
        run = subprocess.run(command, env=os.environ | options, capture_output=True, text=True)
        if run.returncode or not made.is_file():
            said = "\n".join((run.stdout + run.stderr).strip().splitlines()[-5:])
            raise NoArchive(f"Java wrote no archive of its classes; the last that was said: {said}")
        with made.open("rb") as file:
            os.fsync(file.fileno())
        # Nobody sees half of it, and who uses one of before goes on using that.
        kept = made.replace(root / name / f"spark-{made.stat().st_size}.jsa")
    for older in set((root / name).glob("*.jsa")) - {kept}:
        older.unlink()
    return kept


def _name() -> str | None:
    """The folder of the file, which is another one for another Java or other jars."""
    java = _java()
    if java is None:
        return None
    import pyspark

    version = java.parents[1] / "release"
    about = java.stat()
    text = version.read_text() if version.is_file() else f"{about.st_size} {about.st_mtime_ns}"
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    made_of = (str(java), text, os.path.realpath(home), pyspark.__version__)
    return f"java-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:20]}"


def _java() -> Path | None:
    """The program that Spark's scripts start."""
    home = os.environ.get("JAVA_HOME")
    found: Any = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return Path(found).resolve() if found and os.path.isfile(found) else None
