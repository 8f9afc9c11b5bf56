"""`visualquant.compare`: the whole job in one call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from visualquant.analysis.weights import WeightOptions
from visualquant.core.alignment import Alignment
from visualquant.core.report import Report
from visualquant.session.data_sections import DataSections
from visualquant.session.pipeline import Stage, compare_models, load_model, read_pins

if TYPE_CHECKING:
    from visualquant.session.with_data import DataOptions


def compare(
    float_path: Path | str,
    quant_path: Path | str,
    *,
    what_if: bool = False,
    data_root: Path | str | None = None,
    threads: int | None = None,
    progress: Stage | None = None,
    cancel: Callable[[], bool] | None = None,
    command: str = "",
    data: DataOptions | str | Path | None = None,
    pins: Path | str | None = None,
    encodings: Path | str | None = None,
) -> Report:
    """Compares a float model with its quantized counterpart.

    Args:
        float_path: the reference.
        quant_path: the quantized model.
        what_if: also measure what other schemes would give for each weight (two more reads).
        data_root: a further folder in which (links to) external tensor data may lie.
        threads: of the kernels; all cores by default.
        progress: called with a stage in words, what is done and all of it (0 where unknown).
        cancel: asked often; True stops with `CancelledError`.
        command: what to record as the command that ran.
        pins: a JSON file that fixes or forbids ties (see `visualquant align`).
        encodings: AIMET encodings that belong to the quantized file (found by themselves beside it).
        data: samples to run both models on: a path, "random", or `DataOptions`.

    Returns:
        The report; `visualquant.save(report, "out.vqz")` keeps it.

    Raises:
        InputError: a file can't be read; the message says what to do.
        CancelledError: `cancel` said so.
    """
    say: Stage = progress or (lambda _name, _done, _total: None)
    timings: dict[str, float] = {}
    start = time.perf_counter()
    say(f"reading {Path(float_path).name}", 0, 0)
    float_model = load_model(float_path, data_root=data_root)
    say(f"reading {Path(quant_path).name}", 0, 0)
    quant_model = load_model(quant_path, data_root=data_root, encodings=encodings)
    timings["read_s"] = time.perf_counter() - start
    options = WeightOptions(
        what_if=what_if,
        threads=threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        progress=lambda done, total: say("measuring weights", done, total),
        cancel=cancel,
    )
    sections: Callable[[Alignment], DataSections] | None = None
    if data is not None:
        from visualquant.session import with_data

        wanted = data if isinstance(data, with_data.DataOptions) else with_data.DataOptions(str(data))

        def run(alignment: Alignment) -> DataSections:
            return with_data.measure_data(
                (Path(float_path), Path(quant_path)),
                float_model,
                quant_model,
                alignment,
                wanted,
                progress=lambda done, total: say("running samples", done, total),
                cancel=cancel,
            )

        sections = run
    return compare_models(
        float_model,
        quant_model,
        options=options,
        stage=progress,
        command=command,
        timings=timings,
        data=sections,
        pins=None if pins is None else read_pins(pins, float_model, quant_model),
    )
