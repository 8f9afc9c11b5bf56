"""`visualquant diff A B`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="diff")
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@click.option("--changes-only", is_flag=True, help="Leave out tensors that both files quantize alike.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write as JSON (- for stdout).")
def command(first: Path, second: Path, changes_only: bool, json_path: Path | None) -> None:
    """Show how two quantized files, A and B, of one network encode each tensor."""
    from visualquant.cli.output import write_text
    from visualquant.reports.encodings import dumps, render
    from visualquant.session.diff import diff_encodings

    rows = diff_encodings(first, second)
    if changes_only:
        rows = tuple(r for r in rows if r.changed)
    if json_path is not None and str(json_path) == "-":
        click.echo(dumps(rows), nl=False)
        return
    if json_path is not None:
        write_text(json_path, dumps(rows))
    render(rows, first.name, second.name)
