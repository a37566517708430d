"""What every show needs: a quiet session, a word on what is waited for, a page in the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from anabranch.errors import AnabranchError
from anabranch.spark.settings import configure
from anabranch.spark.versions import local_checkpoints
from anabranch.spark.watch import Interrupt

__all__ = ["DemoFailed", "open_page", "session", "waiting"]

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
_ALWAYS = ("darwin", "win32")


class DemoFailed(AnabranchError, RuntimeError):
    """The demo could not run to its end."""


def open_page(address: str, console: Console) -> None:
    """Say where the page is; open it where somebody sits before a display."""
    console.print(f"watch it live: {address}", soft_wrap=True)
    # On these there is a display unless one sits elsewhere; on others a variable names it.
    shown = sys.platform in _ALWAYS and "SSH_CONNECTION" not in os.environ
    if console.is_terminal and (shown or any(os.environ.get(name) for name in _DISPLAYS)):
        # Some ways to open a page wait until it is closed.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


@contextmanager
def session(
    workers: int, folder: Path, log: Path, console: Console, interrupt: Interrupt, java: str = ""
) -> Iterator[SparkSession]:
    """A quiet local session; what Spark and its Python workers print goes into the log.

    `java` are options of its Java.
    """
    builder: Any = SparkSession.builder
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "2g",
        **({"spark.driver.extraJavaOptions": java} if java else {}),
        # Offline, a host name may not resolve.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = builder.master(f"local[{workers}]").appName("anabranch demo")
    for key, value in settings.items():
        builder = builder.config(key, value)
    # The JVM, and every process it starts, inherits standard error as it is at this moment. And
    # only a context made in the main thread takes Ctrl-C for itself.
    with (
        waiting(console, "starting Spark") as say,
        _standard_error_to(log),
        ThreadPoolExecutor(1) as thread,
    ):
        started = thread.submit(builder.getOrCreate)
        while not started.done():
            if interrupt.asked.wait(0.1):
                say("stopping, as soon as Spark has started")
                break
        try:
            spark = started.result()
        except Exception as error:
            raise DemoFailed(
                f"Spark did not start; it needs a JDK 17 or newer (see java -version): {error}"
            ) from error
    try:
        spark.sparkContext.setLogLevel("ERROR")
        for key, value in local_checkpoints(spark).items():
            spark.conf.set(key, value)
        yield configure(spark, workers=workers)
    finally:
        spark.stop()


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    before = os.dup(2)
    with path.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def waiting(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Say what is going on; yields a function to say something else."""
    if console.is_terminal:
        with console.status(f"{text} ...") as status:
            yield lambda other: status.update(f"{other} ...")
    else:
        console.print(f"{text} ...", soft_wrap=True)
        yield lambda other: console.print(f"{other} ...", soft_wrap=True)
