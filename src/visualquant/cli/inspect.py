"""`visualquant inspect MODEL`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="inspect")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--what-if", is_flag=True, help="Also measure what int8 and int4 would make of each float weight.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write as JSON (- for stdout).")
@click.option("--top", default=15, show_default=True, type=click.IntRange(0), help="Rows of each table.")
@click.option("--data-root", type=click.Path(path_type=Path), help="Folder of data files that are links elsewhere.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads of the kernels.")
def command(model: Path, what_if: bool, json_path: Path | None, top: int, data_root: Path | None, threads: int) -> None:
    """Say what is in one MODEL: schemes, parameters, storage, what stays in float, checks."""
    from visualquant.cli.output import write_text
    from visualquant.cli.progress import Progressbar
    from visualquant.reports.inspection import dumps, render
    from visualquant.session.inspect import inspect

    with Progressbar() as bar:
        found = inspect(model, what_if=what_if, data_root=data_root, threads=threads, progress=bar.stage)
    if json_path is not None and str(json_path) == "-":
        click.echo(dumps(found), nl=False)
        return
    if json_path is not None:
        write_text(json_path, dumps(found))
    render(found, top=top)
