"""`visualquant bench`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click


@click.command(name="bench")
@click.option("--size", default="1GB", show_default=True, help="Float weights of the generated model; 0 for none.")
@click.option(
    "--rounds", default=7, show_default=True, type=click.IntRange(2), help="Rounds in which rivals take turns."
)
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Where to write the model, and keep it."
)
@click.option("--quick", is_flag=True, help="Smaller tensors and no generated model: half a minute.")
def command(size: str, rounds: int, folder: Path | None, quick: bool) -> None:
    """Measure this machine: the kernels beside a pure read and beside other tools, and a whole compare.

    Rivals take turns in one process, so that other work on the machine slows all of them alike. Rivals that are not
    installed (torch, boost-histogram, a C compiler) are left out.
    """
    from visualquant.cli.progress import Progressbar
    from visualquant.cli.units import parse_bytes
    from visualquant.testing.bench.report import print_rows
    from visualquant.testing.bench.tables import (
        Sample,
        cancel_row,
        compare_rows,
        debugger_row,
        kernel_rows,
        memory_row,
        start_rows,
    )

    bytes_wanted = 0 if quick or size.strip() == "0" else parse_bytes(size) or 0
    sample = Sample.make(256, 11008) if quick else Sample.make(4096, 11008)
    print_rows(kernel_rows(sample, rounds))
    del sample
    print_rows(debugger_row(2))
    if not quick:
        print_rows([memory_row(), cancel_row()])
    print_rows(start_rows())
    if not bytes_wanted:
        return
    with tempfile.TemporaryDirectory() as temporary, Progressbar() as bar:
        where = folder or Path(temporary)

        def progress(done: int, total: int) -> None:
            bar.stage("writing models", done, total)

        rows = list(compare_rows(where, bytes_wanted, progress))
    print_rows(rows)
