"""Where the report goes."""

from __future__ import annotations

from pathlib import Path

import click

from visualquant.core.report import Report
from visualquant.errors import UsageError


def write_json(report: Report, path: Path | None) -> bool:
    """Writes the report as JSON; True where it went to standard output and nothing else should.

    Raises:
        UsageError: the file can't be written.
    """
    if path is None:
        return False
    from visualquant.reports.json_report import dumps

    if str(path) == "-":
        click.echo(dumps(report), nl=False)
        return True
    write_text(path, dumps(report))
    return False


def write_text(path: Path, text: str) -> None:
    """Writes a text file.

    Raises:
        UsageError: it can't be written.
    """
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be written: {error.strerror}.") from error
