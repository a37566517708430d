"""``anabranch warm``: compile ahead, so that no task has to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(warm)


def warm(
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the last lines only.")] = False,
    java: Annotated[
        bool,
        typer.Option("--java", help="Keep Java's classes of Spark ready, too: starts Spark once."),
    ] = False,
) -> None:
    """Compile all kernels ahead and keep the code, for example while an image is built.

    Runs every verb over a few rows in this process, without Spark. The code is kept in
    `NUMBA_CACHE_DIR`, else beside the package; it holds for this Python, numba and kind of CPU.
    With --java, Spark is started once and what Java made of its classes is kept there as well
    (about 200 MB); it holds for this Java and Spark.

    Exit code: 0 if everything is compiled and kept, 1 if no folder for it can be written, or Java
    did not write its classes.
    """
    from anabranch.flow.process import KERNELS, cache_folder
    from anabranch.testing.rehearsal import rehearse

    folder = cache_folder()
    if folder is None:
        typer.echo(
            "compiled code cannot be kept: neither the package's folder nor the user's cache or "
            "temporary folder can be written; set NUMBA_CACHE_DIR to one that can",
            err=True,
        )
        raise typer.Exit(1)
    began = time.perf_counter()
    for name in rehearse():
        if not quiet:
            typer.echo(f"{time.perf_counter() - began:6.1f} s  {name}")
    alone = [kernel for kernel in KERNELS if kernel.targetoptions.get("inline") != "always"]
    made = sum(sum(kernel.stats.cache_misses.values()) for kernel in KERNELS)
    places = {Path(kernel.stats.cache_path) for kernel in KERNELS if kernel.stats.cache_path}
    kernels = sum(len(list(place.glob("*.nbi"))) for place in places)
    forms = sum(len(list(place.glob("*.nbc"))) for place in places)
    typer.echo(
        f"{kernels} of {len(alone)} kernels are compiled, in {forms} forms, {made} of them now; "
        f"they are kept in {folder}"
    )
    if java:
        _keep_classes()


def _keep_classes() -> None:
    from anabranch.spark.class_archive import NoArchive, make_archive

    try:
        made = make_archive()
    except NoArchive as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    typer.echo(
        f"Java's classes of Spark are kept in {made}; a session of ab.configure(builder) uses "
        f'them, others with --driver-java-options "-XX:SharedArchiveFile={made}"'
    )
