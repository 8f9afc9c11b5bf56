"""`visualquant.compare`: the whole job in one call."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from visualquant.analysis.weights import WeightOptions
from visualquant.core.model import Model
from visualquant.core.report import Report
from visualquant.session.pipeline import Samples, Stage, compare_models, load_model, read_pins, timed

if TYPE_CHECKING:
    from visualquant.session.devices import DeviceOptions
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
    devices: DeviceOptions | None = None,
    pins: Path | str | None = None,
    encodings: Path | str | None = None,
    float_model: Model | None = None,
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
        devices: where the quantized model runs beside this host; needs `data`.
        float_model: what `load_model(float_path)` gave, where it is compared with several files.

    Returns:
        The report; `visualquant.save(report, "out.vqz")` keeps it.

    Raises:
        InputError: a file can't be read; the message says what to do.
        CancelledError: `cancel` said so.
    """
    say: Stage = progress or (lambda _name, _done, _total: None)
    spent: dict[str, float] = {}
    with timed(spent, "read_s"):
        if float_model is None:
            say(f"reading {Path(float_path).name}", 0, 0)
            float_model = load_model(float_path, data_root=data_root)
        say(f"reading {Path(quant_path).name}", 0, 0)
        quant_model = load_model(quant_path, data_root=data_root, encodings=encodings)
    options = WeightOptions(
        what_if=what_if,
        threads=threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        progress=lambda done, total: say("measuring weights", done, total),
        cancel=cancel,
    )
    with contextlib.ExitStack() as stack:
        samples: Samples | None = None
        if data is not None:
            from visualquant.session.with_data import DataOptions, DataRun

            paths, models = (Path(float_path), Path(quant_path)), (float_model, quant_model)
            wanted = data if isinstance(data, DataOptions) else DataOptions(str(data))
            if devices is not None:
                from visualquant.session.devices import DeviceRuns

                samples = stack.enter_context(DeviceRuns(paths, models, wanted, devices, stage=say, cancel=cancel))
            else:
                samples = stack.enter_context(
                    DataRun(
                        paths,
                        models,
                        wanted,
                        progress=lambda done, total: say("running samples", done, total),
                        cancel=cancel,
                    )
                )
        return compare_models(
            float_model,
            quant_model,
            options=options,
            stage=progress,
            command=command,
            timings=spent,
            samples=samples,
            pins=None if pins is None else read_pins(pins, float_model, quant_model),
        )
