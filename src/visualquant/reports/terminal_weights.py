"""Tables of weights for the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from visualquant.core.report import Report, WeightDetail, WeightRow
from visualquant.core.text import safe_text
from visualquant.reports.histogram import sparkline
from visualquant.reports.numbers import as_float, decibel, share, short


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    """A column, what it needs, and the width of the terminal from which it is shown.

    On a narrow terminal columns go, never digits; names take what the others leave.
    """

    title: str
    justify: Literal["left", "right"]
    from_width: int = 0
    needs: int = 0


_COLUMNS = (
    _Column("layer", "left"),
    _Column("weight", "left", 124),
    _Column("stored as", "left", 84, 20),
    _Column("SQNR dB", "right", 0, 7),
    _Column("worst channel", "right", 60, 13),
    _Column("max |error|", "right", 96, 11),
    _Column("clipped", "right", 70, 7),
    _Column("values", "left", 112, 16),
)
WHAT_IF_COLUMNS = (
    ("int8 symmetric, per tensor", "int8 tensor", 0),
    ("int8 symmetric, per channel", "int8 channel", 0),
    ("int4 symmetric, per channel", "int4 channel", 76),
    ("int4 symmetric, per channel, mse clip", "int4 clip", 120),
    ("int4 symmetric, blocks of 128", "int4 b128", 100),
    ("int4 symmetric, blocks of 32", "int4 b32", 0),
    ("int4 asymmetric, blocks of 32", "uint4 b32", 90),
)


def worst_first(weights: Sequence[WeightRow]) -> list[int]:
    """Indices of the weight rows by SQNR, worst first; rows without a number come last, problems before them."""

    def key(index: int) -> tuple[int, float, int]:
        sqnr = as_float(weights[index].metrics.get("sqnr_db"))
        if sqnr is None:
            return (1 if weights[index].problem else 2, 0.0, index)
        return (0, sqnr, index)

    return sorted(range(len(weights)), key=key)


def weight_table(report: Report, top: int, width: int, *, unicode: bool) -> RenderableType:
    """The worst weights; biases are left to JSON."""
    names = {n.id: n.name or f"{n.op_type} {n.id}" for n in report.nodes.get("quant", ())}
    rows = report.weights
    order = [k for k in worst_first(rows) if rows[k].role == "weight" and rows[k].model is None]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = "Weights, worst first"
    shown = [c for c in _COLUMNS if width >= c.from_width]
    names_shown = sum(c.needs == 0 for c in shown)
    room = max(8, min(48, (width - 2 - sum(c.needs + 3 for c in shown)) // names_shown))
    for column in shown:
        table.add_column(column.title, justify=column.justify, no_wrap=True)
    for index in order[:top]:
        row = report.weights[index]
        detail = report.details[index] if index < len(report.details) else WeightDetail()
        cells = _cells(row, names.get(row.node or "", ""), detail, room, unicode)
        table.add_row(*(cells[column.title] for column in shown))
    lines: list[RenderableType] = [table]
    if len(order) > top:
        lines.append(Text(f"… and {len(order) - top} more (--top {len(order)}, or --json for all)", style="dim"))
    return Group(*lines)


def _cells(row: WeightRow, name: str, detail: WeightDetail, room: int, unicode: bool) -> dict[str, Text]:
    metrics = row.metrics
    clipped = (as_float(metrics.get("clipped_low")) or 0) + (as_float(metrics.get("clipped_high")) or 0)
    worst = decibel(metrics.get("sqnr_db_worst_channel"))
    if row.worst_channels and metrics.get("sqnr_db_worst_channel") is not None:
        worst += f" (#{row.worst_channels[0].index})"
    level = as_float(metrics.get("sqnr_db"))
    counts = detail.counts_float
    return {
        "layer": Text(safe_text(name or row.value, room)),
        "weight": Text(safe_text(row.value, room)),
        "stored as": Text(_stored_as(row)),
        "SQNR dB": Text(decibel(metrics.get("sqnr_db")), style=_level_style(level)),
        "worst channel": Text(worst),
        "max |error|": Text(short(metrics.get("max_abs_error"))),
        "clipped": Text(share(clipped / row.elements) if row.elements and "clipped_low" in metrics else "—"),
        "values": Text("" if counts is None else sparkline(counts, unicode=unicode)),
    }


def _stored_as(row: WeightRow) -> str:
    if row.granularity == "blocked":
        return f"{row.code_type} blocks of {row.block_size}"
    if row.granularity == "per_channel":
        return f"{row.code_type} per channel"
    return f"{row.code_type} per tensor" if row.granularity else row.code_type


def _level_style(sqnr_db: float | None) -> str:
    if sqnr_db is None:
        return ""
    return "red" if sqnr_db < 20 else "yellow" if sqnr_db < 30 else "green"


def what_if_table(weights: Sequence[WeightRow], order: Sequence[int], top: int, width: int) -> RenderableType:
    """SQNR that other schemes would give, a line a weight."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = "What if: SQNR in dB under another scheme"
    table.add_column("weight", no_wrap=True)
    table.add_column("now", justify="right", no_wrap=True)
    shown = [(scheme, title) for scheme, title, from_width in WHAT_IF_COLUMNS if width >= from_width]
    for _, title in shown:
        table.add_column(title, justify="right", no_wrap=True)
    room = max(8, min(40, width - 12 - sum(max(len(title), 5) + 3 for _, title in shown)))
    for index in [k for k in order if weights[k].what_if][:top]:
        row = weights[index]
        found = {w.scheme: decibel(w.sqnr_db) for w in row.what_if}
        cells = [found.get(scheme, "—") for scheme, _ in shown]
        now = decibel(row.metrics.get("sqnr_db")) if row.granularity else "float"
        table.add_row(Text(safe_text(row.value, room)), now, *cells)
    return table
