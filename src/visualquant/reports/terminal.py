"""The report for a person at a terminal."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from visualquant.core.report import Finding, ModelRow, Report
from visualquant.core.text import safe_text
from visualquant.reports.numbers import share, size
from visualquant.reports.terminal_compared import compared_table
from visualquant.reports.terminal_devices import device_table
from visualquant.reports.terminal_run import fusion_table, run_block
from visualquant.reports.terminal_weights import weight_table, what_if_table, worst_first

STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
MARKS = {"error": "✗", "warning": "!", "info": "i"}
PLAIN_WIDTH = 160
PLACES_OF_A_CODE = 3


@contextlib.contextmanager
def page(out: TextIO | None = None) -> Iterator[Console]:
    """A console to print one page on: plain where `out` is no terminal, without colour where NO_COLOR is set.

    Plain text is not cut to 80 columns (names stay whole for grep) and has no blanks at line ends.
    """
    out = out or sys.stdout
    if out.isatty():
        yield Console(file=out, highlight=False, emoji=False, markup=False)
        return
    encoding = getattr(out, "encoding", None) or "utf-8"
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    yield Console(file=buffer, width=PLAIN_WIDTH, highlight=False, emoji=False, markup=False, color_system=None)
    buffer.seek(0)
    for line in buffer.read().splitlines():
        out.write(line.rstrip() + "\n")


def render(report: Report, out: TextIO | None = None, *, top: int = 10, fusions: bool = False) -> None:
    """Writes summary, worst layers and findings.

    Args:
        report: what to show.
        out: where; standard output by default.
        top: how many layers and findings at most.
        fusions: also list what was fused, before and after.
    """
    with page(out) as console:
        unicode = console.encoding.lower().startswith("utf")
        if report.compared:
            console.print(Padding(compared_table(report), (1, 0, 0, 0)))
            console.print("In detail, the first of them:")
        console.print(_headline(report))
        console.print(_models(report))
        if report.weights:
            console.print(weight_table(report, top, console.width, unicode=unicode))
            if any(w.what_if for w in report.weights):
                console.print(what_if_table(report.weights, worst_first(report.weights), top, console.width))
        if report.outputs or report.task:
            console.print(run_block(report, top))
        if report.devices:
            console.print(device_table(report))
        if fusions and report.fusions:
            console.print(fusion_table(report))
        console.print()
        console.print(findings_block([f for f in report.findings if f.model is None], top))
        if report.status != "complete":
            reason = safe_text(report.status_reason or "")
            console.print(Text(f"This result is {report.status}: {reason}", style="bold red"))


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


def findings_block(findings: Sequence[Finding], top: int) -> RenderableType:
    """Findings with what to do; of one code the first places, then how many more."""
    if not findings:
        return Text("Nothing stands out in the files.", style="green")
    lines: list[RenderableType] = [Text("Findings, most important first", style="bold")]
    places: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        places.setdefault((finding.code, finding.severity), []).append(finding)
    for (code, severity), same in list(places.items())[:top]:
        for finding in same[:PLACES_OF_A_CODE]:
            lines.append(Text.assemble((f"{MARKS[severity]} {code}", STYLES[severity]), "  ", safe_text(finding.what)))
        if len(same) > PLACES_OF_A_CODE:
            lines.append(Text(f"  … and {len(same) - PLACES_OF_A_CODE} more places", style="dim"))
        lines.append(Padding(Text(f"fix: {safe_text(same[0].fix)}", style="dim"), (0, 0, 0, 2)))
        if same[0].settings:
            lines.append(Padding(Text(f"set: {safe_text(same[0].settings)}", style="dim"), (0, 0, 0, 2)))
    hidden = list(places)[top:]
    if hidden:
        lines.append(Text(f"… and {', '.join(code for code, _ in hidden)} (--top, or --json for all)", style="dim"))
    lines.append(Text("`visualquant explain CODE` says what a code means.", style="dim"))
    return Group(*lines)
