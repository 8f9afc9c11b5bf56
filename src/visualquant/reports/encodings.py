"""Two encodings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from visualquant.core.report import EncodingRow
from visualquant.core.text import safe_text
from visualquant.reports.json_report import plain_text
from visualquant.reports.terminal import page


def dumps(rows: Sequence[EncodingRow]) -> str:
    """As JSON text."""
    return plain_text(msgspec.to_builtins(list(rows)))


def render(rows: Sequence[EncodingRow], first: str, second: str, out: TextIO | None = None) -> None:
    """Writes a table; what differs is marked."""
    with page(out) as console:
        if not rows:
            console.print("Both files encode every tensor alike.")
            return
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for title in ("tensor", "role", safe_text(first, 40), safe_text(second, 40), "differs in"):
            table.add_column(title)
        for row in rows:
            table.add_row(
                Text(safe_text(row.first_value or row.second_value or "", 40)),
                row.role,
                _encoding(row.first),
                _encoding(row.second),
                Text(", ".join(row.changed), style="yellow"),
            )
        console.print(table)


def _encoding(encoding: Mapping[str, str]) -> Text:
    if not encoding:
        return Text("—")
    axis = f", axis {encoding['axis']}" if encoding.get("axis") else ""
    grain = encoding["granularity"].replace("_", " ")
    zero = "" if encoding["zero_point"] == "0" else f", zero point {encoding['zero_point']}"
    return Text(f"{encoding['code_type']} {grain}{axis}, scale {encoding['scale']}{zero}")
