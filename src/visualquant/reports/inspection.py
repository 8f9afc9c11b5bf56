"""One model's inspection, for a terminal and as JSON."""

from __future__ import annotations

from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from visualquant.core.report import Inspection, SiteRow
from visualquant.core.text import safe_text
from visualquant.reports.json_report import dump_plain
from visualquant.reports.numbers import short, size
from visualquant.reports.terminal import findings_block, page
from visualquant.reports.terminal_weights import what_if_table


def dumps(inspection: Inspection) -> str:
    """As JSON text."""
    return dump_plain(inspection)


def render(inspection: Inspection, out: TextIO | None = None, *, top: int = 15) -> None:
    """Writes model facts, operators, parameters, checks and findings."""
    with page(out) as console:
        _render(console, inspection, top)


def _render(console: Console, inspection: Inspection, top: int) -> None:
    model = inspection.model
    console.print(Text(safe_text(inspection.sentence), style="bold"))
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("file", safe_text(model.name))
    facts.add_row("made by", safe_text(model.quantizer or model.producer or "not recorded"))
    facts.add_row("size", size(model.bytes + model.bytes_external))
    facts.add_row("nodes", f"{model.nodes:,}")
    facts.add_row("opset", ", ".join(f"{safe_text(d) or 'ai.onnx'} {v}" for d, v in model.opset.items()))
    facts.add_row("schemes", ", ".join(model.schemes) or "none (float)")
    if model.storage is not None:
        storage = model.storage
        facts.add_row("weights", f"{size(storage.weight_bytes)}, scales {size(storage.scale_bytes)}")
        facts.add_row(
            "bits per weight", f"{storage.bits_per_weight:.2f} ({storage.compression:.2f} times below float32)"
        )
    for check in inspection.checks:
        facts.add_row(check.name, Text(safe_text(check.message), style="" if check.ok else "yellow"))
    for note in model.notes:
        facts.add_row("note", safe_text(note))
    console.print(facts)
    console.print()
    console.print(_operators(inspection, top))
    if inspection.sites:
        console.print(_sites(inspection, top))
    if inspection.left_float:
        names = ", ".join(safe_text(n) for n in inspection.left_float[:top])
        console.print(Text(f"Layers with weights left in float ({len(inspection.left_float)}): {names}"))
        console.print(Text("Each one between quantized layers costs two conversions.", style="dim"))
    if inspection.weights:
        console.print(what_if_table(inspection.weights, range(len(inspection.weights)), top, console.width))
    console.print(findings_block(inspection.findings, top))


def _operators(inspection: Inspection, top: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title, justify in (("operator", "left"), ("count", "right"), ("quantized", "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for row in inspection.operators[:top]:
        name = safe_text(f"{row.domain}:{row.op_type}" if row.domain else row.op_type)
        table.add_row(Text(name), str(row.count), str(row.quantized or "—"))
    return table


def _sites(inspection: Inspection, top: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("tensor", "role", "stored as", "zero point", "scale"):
        table.add_column(title)
    ordered = sorted(inspection.sites, key=lambda s: s.role == "activation")
    for site in ordered[:top]:
        symmetric = "" if site.symmetric is None else "0" if site.symmetric else "asymmetric"
        table.add_row(Text(safe_text(site.value, 44)), site.role, _stored_as(site), symmetric, _scale(site))
    if len(ordered) > top:
        table.add_row(f"… and {len(ordered) - top} more", "", "", "", "")
    return table


def _stored_as(site: SiteRow) -> str:
    if site.problem is not None and site.code_type is None:
        return "does not fit"
    if site.code_type is None:
        return "set at run time"
    grain = {"per_tensor": "per tensor", "per_channel": f"per channel, axis {site.axis}"}.get(site.granularity or "")
    return f"{site.code_type} {grain or f'blocks of {site.block_size}, axis {site.axis}'}"


def _scale(site: SiteRow) -> str:
    if site.scale is None:
        return "—"
    low, high = site.scale
    return short(low) if low == high else f"{short(low)} … {short(high)}"
