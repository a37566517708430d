"""``anabranch doctor``: is this Spark fit for Anabranch, and if not, what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

__all__ = ["Finding", "judge", "register"]

OK, NOTE, WRONG = "ok", "note", "WRONG"
_CLOCK_SECONDS = 1.0
_JAVA = 17
_CONFIGURE = "call ab.configure(spark, workers=...) on the session of your query"


@dataclass(frozen=True)
class Finding:
    """One line: how it stands, what was looked at and found, and what to do."""

    level: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level:5}  {self.what}" + (f": {self.remedy}" if self.remedy else "")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    master: Annotated[
        str | None, typer.Option(help="Spark's master; by default as Spark is configured.")
    ] = None,
    remote: Annotated[str | None, typer.Option(help="A Connect server, sc://host:port.")] = None,
    control: Annotated[
        str | None, typer.Option(help="A control= directory: can executors read and write it?")
    ] = None,
) -> None:
    """Check driver and executors: versions, compiled code, settings, control directory, clocks.

    Starts a session as your program would (spark-defaults.conf, environment), runs one small job
    on the executors, and prints one line for each thing looked at.

    Exit code: 0 if nothing is wrong, 1 if something is.
    """
    if master is not None and remote is not None:
        typer.echo("give --master or --remote, not both", err=True)
        raise typer.Exit(2)
    if remote is None and str(master or "local").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    findings = list(_examined(master, remote, control))
    for finding in findings:
        typer.echo(str(finding))
    wrong = sum(finding.level == WRONG for finding in findings)
    typer.echo(f"{wrong} wrong" if wrong else "nothing is wrong")
    raise typer.Exit(1 if wrong else 0)


def _examined(master: str | None, remote: str | None, control: str | None) -> Iterator[Finding]:
    # Here, not above: Spark takes a second to import, and --help does without.
    from anabranch.spark.doctor import examine, start

    try:
        spark = start(master, remote)
    except Exception as error:
        words = str(error).strip().splitlines()
        yield Finding(
            WRONG,
            f"Spark does not start ({type(error).__name__}: {words[-1] if words else ''})",
            f"install a JDK {_JAVA} or newer and set JAVA_HOME; check the address of the master",
        )
        return
    try:
        yield from judge(examine(spark, control))
    finally:
        spark.stop()


def judge(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """One finding for each thing that was looked at."""
    yield from _versions(facts)
    yield from _executors(facts)
    yield from _seen(facts)
    yield from _caches(facts)
    yield from _settings(facts)
    yield from _control(facts)
    yield from _clocks(facts)


def _versions(facts: Mapping[str, Any]) -> Iterator[Finding]:
    from anabranch.spark.versions import version_problems

    client, server = facts["spark"]["client"], facts["spark"]["server"]
    problems = version_problems(server)
    if problems:
        yield Finding(WRONG, problems[0])
    elif client.split(".")[:2] != server.split(".")[:2]:
        yield Finding(WRONG, f"Spark is {server}, pyspark here is {client}", "install the same")
    else:
        yield Finding(OK, f"Spark {server}")
    java = facts["java"]
    if _is_old(java):
        yield Finding(WRONG, f"Java is {java}", f"install {_JAVA} or newer and set JAVA_HOME")
    else:
        yield Finding(OK, f"Java {java}")
    missing = [name for name, found in facts["driver"]["packages"].items() if found is None]
    if missing:
        yield Finding(WRONG, f"the driver has no {', '.join(missing)}", "pip install anabranch")
    else:
        listed = ", ".join(f"{n} {v}" for n, v in facts["driver"]["packages"].items())
        yield Finding(OK, f"driver: Python {facts['driver']['python']}, {listed}")


def _is_old(java: str) -> bool:
    number = java.split(".")[0]
    return number.isdigit() and int(number) < _JAVA


def _executors(facts: Mapping[str, Any]) -> Iterator[Finding]:
    if facts["error"] is not None:
        yield Finding(
            WRONG,
            f"a job on the executors fails ({facts['error']})",
            "they need the driver's Python and packages; set PYSPARK_PYTHON or "
            "spark.pyspark.python to a Python that has them",
        )
        return
    driver = facts["driver"]
    yes = True
    for entry in facts["executors"]:
        at = f"executor on {entry['host']}"
        if "import_error" in entry:
            yes = False
            yield Finding(
                WRONG,
                f"{at} cannot import anabranch ({entry['import_error']}; {entry['executable']})",
                "install it there; addPyFile does not reach stateful operators",
            )
        if _is_old(entry["java"]):
            yes = False
            yield Finding(
                WRONG, f"{at} has Java {entry['java']}", f"install {_JAVA} or newer there"
            )
        if entry["python"].split(".")[:2] != driver["python"].split(".")[:2]:
            yes = False
            yield Finding(
                WRONG,
                f"{at} runs Python {entry['python']}, the driver {driver['python']}",
                "use the same minor version: Spark refuses others",
            )
        other = {
            name: (entry["packages"][name], version)
            for name, version in driver["packages"].items()
            if entry["packages"][name] != version
        }
        if other and "import_error" not in entry:
            yes = False
            listed = ", ".join(f"{name} {a} (driver: {b})" for name, (a, b) in other.items())
            yield Finding(WRONG, f"{at} has {listed}", "install the same versions on all machines")
    if yes:
        hosts = sorted({entry["host"] for entry in facts["executors"]})
        count = len(facts["executors"])
        java = ", ".join(sorted({entry["java"] for entry in facts["executors"]}))
        yield Finding(
            OK,
            f"{count} Python workers on {', '.join(hosts)} have the same versions, "
            f"under Java {java}",
        )


def _seen(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether what is said of executors is said of all of them."""
    if facts["error"] is not None:
        return
    seen = len({(entry["host"], entry["parent"]) for entry in facts["executors"]})
    hosts = len({entry["host"] for entry in facts["executors"]})
    known, asked = facts["registered"], facts["asked"]
    if known is None:
        yield Finding(
            NOTE,
            f"{seen} executors on {hosts} hosts were seen, and through Connect Spark does not say "
            "how many there are",
            "compare with what you asked for, or run it on the server with --master",
        )
        return
    there = known["executors"]
    if asked is not None and there < asked:
        yield Finding(
            WRONG,
            f"{there} of the {asked} executors that spark.executor.instances asks for are there",
            "run it again when all have started; the others were not looked at",
        )
    if seen < there:
        yield Finding(
            WRONG,
            f"{seen} of {there} executors were seen, on {hosts} of {known['hosts']} hosts",
            "run it again while nothing else runs there; the others were not looked at",
        )
    else:
        yield Finding(OK, f"all {there} executors were seen, on {known['hosts']} hosts")


def _caches(facts: Mapping[str, Any]) -> Iterator[Finding]:
    looked = [("the driver", facts["driver"])]
    looked += [(f"the executor on {entry['host']}", entry) for entry in facts["executors"]]
    told = {(who, entry["cache"]) for who, entry in looked if "cache" in entry}
    for who, folder in sorted(told, key=str):
        if folder is None:
            yield Finding(
                WRONG,
                f"{who} cannot keep compiled code, so each process compiles for some seconds",
                "set NUMBA_CACHE_DIR (spark.executorEnv.NUMBA_CACHE_DIR) to a folder that can be "
                "written, or let it write temporary files: what `anabranch warm` has compiled is "
                "then found, also where it can only be read",
            )
        else:
            yield Finding(OK, f"{who} keeps compiled code in {folder}")


def _settings(facts: Mapping[str, Any]) -> Iterator[Finding]:
    from anabranch.flow.hashing import spreads

    count, cores = int(facts["partitions"] or 200), facts["cores"]
    if not spreads(count) or (cores is not None and count > 2 * cores):
        of = "" if cores is None else f" for {cores} cores"
        yield Finding(NOTE, f"spark.sql.shuffle.partitions is {count}{of}", _CONFIGURE)
    else:
        yield Finding(OK, f"{count} shuffle partitions")
    provider = (facts["provider"] or "unset").rsplit(".", 1)[-1]
    if provider != "RocksDBStateStoreProvider":
        yield Finding(NOTE, f"the state store is {provider}, streams need RocksDB", _CONFIGURE)
    else:
        yield Finding(OK, "the state store is RocksDB")


def _control(facts: Mapping[str, Any]) -> Iterator[Finding]:
    path = facts["control"]
    if path is None:
        return
    remedy = "use a folder that driver and executors share, and let both write it"
    if "control_error" in facts:
        yield Finding(
            WRONG, f"the driver cannot write control={path} ({facts['control_error']})", remedy
        )
        return
    blind = [
        entry
        for entry in facts["executors"]
        if not (entry.get("control_read") and entry.get("control_written"))
    ]
    for entry in blind:
        why = entry.get("control_error", "the driver's file is not there")
        yield Finding(WRONG, f"executor on {entry['host']} does not see {path} ({why})", remedy)
    if facts["executors"] and not blind:
        yield Finding(OK, f"driver and executors read and write control={path}")


def _clocks(facts: Mapping[str, Any]) -> Iterator[Finding]:
    if not facts["executors"]:
        return
    before, after = facts["driver"]["time"], facts["after"]
    apart = {
        entry["host"]: max(before - entry["time"], entry["time"] - after, 0.0)
        for entry in facts["executors"]
    }
    wrong = {host: seconds for host, seconds in apart.items() if seconds > _CLOCK_SECONDS}
    for host, seconds in wrong.items():
        yield Finding(
            WRONG,
            f"the clock of {host} is at least {seconds:.1f} s off the driver's",
            "set both by NTP: processing-time windows and reports depend on it",
        )
    if not wrong:
        yield Finding(OK, "the clocks of driver and executors agree")
