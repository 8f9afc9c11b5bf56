"""The table, a line as soon as it is measured."""

from __future__ import annotations

from collections.abc import Iterable

import click

from visualquant.testing.bench.tables import Row

_WHAT, _VALUE, _TARGET = 62, 34, 22


def line(row: Row) -> str:
    """One line: what, the figure, the target, and whether it is met."""
    mark = "" if row.met is None else "met" if row.met else "NOT MET"
    return f"{row.what:<{_WHAT}}  {row.value:<{_VALUE}}  {row.target:<{_TARGET}}  {mark}".rstrip()


def print_rows(rows: Iterable[Row]) -> None:
    """Prints rows to standard output."""
    for row in rows:
        click.echo(line(row))
