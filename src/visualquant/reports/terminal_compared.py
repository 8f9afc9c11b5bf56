"""One table of several quantized files: a row a toolchain and scheme."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from visualquant.core.report import Report
from visualquant.core.text import safe_text
from visualquant.reports.numbers import decibel, share, short, size


def compared_table(report: Report) -> Table:
    """Size, bits, coverage, SQNR; outputs and task where samples were given."""
    with_data = any(row.output_sqnr_db is not None for row in report.compared)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = f"Against {safe_text(report.models.float.name, 60)}"
    for title in ("", "file", "made by", "schemes"):
        table.add_column(title)
    for title in ("size", "bits/weight", "quantized", "worst dB", "median dB"):
        table.add_column(title, justify="right", no_wrap=True)
    if with_data:
        for title in ("output dB", "task"):
            table.add_column(title, justify="right", no_wrap=True)
    table.add_column("first finding")
    for row in report.compared:
        cells = [
            Text(row.model),
            Text(safe_text(row.name, 40)),
            Text(safe_text(row.quantizer or "?", 24)),
            Text(", ".join(row.schemes) or "float"),
            Text(size(row.bytes)),
            Text("—" if row.bits_per_weight is None else f"{row.bits_per_weight:.2f}"),
            Text(share(row.coverage)),
            Text(decibel(row.sqnr_db_worst)),
            Text(decibel(row.sqnr_db_median)),
        ]
        if with_data:
            task = "—" if row.value is None else f"{row.metric} {short(100 * float(row.value))} %"
            cells += [Text(decibel(row.output_sqnr_db)), Text(task)]
        table.add_row(*cells, Text(row.first_finding or ""))
    return table
