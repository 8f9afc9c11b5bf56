"""A report made ready for the window, off the main thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from visualquant.core.report import Report
from visualquant.viewmodel import tables
from visualquant.viewmodel.colours import METRICS, Coloured, MetricName, colour_by
from visualquant.viewmodel.sides import Pair, read_pair
from visualquant.viewmodel.tables import Table

Job = Callable[[Callable[[str, int, int], None], Callable[[], bool]], Report]
"""Makes or reads a report; gets a way to say progress and a question whether to stop."""


@dataclasses.dataclass(frozen=True)
class Message:
    """A line for the status bar; errors stay until the next action."""

    text: str
    error: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Opened:
    """A report with what would take long on the main thread."""

    source: str
    pair: Pair
    coloured: dict[MetricName, Coloured]
    layers: Table


def prepare(report: Report, source: str) -> Opened:
    """Everything of a report that is the same however it is shown; run off the main thread."""
    pair = read_pair(report)
    coloured = {m.name: colour_by(pair, m.name) for m in METRICS}
    return Opened(source, pair, coloured, tables.layers(pair, {name: c.values for name, c in coloured.items()}))
