"""This host and each device side by side: a column each."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from visualquant.core.report import DeviceRow, Report
from visualquant.core.text import safe_text
from visualquant.reports.numbers import as_float, decibel, score, share

HOST_RUN = "host"


def device_table(report: Report) -> Table:
    """Outputs, task, the worst activation, differing codes and time, by machine."""
    runs = [HOST_RUN, *(d.run for d in report.devices)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = "The quantized model by machine"
    table.add_column("")
    for title in ("this host", *(safe_text(d.name, 40) for d in report.devices)):
        table.add_column(title)
    rows: list[tuple[str, list[str]]] = [
        ("machine", ["", *(safe_text(f"{d.machine} {d.processor}".strip(), 40) for d in report.devices)]),
        ("runtime", ["", *(safe_text(d.runtime, 40) for d in report.devices)]),
    ]
    for name in dict.fromkeys(o.quant_value for o in report.outputs):
        found = {o.run: o.metrics.get("sqnr_db") for o in report.outputs if o.quant_value == name}
        rows.append((f"output {safe_text(name, 30)} dB", [decibel(found.get(r)) if r in found else "—" for r in runs]))
    for metric in dict.fromkeys(t.metric for t in report.task):
        scores = {t.run: score(t.metric, t.quant) for t in report.task if t.metric == metric}
        rows.append((safe_text(metric, 30), [scores.get(r, "—") for r in runs]))
    rows.append(("worst activation dB", ["", *(_worst(report, d.run) for d in report.devices)]))
    rows.append(("codes unlike the host's", ["", *(_differing(d) for d in report.devices)]))
    times = {row.run: row for row in report.latency}
    if times:
        spent = [f"{times[r].total_p50_us / 1000:.2f} ms" if r in times else "—" for r in runs]
        rows.append(("one batch", spent))
    for title, cells in rows:
        table.add_row(Text(title), *(Text(c) for c in cells))
    return table


def _worst(report: Report, run: str) -> str:
    levels = [as_float(a.cumulative.get("sqnr_db")) for a in report.activations if a.run == run]
    known = [level for level in levels if level is not None]
    return f"{min(known):.1f}" if known else "—"


def _differing(device: DeviceRow) -> str:
    if not device.complete:
        return "lost on the way"
    if device.differing is None:
        return "—"
    return f"{share(device.differing)}, by up to {device.max_difference}" if device.max_difference else "none"
