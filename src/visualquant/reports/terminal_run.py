"""What a run over samples showed, and what was fused, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from visualquant.core.report import ActivationRow, OutputRow, Report, TaskRow
from visualquant.core.text import safe_text
from visualquant.reports.numbers import as_float, decibel, score, share, short

FLIPPED_SHOWN = 8
SHOWN_RUN = "r1"
_Row = TypeVar("_Row", ActivationRow, OutputRow, TaskRow)


def run_block(report: Report, top: int) -> RenderableType:
    """Outputs, task, drift along the depth, and time."""
    lines: list[RenderableType] = [Text("On the samples", style="bold")]
    for run in report.runs:
        if run.id != SHOWN_RUN:
            continue
        verified = {True: "taps change nothing (checked)", False: "TAPS CHANGE THE OUTPUT", "not checked": ""}
        random = "random " if run.data.get("random") else ""
        lines.append(
            Text(
                f"{run.samples} {random}samples of {safe_text(str(run.data.get('file', '')))}, optimisation "
                f"{run.optimisation}; {verified[run.taps_verified]}",
                style="dim" if run.taps_verified is not False else "bold red",
            )
        )
        lines += [Text(safe_text(note), style="yellow") for note in run.notes]
    for row in _shown(report.outputs):
        metrics = row.metrics
        parts = [f"output {safe_text(row.quant_value, 40)}: SQNR {decibel(metrics.get('sqnr_db'))} dB"]
        if "top1_agreement" in metrics:
            parts.append(f"same top-1 {share(metrics['top1_agreement'])}")
        if "logit_kl" in metrics:
            parts.append(f"KL {short(metrics['logit_kl'])} nats")
        lines.append(Text(", ".join(parts)))
    lines += [_task(row) for row in _shown(report.task)]
    names = {g.group: g for g in report.alignment}
    first = report.summary.first_diverging
    if first is not None and first in names:
        places = [n.name or n.op_type for n in report.nodes["float"] if n.id in names[first].float]
        lines.append(Text(f"First diverging: {safe_text(', '.join(places[:4]))} ({first})", style="bold yellow"))
    if any(a.cumulative for a in report.activations):
        lines.append(_activations(report, top))
    lines += _latency(report)
    return Group(*lines)


def _shown(rows: Sequence[_Row]) -> list[_Row]:
    """The rows of the first file and the first device: others stand in tables of their own."""
    return [r for r in rows if r.run == SHOWN_RUN]


def _task(row: TaskRow) -> Text:
    ours, theirs = (score(row.metric, value) for value in (row.float, row.quant))
    direction = "" if row.higher_is_better else " (lower is better)"
    text = Text(f"{row.metric}{direction}: float {ours}, quantized {theirs}")
    if row.n > 1:
        text.append(f" of {row.n}")
    if row.p_value is not None and row.ci95_float is not None:
        low, high = row.ci95_float
        inside = "inside" if low <= row.quant <= high else "outside"
        text.append(
            f" ({row.lost} lost, {row.won} won, p = {row.p_value:.3g}; {inside} the 95 % interval of float)",
            style="dim",
        )
    if row.flipped:
        shown = ", ".join(f"#{f.sample} ({f.label}→{f.quant})" for f in row.flipped[:FLIPPED_SHOWN])
        more = f", … {len(row.flipped) - FLIPPED_SHOWN} more" if len(row.flipped) > FLIPPED_SHOWN else ""
        text.append(f"\nflipped: {shown}{more}")
    return text


def _activations(report: Report, top: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = "Activations, worst of their own first"
    calibrated = any(a.range_calibration is not None for a in report.activations)
    for title, justify in (
        ("value", "left"),
        ("alone dB", "right"),
        ("in the model dB", "right"),
        ("float range", "left"),
        *((("calibration saw", "left"),) if calibrated else ()),
        ("codes reach", "left"),
        ("clipped", "right"),
    ):
        table.add_column(title, justify=justify, no_wrap=True)

    def key(row: ActivationRow) -> float:
        own = as_float(row.isolated.get("sqnr_db"))
        whole = as_float(row.cumulative.get("sqnr_db"))
        return own if own is not None else 1000 + whole if whole is not None else 5000.0

    for row in sorted(_shown(report.activations), key=key)[:top]:
        table.add_row(
            Text(safe_text(row.float_value, 40)),
            decibel(row.isolated.get("sqnr_db")),
            decibel(row.cumulative.get("sqnr_db")),
            _span(row.range_float),
            *((_span(row.range_calibration),) if calibrated else ()),
            _span(row.range_quant),
            share(row.clipped_share),
        )
    return table


def _span(span: object) -> str:
    if not isinstance(span, tuple | list):
        return "—"
    return f"{short(span[0])} … {short(span[1])}"


def _latency(report: Report) -> list[RenderableType]:
    times = {row.run: row for row in report.latency}
    ours, theirs = times.get("r0"), times.get("r1")
    if report.devices or ours is None or theirs is None or not ours.total_p50_us or not theirs.total_p50_us:
        return []
    ratio = theirs.total_p50_us / ours.total_p50_us
    text = Text(
        f"one batch: float {ours.total_p50_us / 1000:.2f} ms, quantized {theirs.total_p50_us / 1000:.2f} ms "
        f"({ratio:.2f} times), {share(theirs.conversion_share)} of it in conversions"
    )
    slow = sorted(theirs.nodes, key=lambda n: -n.p50_us)[:3]
    text.append("; slowest: " + ", ".join(f"{n.op_type} {safe_text(n.node, 30)} {n.p50_us:.0f} µs" for n in slow))
    return [text]


def fusion_table(report: Report) -> RenderableType:
    """Members before and after, and where the quantization points are."""
    names = {
        side: {n.id: n.name or f"{n.op_type} {n.id}" for n in report.nodes.get(side, ())} for side in ("float", "quant")
    }
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = "Fusions"
    for title in ("pattern", "before", "after", "quantized there"):
        table.add_column(title)
    for row in report.fusions:
        pattern = Text(safe_text(row.pattern))
        if row.blocked:
            pattern.append("\nQ/DQ inside", style="yellow")
        table.add_row(
            pattern,
            Text("\n".join(safe_text(names["float"].get(n, n), 40) for n in row.float)),
            Text("\n".join(safe_text(names["quant"].get(n, n), 40) for n in row.quant)),
            Text("\n".join(safe_text(v, 40) for v in row.quant_points)),
        )
    return table
