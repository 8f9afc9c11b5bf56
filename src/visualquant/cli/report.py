"""`visualquant report F.vqz`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="report")
@click.argument("archive", metavar="F.vqz", type=click.Path(path_type=Path))
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the report as JSON (- for stdout).")
@click.option("--top", default=10, show_default=True, type=click.IntRange(0), help="Layers and findings to show.")
def command(archive: Path, json_path: Path | None, top: int) -> None:
    """Show a saved F.vqz again; neither model is needed."""
    from visualquant.cli.output import write_json
    from visualquant.session.archive import load

    report = load(archive)
    if write_json(report, json_path):
        return
    from visualquant.reports.terminal import render

    render(report, top=top)
