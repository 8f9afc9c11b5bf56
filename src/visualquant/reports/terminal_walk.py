"""One number's way through a quantizer, as a table."""

from __future__ import annotations

from typing import TextIO

from rich.table import Table
from rich.text import Text

from visualquant.core.text import safe_text
from visualquant.core.walk import Walk, stations
from visualquant.reports.terminal import page


def render_walk(walk: Walk, out: TextIO | None = None) -> None:
    """Writes the stations, one a line, with what each of them does."""
    place = ", ".join(map(str, walk.index))
    channel = "" if walk.channel is None else f", scale #{walk.channel} along its axis"
    with page(out) as console:
        console.print(Text(f"{safe_text(walk.float_value)}[{place}] as {safe_text(walk.value)}", style="bold"))
        console.print(
            f"{walk.role}, {list(walk.shape)}, {walk.code_type} {walk.granularity.replace('_', ' ')}{channel}"
        )
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column()
        for title, number, words in stations(walk):
            table.add_row(title, number, Text(words, style="dim"))
        console.print(table)
