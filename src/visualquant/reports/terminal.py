"""The report for a person at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from visualquant.core.report import Finding, ModelRow, Report, WeightRow
from visualquant.core.text import safe_text
from visualquant.reports.histogram import sparkline
from visualquant.reports.numbers import as_float, decibel, share, short, size

STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
MARKS = {"error": "✗", "warning": "!", "info": "i"}


def make_console(out: TextIO | None = None) -> Console:
    """A console that is plain where `out` is no terminal, and without colour where NO_COLOR is set.

    Text that is no terminal is not cut to 80 columns: names stay whole for grep.
    """
    out = out or sys.stdout
    plain = not out.isatty()
    width = None if not plain else int(os.environ.get("COLUMNS", "0")) or 132
    return Console(file=out, width=width, highlight=False, emoji=False, markup=False, soft_wrap=False)


def render(report: Report, out: TextIO | None = None, *, top: int = 10) -> None:
    """Writes summary, worst layers and findings.

    Args:
        report: what to show.
        out: where; standard output by default.
        top: how many layers and findings at most.
    """
    console = make_console(out)
    unicode = (console.encoding or "").lower().replace("-", "").startswith("utf")
    console.print(_headline(report))
    console.print(_models(report))
    if report.weights:
        console.print(_weights(report, top, unicode))
    console.print(_findings(report.findings, top))
    if report.status != "complete":
        console.print(
            Text(f"This result is {report.status}: {safe_text(report.status_reason or '')}", style="bold red")
        )


def _headline(report: Report) -> RenderableType:
    summary = report.summary
    lines = [Text(safe_text(summary.sentence), style="bold")]
    if summary.verdict:
        lines.append(Text(safe_text(summary.verdict)))
    return Padding(Group(*lines), (1, 0, 0, 0))


def _models(report: Report) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    rows: list[tuple[str, ModelRow]] = [("float", report.models.float)]
    if report.models.quant is not None:
        rows.append(("quantized", report.models.quant))
    for title, _ in rows:
        table.add_column(title)
    facts: list[tuple[str, Callable[[ModelRow], str]]] = [
        ("file", lambda m: safe_text(m.name, 44)),
        ("made by", lambda m: safe_text(m.quantizer or m.producer or "not recorded", 44)),
        ("schemes", lambda m: ", ".join(m.schemes) or "none (float)"),
        ("size", lambda m: size(m.bytes + m.bytes_external)),
        ("nodes", lambda m: f"{m.nodes:,}"),
        ("bits per weight", lambda m: "—" if m.storage is None else f"{m.storage.bits_per_weight:.2f}"),
    ]
    for name, fact in facts:
        table.add_row(name, *(fact(model) for _, model in rows))
    coverage = report.summary.coverage
    if coverage.nodes is not None:
        parts = [f"{share(coverage.nodes)} of the layers with weights"]
        if coverage.parameters is not None:
            parts.append(f"{share(coverage.parameters)} of their parameters")
        if coverage.macs is not None:
            parts.append(f"{share(coverage.macs)} of the multiply-adds")
        table.add_row("quantized", "", Text("\n".join(parts)))
    return table


def worst_first(weights: Sequence[WeightRow]) -> list[int]:
    """Indices of the weight rows by SQNR, worst first; rows without a number come last, problems before them."""

    def key(index: int) -> tuple[int, float, int]:
        sqnr = as_float(weights[index].metrics.get("sqnr_db"))
        if sqnr is None:
            return (1 if weights[index].problem else 2, 0.0, index)
        return (0, sqnr, index)

    return sorted(range(len(weights)), key=key)


def _weights(report: Report, top: int, unicode: bool) -> RenderableType:
    names = {n.id: n.name or f"{n.op_type} {n.id}" for n in report.nodes.get("quant", ())}
    order = [k for k in worst_first(report.weights) if report.weights[k].role == "weight"]
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, title="Weights, worst first", title_justify="left", title_style="bold"
    )
    for title, justify in (
        ("layer", "left"),
        ("weight", "left"),
        ("stored as", "left"),
        ("SQNR dB", "right"),
        ("worst channel", "right"),
        ("max |error|", "right"),
        ("clipped", "right"),
        ("values", "left"),
    ):
        table.add_column(title, justify=justify, no_wrap=title != "layer", overflow="fold")  # type: ignore[arg-type]
    for index in order[:top]:
        row = report.weights[index]
        detail = report.details[index] if index < len(report.details) else None
        metrics = row.metrics
        clipped = (as_float(metrics.get("clipped_low")) or 0) + (as_float(metrics.get("clipped_high")) or 0)
        worst = decibel(metrics.get("sqnr_db_worst_channel"))
        if row.worst_channels and metrics.get("sqnr_db_worst_channel") is not None:
            worst += f" (#{row.worst_channels[0].index})"
        shown = "" if detail is None or detail.counts_float is None else sparkline(detail.counts_float, unicode=unicode)
        sqnr = Text(decibel(metrics.get("sqnr_db")), style=_level_style(as_float(metrics.get("sqnr_db"))))
        table.add_row(
            Text(safe_text(names.get(row.node or "", "") or row.value, 40)),
            Text(safe_text(row.value, 36)),
            _stored_as(row),
            sqnr if row.problem is None else Text("—"),
            worst,
            short(metrics.get("max_abs_error")),
            share(clipped / row.elements) if row.elements and "clipped_low" in metrics else "—",
            Text(shown),
        )
    lines: list[RenderableType] = [table]
    if len(order) > top:
        lines.append(Text(f"… and {len(order) - top} more (--top {len(order)}, or --json for all)", style="dim"))
    return Group(*lines)


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


def _findings(findings: Sequence[Finding], top: int) -> RenderableType:
    if not findings:
        return Text("Nothing stands out in the files.", style="green")
    lines: list[RenderableType] = [Text("Findings, most important first", style="bold")]
    for finding in findings[:top]:
        mark, style = MARKS[finding.severity], STYLES[finding.severity]
        head = Text.assemble((f"{mark} {finding.code}", style), "  ", safe_text(finding.what))
        body: list[RenderableType] = [head, Padding(Text(f"fix: {safe_text(finding.fix)}", style="dim"), (0, 0, 0, 2))]
        if finding.settings:
            body.append(Padding(Text(safe_text(finding.settings), style="dim"), (0, 0, 0, 2)))
        lines.append(Padding(Group(*body), (0, 0, 0, 0)))
    if len(findings) > top:
        lines.append(Text(f"… and {len(findings) - top} more (--top {len(findings)}, or --json for all)", style="dim"))
    lines.append(Text("`visualquant explain CODE` says what a code means.", style="dim"))
    return Group(*lines)
