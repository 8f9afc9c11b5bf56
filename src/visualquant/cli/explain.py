"""`visualquant explain CODE`, and one number walked through the quantizer."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from visualquant.cli.data_options import data_options, options_of
from visualquant.errors import UsageError


@click.command(name="explain")
@click.argument("what", metavar="[CODE | FLOAT QUANT]", nargs=-1)
@click.option("--value", help="Tensor of either model: one of its numbers is walked through the quantizer.")
@click.option("--index", metavar="I,J,…", help="Which element (default: the one with the largest error).")
@data_options
def command(what: tuple[str, ...], value: str | None, index: str | None, **given: Any) -> None:
    """Explain a finding's CODE (without one, list all), or one number of a tensor.

    `explain FLOAT QUANT --value NAME` shows x, x / scale, rounded, clipped, code, x̂ and the error of one element;
    activations need --data.
    """
    if value is not None or len(what) > 1:
        if value is None or len(what) != 2:
            raise UsageError("One number is explained by: explain FLOAT QUANT --value NAME [--index I,J].")
        _number(Path(what[0]), Path(what[1]), value, index, given)
    else:
        _code(what[0] if what else None)


def _number(float_path: Path, quant_path: Path, value: str, index: str | None, given: dict[str, Any]) -> None:
    from visualquant.reports.terminal_walk import render_walk
    from visualquant.session.explain_value import explain_value

    try:
        place = None if index is None else tuple(int(k) for k in index.replace(" ", "").split(",") if k)
    except ValueError as error:
        raise UsageError(f"--index wants whole numbers separated by commas, not {index!r}.") from error
    render_walk(explain_value(float_path, quant_path, value, index=place, data=options_of(given)))


def _code(code: str | None) -> None:
    from visualquant.core.catalogue import CATALOGUE

    if code is None:
        area = ""
        for entry in CATALOGUE.values():
            if entry.area != area:
                area = entry.area
                click.echo(f"\n{area}")
            click.echo(f"  {entry.code:<26}{entry.title}")
        return
    found = CATALOGUE.get(code.upper().replace("-", "_"))
    if found is None:
        near = difflib.get_close_matches(code.upper(), CATALOGUE, n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UsageError(f"There is no code {code!r}.{hint} `visualquant explain` lists all.")
    for title, text in (
        (found.code, found.title),
        ("Why it hurts", found.why),
        ("How to fix it", found.fix),
        ("How it is seen", found.seen_by),
    ):
        click.echo(f"{title}\n{click.wrap_text(text, width=100, initial_indent='  ', subsequent_indent='  ')}\n")
