"""The parts of a report that need samples; no runtime is imported here."""

from __future__ import annotations

import dataclasses

from visualquant.analysis.measured import DataFacts, RunResult
from visualquant.core.report import ActivationRow, DeviceRow, LatencyRow, OutputRow, RunRow, Status, TaskRow


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DataSections:
    """The parts of the report that need data."""

    runs: tuple[RunRow, ...]
    activations: tuple[ActivationRow, ...]
    outputs: tuple[OutputRow, ...]
    task: tuple[TaskRow, ...]
    latency: tuple[LatencyRow, ...]
    run: RunResult
    facts: DataFacts
    devices: tuple[DeviceRow, ...] = ()
    status: Status = "complete"
    status_reason: str | None = None
