"""One number's way through a quantizer, as a table."""

from __future__ import annotations

from typing import TextIO

from rich.table import Table
from rich.text import Text

from visualquant.core.text import safe_text
from visualquant.core.walk import Walk
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
        for title, number, words in _stations(walk):
            table.add_row(title, number, Text(words, style="dim"))
        console.print(table)


def _stations(walk: Walk) -> list[tuple[str, str, str]]:
    rows = [
        ("x", f"{walk.x:.9g}", "the float model's number"),
        ("scale", f"{walk.scale:.9g}", "the step between two codes" if walk.limits else ""),
        ("x / scale", f"{walk.divided:.9g}", "in steps" if walk.limits else ""),
    ]
    if walk.rounded is not None and walk.shifted is not None and walk.limits is not None:
        rows.append(("rounded", f"{walk.rounded:.9g}", "half to even"))
        rows.append(("+ zero_point", f"{walk.shifted:.9g}", f"zero_point is {walk.zero_point:g}"))
        low, high = walk.limits
        words = f"codes reach from {low} to {high}" + ("; the number lies beyond" if walk.is_clipped else "")
        rows.append(("clipped", f"{walk.expected:.9g}", words))
    if walk.code is not None:
        other = walk.expected is not None and walk.code != walk.expected
        words = "another one: not rounded to the nearest, or other weights" if other else ""
        rows.append(("code in the file", f"{walk.code:.9g}", words))
    formula = "(code − zero_point)·scale" if walk.limits else "what the code stands for, times scale"
    rows.append(("x̂", f"{walk.dequantized:.9g}", formula))
    steps = walk.error_in_steps
    size = "" if steps is None or walk.limits is None else f"{steps:.3g} steps"
    if size:
        size += ": rounding only" if steps is not None and steps <= 0.5 + 1e-3 else ": more than rounding (at most 0.5)"
    rows.append(("error x − x̂", f"{walk.error:.9g}", size))
    return rows
