"""`visualquant explain CODE`."""

from __future__ import annotations

import difflib

import click

from visualquant.errors import UsageError


@click.command(name="explain")
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """Explain a finding's CODE: what, why, how to fix, how it is seen. Without a code, list all."""
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
